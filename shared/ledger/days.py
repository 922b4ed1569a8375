"""What the installation, and each tenant, may spend in a day (UTC, by Redis's clock), and what they have spent of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from shared.config import Settings
from shared.ledger import keys
from shared.ledger.connection import Connection, in_our_words
from shared.wire.usage import cost_usd, microusd


@dataclass(frozen=True, slots=True)
class Caps:
    """The most in a day; money is micro-dollars. None: no cap. Fields are named as `books.lua` reads them."""

    day_tokens: int | None = None
    day_usd: int | None = None
    tenant_day_tokens: int | None = None
    """Of each tenant."""
    tenant_day_usd: int | None = None


def caps_from(settings: Settings) -> Caps:
    return Caps(settings.day_tokens, microusd(settings.day_usd), settings.tenant_day_tokens, microusd(settings.tenant_day_usd))


class Days:
    """The books above those of jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set_caps(self, caps: Caps) -> None:
        """They hold at once, for all processes, until they are set again."""
        named = asdict(caps)
        unset = [name for name, most in named.items() if most is None]
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=True)
            if unset:
                pipe.hdel(keys.CAPS, *unset)
            if given := {name: most for name, most in named.items() if most is not None}:
                pipe.hset(keys.CAPS, mapping=given)
            pipe.execute()

    def spent_up(self, tenant: str) -> str | None:
        """Which cap of today is spent, and when there is more, in one line; None: there is something left under each."""
        left_ms, spent, caps, all_spent, all_caps = self._connection.script("day", [keys.CAPS], [tenant])
        whose = _reached(spent, caps, f"tenant {tenant}") or _reached(all_spent, all_caps, "this installation")
        return f"{whose}; there is more at 00:00 UTC, in {_duration(int(left_ms) / 1000)}" if whose else None


def _reached(spent: Sequence[int], caps: Sequence[int], whose: str) -> str | None:
    (tokens, usd), (most_tokens, most_usd) = spent, caps
    if most_usd and usd >= most_usd:
        return f"the budget of {whose} for today is spent (${cost_usd(usd):.6g} of ${cost_usd(most_usd):.6g})"
    if most_tokens and tokens >= most_tokens:
        return f"the budget of {whose} for today is spent ({tokens:,} of {most_tokens:,} tokens)"
    return None


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60) + 1
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
