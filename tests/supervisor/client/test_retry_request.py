"""A retry writes the same values to the job's hash and to its journal."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.jobs import JobStanding
from handoff_queue.shared.types.events import CancelRequested, JobStatus
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.supervisor.client.retry_request import retry_commit
from tests.doubles.life import Life, planned

LIMITS = JobLimits(max_turns=12, on_limit=OnLimit.ASK)


def asked_before_its_plan() -> Life:
    life = Life(LIMITS)
    life.goes_on()
    life.finishes("planner", "failed", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()
    return life


def asked_at_work() -> Life:
    life = planned(limits=LIMITS, a="")
    life.finishes("a", "partial", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()
    return life


def ended() -> Life:
    life = planned(limits=LIMITS, a="")
    life.happens(CancelRequested())
    life.goes_on()
    return life


@pytest.mark.parametrize(
    ("life", "status"),
    [
        (asked_before_its_plan(), JobStatus.QUEUED),
        (asked_at_work(), JobStatus.RUNNING),
        (ended(), JobStatus.RUNNING),
    ],
    ids=["asked before its plan", "asked at work", "ended"],
)
def test_a_job_that_goes_on_has_one_status_in_its_hash_and_in_its_journal(
    life: Life, status: JobStatus
) -> None:
    books = JobStanding(
        life.state.job_id,
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
    commit = retry_commit(life.state, books, None, NewLimits(max_turns=24), due_at=0.0)

    assert (commit.expected, commit.tip) == (life.state.version, life.now)
    assert commit.fields == {"status": status.value, "cancelled": "", "asks": "", "max_turns": 24}
    life.happens(*commit.events)
    assert life.state.status is status
