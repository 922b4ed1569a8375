"""The money page: spending by day, tenant, model, specialist and mode, and the caps of today."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.store.daily_budgets import DaySpending
from handoff_queue.shared.store.metrics import OTHER
from handoff_queue.shared.store.spending_history import DAY_S, MAX_DAYS, Amounts, LabelledSpending
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.console.job_list_routes import MAX_TEXT_CHARS
from handoff_queue.supervisor.serve.console.pages import render
from handoff_queue.supervisor.serve.console.session import Reads
from handoff_queue.supervisor.serve.problem_documents import Problem

PERIODS = {"1": "today", "7": "7 days", "30": "30 days", str(MAX_DAYS): f"{MAX_DAYS} days"}
"""Words for each choice of a number of days."""
DEFAULT_PERIOD = "30"
MAX_ROWS = 100
"""Most rows of a table."""
MAX_CAPS = 20
"""Most tenants with their caps on the page: the tenants with the largest spending of today."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class MoneyRow:
    """One row of a table."""

    name: str
    amounts: Amounts

    @property
    def usd(self) -> float:
        return to_usd(self.amounts.usd) or 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The spending by one label."""

    label: str
    rows: tuple[MoneyRow, ...]
    more: int
    """Rows that `rows` does not have."""

    @property
    def most_usd(self) -> float:
        return max((row.usd for row in self.rows), default=0.0)


@dataclass(frozen=True, slots=True)
class Budget:
    """The spending of today and the caps of a tenant or of the installation."""

    name: str
    spending: DaySpending

    @property
    def usd(self) -> float | None:
        return to_usd(self.spending.microusd)

    @property
    def most_usd(self) -> float | None:
        """Return the cap. None: there is no cap."""
        return to_usd(self.spending.most_microusd or None)

    @property
    def left_usd(self) -> float | None:
        if self.spending.most_microusd:
            return to_usd(max(0, self.spending.most_microusd - self.spending.microusd))
        return None

    @property
    def left_tokens(self) -> int | None:
        if self.spending.most_tokens:
            return max(0, self.spending.most_tokens - self.spending.tokens)
        return None


@dataclass(frozen=True, slots=True)
class MoneyPage:
    """The spending of a period."""

    total: Amounts
    tables: tuple[Table, ...]
    budgets: tuple[Budget, ...]
    left_s: float
    """Seconds until the next day begins."""

    @property
    def usd(self) -> float | None:
        return to_usd(self.total.usd)

    @property
    def saved_usd(self) -> float:
        """Return the money that caches saved, less the price of writing to them."""
        return to_usd(self.total.net_saved)

    @property
    def spared_usd(self) -> float:
        """Return the money that copies of the results of equal handoffs saved."""
        return to_usd(self.total.spared)


@router.get("/money")
async def money(request: Request, visit: Reads) -> Response:
    """Show the spending of a period."""
    params = request.query_params
    days = params.get("days", DEFAULT_PERIOD)
    if days not in PERIODS:
        raise Problem(422, "days: this value in the address of the page is not valid")
    tenant = visit.access.tenant
    if tenant is None:
        tenant = params.get("tenant", "").strip()[:MAX_TEXT_CHARS] or None
    page = await run_in_threadpool(read_money, visit.access, int(days), tenant)
    return render(
        request, "money.html", visit, page=page, days=days, tenant=tenant, periods=PERIODS
    )


def read_money(access: Access, days: int, tenant: str | None) -> MoneyPage:
    """Read the spending of the newest days.

    Args:
        tenant: None for all tenants.
    """
    store = access.store
    today = int(store.connection.now()) // DAY_S
    numbers = range(today, today - days, -1)
    spending = store.spending.read_days(numbers)
    if tenant is not None:
        spending = [entry for entry in spending if entry.tenant == tenant != OTHER]
    total = Amounts()
    for entry in spending:
        total.add(entry.amounts)
    tables = [_sum_by_day(spending)]
    if tenant is None:
        tables.append(_build_table("Tenant", spending, lambda entry: entry.tenant))
    tables += [
        _build_table("Model", spending, lambda entry: entry.model),
        _build_table("Agent", spending, lambda entry: entry.agent),
        _build_table("Mode", spending, lambda entry: entry.mode or "unknown"),
    ]
    budgets, left_s = _read_budgets(access, spending, today, tenant)
    return MoneyPage(total, tuple(tables), budgets, left_s)


def _sum_by_day(spending: Iterable[LabelledSpending]) -> Table:
    """Return the sums of the days with a model call, the newest first."""
    sums: dict[int, Amounts] = {}
    for entry in spending:
        sums.setdefault(entry.day, Amounts()).add(entry.amounts)
    rows: list[MoneyRow] = []
    for number in sorted(sums, reverse=True):
        name = time.strftime("%Y-%m-%d", time.gmtime(number * DAY_S))
        rows.append(MoneyRow(name, sums[number]))
    return Table("Day", tuple(rows), 0)


def _build_table(
    label: str, spending: Iterable[LabelledSpending], name_of: Callable[[LabelledSpending], str]
) -> Table:
    """Return the largest sums by a label."""
    rows = _sum_by_name(spending, name_of)
    return Table(label, tuple(rows[:MAX_ROWS]), max(0, len(rows) - MAX_ROWS))


def _sum_by_name(
    spending: Iterable[LabelledSpending], name_of: Callable[[LabelledSpending], str]
) -> list[MoneyRow]:
    """Return the sum of each name, the largest first."""
    sums: dict[str, Amounts] = {}
    for entry in spending:
        sums.setdefault(name_of(entry), Amounts()).add(entry.amounts)
    names = sorted(sums, key=lambda name: (-sums[name].usd, -sums[name].tokens, name))
    return [MoneyRow(name, sums[name]) for name in names]


def _read_budgets(
    access: Access, spending: Iterable[LabelledSpending], today: int, tenant: str | None
) -> tuple[tuple[Budget, ...], float]:
    """Return the budgets of today that the user may see, and the seconds until the next day."""
    budgets = access.store.daily_budgets
    newest = budgets.read_today(tenant or DEFAULT_TENANT)
    if tenant is not None:
        return (Budget(tenant, newest.tenant),), newest.left_s
    budget_rows = [Budget("all tenants", newest.installation)]
    spending_of_today = [entry for entry in spending if entry.day == today]
    tenant_rows = _sum_by_name(spending_of_today, lambda entry: entry.tenant)
    for row in tenant_rows[:MAX_CAPS]:
        if row.name != OTHER:
            budget_rows.append(Budget(row.name, budgets.read_today(row.name).tenant))
    return tuple(budget_rows), newest.left_s
