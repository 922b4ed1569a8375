"""The drain of a process that shuts down. It starts no new turn, and it stops its running
turns after a grace. The drain is a part of the store, because each claim reads it before a turn.

The signal arrives in `workers/assembly.py`. A claim raises `Draining` (`claim.py`), and
`shared/broker/attempt_outcome.py` then gives the handoff back to its queue.
"""

from __future__ import annotations

import time


class Drain:
    """State of the drain. One thread sets it once, and every thread of the process reads it."""

    def __init__(self) -> None:
        self._over_at: float | None = None
        """Monotonic time at which the grace ends; None before the drain."""

    def begin(self, grace_s: float) -> None:
        """Begin the drain: no handoff starts another turn, and after `grace_s` seconds the
        running turns are stopped. Later calls change nothing.
        """
        if self._over_at is None:
            self._over_at = time.monotonic() + grace_s

    @property
    def has_begun(self) -> bool:
        """Return whether the drain has begun: each handoff ends its turn and starts no other."""
        return self._over_at is not None

    @property
    def is_over(self) -> bool:
        """Return whether the grace is over: running turns are stopped."""
        return self._over_at is not None and time.monotonic() >= self._over_at
