"""Rejected research reaches the user only after an approval, even if no time is left to repair
it.
"""

from __future__ import annotations

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.lifecycle.commands import EndJob
from tests.doubles.simulated_job import finish_steps
from tests.supervisor.lifecycle.test_approval_policy import RESEARCH, asked_about, job_asking_about


def test_rejected_research_without_time_for_repair_does_not_leave_without_a_question() -> None:
    job = job_asking_about(RESEARCH)
    job.reject("Wrong.")
    job.advance()
    job.now += 100
    job.advance()

    assert (asked_about(job), job.step("b").result) == (RESEARCH, job.result_of("b.1"))
    job.reject()
    assert job.advance() == [
        EndJob(JobStatus.FAILED, "the research was rejected, and it cannot be made again")
    ]
    assert job.state.is_withheld


def test_rejected_research_leaves_after_a_later_approval() -> None:
    job = job_asking_about(RESEARCH)
    job.reject("Wrong.")
    job.advance()
    job.now += 100
    job.advance()
    job.approve()
    job.advance()

    assert job.state.status is JobStatus.PARTIAL


def test_repaired_research_needs_no_second_approval_at_the_deadline() -> None:
    job = job_asking_about(RESEARCH)
    job.reject("Wrong.")
    job.advance()
    finish_steps(job, "b")
    job.approve()
    job.now += 100
    job.advance()

    assert (asked_about(job), job.state.status) == (None, JobStatus.PARTIAL)
