"""A retry writes the same values to the job's hash and to its journal."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import CancelRequested, JobStatus
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.supervisor.client.job_retry import retry_commit
from tests.doubles.simulated_job import SimulatedJob, planned

LIMITS = JobLimits(max_turns=12, on_limit=OnLimit.ASK)


def job_asking_before_plan() -> SimulatedJob:
    job = SimulatedJob(LIMITS)
    job.advance()
    job.finish("planner", "failed", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    return job


def job_asking_during_work() -> SimulatedJob:
    job = planned(limits=LIMITS, a="")
    job.finish("a", "partial", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    return job


def cancelled_job() -> SimulatedJob:
    job = planned(limits=LIMITS, a="")
    job.append(CancelRequested())
    job.advance()
    return job


@pytest.mark.parametrize(
    ("job", "status"),
    [
        (job_asking_before_plan(), JobStatus.QUEUED),
        (job_asking_during_work(), JobStatus.RUNNING),
        (cancelled_job(), JobStatus.RUNNING),
    ],
    ids=["asked before its plan", "asked at work", "ended"],
)
def test_a_continued_job_has_one_status_in_its_hash_and_in_its_journal(
    job: SimulatedJob, status: JobStatus
) -> None:
    info = JobInfo(
        job.state.job_id,
        JobStatus.PARTIAL,
        1,
        "",
        0.0,
        turns=12,
        input_tokens=0,
        output_tokens=0,
        cost_microusd=0,
        cancelled=False,
    )
    commit = retry_commit(job.state, info, None, NewLimits(max_turns=24), due_at=0.0)

    assert (commit.expected, commit.tip) == (job.state.version, job.now)
    assert commit.fields == {"status": status.value, "cancelled": "", "asks": "", "max_turns": 24}
    job.append(*commit.events)
    assert job.state.status is status
