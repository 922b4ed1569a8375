"""A quote is compared with working time, without waits for a person and pauses before a retry."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import (
    ApprovalAsked,
    EventRefused,
    HandoffFinished,
    JobEnded,
    JobStatus,
    RetryRequested,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.quoting.quote_history import compute_working_seconds
from tests.doubles.simulated_job import SimulatedJob

MANY_S = 90_000.0
LATE_S = 10**11
"""A time that a worker that was taken over can write into its entry of a journal: the year 5138."""


def job_that_asks_about_a_step(at: float | None = None) -> tuple[SimulatedJob, HandoffFinished]:
    """Return a job that only waits for the approval of a step, and the result of its other step.

    Args:
        at: the time that the worker of the result has written; None: the right time.
    """
    job = SimulatedJob(JobLimits())
    job.advance()
    job.make_plan(write="", send="")
    job.advance()
    question = ApprovalAsked(
        what=ApprovalOf.STEP, why="it acts", wait_s=9_000, steps=(StepId("send"),)
    )
    job.finish("send", "failed")
    job.append(question)
    now = job.now
    job.now = now if at is None else at
    job.finish("write")
    job.now = now
    assert job.state.is_only_asking
    result = job.events(HandoffFinished)[-1]
    assert isinstance(result, HandoffFinished)
    return job, result


def job_planned_after(seconds: float) -> SimulatedJob:
    """Return a job that was planned after `seconds`, and waits for approval of its plan."""
    job = SimulatedJob(JobLimits(), approvals=Approvals(what=(ApprovalOf.PLAN,)))
    job.advance()
    job.now += seconds
    job.make_plan(a="")
    job.advance()
    return job


def job_ended_after(seconds: float) -> SimulatedJob:
    job = SimulatedJob(JobLimits())
    job.now += seconds
    job.append(JobEnded(status=JobStatus.PARTIAL))
    return job


def test_the_wait_for_a_person_is_not_work_and_the_score_excludes_it() -> None:
    job = job_planned_after(4.0)
    job.now += MANY_S
    job.approve()
    job.now += 5.0
    job.append(JobEnded(status=JobStatus.OK))

    state = fold(job.state.job_id, None, job.journal)
    assert state is not None
    assert compute_working_seconds(state.job_id, job.journal) == 9.0 == state.worked_s


def test_an_open_question_at_the_end_of_a_job_is_not_working_time() -> None:
    job = job_planned_after(4.0)
    job.now += MANY_S
    job.append(JobEnded(status=JobStatus.CANCELLED))

    assert compute_working_seconds(job.state.job_id, job.journal) == 4.0


def test_later_work_of_a_job_is_added_without_the_time_between() -> None:
    job = job_ended_after(10.0)
    job.now += MANY_S
    job.append(RetryRequested())
    job.now += 3.0
    job.append(JobEnded(status=JobStatus.OK))

    assert compute_working_seconds(job.state.job_id, job.journal) == 13.0


def test_the_time_of_a_refused_event_moves_no_deadline() -> None:
    """A worker may have written that time."""
    job = job_planned_after(4.0)
    before = job.state
    job.now += MANY_S
    job.append(EventRefused(reason="it has no signature"))

    assert (job.state.as_of, job.state.waited_s) == (before.as_of, before.waited_s)
    assert job.state.deadline == before.deadline
    assert job.state.tip == job.now


def test_a_result_with_an_early_time_makes_no_wait_longer() -> None:
    job, _ = job_that_asks_about_a_step(at=0.0)
    honest_job, _ = job_that_asks_about_a_step()
    for waiting_job in (job, honest_job):
        waiting_job.now += 5.0
        waiting_job.approve()

    assert job.state.waited_s == honest_job.state.waited_s == 5.0
    assert job.state.deadline == honest_job.state.deadline


@pytest.mark.parametrize("at", [0.0, LATE_S])
def test_a_second_result_of_a_handoff_moves_no_deadline(at: float) -> None:
    """A worker can store the end of its handoff again. The deadline of a job, and so the time for
    which Redis keeps its texts, must not move by thousands of years.
    """
    job, result = job_that_asks_about_a_step()
    now, deadline = job.now, job.state.deadline
    job.now = at
    job.append(result)
    job.now = now + 5.0
    job.approve()

    assert job.state.waited_s == 5.0
    assert job.state.deadline == deadline + 5.0


@pytest.mark.parametrize("at", [0.0, LATE_S])
def test_a_result_with_a_false_time_counts_for_the_cap_of_the_day(at: float) -> None:
    job, honest_job = SimulatedJob(JobLimits()), SimulatedJob(JobLimits())
    usage = Usage(input_tokens=1_000, output_tokens=100)
    for running_job in (job, honest_job):
        running_job.advance()
        running_job.make_plan(a="")
        running_job.advance()
    job.now = at
    for running_job in (job, honest_job):
        running_job.finish("a", usage=usage)

    assert any(honest_job.state.verified_usage.today)
    assert job.state.verified_usage == honest_job.state.verified_usage
