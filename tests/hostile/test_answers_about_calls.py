"""A person, or the end of the time, answers the question about a call of a tool. The answer names
texts of its agent only, and no worker of another agent reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.exceptions import NoPermissionError

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.store.tool_call_approvals import answer_call
from handoff_queue.shared.types.events import AnsweredCall, Approved
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows.parser import parse_workflow
from tests.doubles.call_questions import ask
from tests.doubles.jobs import a_job, finish, granted_claim, issue
from tests.hostile.redis_with_users import Server
from tests.supervisor.shell import SETTINGS, Shell
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ATTACKER = "worker-analyst"
WORKFLOW = """\
description: a letter
review: false
steps:
  - {id: find, specialist: analyst, task: "Find the date."}
  - {id: ask, specialist: analyst, task: "Ask."}
  - {id: write, specialist: writer, depends_on: [find], task: "Write the private letter."}
"""
GO_ON = Approvals(what=(ApprovalOf.TOOLS,), timeout_s=60, on_timeout=OnTimeout.GO_ON)


@pytest.fixture
def shell(server: Server) -> Iterator[Shell]:
    queues = (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)
    shell = Shell(server.address, make_app("test", server.address, SETTINGS, queues))
    shell.serve("analyst", "writer")
    yield shell
    shell.leave()
    shell.close()


def test_an_answer_after_the_time_names_no_handoff_of_another_agent(
    server: Server, shell: Shell
) -> None:
    """The supervisor commits the answer together with the next handoff. The worker chooses the
    time of both.
    """
    request = Request("My salary.", workflow=parse_workflow(WORKFLOW), approvals=GO_ON)
    job_id = shell.jobs.submit(request)
    shell.advance(job_id)
    issued = {str(event.step_id): event for event in shell.open(job_id)}
    handoff_id, digest = HandoffId("ask.1"), issued["ask"].handoff.digest
    with server.store(ATTACKER) as worker:
        ask(worker.claims.claim(ClaimRequest(job_id, handoff_id, digest, "w:1")), wait_s=1)
    asked_at = shell.store.connection.now()
    name = f"decided:{shell.store.journal.read(job_id)[-1].version}"
    shell.do(job_id, issued["find"])
    wait_until(lambda: shell.store.connection.now() > asked_at + 1, expected="the end of the time")

    shell.advance(job_id)

    committed = shell.kinds(job_id)[-2:]
    assert committed == ["approved", "handoff_issued"]
    (write,) = (event for event in shell.open(job_id) if event.step_id == "write")
    key = keys.handoff(job_id, "analyst", handoff_id)
    with server.connected_as(ATTACKER) as attacker:
        answer = attacker.hget(keys.job(job_id), name) or attacker.hget(key, name)
        assert b"approved" in answer
        assert write.handoff.digest not in answer.decode()
    shell.jobs.cancel(job_id)
    shell.advance(job_id)


def test_no_worker_of_another_agent_reads_the_answer_of_a_person(server: Server) -> None:
    handoff_id = HandoffId("write.1")
    with (
        server.store("supervisor") as supervisor,
        server.store("client") as client,
        server.store("worker-writer") as honest,
        server.connected_as(ATTACKER) as attacker,
    ):
        job_id = a_job(supervisor)
        issue(supervisor, job_id, handoff_id, role="writer")
        ask(granted_claim(honest, job_id, handoff_id))
        asked = supervisor.journal.read(job_id)[-1].version
        approve(client, job_id, handoff_id, asked)

        assert attacker.hget(keys.job(job_id), f"decided:{asked}") is None
        with pytest.raises(NoPermissionError):
            attacker.hget(keys.handoff(job_id, "writer", handoff_id), f"decided:{asked}")
        again = granted_claim(honest, job_id, handoff_id)
        assert again.read_call_answers()["toolu_1"].arguments == {"to": "b@example.com"}
        finish(again)


def approve(client: Store, job_id: JobId, handoff_id: HandoffId, asked: int) -> None:
    """Approve a call with other arguments, and a note."""
    note, arguments = "Not to the old address.", '{"to": "b@example.com"}'
    call = AnsweredCall(handoff_id=handoff_id, call_id="toolu_1")
    answer = Approved(asked=asked, note=make_ref(note), arguments=make_ref(arguments), call=call)
    texts = [note, arguments]
    assert answer_call(client.connection, client.trust, job_id, answer, handoff_id, texts)
