"""Contract of the rate limiter of model calls in every `CheckpointStore`.

A rate limit that one process reports holds for all processes. `MAKERS` lists the implementations.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ModelCallFailed, WorstCase
from handoff_queue.shared.types.rate_limits import (
    NO_RATE_LIMITS,
    Allowance,
    ExpectedUsage,
    RateLimits,
    Wait,
)
from handoff_queue.shared.types.usage import NOTHING_USED
from tests.doubles.jobs import a_job, granted_claim, issue
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.memory_rate_limiter import MemoryRateLimiter
from tests.waiting import wait_until

WORST = WorstCase(100, 100, 0)
EXPECTED = ExpectedUsage("account:some-model", 50, 50)
FAILED = ModelCallFailed(error="no", usage=NOTHING_USED)

Fleet = Callable[[], CheckpointStore]
"""Function that returns the checkpoints of another handoff, claimed by another process."""


def in_memory(_store: Store) -> Fleet:
    limiter = MemoryRateLimiter()
    return lambda: MemoryCheckpoints(limiter=limiter)


def in_the_store(store: Store) -> Fleet:
    job_id = a_job(store)
    names = iter([f"find-{letter}.1" for letter in "abcdefghij"])

    def claim_next() -> CheckpointStore:
        name = next(names)
        issue(store, job_id, name)
        return granted_claim(store, job_id, name, worker=name)

    return claim_next


MAKERS = [pytest.param(in_memory, id="memory"), pytest.param(in_the_store, id="store")]


@pytest.fixture(params=MAKERS)
def fleet(request: pytest.FixtureRequest, store: Store) -> Fleet:
    make_checkpoints: Fleet = request.param(store)
    return make_checkpoints


def is_admitted(checkpoints: CheckpointStore, expected: ExpectedUsage | None = EXPECTED) -> bool:
    return checkpoints.reserve(WORST, expected) is None


def wait_of(checkpoints: CheckpointStore, expected: ExpectedUsage | None = EXPECTED) -> Wait:
    wait = checkpoints.reserve(WORST, expected)
    assert wait is not None
    return wait


def fleet_with_limits(fleet: Fleet, limits: RateLimits = NO_RATE_LIMITS) -> CheckpointStore:
    """Return the checkpoints of a process that has reported these limits."""
    first = fleet()
    assert is_admitted(first)
    first.report_limits(limits)
    return first


def test_the_first_call_goes_alone_and_reports_the_limits(fleet: Fleet) -> None:
    first, second, third = fleet(), fleet(), fleet()
    assert is_admitted(first)
    assert wait_of(second).why == "first call"
    first.report_limits(NO_RATE_LIMITS)
    assert is_admitted(second)
    assert is_admitted(third), "there is no limit"


def test_a_call_without_rate_limits_does_not_wait(fleet: Fleet) -> None:
    first, second = fleet(), fleet()
    assert is_admitted(first)
    assert is_admitted(second, None)


def test_one_refusal_delays_all_callers_until_it_is_over(fleet: Fleet) -> None:
    first, second = fleet_with_limits(fleet), fleet()
    assert is_admitted(first)
    first.report_refusal("overloaded", 300)
    first.checkpoint(FAILED)
    for caller in (first, second, fleet()):
        wait = wait_of(caller)
        assert (wait.why, 200 < wait.seconds < 400) == ("overloaded", True)


def test_after_a_refusal_one_call_goes_first_and_the_others_follow_its_success(
    fleet: Fleet,
) -> None:
    first, second, third = fleet_with_limits(fleet), fleet(), fleet()
    assert is_admitted(first)
    first.report_refusal("rate limit", 0.1)
    first.checkpoint(FAILED)
    wait_until(lambda: is_admitted(second), expected="the probe")
    assert wait_of(first).why == wait_of(third).why == "rate limit"
    second.report_limits(NO_RATE_LIMITS)
    assert is_admitted(first)
    assert is_admitted(third)


def test_a_refused_probe_delays_all_callers_longer(fleet: Fleet) -> None:
    first, second = fleet_with_limits(fleet), fleet()
    assert is_admitted(first)
    first.report_refusal("rate limit", 0.01)
    first.checkpoint(FAILED)
    wait_until(lambda: is_admitted(second), expected="the probe")
    second.report_refusal("rate limit", None)
    second.checkpoint(FAILED)
    assert wait_of(first).seconds > 0.5, "the second backoff is 1 to 2 s"


def test_the_limits_in_a_refusal_apply_after_its_wait(fleet: Fleet) -> None:
    first = fleet_with_limits(fleet)
    assert is_admitted(first)
    first.report_refusal("rate limit", 0.01, RateLimits(requests=Allowance(limit=5, remaining=0)))
    first.checkpoint(FAILED)
    second = fleet()
    wait_until(
        lambda: 10 < wait_of(second).seconds <= 13,
        expected="a wait for one of five requests a minute and the reserve",
    )


def test_no_more_calls_are_admitted_than_the_provider_has_left(fleet: Fleet) -> None:
    fleet_with_limits(fleet, RateLimits(requests=Allowance(limit=50, remaining=3)))
    assert is_admitted(fleet())
    assert is_admitted(fleet())
    wait = wait_of(fleet())
    assert 0 < wait.seconds <= 60 / 50
    assert wait.why == "rate limit"
