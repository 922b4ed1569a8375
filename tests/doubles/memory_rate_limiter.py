"""A rate limiter in memory for the model calls of one bucket.

`MemoryRateLimiter` counts requests, delays callers, and admits one caller alone after a refusal.
It has no token buckets and no queue: those are in `shared/store/lua/parts/rate_limiter.lua`. With
`MemoryCheckpoints` it passes the contract in `tests/contracts/test_rate_limiter.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from handoff_queue.shared.agent.retry_policy import FIRST_DELAY_S
from handoff_queue.shared.types.rate_limits import Allowance, RateLimits, Wait

ON_THE_WAY_S = 1.0
"""Seconds. The limiter keeps back the requests that refill in this time."""


@dataclass(slots=True)
class MemoryRateLimiter:
    """Rate limiter for callers, which are identified by numbers."""

    now: Callable[[], float] = time.monotonic
    window_s: float = 60.0
    known: bool = False
    until: float = 0.0
    why: str = ""
    strikes: int = 0
    probing: int | None = None
    requests: Allowance | None = None
    level: float = 0.0
    at: float = 0.0

    def admit(self, caller: int) -> Wait | None:
        now = self.now()
        self._refill(now)
        if now < self.until:
            return Wait(self.until - now, self.why)
        if self.requests is not None and (missing := self._wanted(self.requests) - self.level) > 0:
            return Wait(missing * self.window_s / self.requests.limit, "rate limit")
        if self.strikes or not self.known:
            if self.probing not in (None, caller):
                return Wait(0.2, self.why or "first call")
            self.probing = caller
        self.level -= 1
        return None

    def report_limits(self, caller: int, limits: RateLimits) -> None:
        self.known = True
        if self.probing == caller:
            self.probing, self.strikes, self.until = None, 0, 0.0
        self._learn(limits)

    def report_refusal(
        self, caller: int, why: str, retry_after_s: float | None, limits: RateLimits
    ) -> None:
        self.known, self.why = True, why
        if self.probing == caller or not self.strikes:
            self.strikes += 1
        if self.probing == caller:
            self.probing = None
        hold_s = FIRST_DELAY_S * 2 ** (self.strikes - 1) if retry_after_s is None else retry_after_s
        self.until = max(self.until, self.now() + hold_s)
        self._learn(limits)

    def _learn(self, limits: RateLimits) -> None:
        if limits.requests is not None and limits.requests != self.requests:
            self.requests, self.level, self.at = (
                limits.requests,
                limits.requests.remaining,
                self.now(),
            )

    def _wanted(self, requests: Allowance) -> float:
        reserve = requests.limit * min(1, ON_THE_WAY_S / self.window_s)
        return reserve + min(1, requests.limit - reserve)

    def _refill(self, now: float) -> None:
        if self.requests is not None:
            self.level = min(
                self.requests.limit,
                self.level + (now - self.at) * self.requests.limit / self.window_s,
            )
            self.at = now
