"""Retry policy of model calls. Pure: it maps an error and a count to a delay. Each try is a turn
and uses the budget of a turn.
"""

from __future__ import annotations

from handoff_queue.shared.types.errors import ModelBusy, ModelError, SchemaRejected

MOST_TRIES = 5
"""Tries in a row, the first included: with the delays below some 15 to 30 seconds, longer than
most overloads, far shorter than a job.
"""
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 20.0
LONGEST_RETRY_AFTER_S = 60.0
"""A server's `retry-after` is obeyed up to this: rate limits are per minute, and a slot must
not sleep for an hour.
"""
LONGEST_HOLD_S = 600.0
"""Longest delay in seconds if the whole fleet waits and the slots are free. After it one call tests
the provider.
"""


def delay_s(error: ModelError, tries: int, dice: float) -> float | None:
    """Return the seconds before the next try, or None to give up.

    Half of the delay is random ("equal jitter"), so that workers that failed together do not return
    together. A server's own retry-after is only made longer.

    Args:
        tries: number of tries so far, 1 after the first.
        dice: the jitter, in [0, 1).
    """
    if not error.retryable or tries >= MOST_TRIES:
        return None
    backoff: float = min(FIRST_DELAY_S * 2.0 ** (tries - 1), LONGEST_DELAY_S)
    jittered = backoff * (0.5 + dice / 2)
    if error.retry_after_s is None or error.retry_after_s < 0:
        return jittered
    return min(error.retry_after_s + backoff * dice / 4, LONGEST_RETRY_AFTER_S)


def reason_of(error: ModelError) -> str:
    """Return two words for a progress line."""
    if isinstance(error, ModelBusy):
        if error.status == 529:
            return "overloaded"
        return "rate limit"
    if isinstance(error, SchemaRejected):
        return "schema refused"
    if error.status:
        return f"server error {error.status}"
    return "connection"
