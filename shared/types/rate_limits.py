"""Rate limits as a provider reports them, and the expected share of one call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpectedUsage:
    """Expected share of one model call in a bucket's rate limits. It is not a bound: the real
    usage replaces it after the call.
    """

    bucket: str
    """The bucket that the provider counts for: one model under one account."""
    input_tokens: int
    output_tokens: int
    """Upper bound. The bucket takes the mean of recent calls if that is lower."""
    joins_line: bool = True
    """False if a call that must wait takes no place in the line of waiting calls, because
    another model may serve it.
    """


@dataclass(frozen=True, slots=True)
class Allowance:
    """One rate limit: the limit of a window, and the part that is left."""

    limit: int
    remaining: int


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The `anthropic-ratelimit-*` headers of one answer. None: the header is missing."""

    requests: Allowance | None = None
    input_tokens: Allowance | None = None
    output_tokens: Allowance | None = None


NO_RATE_LIMITS = RateLimits()
"""Rate limits of an answer without these headers."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A call must wait for the provider's rate limits."""

    seconds: float
    """Current estimate. The caller asks again after `shared.agent.call_reservation.ASK_AGAIN_S` at
    the latest.
    """
    why: str
    """Reason for a progress line, such as `rate limit` or `first call`."""
