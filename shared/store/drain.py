"""Shutting down without losing or repeating anything: first no new turns, then, when the grace
is over, no more waiting either.
"""

from __future__ import annotations

import time


class Drain:
    """Set once, read by every thread of the process."""

    def __init__(self) -> None:
        self._over_at: float | None = None

    def begin(self, grace_s: float) -> None:
        """Begin the drain: no handoff starts another turn, and after `grace_s` seconds the running
        turns are cut.
        """
        if self._over_at is None:
            self._over_at = time.monotonic() + grace_s

    @property
    def asked(self) -> bool:
        """The process is to end: finish the turn, start no other."""
        return self._over_at is not None

    @property
    def over(self) -> bool:
        """The grace is over: cut what still runs."""
        return self._over_at is not None and time.monotonic() >= self._over_at
