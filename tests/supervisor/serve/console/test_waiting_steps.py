"""The page of a job says in words why each open step waits, and why the whole job waits."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.types.events import Child, HandoffIssued
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import JobId, create_job_id
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.presence import HandoffWait, Node
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.console.job_routes import read_job
from tests.doubles.call_questions import ask
from tests.doubles.handoffs import a_handoff, a_spec
from tests.doubles.jobs import a_job, expire_lease, handoff_key, issued_event, version_of
from tests.supervisor.many_rows import submit_rows
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.shell import Shell

RATE_LIMIT = "rate limit (claude-haiku-5-5)"
"""The words of an agent whose provider refuses its model."""


def why(visitor: Visitor, job_id: JobId, issued: HandoffIssued) -> str:
    """Return the state and the reason in the row of an open step, with N for the seconds."""
    page = visitor.get(f"/jobs/{job_id}").text
    row = rf'<td class="mono">{re.escape(issued.handoff_id)}</td><td class="(\w+)">\1</td>'
    ((state, reason),) = re.findall(rf'{row}<td class="text">(.*?)</td>', page)
    return f"{state}: {re.sub('[0-9]+ s ', 'N s ', unescape(reason))}"


def waits(visitor: Visitor, job_id: JobId) -> list[str]:
    """Return the section Waits, with TIME for each time."""
    page = visitor.get(f"/jobs/{job_id}").text
    lines = re.findall(r'<li class="waiting">(.*?)</li>', page)
    return [re.sub("[0-9-]+ [0-9:]+ UTC", "TIME", unescape(line)) for line in lines]


def open_step(shell: Shell, folder: Path) -> tuple[JobId, HandoffIssued]:
    """Return a job, and its handoff that waits in the queue of its specialist."""
    job_id = submit_rows(shell, folder, 1)
    shell.store.presence.announce_supervisor("s1", Node(slots=4))
    (issued,) = shell.open(job_id)
    return job_id, issued


def open_role(shell: Shell, role: str) -> tuple[JobId, HandoffIssued]:
    """Return a job, and its handoff of a role of the supervisor that no process has claimed."""
    job_id, spec = a_job(shell.store), a_spec(name=role).to_json()
    handoff = a_handoff(job_id=job_id, assigned_to=role, specialist=compute_digest(spec)).to_json()
    child = (
        Child(job_id=create_job_id(), limits=JobLimits()) if role == CHILD_JOB_SPECIALIST else None
    )
    facts = {"handoff": make_ref(handoff), "specialist": compute_digest(spec), "child": child}
    issued = issued_event("a.1", role, group=None).model_copy(update=facts)
    shell.store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version_of(shell.store, job_id),
            events=[issued],
            payloads=[handoff, spec],
            due_at=shell.store.connection.now() + 3_600,
        )
    )
    return job_id, issued


def test_a_step_names_its_specialist_and_the_busy_slots(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id = submit_rows(shell, tmp_path, 5)
    *busy, waiting = shell.open(job_id)
    for event in busy:
        shell.claim(job_id, event)

    assert why(local, job_id, waiting) == (
        f"queued: waits for {waiting.assigned_to}: 4 of 4 slots are busy"
    )


def test_a_step_names_its_specialist_that_no_worker_serves(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    role = issued.assigned_to

    shell.leave()

    assert why(local, job_id, issued) == f"queued: waits for {role}, which no worker serves"
    assert waits(local, job_id) == [
        f"step {issued.step_id} waits for a worker of `{role}`: start one"
    ]


def test_a_step_without_a_slot_names_the_rate_limit_the_model_and_the_seconds(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    assert shell.claim(job_id, issued).defer(600, RATE_LIMIT)

    assert why(local, job_id, issued) == f"queued: waits N s for its provider: {RATE_LIMIT}"


def test_a_step_with_a_slot_names_the_rate_limit_the_model_and_the_seconds(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    handoff = handoff_key(shell.store, job_id, shell.claim(job_id, issued).handoff_id)
    shell.store.connection.redis.hset(handoff, "doing", str(HandoffWait(RATE_LIMIT, 12)))

    assert why(local, job_id, issued) == f"running: waiting 12 s: {RATE_LIMIT}, on worker:1"


def test_a_step_whose_tool_call_needs_an_approval_names_the_tool(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    ask(shell.claim(job_id, issued))

    assert why(local, job_id, issued) == "queued: waits for approval of send_mail"
    assert waits(local, job_id) == [
        "the job waits for an approval of a call of send_mail by a person since TIME:"
        " approve the call or reject it"
    ]


def test_a_step_of_a_paused_specialist_names_the_reason_of_the_pause(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    role = issued.assigned_to
    shell.store.pauses.pause(role, "bad key")
    shell.claim(job_id, issued)
    line = f"step {issued.step_id} waits for `{role}`, which is paused (bad key): unpause it"

    assert why(local, job_id, issued) == f"queued: waits for {role}, which is paused"
    assert waits(local, job_id) == [line]
    assert line in unescape(local.get("/").text)


def test_a_step_whose_message_is_a_dead_letter_says_so(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    text = shell.store.payloads.get(job_id, [issued.handoff.digest])[issued.handoff.digest]
    assert shell.store.dead_letters.add_unreadable(
        issued.assigned_to, "unreadable", text, patience_s=0
    )

    assert why(local, job_id, issued) == "queued: waits, because its message is a dead letter"


def test_a_step_whose_worker_is_lost_says_that_it_is_published_again(
    shell: Shell, local: Visitor, tmp_path: Path
) -> None:
    job_id, issued = open_step(shell, tmp_path)
    expire_lease(shell.store, shell.claim(job_id, issued))
    assert shell.store.due_work.sweep().due[job_id] == [issued.handoff_id]

    assert why(local, job_id, issued) == (
        "queued: its message or its worker was lost, and the sweeper publishes it again"
    )


def test_a_role_of_the_supervisor_that_is_paused_is_named(shell: Shell, local: Visitor) -> None:
    job_id, issued = open_role(shell, "planner")
    shell.store.pauses.pause("planner", "")

    assert why(local, job_id, issued) == "queued: waits for planner, which is paused"


def test_a_role_of_the_supervisor_names_the_busy_slots_of_the_supervisors(
    shell: Shell, local: Visitor
) -> None:
    shell.store.presence.announce_supervisor("s1", Node(slots=4))
    shell.claim(*open_role(shell, "judge"))
    job_id, issued = open_role(shell, "planner")

    assert why(local, job_id, issued) == (
        "queued: waits for a supervisor: 1 of 2 slots for roles are busy"
    )


def test_a_role_without_a_supervisor_says_so(shell: Shell, local: Visitor) -> None:
    job_id, issued = open_role(shell, "planner")

    assert why(local, job_id, issued) == "queued: waits for a supervisor, and none runs"
    assert waits(local, job_id) == ["the job waits for a supervisor: start one"]


def test_a_step_of_a_sub_supervisor_waits_for_its_child_job(shell: Shell) -> None:
    job_id, _ = open_role(shell, CHILD_JOB_SPECIALIST)

    (step,) = read_job(shell.store, job_id).open_steps

    assert step.why == "waits for a supervisor, which begins its child job"


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        (ApprovalOf.PLAN, "an approval of its plan"),
        (ApprovalOf.RESEARCH, "an approval of its research"),
        (ApprovalOf.ANSWER, "an approval of its answer"),
        (ApprovalOf.COST, "an approval of its cost"),
        (ApprovalOf.STEP, "an approval of a step"),
        (ApprovalOf.FAILURE, "a decision about a failed step"),
    ],
)
def test_a_job_names_the_answer_that_a_person_must_give(
    what: ApprovalOf, answer: str, jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)
    jobs.store.presence.announce_supervisor("s1")
    asked = {"asked_last": "7", "approval:7": what.value}
    jobs.store.connection.redis.hset(keys.progress(job_id), mapping=asked)
    jobs.store.connection.redis.hset(keys.job(job_id), "asked_at", "1000")

    assert waits(local, job_id) == [
        f"the job waits for {answer} by a person since TIME: approve it or reject it"
    ]


def test_a_job_names_the_spent_budget_that_a_person_must_decide_about(
    jobs: Client, local: Visitor
) -> None:
    job_id = a_job(jobs.store)
    jobs.store.presence.announce_supervisor("s1")
    asked = {"asks": "its budget is spent", "asked_at": "1000"}
    jobs.store.connection.redis.hset(keys.job(job_id), mapping=asked)

    assert waits(local, job_id) == [
        "the job waits for a decision by a person since TIME, because its budget is spent:"
        " continue the job with a higher limit, or cancel the job"
    ]


@pytest.mark.parametrize(
    ("specialists", "reason"),
    [
        ((), "a worker of any specialist: start one"),
        (("poet", "clerk"), "a worker of `poet` or `clerk`: start one"),
    ],
)
def test_a_job_that_no_worker_can_begin_names_the_specialists(
    specialists: tuple[str, ...], reason: str, jobs: Client, local: Visitor
) -> None:
    job_id = jobs.submit(Request("Write it", specialists=specialists))
    jobs.store.presence.announce_supervisor("s1")

    assert waits(local, job_id) == [f"the job waits for {reason}"]
