"""A retry writes the same values to the job's hash and to its journal."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import CancelRequested, JobStatus
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.supervisor.client.job_retry import build_retry_commit, get_usage_by_limit
from handoff_queue.supervisor.client.submission import build_budget_fields
from handoff_queue.supervisor.lifecycle.child_jobs import compute_child_limits
from tests.doubles.handoffs import JOB
from tests.doubles.simulated_job import SimulatedJob, planned

LIMITS = JobLimits(max_turns=12, on_limit=OnLimit.ASK)
INFO = JobInfo(
    JOB,
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
    commit = build_retry_commit(job.state, INFO, None, NewLimits(max_turns=24), due_at=0.0)

    assert (commit.expected, commit.tip) == (job.state.version, job.now)
    assert commit.fields == {
        "status": status.value,
        "cancelled": "",
        "asks": "",
        "limits_to_raise": "",
        "max_turns": 24,
    }
    job.append(*commit.events)
    assert job.state.status is status


@pytest.fixture(params=NewLimits.model_fields)
def limit(request: pytest.FixtureRequest) -> str:
    """Return the name of each limit that a retry can raise."""
    return str(request.param)


def test_a_raised_limit_is_stored_for_the_scripts(limit: str) -> None:
    raised: dict[str, Any] = {limit: 1_000}

    assert list(build_budget_fields(NewLimits(**raised)).values()) == [1_000]


def test_the_usage_of_a_raised_limit_is_known(limit: str) -> None:
    assert limit in get_usage_by_limit(INFO)


def test_a_child_job_has_a_part_of_a_raised_limit(limit: str) -> None:
    limits = JobLimits(max_turns=None).model_copy(update={limit: 1_000_000})
    job = planned(limits=limits, a="", b="")

    assert 0 < getattr(compute_child_limits(job.state), limit) < 1_000_000
