"""`handoff quote` plans a job once, prints its likely cost and time, and waits for an approval."""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.request import Request
from tests.e2e.commands import Handoff
from tests.e2e.fleet import Fleet

pytestmark = pytest.mark.slow
FAILED = 1


def quote(
    fleet: Fleet, handoff: Handoff, name: str, *options: str, exit_code: int = 0
) -> dict[str, object]:
    """Run `handoff quote --json` for a plan with two steps, and return its output."""
    fleet.model.plans[name] = {"a": "", "b": "a"}
    completed = handoff.run(
        "quote", f"plan {name}", "--json", *options, HANDOFF_REDIS_URL=fleet.system.redis_url
    )
    assert completed.returncode == exit_code, completed.stderr
    quoted: dict[str, object] = json.loads(completed.stdout)
    return quoted


def test_a_quote_uses_earlier_jobs_and_the_job_runs_the_quoted_plan(
    fleet: Fleet, handoff: Handoff
) -> None:
    fleet.wait_for_success(fleet.submit("before", a="", b="a"))
    quoted = quote(fleet, handoff, "quoted")
    job_id = JobId(str(quoted["job_id"]))
    assert quoted["steps"] == 2
    assert fleet.model.calls["quoted", "a", 1] == 0, "only the plan is paid"

    fleet.redis.delete(keys.SCORES)
    fleet.jobs.approve(job_id)
    result = fleet.wait_for_success(job_id)

    assert result.quote == quoted["quote"]
    assert result.quote
    assert result.quote["time"]["likely_s"] <= result.quote["time"]["most_s"]
    assert fleet.model.calls["quoted", "planner", 1] == 1
    assert fleet.redis.llen(keys.SCORES) == 1, (
        "the outcome of this quote is stored for later quotes"
    )


def test_a_quote_above_max_usd_drops_the_job(fleet: Fleet, handoff: Handoff) -> None:
    fleet.wait_for_success(fleet.submit("dear", a="", b="a"))
    samples = keys.history("generalist")
    sample = {"at": 1, "usd": 5_000_000, "ms": 1, "waited_ms": 0, "turns": 1, "bucket": None}
    for _ in range(200):
        fleet.redis.lpush(samples, json.dumps(sample))
    try:
        quoted = quote(fleet, handoff, "refused", "--max-usd", "1", exit_code=FAILED)
    finally:
        fleet.redis.delete(samples)

    assert quoted["is_refused"] is True
    job_id = JobId(str(quoted["job_id"]))
    assert fleet.jobs.wait(job_id, 30) is JobStatus.CANCELLED
    assert fleet.model.calls["refused", "a", 1] == 0


def test_a_job_without_approval_is_dropped_in_time(fleet: Fleet, handoff: Handoff) -> None:
    quoted = quote(fleet, handoff, "left", "--approve-timeout", "1")

    assert fleet.jobs.wait(JobId(str(quoted["job_id"])), 30) is JobStatus.CANCELLED


def test_a_job_without_a_request_for_a_quote_has_none(fleet: Fleet) -> None:
    fleet.model.plans["plain"] = {"a": ""}
    result = fleet.wait_for_success(fleet.jobs.submit(Request("plan plain")))

    assert result.quote is None
