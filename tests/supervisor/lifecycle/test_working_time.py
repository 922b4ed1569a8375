"""The working time that a quote is compared with. The wait for a person and the time after the end
do not count.
"""

from __future__ import annotations

from handoff_queue.shared.types.events import JobEnded, JobStatus, RetryRequested
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.working_time import working_seconds
from tests.doubles.life import Life

MANY_S = 90_000.0


def asked_after(seconds: float) -> Life:
    """A job that waits to have its plan approved."""
    life = Life(JobLimits(), approvals=Approvals(what=(ApprovalOf.PLAN,)))
    life.goes_on()
    life.now += seconds
    life.plans(a="")
    life.goes_on()
    return life


def ended_after(seconds: float) -> Life:
    life = Life(JobLimits())
    life.now += seconds
    life.happens(JobEnded(status=JobStatus.PARTIAL))
    return life


def test_what_it_waited_for_a_person_is_no_work_and_that_is_what_is_scored() -> None:
    life = asked_after(4.0)
    life.now += MANY_S
    life.approves()
    life.now += 5.0
    life.happens(JobEnded(status=JobStatus.OK))

    state = fold(life.state.job_id, None, life.journal)
    assert state is not None
    assert working_seconds(state.job_id, life.journal) == 9.0 == state.worked_s


def test_a_question_that_stands_open_when_a_job_ends_is_no_work_either() -> None:
    life = asked_after(4.0)
    life.now += MANY_S
    life.happens(JobEnded(status=JobStatus.CANCELLED))

    assert working_seconds(life.state.job_id, life.journal) == 4.0


def test_what_a_job_did_later_is_added_and_the_time_between_is_not() -> None:
    life = ended_after(10.0)
    life.now += MANY_S
    life.happens(RetryRequested())
    life.now += 3.0
    life.happens(JobEnded(status=JobStatus.OK))

    assert working_seconds(life.state.job_id, life.journal) == 13.0
