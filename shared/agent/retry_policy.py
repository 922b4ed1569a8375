"""Retry policy of model calls: the delay before the next try. Pure. Each try counts as a turn."""

from __future__ import annotations

from handoff_queue.shared.types.errors import ContextEditRejected, ModelBusy, ModelError

MAX_TRIES = 5
"""Tries in a row, including the first. Their delays add up to 7.5 to 15 s without a
`retry-after`.
"""
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 20.0
MAX_RETRY_AFTER_S = 60.0
"""Longest delay in seconds if the server sends `retry-after`. Rate limits are per minute, and
a slot must not sleep for an hour.
"""
MAX_HOLD_S = 600.0
"""Longest delay in seconds after a 429 or 529 while all calls to the provider wait without
slots. After it one call tests the provider.
"""


def compute_delay_s(error: ModelError, tries: int, jitter: float) -> float | None:
    """Return the seconds before the next try, or None to give up.

    The delay doubles with each try. Half of the delay is random ("equal jitter"), so that
    workers that failed together do not retry together. A server's `retry-after` replaces this
    delay, plus at most a quarter of the delay. The sum is at most `MAX_RETRY_AFTER_S`.

    Args:
        tries: number of tries so far, 1 after the first.
        jitter: random number in [0, 1) for the jitter.
    """
    if not error.retryable or tries >= MAX_TRIES:
        return None
    backoff: float = min(FIRST_DELAY_S * 2.0 ** (tries - 1), MAX_DELAY_S)
    jittered_s = backoff * (0.5 + jitter / 2)
    if error.retry_after_s is None or error.retry_after_s < 0:
        return jittered_s
    return min(error.retry_after_s + backoff * jitter / 4, MAX_RETRY_AFTER_S)


def describe_reason(error: ModelError) -> str:
    """Return a short reason for a progress line."""
    if isinstance(error, ModelBusy):
        if error.status == 529:
            return "overloaded"
        return "rate limit"
    if isinstance(error, ContextEditRejected):
        return "context edit refused"
    if error.status:
        return f"server error {error.status}"
    return "connection"
