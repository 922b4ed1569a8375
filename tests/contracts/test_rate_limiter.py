"""Contract of the pacing of model calls in every `CheckpointStore`.

A rate limit that one process reports holds for all processes. `MAKERS` lists the implementations.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handoff_queue.shared.agent.checkpoint_store import CheckpointStore
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ModelCallFailed, WorstCase
from handoff_queue.shared.types.rate_limits import (
    NOTHING_SAID,
    Allowance,
    Expected,
    RateLimits,
    Wait,
)
from handoff_queue.shared.types.usage import NOTHING_USED
from tests.doubles.jobs import a_job, granted, issue
from tests.doubles.memory_checkpoints import MemoryCheckpoints
from tests.doubles.memory_rate_limiter import MemoryRateLimiter
from tests.waiting import wait_until

WORST = WorstCase(100, 100, 0)
EXPECTED = Expected("account:some-model", 50, 50)
FAILED = ModelCallFailed(error="no", usage=NOTHING_USED)

Fleet = Callable[[], CheckpointStore]
"""Each call returns the turns of another handoff, claimed by another process."""


def in_memory(_store: Store) -> Fleet:
    pace = MemoryRateLimiter()
    return lambda: MemoryCheckpoints(pace=pace)


def in_the_store(store: Store) -> Fleet:
    job_id = a_job(store)
    names = iter([f"find-{letter}.1" for letter in "abcdefghij"])

    def one_more() -> CheckpointStore:
        name = next(names)
        issue(store, job_id, name)
        return granted(store, job_id, name, worker=name)

    return one_more


MAKERS = [pytest.param(in_memory, id="memory"), pytest.param(in_the_store, id="store")]


@pytest.fixture(params=MAKERS)
def fleet(request: pytest.FixtureRequest, store: Store) -> Fleet:
    made: Fleet = request.param(store)
    return made


def goes(turns: CheckpointStore, expected: Expected | None = EXPECTED) -> bool:
    return turns.reserve(WORST, expected) is None


def waits(turns: CheckpointStore, expected: Expected | None = EXPECTED) -> Wait:
    wait = turns.reserve(WORST, expected)
    assert wait is not None
    return wait


def known(fleet: Fleet, limits: RateLimits = NOTHING_SAID) -> CheckpointStore:
    """A process that has reported the lane's limits."""
    first = fleet()
    assert goes(first)
    first.heard(limits)
    return first


def test_the_very_first_call_goes_ahead_and_reports_the_limits(fleet: Fleet) -> None:
    first, second, third = fleet(), fleet(), fleet()
    assert goes(first)
    assert waits(second).why == "first call"
    first.heard(NOTHING_SAID)
    assert goes(second)
    assert goes(third), "nothing is limited"


def test_a_call_without_rate_limits_does_not_wait(fleet: Fleet) -> None:
    first, second = fleet(), fleet()
    assert goes(first)
    assert goes(second, None)


def test_one_refusal_delays_all_callers_until_it_is_over(fleet: Fleet) -> None:
    first, second = known(fleet), fleet()
    assert goes(first)
    first.refused("overloaded", 30)
    first.checkpoint(FAILED)
    for one in (first, second, fleet()):
        wait = waits(one)
        assert (wait.why, 25 < wait.seconds < 40) == ("overloaded", True)


def test_after_a_refusal_one_call_goes_first_and_the_others_when_it_has_succeeded(
    fleet: Fleet,
) -> None:
    first, second, third = known(fleet), fleet(), fleet()
    assert goes(first)
    first.refused("rate limit", 0.1)
    first.checkpoint(FAILED)
    wait_until(lambda: goes(second), what="the probe")
    assert waits(first).why == waits(third).why == "rate limit"
    second.heard(NOTHING_SAID)
    assert goes(first)
    assert goes(third)


def test_a_probe_that_is_refused_holds_back_all_again_and_longer(fleet: Fleet) -> None:
    first, second = known(fleet), fleet()
    assert goes(first)
    first.refused("rate limit", 0.01)
    first.checkpoint(FAILED)
    wait_until(lambda: goes(second), what="the probe")
    second.refused("rate limit", None)
    second.checkpoint(FAILED)
    assert waits(first).seconds > 0.5, "the second backoff is 1 to 2 s"


def test_the_limits_in_a_refusal_apply_after_its_wait(fleet: Fleet) -> None:
    first = known(fleet)
    assert goes(first)
    first.refused("rate limit", 0.01, RateLimits(requests=Allowance(limit=5, remaining=0)))
    first.checkpoint(FAILED)
    second = fleet()
    wait_until(
        lambda: 10 < waits(second).seconds <= 13,
        what="the time that one of five a minute takes, and what is kept back",
    )


def test_no_more_calls_go_than_the_provider_says_are_left(fleet: Fleet) -> None:
    known(fleet, RateLimits(requests=Allowance(limit=50, remaining=3)))
    assert goes(fleet())
    assert goes(fleet())
    wait = waits(fleet())
    assert 0 < wait.seconds <= 60 / 50
    assert wait.why == "rate limit"
