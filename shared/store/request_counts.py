"""The number of requests of each caller in a minute. All replicas of the server share it."""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection

WINDOW_S = 60
"""Seconds of one window. A count expires after two windows."""


class RequestCounts:
    """The requests of each caller in the current minute of Redis's clock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, caller: str) -> tuple[int, float]:
        """Count one request. Return the requests of this minute, and the seconds until its end.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        now = self._connection.now()
        window = int(now // WINDOW_S)
        key = keys.requests(caller, window)
        with self._connection.translated_errors():
            pipe = self._connection.redis.pipeline(transaction=True)
            pipe.incr(key)
            pipe.expire(key, 2 * WINDOW_S)
            count, _ = pipe.execute()
        return int(count), (window + 1) * WINDOW_S - now
