"""Clock of Redis, for tests that compare a stored time with the time of the test.

A test reads the clock before and after the tested call. The stored time is between the two, however
slow the machine is.
"""

from __future__ import annotations

from handoff_queue.shared.store.store import Store

MAX_OFFSET_S = 60.0
"""Tolerance for `now` of the connection, which estimates Redis's clock. The error is half of a
round trip. Another clock or time zone is off by hours.
"""


def redis_time_s(store: Store) -> float:
    """Return Unix time in seconds by Redis's clock, in whole milliseconds as scripts store it."""
    seconds, micros = store.connection.redis.time()
    return float(seconds * 1_000 + micros // 1_000) / 1_000
