"""The provider's rate limits out of the headers of an answer. Servers that send none, or nonsense, have said nothing."""

from __future__ import annotations

from collections.abc import Mapping

from handoff_queue.shared.types.rate_limits import Allowance, RateLimits

_PREFIX = "anthropic-ratelimit-"


def limits_of(headers: Mapping[str, str]) -> RateLimits:
    """`anthropic-ratelimit-{requests,input-tokens,output-tokens}-{limit,remaining}`. The `-reset` headers are not needed: the provider
    refills its buckets all the time, by their limit per window.
    """
    return RateLimits(
        _allowance(headers, "requests"),
        _allowance(headers, "input-tokens"),
        _allowance(headers, "output-tokens"),
    )


def _allowance(headers: Mapping[str, str], kind: str) -> Allowance | None:
    limit, remaining = (
        headers.get(f"{_PREFIX}{kind}-{name}", "") for name in ("limit", "remaining")
    )
    if not (limit.isdecimal() and remaining.isdecimal()) or int(limit) == 0:
        return None
    return Allowance(int(limit), min(int(remaining), int(limit)))
