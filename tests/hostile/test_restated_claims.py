"""A worker that was taken over adds a claim under the name of another step. No reader of its result
uses the claim: no later agent, and not the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.local.redis_users import create_users
from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.redis.acl import RedisDatabase
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.handoff import (
    AgentHandoff,
    Citation,
    Claim,
    ResultStatus,
    build_result,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows.parser import parse_workflow
from handoff_queue.workers.specialists import BUILT_IN
from tests.hostile.signed_system import (
    ANALYST,
    DOCUMENTS,
    FORGED,
    GENERALIST,
    WRITER,
    SignedSystem,
    settings_of,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

USER = f"worker-{WRITER}"
DOCUMENT = DOCUMENTS["redis.md"].decode()


@dataclass(frozen=True)
class Attacker:
    """A program with the Redis user and the key of the writer's worker."""

    store: Store
    readers: Store
    """The client's store. The worker may not read the journal."""

    def issued(self, job_id: JobId, step: str) -> AgentHandoff | None:
        """Return the newest handoff of a step."""
        for recorded in reversed(self.readers.journal.read(job_id)):
            event = recorded.event
            if isinstance(event, HandoffIssued) and event.step_id == step:
                digest = event.handoff.digest
                text = self.readers.payloads.get(job_id, [digest])[digest]
                return AgentHandoff.from_json(text)
        return None

    def end_with(self, job_id: JobId, step: str, output: str, *claims: Claim) -> None:
        """Claim the handoff of a step, and end it with these claims."""
        handoff = wait_until(lambda: self.issued(job_id, step), expected=f"the handoff of {step}")
        assert handoff is not None
        wanted = ClaimRequest(
            job_id, HandoffId(handoff.handoff_id), compute_digest(handoff.to_json()), "w:1"
        )
        claim = self.store.claims.claim(wanted)
        assert claim.verdict is ClaimVerdict.GRANTED
        result = build_result(handoff, status=ResultStatus.OK, output=output, claims=claims)
        event = build_handoff_finished_event(result, "w:1")
        # an attacker also names no step whose claims it repeats, or a wrong one
        event = event.model_copy(update={"restated": (StepId("find"), StepId("none"))})
        claim.finish(claim.build_finish_request(result, (event,)))


@pytest.fixture
def attacker(signed: SignedSystem) -> Iterator[Attacker]:
    users = create_users({USER: [WRITER]}, RedisDatabase())
    with redis.Redis.from_url(signed.url) as admin:
        admin.execute_command("ACL", "SETUSER", USER, "on", f">{USER}", *users.rules[USER])
        address = signed.url.rpartition("@")[2]
        settings = settings_of(signed.keys, USER)
        store = open_store(f"redis://{USER}:{USER}@{address}", settings)
        spec = load_specialists(BUILT_IN)[WRITER]
        store.presence.announce(
            Announcement(worker="w:1", specialists=(spec,), slots=1, model="offline")
        )
        yield Attacker(store, signed.jobs.store)
        store.connection.close()
        admin.execute_command("ACL", "DELUSER", USER)


def claim_of(name: str, quote: str) -> Claim:
    source = Citation(
        source="redis.md", digest=compute_digest(DOCUMENT), start=0, end=len(DOCUMENT), quote=quote
    )
    return Claim(id=name, text=quote, sources=(source,))


WORKFLOW = f"""\
description: a report
review: false
steps:
  - {{id: find, specialist: {GENERALIST}, task: "What is Redis?"}}
  - {{id: write, specialist: {WRITER}, depends_on: [find], task: "Write about Redis."}}
"""
NEXT_STEP = f'  - {{id: check, specialist: {ANALYST}, depends_on: [write], task: "Check it."}}\n'


@pytest.mark.parametrize("next_step", ["", NEXT_STEP], ids=["the answer", "a later agent"])
def test_no_agent_and_no_answer_has_a_claim_that_no_result_of_its_step_states(
    signed: SignedSystem, attacker: Attacker, next_step: str
) -> None:
    request = Request(
        "What is Redis?", workflow=parse_workflow(WORKFLOW + next_step), documents=DOCUMENTS
    )
    job_id = signed.jobs.submit(request)
    forged, own = claim_of("find.c9", FORGED), claim_of("write.c1", DOCUMENT)
    attacker.end_with(job_id, "write", "It is so [find.c9]. Redis [write.c1].", forged, own)

    assert signed.jobs.wait(job_id, 60) in (JobStatus.OK, JobStatus.PARTIAL)
    assert FORGED not in str(signed.jobs.result(job_id).citations)
