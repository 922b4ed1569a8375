"""The pace of one claim's model calls: what they take of their lane's limits, and what the
provider says to them.

A lane (one model under one account) is shared by all processes, in Redis; `scripts/pacing.lua`
has its rules. A call is let go in the same script that reserves its budget. A lane without
limits costs no round trip more, but for its very first call.
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
    """What a call has taken that was let go."""

    lane: str
    is_limited: bool
    goes_ahead: bool
    """The others wait for what the provider says to it."""
    at_ms: int
    """Unix time, Redis's."""
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class RateLimiter:
    """Of one claim, which makes one call at a time."""

    connection: Connection
    member: str
    """`job/handoff`"""
    window_s: float
    """The time that limits are given for."""
    lane: str = ""
    """That of the handoff's calls; empty: nobody counts them."""
    taken: AdmittedCall | None = None

    def order(self, expected: Expected | None) -> dict[str, Any]:
        """What `admit` is asked; nothing where nobody counts."""
        if expected is None:
            return {}
        self.lane = expected.lane
        asked = {
            "lane": expected.lane,
            "input": expected.input_tokens,
            "output": expected.output_tokens,
        }
        return {"pace": asked | {"window": self._window_ms}}

    def let_go(self, expected: Expected | None, answer: Sequence[int]) -> None:
        """The call may be made. `answer`: what `admit` says it has taken; empty where nobody
        counts.
        """
        self.taken = None
        if expected is not None and answer:
            limited, ahead, at_ms, input_tokens, output_tokens = answer
            self.taken = AdmittedCall(
                expected.lane, bool(limited), bool(ahead), at_ms, input_tokens, output_tokens
            )

    def back(self, usage: Usage | None) -> dict[str, Any]:
        """What flows back after a call. None: it was never made. A cut one may have taken all;
        what was read from a cache is free.
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
            back |= {"mean": usage.output_tokens} if usage.output_tokens else {}
        return {"pace": back}

    def took(self, usage: Usage) -> str:
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
        """The provider takes the call. Told to the others where they wait for it, or where
        there are limits.
        """
        told = _limits(limits)
        if self.taken is not None and (self.taken.goes_ahead or told):
            self._tell(self.taken, {"limits": told})

    def refused(self, why: str, retry_after_s: float | None, limits: RateLimits) -> None:
        """The provider takes no call now: nobody makes one until it may again, and then one
        goes ahead.
        """
        if self.taken is None:
            return
        wait_ms = (
            -1
            if retry_after_s is None or retry_after_s < 0
            else int(min(retry_after_s, LONGEST_HOLD_S) * 1000)
        )
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
        said = {
            "why": why,
            "retry_after": wait_ms,
            "dice": random.random(),  # noqa: S311
            **backoff,
            "limits": left,
        }
        self._tell(self.taken, said)

    def _tell(self, taken: AdmittedCall, said: dict[str, Any]) -> None:
        about = {"lane": taken.lane, "window": self._window_ms, "asked_at": taken.at_ms}
        with suppress(
            StoreUnavailable
        ):  # the call is paid for, and worth more than this: the next reply says it again
            self.connection.script(
                "pace", [keys.pace(taken.lane)], [self.member, json.dumps(about | said)]
            )

    @property
    def _window_ms(self) -> int:
        return max(1, int(self.window_s * 1000))


def account_of(*parts: str | None) -> str:
    """Names an account by provider, address and key, and tells none of them."""
    return hashlib.sha256("\n".join(part or "" for part in parts).encode()).hexdigest()[:12]


def _limits(limits: RateLimits) -> dict[str, tuple[int, int]]:
    named: dict[str, Allowance | None] = {
        "requests": limits.requests,
        "input": limits.input_tokens,
        "output": limits.output_tokens,
    }
    return {
        name: (one.limit, one.remaining)
        for name, one in named.items()
        if one is not None and one.limit > 0
    }
