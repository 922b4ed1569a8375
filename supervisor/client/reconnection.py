"""How long who waits for a job stays with a Redis that has gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from handoff_queue.shared.types.errors import LedgerUnavailable

RECONNECT_FOR_S = 30.0
"""A restart takes a few seconds, and so does a failover."""
RECONNECT_EVERY_S = 0.5
"""Between two tries."""


class Patience:
    """Runs out where Redis stays away, and is whole again when it has answered."""

    def __init__(
        self, for_s: float = RECONNECT_FOR_S, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._for_s = for_s
        self._now = now
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether Redis has not answered the last time."""
        return self._away_since is not None

    def renew(self) -> None:
        """Redis has answered."""
        self._away_since = None

    def bear(self, error: LedgerUnavailable) -> None:
        """Redis has not answered. Raises: LedgerUnavailable: this one; it has not for too long."""
        if self._away_since is None:
            self._away_since = self._now()
        if self._now() - self._away_since > self._for_s:
            raise error
