"""A quote: the job is planned, gives its likely cost and time, and waits. It is not planned a
second time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Request
from tests.e2e.commands import Handoff
from tests.e2e.fleet import Fleet

pytestmark = pytest.mark.slow
FAILED = 1


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


def told(
    fleet: Fleet, handoff: Handoff, name: str, *options: str, exit_code: int = 0
) -> dict[str, object]:
    """What `handoff quote --json` says of a plan of two steps."""
    fleet.model.plans[name] = {"a": "", "b": "a"}
    done = handoff.run(
        "quote", f"plan {name}", "--json", *options, HANDOFF_REDIS_URL=fleet.system.redis_url
    )
    assert done.returncode == exit_code, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_quote_uses_earlier_jobs_and_the_job_runs_the_quoted_plan(
    fleet: Fleet, handoff: Handoff
) -> None:
    fleet.ends_well(fleet.submit("before", a="", b="a"))
    found = told(fleet, handoff, "quoted")
    job_id = JobId(str(found["job_id"]))
    assert found["steps"] == 2
    assert fleet.model.calls["quoted", "a", 1] == 0, "nothing but the plan is paid"

    fleet.redis.delete(keys.SCORES)
    fleet.jobs.approve(job_id)
    result = fleet.ends_well(job_id)

    assert result.quote == found["quote"]
    assert result.quote
    assert result.quote["time"]["likely_s"] <= result.quote["time"]["most_s"]
    assert fleet.model.calls["quoted", "planner", 1] == 1
    assert fleet.redis.llen(keys.SCORES) == 1, (
        "the next quote is held against how this one turned out"
    )


def test_a_quote_above_max_usd_drops_the_job(fleet: Fleet, handoff: Handoff) -> None:
    fleet.ends_well(fleet.submit("dear", a="", b="a"))
    samples = keys.history("generalist")
    dear = {"at": 1, "usd": 5_000_000, "ms": 1, "waited_ms": 0, "turns": 1, "lane": None}
    for _ in range(200):
        fleet.redis.lpush(samples, json.dumps(dear))
    try:
        found = told(fleet, handoff, "refused", "--max-usd", "1", exit_code=FAILED)
    finally:
        fleet.redis.delete(samples)

    assert found["is_refused"] is True
    job_id = JobId(str(found["job_id"]))
    assert fleet.jobs.wait(job_id, 30) is JobStatus.CANCELLED
    assert fleet.model.calls["refused", "a", 1] == 0


def test_a_job_without_approval_is_dropped_in_time(fleet: Fleet, handoff: Handoff) -> None:
    found = told(fleet, handoff, "left", "--approve-timeout", "1")

    assert fleet.jobs.wait(JobId(str(found["job_id"])), 30) is JobStatus.CANCELLED


def test_a_job_that_was_not_to_be_quoted_is_not(fleet: Fleet) -> None:
    fleet.model.plans["plain"] = {"a": ""}
    result = fleet.ends_well(fleet.jobs.submit(Request("plan plain")))

    assert result.quote is None
