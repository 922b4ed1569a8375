"""The rate limiter of one claim's model calls: their share of a bucket's limits, and the provider's
answers about these limits.

All processes share a bucket (one model under one account) in Redis; `parts/rate_limiter.lua` has its
rules. The script that reserves the budget of a call also admits the call. A bucket without limits
costs no extra round trip, except for its first call.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.agent.retry_policy import FIRST_DELAY_S, LONGEST_DELAY_S, LONGEST_HOLD_S
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fleet_history import MOST
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.shared.types.rate_limits import Allowance, Expected, RateLimits
from handoff_queue.shared.types.usage import Usage


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """Share of the limits that an admitted call has taken."""

    lane: str
    is_limited: bool
    goes_ahead: bool
    """True if the other calls wait for the provider's answer to this call."""
    at_ms: int
    """Unix time, Redis's."""
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class RateLimiter:
    """Rate limiter of one claim, which makes one call at a time."""

    connection: Connection
    member: str
    """`job/handoff`"""
    window_s: float
    """The time that limits are given for."""
    lane: str = ""
    """Bucket of the handoff's calls; empty if it has no limits."""
    taken: AdmittedCall | None = None

    def admission_arguments(self, expected: Expected | None) -> dict[str, Any]:
        """Return the arguments of `admit`; empty if the bucket has no limits."""
        if expected is None:
            return {}
        self.lane = expected.lane
        asked = {
            "lane": expected.lane,
            "input": expected.input_tokens,
            "output": expected.output_tokens,
        }
        return {"pace": asked | {"window": self._window_ms}}

    def record_admission(self, expected: Expected | None, answer: Sequence[int]) -> None:
        """Record that the call may be made.

        Args:
            answer: the share that `admit` has taken; empty if the bucket has no limits.
        """
        self.taken = None
        if expected is not None and answer:
            limited, ahead, at_ms, input_tokens, output_tokens = answer
            self.taken = AdmittedCall(
                expected.lane, bool(limited), bool(ahead), at_ms, input_tokens, output_tokens
            )

    def returned_share(self, usage: Usage | None) -> dict[str, Any]:
        """Return the share that goes back to the bucket after a call.

        None as usage means that the call was never made. A call that was cut off may have used its
        full share. Tokens read from a cache are free.
        """
        taken = self.taken
        self.taken = None
        if taken is None or not (taken.is_limited or taken.goes_ahead):
            return {}
        back: dict[str, Any] = {"lane": taken.lane, "window": self._window_ms}
        if usage is None:
            back |= {"requests": 1, "input": taken.input_tokens, "output": taken.output_tokens}
        elif not usage.cut_calls:
            read = usage.input_tokens - usage.cache_read_tokens
            back |= {
                "input": taken.input_tokens - read,
                "output": taken.output_tokens - usage.output_tokens,
            }
            if usage.output_tokens:
                back |= {"mean": usage.output_tokens}
        return {"pace": back}

    def usage_of_lane(self, usage: Usage) -> str:
        """Return what all calls of a handoff took of their lane's limits, as JSON for
        `finish`; null: no provider counts them.

        Figures above `MOST` are cut: `History` could not read them.
        """
        if not self.lane:
            return "null"
        return json.dumps(
            {
                "name": self.lane,
                "input": min(MOST, usage.input_tokens - usage.cache_read_tokens),
                "output": min(MOST, usage.output_tokens),
            }
        )

    def heard(self, limits: RateLimits) -> None:
        """Record that the provider takes the call, with its limits. It is stored if other calls
        wait for it, or if there are limits.
        """
        told = _limits(limits)
        if self.taken is not None and (self.taken.goes_ahead or told):
            self._tell(self.taken, {"limits": told})

    def refused(self, why: str, retry_after_s: float | None, limits: RateLimits) -> None:
        """Record that the provider refuses calls now. All calls wait until the provider allows them
        again; then one call goes first.
        """
        if self.taken is None:
            return
        if retry_after_s is None or retry_after_s < 0:
            wait_ms = -1
        else:
            wait_ms = int(min(retry_after_s, LONGEST_HOLD_S) * 1000)
        backoff = {
            "first": FIRST_DELAY_S * 1000,
            "longest": LONGEST_DELAY_S * 1000,
            "most": LONGEST_HOLD_S * 1000,
        }
        flows_back = {
            "input": self.taken.input_tokens,
            "output": self.taken.output_tokens,
        }  # with the call's end; the server took nothing
        left = {
            name: (limit, left - flows_back.get(name, 0))
            for name, (limit, left) in _limits(limits).items()
        }
        report = {
            "why": why,
            "retry_after": wait_ms,
            "dice": random.random(),  # noqa: S311
            **backoff,
            "limits": left,
        }
        self._tell(self.taken, report)

    def _tell(self, taken: AdmittedCall, report: dict[str, Any]) -> None:
        about = {"lane": taken.lane, "window": self._window_ms, "asked_at": taken.at_ms}
        with suppress(
            StoreUnavailable
        ):  # the call is paid for, and worth more than this: the next reply says it again
            self.connection.script(
                "report_limits", [keys.pace(taken.lane)], [self.member, json.dumps(about | report)]
            )

    @property
    def _window_ms(self) -> int:
        return max(1, int(self.window_s * 1000))


def account_of(*parts: str | None) -> str:
    """Return a name for an account from its provider, address and key, without revealing them."""
    return hashlib.sha256("\n".join(part or "" for part in parts).encode()).hexdigest()[:12]


def _limits(limits: RateLimits) -> dict[str, tuple[int, int]]:
    named: dict[str, Allowance | None] = {
        "requests": limits.requests,
        "input": limits.input_tokens,
        "output": limits.output_tokens,
    }
    by_name: dict[str, tuple[int, int]] = {}
    for name, allowance in named.items():
        if allowance is not None and allowance.limit > 0:
            by_name[name] = (allowance.limit, allowance.remaining)
    return by_name
