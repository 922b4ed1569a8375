"""Questions about tool calls: other work goes on, and a question without an answer ends by the
policy of the job.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import (
    AnsweredCall,
    ApprovalAsked,
    Approved,
    CallInQuestion,
    JobStatus,
    Rejected,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.lifecycle.approval_policy import build_waiting_fields
from handoff_queue.supervisor.lifecycle.commands import (
    ApproveOnTimeout,
    EndJob,
    PublishAgain,
    RemindUser,
)
from handoff_queue.supervisor.lifecycle.job_end import compute_next_due
from handoff_queue.supervisor.lifecycle.observations import ObservedHandoff
from tests.doubles.simulated_job import LEASE_S, SimulatedJob, finish_steps

TOOLS = ApprovalOf.TOOLS


def asking_job(webhook_url: str | None = None, **policy: Any) -> SimulatedJob:
    """Return a job with two steps, of which the first asks about a call."""
    approvals = Approvals.model_validate({"what": (TOOLS,), **policy})
    job = SimulatedJob(JobLimits(max_seconds=1_000), approvals=approvals, webhook_url=webhook_url)
    job.advance()
    job.make_plan(a="", b="")
    job.advance()
    ask(job, "a.1")
    return job


def ask(job: SimulatedJob, handoff_id: str) -> int:
    """Let a handoff ask about a call. Return the version of the question."""
    call = CallInQuestion(
        handoff_id=HandoffId(handoff_id),
        call_id="toolu_1",
        tool="send_mail",
        arguments=make_ref("{}"),
        input_schema=make_ref("{}"),
    )
    wait_s = job.state.submitted.approvals.wait_s
    job.append(ApprovalAsked(what=TOOLS, why="so it is", wait_s=wait_s, call=call))
    return job.state.version


def test_only_a_job_with_these_approvals_lets_its_handoffs_ask() -> None:
    asking = asking_job()
    silent = SimulatedJob(JobLimits(max_seconds=1_000))
    silent.advance()
    silent.make_plan(a="")
    silent.advance()

    handoff_id = HandoffId("a.1")
    wait_s = asking.state.submitted.approvals.wait_s
    assert asking.handoffs[handoff_id].call_approval_s == wait_s
    assert silent.handoffs[handoff_id].call_approval_s is None


def test_other_steps_go_on_while_a_call_waits() -> None:
    job = asking_job()
    job.finish("b")

    assert job.next_commands() == ()
    assert [call.tool for call in job.state.open_calls] == ["send_mail"]
    assert job.state.question is None


@pytest.mark.parametrize("answer", [Approved, Rejected])
def test_an_answered_call_publishes_its_handoff_again(answer: type[Approved | Rejected]) -> None:
    job = asking_job()
    job.append(answer(asked=job.state.version))
    released = ObservedHandoff("issued", lost=True, queued=True)

    assert job.state.open_calls == ()
    assert job.next_commands(job.observations(**{"a.1": released})) == (
        PublishAgain((HandoffId("a.1"),)),
    )


def test_a_second_answer_changes_nothing() -> None:
    job = asking_job()
    asked = job.state.version
    job.append(Rejected(asked=asked))
    before = job.state
    job.append(Approved(asked=asked))

    assert job.state.asked_calls == before.asked_calls
    assert job.state.approved == ()


def test_a_question_of_a_handoff_that_has_ended_is_closed() -> None:
    job = asking_job()
    finish_steps(job, "a")

    assert job.state.asked_calls == ()


def test_without_an_answer_in_time_the_job_stops() -> None:
    job = asking_job(timeout_s=60)
    assert compute_next_due(job.state, job.now, LEASE_S) == job.state.as_of + 60
    job.now += 61

    (end,) = job.next_commands()

    assert isinstance(end, EndJob)
    assert (end.status, end.reason) == (
        JobStatus.CANCELLED,
        "the call of send_mail was not approved within 60 s",
    )


def test_without_an_answer_in_time_the_call_counts_as_approved_if_the_job_says_so() -> None:
    job = asking_job(timeout_s=60, on_timeout=OnTimeout.GO_ON)
    asked = job.state.version
    job.now += 61

    call = AnsweredCall(handoff_id=HandoffId("a.1"), call_id="toolu_1")
    assert job.next_commands() == (ApproveOnTimeout(asked, call),)


def test_reminders_come_after_twice_the_wait() -> None:
    job = asking_job(timeout_s=60, on_timeout=OnTimeout.REMIND)
    asked = job.state.version
    job.now += 61
    assert job.next_commands() == (RemindUser(asked, 1),)
    job.advance()
    assert job.next_commands() == ()
    job.now += 120

    assert job.next_commands() == (RemindUser(asked, 2),)


def test_the_webhook_is_told_once_about_each_question() -> None:
    job = asking_job("https://example.org")
    first = job.state.version
    assert job.next_commands() == (RemindUser(first, 0),)
    job.advance()
    second = ask(job, "b.1")

    assert job.next_commands() == (RemindUser(second, 0),)
    job.advance()
    assert job.next_commands() == ()


def test_the_deadline_of_the_job_runs_while_a_call_waits() -> None:
    job = asking_job()
    job.now = job.state.deadline + 1
    job.advance()

    assert job.state.waited_s == 0
    assert job.state.ended
    assert job.state.asked_calls == ()


def test_two_questions_of_a_job_wait_at_the_same_time() -> None:
    job = asking_job()
    first = job.state.version
    second = ask(job, "b.1")
    fields = build_waiting_fields(job.state, job.state)
    assert fields["asked_last"] == str(second)

    job.append(Approved(asked=second))

    assert [call.version for call in job.state.open_calls] == [first]
    assert build_waiting_fields(job.state, job.state)["asked_last"] == str(first)
