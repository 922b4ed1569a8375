"""Rate limits of a provider around a script of `MessagesServer`.

Each model has a token bucket of requests, which refills continuously. A call to an empty bucket
gets a 429. Every reply has the provider's rate-limit headers.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace

from handoff_queue.testing import Json, Reply, Script, error_reply


@dataclass(slots=True)
class Bucket:
    """Token bucket of requests of one model."""

    limit: int
    window_s: float
    level: float = field(init=False)
    at: float = field(default_factory=time.monotonic)
    taken: list[float] = field(default_factory=list)
    """Time of each answered call in seconds."""
    refused: list[float] = field(default_factory=list)
    """Time of each refused call in seconds."""

    def __post_init__(self) -> None:
        self.level = self.limit

    def take(self) -> bool:
        now = time.monotonic()
        self.level = min(self.limit, self.level + (now - self.at) * self.limit / self.window_s)
        self.at = now
        is_admitted = self.level >= 1
        self.level -= is_admitted
        (self.taken if is_admitted else self.refused).append(now)
        return is_admitted

    @property
    def used(self) -> float:
        """Return the used share of the allowed rate, from the first call to the last."""
        span_s = self.taken[-1] - self.taken[0]
        return len(self.taken) / (self.limit + span_s * self.limit / self.window_s)


class RateLimited:
    """Script that refuses calls above the rate limit, and passes other calls to `script`."""

    def __init__(
        self, script: Script, *, limit: int, window_s: float, answers_after_s: float = 0.0
    ) -> None:
        self._script = script
        self._limit = limit
        self._window_s = window_s
        self._answers_after_s = answers_after_s
        self._lock = threading.Lock()
        self.buckets: dict[str, Bucket] = defaultdict(lambda: Bucket(limit, window_s))

    def __call__(self, request: Json) -> Reply:
        with self._lock:
            bucket = self.buckets[request["model"]]
            is_admitted, left = bucket.take(), int(bucket.level)
        headers = {
            "anthropic-ratelimit-requests-limit": str(self._limit),
            "anthropic-ratelimit-requests-remaining": str(left),
        }
        if not is_admitted:
            refusal = error_reply(
                429, kind="rate_limit_error", retry_after=f"{self._window_s / self._limit:.3f}"
            )
            return replace(refusal, headers=refusal.headers | headers)
        return replace(self._script(request), headers=headers, duration_s=self._answers_after_s)
