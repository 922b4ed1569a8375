"""What a provider lets through, as it says it, and what a call is expected to take of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """What a model call will take of its lane's rate limits. No bound: what it really took is
    known after it, and evened out.
    """

    lane: str
    """Whom the provider counts for: one model under one account."""
    input_tokens: int
    output_tokens: int
    """The most; calls before have shown what is usual."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """One rate limit: how much the provider allows in a window, and how much of it is left."""

    limit: int
    remaining: int


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What the `anthropic-ratelimit-*` headers of one answer say. None: nothing of this kind."""

    requests: Allowance | None = None
    input_tokens: Allowance | None = None
    output_tokens: Allowance | None = None


NOTHING_SAID = RateLimits()


@dataclass(frozen=True, slots=True)
class Wait:
    """A call may not go yet."""

    seconds: float
    """As it looks now. To be asked again at the latest after `shared.agent.model_turn.ASK_AGAIN_S`.
    """
    why: str
    """Two words for a progress line."""
