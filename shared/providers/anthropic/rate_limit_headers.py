"""The headers of a reply about rate limits: the provider's limits, and the time of the next try."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from handoff_queue.shared.types.rate_limits import Allowance, RateLimits

_PREFIX = "anthropic-ratelimit-"


def parse_rate_limits(headers: Mapping[str, str]) -> RateLimits:
    """Return the rate limits in the headers
    `anthropic-ratelimit-{requests,input-tokens,output-tokens}-{limit,remaining}`.

    The `-reset` headers are not used, because the provider refills its buckets continuously.
    """
    return RateLimits(
        _parse_allowance(headers, "requests"),
        _parse_allowance(headers, "input-tokens"),
        _parse_allowance(headers, "output-tokens"),
    )


def _parse_allowance(headers: Mapping[str, str], kind: str) -> Allowance | None:
    """Return one limit and its rest, or None if the headers do not state both."""
    limit_text = headers.get(f"{_PREFIX}{kind}-limit", "")
    remaining_text = headers.get(f"{_PREFIX}{kind}-remaining", "")
    if not limit_text.isdecimal() or not remaining_text.isdecimal():
        return None
    limit = int(limit_text)
    if limit == 0:
        return None
    return Allowance(limit, min(int(remaining_text), limit))


def parse_retry_after_s(headers: Any) -> float | None:
    """Return the seconds to wait by the header `retry-after-ms` or `retry-after`, or None.
    `retry-after` is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers[name]) * unit_s
        except (KeyError, ValueError):
            continue
        if isfinite(wait_s):  # `nan` and `inf` are floats, too
            return wait_s
    try:
        at = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, at.timestamp() - time.time())
