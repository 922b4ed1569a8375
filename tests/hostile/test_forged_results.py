"""A supervisor uses only results of the worker that holds the claim, and the honest result counts
also after a forged one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.specialists import load_specialists
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.trust.event_signatures import sign_events
from handoff_queue.shared.types.errors import LeaseLost
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    CallInQuestion,
    EventRefused,
    HandoffFinished,
    JobStatus,
    UserMessageTaken,
)
from handoff_queue.shared.types.handoff import AgentHandoff, HandoffResult, ResultStatus, make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.origins import DOCUMENT, Origins
from handoff_queue.shared.types.presence import Announcement
from handoff_queue.workers.specialists import BUILT_IN
from tests.doubles.jobs import handoff_key
from tests.hostile.signed_system import (
    ANALYST,
    FORGED,
    GENERALIST,
    RESEARCHER,
    SignedSystem,
    issued_in,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def handoff_of(store: Store, job_id: JobId) -> AgentHandoff:
    issued = issued_in(store, job_id)
    assert issued is not None
    digest = issued.handoff.digest
    return AgentHandoff.from_json(store.payloads.get(job_id, [digest])[digest])


def forged_result(store: Store, job_id: JobId) -> HandoffResult:
    handoff = handoff_of(store, job_id)
    return HandoffResult(
        handoff_id=handoff.handoff_id,
        job_id=job_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        status=ResultStatus.OK,
        output=FORGED,
    )


def forged_event(store: Store, job_id: JobId) -> HandoffFinished:
    return build_handoff_finished_event(forged_result(store, job_id), "attacker:1")


def write_to_journal(store: Store, job_id: JobId, text: str) -> None:
    """Append a text to a journal as an event, as an attacker with the URL of Redis can."""
    arguments = [text, "{}", "[]"]
    assert (
        store.connection.run_script("append_commuting", [keys.job(job_id), keys.DUE], arguments) > 0
    )


def write_batch_to_journal(store: Store, job_id: JobId, texts: Sequence[str]) -> None:
    """Append texts to a journal at once, and make the job due."""
    now_ms = int(store.connection.now() * 1000)
    pipe = store.connection.redis.pipeline(transaction=True)
    for text in texts:
        pipe.rpush(keys.log(job_id), f"{now_ms} {text}")
    pipe.zadd(keys.DUE, {job_id: now_ms})
    pipe.execute()


def signed_as_decision(signed: SignedSystem, job_id: JobId, event: HandoffFinished) -> str:
    """Return an event that the researcher's worker has signed as a decision."""
    place = signed.store.journal.read_all(job_id)[-1].version
    trust = signed.trust_of("worker-researcher")
    return sign_events(trust, job_id, [event], after=place)[0]


def raw_end(store: Store, job_id: JobId) -> bytes:
    """Return the end of a specialist's handoff as the journal holds it, with its signature."""
    issued = issued_in(store, job_id)
    assert issued is not None
    for recorded in store.journal.read(job_id):
        event = recorded.event
        if isinstance(event, HandoffFinished) and event.handoff_id == issued.handoff_id:
            return recorded.raw
    raise AssertionError(f"{job_id} has no result")


def test_a_result_without_a_signature_is_a_dead_letter(signed: SignedSystem, held: JobId) -> None:
    text = forged_event(signed.store, held).to_json()
    write_to_journal(signed.store, held, text)
    letter = signed.wait_for_letter("(handoff_finished) is not used: it has no signature")
    assert letter.body == text


def test_a_result_that_the_worker_of_another_role_signed_is_a_dead_letter(
    signed: SignedSystem, held: JobId
) -> None:
    analyst = signed.store_of("worker-analyst")
    analyst.journal.append(held, forged_event(signed.store, held))
    signed.wait_for_letter("signed by worker-analyst, and the handoff")


@pytest.mark.parametrize("identity", ["client", "console"])
def test_a_result_that_no_worker_signed_is_a_dead_letter(
    signed: SignedSystem, held: JobId, identity: str
) -> None:
    event = forged_event(signed.store, held)
    trust = signed.trust_of(identity)
    signature = trust.sign_for((), "fact", held, "word", event.to_json())
    stamp = f"fact/1/word/{signature}"
    write_to_journal(signed.store, held, f'{event.to_json()[:-1]},"signature":"{stamp}"}}')
    signed.wait_for_letter(f"it is signed by {identity}, which may not sign result")


def test_a_result_of_a_worker_without_the_claim_is_a_dead_letter(
    signed: SignedSystem, held: JobId
) -> None:
    other = signed.store_of("worker-generalist")
    other.journal.append(held, forged_event(signed.store, held))
    signed.wait_for_letter("its signer has no claim on the handoff")


def test_a_result_that_was_changed_after_signing_is_a_dead_letter(
    signed: SignedSystem, held: JobId
) -> None:
    trust = signed.trust_of("worker-generalist")
    honest = forged_event(signed.store, held)
    text = sign_events(trust, held, [honest])[0]
    write_to_journal(signed.store, held, text.replace('"turns":0', '"turns":7'))
    signed.wait_for_letter("is not worker-generalist's signature of this text")


def test_a_result_of_another_job_is_a_dead_letter(signed: SignedSystem, held: JobId) -> None:
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(held, 60) is JobStatus.OK
    signed.jobs.pause(GENERALIST)
    second = signed.submit()
    wait_until(lambda: issued_in(signed.store, second), expected="the handoff")
    write_to_journal(signed.store, second, raw_end(signed.store, held).decode())
    signed.wait_for_letter("is not worker-generalist's signature of this text")
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(second, 60) is JobStatus.OK


def test_the_result_of_an_ended_handoff_is_not_a_second_result(
    signed: SignedSystem, held: JobId
) -> None:
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(held, 60) is JobStatus.OK
    before = signed.jobs.result(held).answer
    write_to_journal(signed.store, held, raw_end(signed.store, held).decode())
    signed.wait_for_letter("it is a replay: the handoff")
    assert signed.jobs.result(held).answer == before


def test_a_worker_cannot_write_a_second_result_of_another_role_as_a_decision(
    signed: SignedSystem, held: JobId
) -> None:
    """A decision has no word, so nothing would bind the result to a claim."""
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(held, 60) is JobStatus.OK
    text = signed_as_decision(signed, held, forged_event(signed.store, held))
    write_to_journal(signed.store, held, text)
    signed.wait_for_letter("it is signed by worker-researcher, which makes no decisions")
    refused = signed.jobs.store.journal.read(held)[-1].event
    assert isinstance(refused, EventRefused)


def test_a_follower_of_a_journal_refuses_a_second_result_of_another_role(
    signed: SignedSystem, held: JobId
) -> None:
    """A reader of new events only does not know the handoffs of the earlier ones."""
    signed.jobs.unpause(GENERALIST)
    assert signed.jobs.wait(held, 60) is JobStatus.OK
    event = forged_event(signed.store, held)
    version = signed.store_of("worker-researcher").journal.append(held, event)
    refused = signed.jobs.store.journal.read(held, version - 1)[0].event
    assert isinstance(refused, EventRefused)


@pytest.fixture
def unserved(signed: SignedSystem) -> JobId:
    """Return a job whose handoff waits: a worker of its role has announced itself and is gone."""
    specs = load_specialists(BUILT_IN)
    signed.store_of("worker-researcher").presence.announce(
        Announcement(worker="gone", specialists=(specs[RESEARCHER],), slots=1, model="offline")
    )
    job_id = signed.submit(RESEARCHER)
    wait_until(lambda: issued_in(signed.store, job_id), expected="the handoff")
    return job_id


def claim_of(store: Store, job_id: JobId) -> HandoffClaim:
    """Claim the handoff of a job with this store."""
    issued = issued_in(store, job_id)
    assert issued is not None
    wanted = ClaimRequest(job_id, HandoffId(issued.handoff_id), issued.handoff.digest, "w:1")
    claim = store.claims.claim(wanted)
    assert claim.verdict is ClaimVerdict.GRANTED
    return claim


def end(claim: HandoffClaim, result: HandoffResult, origins: Origins = ()) -> None:
    event = build_handoff_finished_event(result, "attacker:1")
    if origins:
        event = event.model_copy(update={"origins": origins})
    claim.finish(claim.build_finish_request(result, (event,)))


@pytest.mark.parametrize("stored", [None, b"=other", b"=" + b"[" * 100_000])
def test_a_question_whose_arguments_cannot_be_read_hides_no_answer(
    signed: SignedSystem, unserved: JobId, stored: bytes | None
) -> None:
    """A worker asks about a call, and its handoff ends well afterwards."""
    attacker = signed.store_of("worker-researcher")
    claim = claim_of(attacker, unserved)
    text = "{}" if stored is None else stored[1:].decode()
    call = CallInQuestion(
        handoff_id=claim.handoff_id,
        call_id="toolu_1",
        tool="send_mail",
        arguments=make_ref(text),
        input_schema=make_ref("{}"),
    )
    asked = ApprovalAsked(what=ApprovalOf.TOOLS, why="it acts", wait_s=60, call=call)
    signed_text = sign_events(signed.trust_of("worker-researcher"), unserved, [asked])[0]
    redis = attacker.connection.redis
    if stored is not None:
        redis.hsetnx(keys.blobs(unserved), compute_digest(text), stored)
    redis.rpush(keys.log(unserved), f"{int(attacker.connection.now() * 1000)} {signed_text}")
    end(claim, forged_result(attacker, unserved))
    assert signed.jobs.wait(unserved, 60) is JobStatus.OK

    result = signed.jobs.result(unserved)

    assert FORGED in str(result.answer)
    (approval,) = result.approvals
    assert approval["call"]["arguments"] is None


def test_the_result_of_a_job_whose_step_needs_input_has_all_its_payloads(
    signed: SignedSystem, unserved: JobId
) -> None:
    """The consequences of a role's result name its digest."""
    store = signed.store_of("worker-researcher")
    claim = claim_of(store, unserved)
    needs = {"status": ResultStatus.NEEDS_INPUT, "output": None, "needs": "The name of the city."}
    end(claim, forged_result(store, unserved).model_copy(update=needs))
    assert signed.jobs.wait(unserved, 60) is JobStatus.FAILED

    assert signed.jobs.result(unserved).status is JobStatus.FAILED


def test_a_reader_of_redis_cannot_end_the_handoff_of_a_running_worker(
    signed: SignedSystem, unserved: JobId
) -> None:
    claim = claim_of(signed.store_of("worker-researcher"), unserved)
    redis = signed.store.connection.redis
    stored = redis.hget(handoff_key(signed.store, unserved, claim.handoff_id), "fence")
    with pytest.raises(LeaseLost):
        end(replace(claim, fence=stored.decode()), forged_result(signed.store, unserved))
    claim.renew()
    claim.release()


def test_a_worker_cannot_hide_a_result_of_another_role_behind_an_event_of_its_own(
    signed: SignedSystem, unserved: JobId
) -> None:
    researcher = signed.store_of("worker-researcher")
    own = claim_of(researcher, unserved)
    taken = UserMessageTaken(message_id="0" * 16, handoff_id=own.handoff_id, turn=1)
    forged = forged_event(signed.store, unserved)
    foreign = forged.model_copy(update={"handoff_id": HandoffId("write.1")})
    texts = sign_events(researcher.trust, unserved, [taken, foreign])
    write_batch_to_journal(signed.store, unserved, texts)
    signed.wait_for_letter("it is a replay: the handoff write.1 is not open")
    own.release()
    signed.jobs.cancel(unserved)


@pytest.mark.parametrize(
    ("identity", "origins"),
    [(None, 100), ("worker-analyst", 100), ("worker-analyst", 10_000)],
    ids=["unsigned", "unreadable", "too long to be read"],
)
def test_a_handoff_is_open_again_after_a_long_forged_end(
    signed: SignedSystem, unserved: JobId, identity: str | None, origins: int
) -> None:
    """No version can read an event with so many origins."""
    forged = forged_result(signed.store, unserved)
    attacker = signed.store_of(identity) if identity else signed.store
    end(claim_of(attacker, unserved), forged, (DOCUMENT,) * origins)
    signed.wait_for_letter(f"of {unserved}")

    key = handoff_key(signed.store, unserved, forged.handoff_id)
    state = partial(signed.store.connection.redis.hget, key, "state")
    wait_until(lambda: state() != b"done", expected="the handoff to be open")
    signed.jobs.cancel(unserved)


def test_a_forged_end_does_not_end_the_handoff_of_the_honest_worker(
    signed: SignedSystem, unserved: JobId
) -> None:
    """An attacker with the key of another role claims the handoff, and ends it in the store. The
    supervisor opens the handoff again, and the honest worker does it.
    """
    forged = forged_result(signed.store, unserved)
    end(claim_of(signed.store_of("worker-analyst"), unserved), forged)
    signed.wait_for_letter("signed by worker-analyst, and the handoff")

    signed.start(RESEARCHER, "worker-researcher", "handoff_queue.workers.app", RESEARCHER)

    assert signed.jobs.wait(unserved, 60) is JobStatus.OK
    result = signed.jobs.result(unserved)
    assert result.answer
    assert FORGED not in str(result)


def test_a_specialist_of_another_role_still_works(signed: SignedSystem) -> None:
    assert signed.jobs.wait(signed.submit(ANALYST), 60) is JobStatus.OK
