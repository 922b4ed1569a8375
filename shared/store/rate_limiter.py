"""Rate limiter of one claim's model calls: the share of a bucket's limits that each call
takes, and the limits that the provider reports.

All processes share a bucket (one model under one account) in Redis; `parts/rate_limiter.lua`
has its rules. The script that reserves the budget of a call also admits the call. A bucket
without limits costs no extra round trip, except for its first call.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.retry_policy import FIRST_DELAY_S, MAX_DELAY_S, MAX_HOLD_S
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import MAX_EXACT_INTEGER
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from handoff_queue.shared.types.usage import Usage


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call that the bucket has admitted, and its share of the limits."""

    bucket: str
    is_limited: bool
    """True if the bucket has limits."""
    goes_ahead: bool
    """True if the other calls wait for the provider's answer to this call."""
    at_ms: int
    """Time of the admission, in Unix ms by Redis's clock."""
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class RateLimiter:
    """Rate limiter of one claim, which makes one call at a time."""

    connection: Connection
    member: str
    """`job/handoff`"""
    window_s: float
    """Seconds of the window that the limits refer to."""
    bucket: str = ""
    """Bucket of the handoff's calls; empty if the provider has no known limits."""
    call: AdmittedCall | None = None
    """The admitted call that has not ended, or None."""

    def build_admission_arguments(self, expected: ExpectedUsage | None) -> dict[str, Any]:
        """Return the arguments of `admit` in `parts/rate_limiter.lua`; empty without an
        expected share.
        """
        if expected is None:
            return {}
        self.bucket = expected.bucket
        call: dict[str, Any] = {
            "bucket": expected.bucket,
            "window": self._window_ms,
            "input": expected.input_tokens,
            "output": expected.output_tokens,
        }
        if not expected.joins_line:
            call["no_line"] = True
        return {"call": call}

    def record_admission(self, expected: ExpectedUsage | None, answer: Sequence[int]) -> None:
        """Record that the call may be made.

        Args:
            answer: the second result of `admit`; empty if the call needed no admission.
        """
        self.call = None
        if expected is not None and answer:
            is_limited, ahead, at_ms, input_tokens, output_tokens = answer
            self.call = AdmittedCall(
                expected.bucket, bool(is_limited), bool(ahead), at_ms, input_tokens, output_tokens
            )

    def release_unused_share(self, usage: Usage | None) -> dict[str, Any]:
        """End the admitted call, and return the unused share that goes back to the bucket.

        A call that was cut off may have used its full share. Tokens read from a cache do not
        count.

        Args:
            usage: usage of the call; None if the call was never made.
        """
        call = self.call
        self.call = None
        if call is None or not (call.is_limited or call.goes_ahead):
            return {}
        share: dict[str, Any] = {"bucket": call.bucket, "window": self._window_ms}
        if usage is None:
            share |= {"requests": 1, "input": call.input_tokens, "output": call.output_tokens}
        elif not usage.cut_calls:
            counted_input = usage.input_tokens - usage.cache_read_tokens
            share["input"] = call.input_tokens - counted_input
            share["output"] = call.output_tokens - usage.output_tokens
            if usage.output_tokens:
                share["mean"] = usage.output_tokens
        return {"share": share}

    def encode_bucket_usage(self, usage: Usage) -> str:
        """Return the tokens of a handoff that count for the limits of its bucket, as JSON for the
        sample of `finish`. Return null if the provider has no known limits.

        Figures above `MAX_EXACT_INTEGER` are cut, because `History` could not read them.
        """
        if not self.bucket:
            return "null"
        return json.dumps(
            {
                "name": self.bucket,
                "input": min(MAX_EXACT_INTEGER, usage.input_tokens - usage.cache_read_tokens),
                "output": min(MAX_EXACT_INTEGER, usage.output_tokens),
            }
        )

    def report_limits(self, limits: RateLimits) -> None:
        """Record that the provider takes the call, with its limits. This is stored if other
        calls wait for the answer to this call, or if the provider reports limits.
        """
        reported_limits = _build_limits(limits)
        if self.call is not None and (self.call.goes_ahead or reported_limits):
            self._send_report(self.call, {"limits": reported_limits})

    def report_refusal(self, why: str, retry_after_s: float | None, limits: RateLimits) -> None:
        """Record that the provider refuses calls now. All calls wait until the provider allows
        them again; then one call goes first.
        """
        if self.call is None:
            return
        if retry_after_s is None or retry_after_s < 0:
            wait_ms = -1
        else:
            wait_ms = int(min(retry_after_s, MAX_HOLD_S) * 1000)
        backoff = {
            "first": FIRST_DELAY_S * 1000,
            "longest": MAX_DELAY_S * 1000,
            "most": MAX_HOLD_S * 1000,
        }
        # The provider took nothing from its limits, and the end of the call returns the share to
        # the bucket. So the share is subtracted here.
        share = {"input": self.call.input_tokens, "output": self.call.output_tokens}
        remaining_limits: dict[str, tuple[int, int]] = {}
        for name, (limit, remaining) in _build_limits(limits).items():
            remaining_limits[name] = (limit, remaining - share.get(name, 0))
        report = {
            "why": why,
            "retry_after": wait_ms,
            "dice": random.random(),  # noqa: S311
            **backoff,
            "limits": remaining_limits,
        }
        self._send_report(self.call, report)

    def _send_report(self, call: AdmittedCall, report: dict[str, Any]) -> None:
        """Run `record_provider_answer.lua`. Without Redis this has no effect: the call is paid
        for, and the next reply reports the limits again.
        """
        about = {"bucket": call.bucket, "window": self._window_ms, "asked_at": call.at_ms}
        with suppress(StoreUnavailable):
            self.connection.run_script(
                "record_provider_answer",
                [keys.bucket(call.bucket)],
                [self.member, json.dumps(about | report)],
            )

    @property
    def _window_ms(self) -> int:
        return max(1, int(self.window_s * 1000))


def compute_account(*parts: str | None) -> str:
    """Return a digest that names an account, from its provider, address and key."""
    text = "\n".join(part or "" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _build_limits(limits: RateLimits) -> dict[str, tuple[int, int]]:
    """Return limit and remaining amount of each reported rate limit, by the names of the bucket."""
    allowances: dict[str, Allowance | None] = {
        "requests": limits.requests,
        "input": limits.input_tokens,
        "output": limits.output_tokens,
    }
    by_name: dict[str, tuple[int, int]] = {}
    for name, allowance in allowances.items():
        if allowance is not None and allowance.limit > 0:
            by_name[name] = (allowance.limit, allowance.remaining)
    return by_name
