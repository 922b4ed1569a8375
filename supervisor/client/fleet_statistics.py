"""Statistics of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from handoff_queue.shared.store.daily_budgets import DaySpending
from handoff_queue.shared.store.fleet_load import FleetLoad, RateLimitBucket
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.spending_history import DAY_S, Amounts
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.names import ROLES, ROLES_QUEUE, get_queue
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.wanted_slots import NO_BACKLOG, Samples, compute_wanted_slots


@dataclass(frozen=True, slots=True)
class AgentStats:
    """Statistics of one specialist, or of all roles of the supervisor. A slot runs one handoff."""

    agent: str
    workers: int
    """Workers that serve the specialist, or supervisors, which serve the roles. 0: none."""
    slots: int
    busy: int
    queued: int
    oldest_s: float | None
    """Seconds that the oldest queued handoff has waited."""
    deferred: int
    """Handoffs that wait for rate limits, a batch or an approval without a slot."""
    is_paused: bool
    seconds: float | None
    """Median duration of the newest finished handoffs in seconds. None: there was none."""
    wanted_slots: int
    """Slots that would have work, and that the provider's limits allow.

    0 for a paused agent. While the providers of the agent refuse calls, this is at most `busy`.
    """


@dataclass(frozen=True, slots=True)
class FleetStats:
    """Statistics of the whole fleet at one moment."""

    at: float
    """Unix time in seconds, by Redis's clock."""
    open_jobs: int
    waiting_jobs: int
    """Open jobs that wait for a person."""
    supervisors: int
    agents: tuple[AgentStats, ...]
    supervisor_roles: AgentStats
    """The supervisor's roles together, under the name of their queue. Half of the slots of each
    supervisor run them.
    """
    buckets: tuple[RateLimitBucket, ...]
    spent_today: DaySpending
    cached_share: float | None
    """Share of the input tokens of today that came from a provider's cache, from 0 to 1. None:
    there was no input.
    """
    cache_saved_usd: float
    """Money that caches saved today, less the price of writing to them."""
    shared_handoffs: int
    """Handoffs of today that copied the result of an equal handoff."""
    shared_saved_usd: float
    """Money that these copies saved."""
    batch_calls: int
    """Model calls of today whose reply came from a batch of the provider."""
    batch_saved_usd: float
    """Money that these calls cost less than live calls."""
    dead_letters: int
    used_memory_bytes: int
    max_memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return the fields, with money in US dollars and null for a budget without a limit."""
        spending = self.spent_today
        return asdict(self) | {
            "spent_today": {
                "usd": to_usd(spending.microusd),
                "tokens": spending.tokens,
                "most_usd": to_usd(spending.most_microusd) if spending.most_microusd else None,
                "most_tokens": spending.most_tokens or None,
            }
        }


def compute_stats(
    load: FleetLoad,
    served: Mapping[str, ServedSpecialist],
    samples: Samples,
    spending: DaySpending,
    window_s: float,
    amounts: Amounts | None = None,
) -> FleetStats:
    """Compute the statistics.

    Args:
        window_s: window of the provider's rate limits in seconds.
        amounts: sums over all model calls of today.
    """
    amounts = amounts or Amounts()
    samples = _group_samples_by_queue(samples)
    names = _list_queue_names(load, served)
    wanted_slots = compute_wanted_slots(load, names, samples, window_s)
    stats: dict[str, AgentStats] = {}
    for name in names:
        stats[name] = _compute_agent_stats(
            name, load, served.get(name), samples.get(name, ()), wanted_slots[name]
        )
    return FleetStats(
        at=load.at,
        open_jobs=load.open_jobs,
        waiting_jobs=load.waiting_jobs,
        supervisors=load.supervisors,
        agents=tuple(stats[name] for name in names if name != ROLES_QUEUE),
        supervisor_roles=stats[ROLES_QUEUE],
        buckets=load.buckets,
        spent_today=spending,
        cached_share=amounts.cached_share,
        cache_saved_usd=to_usd(amounts.net_saved),
        shared_handoffs=amounts.copies,
        shared_saved_usd=to_usd(amounts.spared),
        batch_calls=amounts.batched,
        batch_saved_usd=to_usd(amounts.batch_saved),
        dead_letters=load.dead_letters,
        used_memory_bytes=load.used_memory_bytes,
        max_memory_bytes=load.max_memory_bytes,
    )


def read_stats(store: Store, load: FleetLoad) -> FleetStats:
    """Return the load with the served agents, the handoff times and the spending of today.

    Raises:
        StoreUnavailable: Redis is away.
    """
    served = store.presence.load_served_specialists()
    samples, _ = store.history.read({*served, *load.waiting, *ROLES})
    amounts = Amounts()
    for spending in store.spending.read_days([int(load.at) // DAY_S]):
        amounts.add(spending.amounts)
    return compute_stats(
        load,
        served,
        samples,
        store.daily_budgets.read_today(DEFAULT_TENANT).installation,
        store.fleet_load.window_s,
        amounts,
    )


def _group_samples_by_queue(samples: Samples) -> Samples:
    """Return the samples by queue. All roles of the supervisor share one queue."""
    by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for agent, agent_samples in samples.items():
        by_queue.setdefault(get_queue(agent), []).extend(agent_samples)
    return by_queue


def _list_queue_names(load: FleetLoad, served: Iterable[str]) -> list[str]:
    """Return the names of all queues that are served, have a backlog or have running handoffs."""
    names = {*served, *load.waiting, ROLES_QUEUE}
    for handoff in load.at_work:
        names.add(get_queue(handoff.agent))
    return sorted(names - {""})


def _compute_agent_stats(
    name: str,
    load: FleetLoad,
    served: ServedSpecialist | None,
    samples: Sequence[Mapping[str, Any]],
    wanted_slots: int,
) -> AgentStats:
    """Return the statistics of an agent.

    Args:
        served: what the live workers announce. None: no worker serves this agent.
        samples: newest finished handoffs, each with its duration `ms`.
        wanted_slots: see `AgentStats.wanted_slots`.
    """
    waiting = load.waiting.get(name, NO_BACKLOG)
    workers = 0
    slots = 0
    if name == ROLES_QUEUE:
        workers = load.supervisors
        slots = load.role_slots
    elif served is not None:
        workers = len(served.workers)
        slots = served.slots
    oldest_s = None
    if waiting.since is not None:
        oldest_s = max(0.0, load.at - waiting.since)
    median_s = None
    if samples:
        median_s = median(sample["ms"] for sample in samples) / 1000
    return AgentStats(
        agent=name,
        workers=workers,
        slots=slots,
        busy=load.count_busy_slots(name),
        queued=waiting.handoffs,
        oldest_s=oldest_s,
        deferred=load.count_deferred(name),
        is_paused=name in load.paused,
        seconds=median_s,
        wanted_slots=wanted_slots,
    )
