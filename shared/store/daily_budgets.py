"""Caps: the daily budgets of the installation and of each tenant, their spending, and the most
open jobs of a tenant. A day is a UTC day by Redis's clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.errors import BudgetSpent, TooManyOpenJobs
from handoff_queue.shared.types.usage import format_dollars, to_microusd


@dataclass(frozen=True, slots=True)
class DailyCaps:
    """Caps of a day; money is micro-dollars. None: no cap. `parts/budgets.lua` reads them
    under the names of these fields.
    """

    day_tokens: int | None = None
    day_usd: int | None = None
    tenant_day_tokens: int | None = None
    """Tokens that each tenant may use in a day."""
    tenant_day_usd: int | None = None
    tenant_open_jobs: int | None = None
    """Jobs of each tenant that may be open at once."""


def read_caps(settings: Settings) -> DailyCaps:
    """Return the caps of the settings."""
    return DailyCaps(
        day_tokens=settings.day_tokens,
        day_usd=to_microusd(settings.day_usd),
        tenant_day_tokens=settings.tenant_day_tokens,
        tenant_day_usd=to_microusd(settings.tenant_day_usd),
        tenant_open_jobs=settings.tenant_open_jobs,
    )


@dataclass(frozen=True, slots=True)
class DaySpending:
    """Spending of one day, and its caps. A cap of 0 means no cap. The fields have the order of
    the answer of `daily_budget.lua`.
    """

    tokens: int
    microusd: int
    most_tokens: int
    most_microusd: int
    needed_tokens: int = 0
    """Tokens that the first call of a handoff needed and did not get; 0 if no such call was
    refused today.
    """
    needed_microusd: int = 0
    """The same in money."""

    @property
    def reached(self) -> str:
        """Return the spending and the cap that leaves too little for a new job; '' if each cap
        leaves enough as far as is known.
        """
        if self.most_microusd and self._left_microusd < max(1, self.needed_microusd):
            return self._money + self.need
        if self.most_tokens and self._left_tokens < max(1, self.needed_tokens):
            return self._tokens + self.need
        return ""

    @property
    def need(self) -> str:
        """Return the part of a message with the amount that did not fit into the rest of the
        day.

        The part is '' if nothing is left, or if no call was too large.
        """
        if 0 < self._left_microusd < self.needed_microusd:
            return f", and a call may need {format_dollars(self.needed_microusd)}"
        if 0 < self._left_tokens < self.needed_tokens:
            return f", and a call may need {self.needed_tokens:,}"
        return ""

    def __str__(self) -> str:
        """Return the spending with its caps, such as `$0.5 of $2, 1,200 tokens`."""
        return f"{self._money}, {self._tokens}"

    @property
    def is_capped(self) -> bool:
        return bool(self.most_tokens or self.most_microusd)

    @property
    def _left_microusd(self) -> int:
        return self.most_microusd - self.microusd

    @property
    def _left_tokens(self) -> int:
        return self.most_tokens - self.tokens

    @property
    def _money(self) -> str:
        if self.most_microusd:
            return f"{format_dollars(self.microusd)} of {format_dollars(self.most_microusd)}"
        return format_dollars(self.microusd)

    @property
    def _tokens(self) -> str:
        if self.most_tokens:
            return f"{self.tokens:,} of {self.most_tokens:,} tokens"
        return f"{self.tokens:,} tokens"


@dataclass(frozen=True, slots=True)
class TodaysBudgets:
    """Spending of today: of all jobs, and of the jobs of one tenant."""

    installation: DaySpending
    tenant: DaySpending
    left_s: float
    """Seconds until the next day begins."""
    open_jobs: int = 0
    """Jobs of the tenant that have not ended."""
    most_open_jobs: int = 0
    """The most open jobs that the tenant may have; 0: no limit."""

    @property
    def more(self) -> str:
        """Return the part of a message that says when the next day begins."""
        return f"there is more at 00:00 UTC, in {_format_duration(self.left_s)}"


class DailyBudgets:
    """The daily budgets in the store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set_caps(self, caps: DailyCaps, since_ms: int | None = None) -> int:
        """Set the caps for all processes. Return the time of these caps, in Unix ms by Redis's
        clock.

        Args:
            since_ms: time at which these caps were first set, or None for now. With a time, the
                caps are set only if Redis has no caps of that time or a later one.
        """
        arguments: list[Any] = ["" if since_ms is None else since_ms]
        for name, cap in asdict(caps).items():
            if cap is not None:
                arguments += (name, cap)
        return int(self._connection.run_script("set_daily_caps", [keys.CAPS], arguments))

    def read_today(self, tenant: str) -> TodaysBudgets:
        """Return the spending of today, in one round trip."""
        left_ms, of_tenant, of_all, open_jobs = self._connection.run_script(
            "daily_budget", [keys.CAPS], [tenant]
        )
        return TodaysBudgets(
            DaySpending(*of_all), DaySpending(*of_tenant), int(left_ms) / 1000, *open_jobs
        )

    def find_refusal(self, tenant: str) -> BudgetSpent | TooManyOpenJobs | None:
        """Return the error of a tenant that may submit no job now; None if it may."""
        today = self.read_today(tenant)
        problem = _find_problem(today, tenant)
        if problem is not None:
            return BudgetSpent(problem)
        if 0 < today.most_open_jobs <= today.open_jobs:
            return TooManyOpenJobs.of(tenant, today.most_open_jobs)
        return None


def _find_problem(today: TodaysBudgets, tenant: str) -> str | None:
    """Return one line with the cap of today that is spent or leaves too little for a new job. It
    has the time at which the next day begins. Return None if there is enough.
    """
    budgets = ((today.tenant, f"tenant {tenant}"), (today.installation, "this installation"))
    for budget, whose in budgets:
        if budget.reached:
            return f"the budget of {whose} for today is spent ({budget.reached}); {today.more}"
    return None


def _format_duration(seconds: float) -> str:
    minutes = int(seconds // 60) + 1
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min"
