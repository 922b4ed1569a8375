"""A client that waits for a job reconnects to Redis for a limited time."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.supervisor.client.journal_follower import ReconnectLimit

UNREACHABLE = StoreUnavailable("Redis cannot be reached")


def test_a_caller_waits_for_an_absent_redis_until_its_time_is_over() -> None:
    clock = [100.0]
    patience = ReconnectLimit(30.0, lambda: clock[0])

    for clock[0] in (100.0, 110.0, 130.0):
        patience.record_failure(UNREACHABLE)
    clock[0] = 130.1
    with pytest.raises(StoreUnavailable) as raised:
        patience.record_failure(UNREACHABLE)
    assert raised.value is UNREACHABLE


def test_an_answer_restarts_the_time() -> None:
    clock = [100.0]
    patience = ReconnectLimit(30.0, lambda: clock[0])

    patience.record_failure(UNREACHABLE)
    patience.reset()
    for clock[0] in (150.0, 180.0):
        patience.record_failure(UNREACHABLE)
    clock[0] = 180.1
    with pytest.raises(StoreUnavailable):
        patience.record_failure(UNREACHABLE)


def test_without_patience_only_the_first_moment_is_tolerated() -> None:
    clock = [100.0]
    patience = ReconnectLimit(0.0, lambda: clock[0])

    patience.record_failure(UNREACHABLE)
    clock[0] = 100.1
    with pytest.raises(StoreUnavailable):
        patience.record_failure(UNREACHABLE)
