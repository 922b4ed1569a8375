"""Rate limits as a provider reports them, and the expected share of one call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected share of one model call in a bucket's rate limits. It is not a bound: the real usage
    replaces it after the call.
    """

    lane: str
    """The bucket that the provider counts for: one model under one account."""
    input_tokens: int
    output_tokens: int
    """Upper bound; earlier calls show the usual number."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """One rate limit: the allowance of a window, and its unused part."""

    limit: int
    remaining: int


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The `anthropic-ratelimit-*` headers of one answer. None: the header is missing."""

    requests: Allowance | None = None
    input_tokens: Allowance | None = None
    output_tokens: Allowance | None = None


NOTHING_SAID = RateLimits()


@dataclass(frozen=True, slots=True)
class Wait:
    """A call may not go yet."""

    seconds: float
    """Current estimate. The caller asks again after `shared.agent.model_turn.ASK_AGAIN_S` at the
    latest.
    """
    why: str
    """Two words for a progress line."""
