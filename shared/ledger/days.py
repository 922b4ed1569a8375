"""What the installation, and each tenant, may spend in a day (UTC, by Redis's clock), and what they have spent of it."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent of one day, and may be. A most of 0: no cap."""

    tokens: int
    microusd: int
    most_tokens: int
    most_microusd: int

    @property
    def reached(self) -> str:
        """The cap under which nothing is left, with what is spent of it; '': there is something left under each."""
        if self.most_microusd and self.microusd >= self.most_microusd:
            return self._money
        return self._tokens if self.most_tokens and self.tokens >= self.most_tokens else ""

    def __str__(self) -> str:
        """`$0.5 of $2, 1,200 tokens`: a figure without a cap stands for itself."""
        return f"{self._money}, {self._tokens}"

    @property
    def is_capped(self) -> bool:
        return bool(self.most_tokens or self.most_microusd)

    @property
    def _money(self) -> str:
        return _dollars(self.microusd) + (f" of {_dollars(self.most_microusd)}" if self.most_microusd else "")

    @property
    def _tokens(self) -> str:
        return f"{self.tokens:,}" + (f" of {self.most_tokens:,}" if self.most_tokens else "") + " tokens"


@dataclass(frozen=True, slots=True)
class Today:
    """The books of this day for all jobs together, and for those of one tenant."""

    installation: Spent
    tenant: Spent
    left_s: float

    @property
    def more(self) -> str:
        """When it begins anew."""
        return f"there is more at 00:00 UTC, in {_duration(self.left_s)}"


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

    def today(self, tenant: str) -> Today:
        """In one round trip."""
        left_ms, of_tenant, its_caps, of_all, their_caps = self._connection.script("day", [keys.CAPS], [tenant])
        return Today(Spent(*of_all, *their_caps), Spent(*of_tenant, *its_caps), int(left_ms) / 1000)

    def spent_up(self, tenant: str) -> str | None:
        """Which cap of today is spent, and when there is more, in one line; None: there is something left under each."""
        today = self.today(tenant)
        for spent, whose in ((today.tenant, f"tenant {tenant}"), (today.installation, "this installation")):
            if reached := spent.reached:
                return f"the budget of {whose} for today is spent ({reached}); {today.more}"
        return None


def _dollars(microusd: int) -> str:
    return f"${cost_usd(microusd):.6g}"


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60) + 1
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
