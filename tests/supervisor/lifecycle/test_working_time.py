"""A quote is compared with working time, without waits for a person and pauses before a retry."""

from __future__ import annotations

from handoff_queue.shared.types.events import EventRefused, JobEnded, JobStatus, RetryRequested
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.quoting.quote_history import working_seconds
from tests.doubles.simulated_job import SimulatedJob

MANY_S = 90_000.0


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
    assert working_seconds(state.job_id, job.journal) == 9.0 == state.worked_s


def test_an_open_question_at_the_end_of_a_job_is_not_working_time() -> None:
    job = job_planned_after(4.0)
    job.now += MANY_S
    job.append(JobEnded(status=JobStatus.CANCELLED))

    assert working_seconds(job.state.job_id, job.journal) == 4.0


def test_later_work_of_a_job_is_added_without_the_time_between() -> None:
    job = job_ended_after(10.0)
    job.now += MANY_S
    job.append(RetryRequested())
    job.now += 3.0
    job.append(JobEnded(status=JobStatus.OK))

    assert working_seconds(job.state.job_id, job.journal) == 13.0


def test_the_time_of_a_refused_event_moves_no_deadline() -> None:
    """A worker may have written that time."""
    job = job_planned_after(4.0)
    before = job.state
    job.now += MANY_S
    job.append(EventRefused(reason="it has no signature"))

    assert (job.state.as_of, job.state.waited_s) == (before.as_of, before.waited_s)
    assert job.state.deadline == before.deadline
    assert job.state.tip == job.now
