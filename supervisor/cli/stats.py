"""`handoff stats`: print the load of the fleet, for people and for autoscalers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.tables import Column, cut_middle, fit_table
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    get_stdout,
    write_as_json,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson
from handoff_queue.supervisor.client.fleet_statistics import AgentStats, FleetStats, read_stats
from handoff_queue.supervisor.text.sanitizing import replace_unsafe

if TYPE_CHECKING:
    from handoff_queue.shared.store.daily_budgets import DaySpending
    from handoff_queue.shared.store.fleet_load import RateLimitBucket

SHORT = 6
"""Shown characters of an account's digest."""


def stats(as_json: AsJson = False) -> int:
    """Print slots, queues, rate limits and spending of the fleet.

    An autoscaler uses `wanted_slots` of an agent: the slots that would have work, as far as the
    rate limits of the model allow.

      handoff stats --json | jq '.agents[] | {agent, wanted_slots}'
    """
    store = connect_to_broker().store
    fleet_stats = read_stats(store, store.fleet_load.now())
    if as_json:
        write_as_json(fleet_stats.as_json())
    else:
        get_stdout().print(StatsColumns(fleet_stats))
    return OK


_COLUMNS = (
    Column("agent", 0, is_text=True, least=10, shorten_cell=cut_middle),
    Column("workers", 7),
    Column("slots", 3),
    Column("busy", 1),
    Column("queued", 2),
    Column("oldest", 5),
    Column("deferred", 6),
    Column("a handoff", 8),
    Column("wanted", 4),
)


@dataclass(frozen=True)
class StatsColumns:
    """The fleet in the columns that fit. `folds_idle` puts all idle agents on one line."""

    fleet_stats: FleetStats
    folds_idle: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        idle: list[str] = []
        rows: list[tuple[Sequence[str], str]] = []
        for agent in (*self.fleet_stats.agents, self.fleet_stats.supervisor_roles):
            if self.folds_idle and _is_idle(agent):
                idle.append(replace_unsafe(agent.agent))
            else:
                rows.append((_build_cells(agent), _choose_style(agent)))
        yield Text(format_headline(self.fleet_stats))
        yield Text("")
        yield fit_table(_COLUMNS, rows, options.max_width)
        if idle:
            line = f"{len(idle)} idle: {', '.join(idle)}"
            yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")
        for line in _iterate_lines(self.fleet_stats):
            yield Text(line, style="yellow")


def _is_idle(agent: AgentStats) -> bool:
    return not (agent.busy or agent.queued or agent.deferred or agent.is_paused)


def format_headline(fleet_stats: FleetStats) -> str:
    """Return the open jobs, the supervisors, the spending of today and the memory of Redis.

    Example: `3 open jobs  2 supervisors  $0.5000 of $2.0000, 1,200 tokens today  Redis 12 MB`.
    """
    supervisors = "no supervisor"
    if fleet_stats.supervisors:
        supervisors = format_count(fleet_stats.supervisors, "supervisor")
    memory = f"Redis {fleet_stats.used_memory_bytes / 1e6:.0f} MB"
    if fleet_stats.max_memory_bytes:
        memory += f" of {fleet_stats.max_memory_bytes / 1e6:.0f}"
    jobs = format_count(fleet_stats.open_jobs, "open job")
    if fleet_stats.waiting_jobs:
        jobs += f" ({fleet_stats.waiting_jobs:,} waiting for a person)"
    saved = _from_cache(fleet_stats)
    saved += _describe_shared_results(fleet_stats)
    saved += _describe_batch_calls(fleet_stats)
    spending_text = f"{_describe_spending(fleet_stats.spent_today)} today{saved}"
    return "  ".join((jobs, supervisors, spending_text, memory))


def _from_cache(fleet_stats: FleetStats) -> str:
    """Return the share of the input that came from a cache, and the money that this saved."""
    if not fleet_stats.cached_share:
        return ""
    saved_usd = fleet_stats.cache_saved_usd
    verb = "saved" if saved_usd >= 0 else "lost"
    effect = f"{format_money(abs(saved_usd))} {verb}"
    return f" ({fleet_stats.cached_share:.0%} of the input cached, {effect})"


def _describe_shared_results(fleet_stats: FleetStats) -> str:
    """Return the number of copied results, and the money that the copies saved."""
    if not fleet_stats.shared_handoffs:
        return ""
    copies = format_count(fleet_stats.shared_handoffs, "shared result")
    return f" ({copies}, {format_money(fleet_stats.shared_saved_usd)} saved)"


def _describe_batch_calls(fleet_stats: FleetStats) -> str:
    """Return the number of calls in batches, and the saved money."""
    if not fleet_stats.batch_calls:
        return ""
    calls = format_count(fleet_stats.batch_calls, "call")
    return f" ({calls} in batches, {format_money(fleet_stats.batch_saved_usd)} saved)"


def _describe_spending(spending: DaySpending) -> str:
    """Return the spending with its limits, if there are any."""
    of_limit = ""
    if spending.most_microusd:
        of_limit = f" of {format_money(to_usd(spending.most_microusd))}"
    tokens = format_count(spending.tokens, "token")
    if spending.most_tokens:
        tokens = f"{spending.tokens:,} of {format_count(spending.most_tokens, 'token')}"
    return f"{format_money(to_usd(spending.microusd))}{of_limit}, {tokens}"


def _build_cells(agent: AgentStats) -> tuple[str, ...]:
    """Return the row of an agent in the table, one text a column."""
    name = replace_unsafe(agent.agent)
    if agent.is_paused:
        name += " (paused)"
    oldest = ""
    if agent.oldest_s is not None:
        oldest = f"{agent.oldest_s:.0f} s"
    duration = ""
    if agent.seconds is not None:
        duration = f"{agent.seconds:.1f} s"
    return (
        name,
        str(agent.workers or "-"),
        str(agent.slots or "-"),
        str(agent.busy),
        str(agent.queued),
        oldest,
        str(agent.deferred or ""),
        duration,
        str(agent.wanted_slots),
    )


def _choose_style(agent: AgentStats) -> str:
    if agent.queued and not agent.slots:
        return "red"
    if agent.is_paused or agent.wanted_slots > agent.slots > 0:
        return "yellow"
    if agent.busy or agent.queued:
        return "default"
    return "dim"


def _iterate_lines(fleet_stats: FleetStats) -> Iterator[str]:
    accounts_of = Counter(bucket.model for bucket in fleet_stats.buckets)
    for bucket in fleet_stats.buckets:
        yield _format_bucket(bucket, fleet_stats.at, is_alone=accounts_of[bucket.model] == 1)
    if fleet_stats.dead_letters:
        yield f"{format_count(fleet_stats.dead_letters, 'dead letter')}: handoff dead list"


def _format_bucket(bucket: RateLimitBucket, at: float, *, is_alone: bool) -> str:
    """Return the line about the rate limits of one account for one model.

    Args:
        at: time of the figures, in Unix seconds.
        is_alone: True if no other account calls the same model.
    """
    limits: list[str] = []
    for name, limit in bucket.limits.items():
        limits.append(f"{name} {limit.remaining:,} of {limit.limit:,} left")
    refusal = ""
    if bucket.refused_until:
        refusal = f"; no call for {bucket.refused_until - at:.0f} s: {replace_unsafe(bucket.why)}"
    waiting = ""
    if bucket.waiting:
        waiting = f"; {format_count(bucket.waiting, 'call')} waiting"
    account = ""
    if not is_alone:
        account = f" (account {bucket.account[:SHORT]})"
    known = ", ".join(limits) or "no limits known"
    return f"{replace_unsafe(bucket.model)}{account}: {known}{refusal}{waiting}"
