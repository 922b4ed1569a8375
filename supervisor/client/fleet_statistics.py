"""Statistics of the fleet, and usage of jobs.

The length of a queue alone misleads an autoscaler. If the provider admits no more calls,
additional workers only wait. So the wanted slots of a role are cut to what the rate limits
allow. These are the limits of the buckets that its newest handoffs used: requests, input
tokens and output tokens. Roles that share a bucket get fair shares. An unknown limit has no
effect.

While a bucket is refused, its deferred and queued handoffs need no slot. Only handoffs that
have a slot keep it.

`fair_parts` gives each role a part of its wanted slots. All parts grow together from 0 until a
limit is full. The roles that use the full limit stop there, and the others continue. The result
is max-min fair: a role could only get more if a role with an equal or smaller part got less
(progressive filling; Bertsekas and Gallager, "Data Networks", 1992, 6.5.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from handoff_queue.shared.store.daily_budget import DaySpending
from handoff_queue.shared.store.fleet_load import FleetLoad, QueueBacklog, RateLimitBucket
from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.spending_history import DAY_S, Amounts
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.names import ROLES, ROLES_QUEUE, queue_of
from handoff_queue.shared.types.usage import cost_usd

Limit = tuple[str, str]
"""A rate-limit bucket, and the limited quantity: requests, input tokens or output tokens."""


NEWEST = 50
"""Newest handoffs of a role that set its wanted slots, so that a changed model shows soon."""
NO_BACKLOG = QueueBacklog(0, None)
Samples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Usage of the newest handoffs, by role: see `History.read`."""


def fair_parts(
    wants: Mapping[str, Mapping[Limit, float]], allowed: Mapping[Limit, float]
) -> dict[str, float]:
    """Return the part of its wanted work, from 0 to 1, that each role gets.

    Args:
        wants: for each role, the usage of each limit in a second.
        allowed: the allowance of each known limit in a second.
    """
    growing, parts = set(wants), dict.fromkeys(wants, 1.0)
    while growing and allowed:
        full_at: list[tuple[float, Limit]] = []
        for limit, most in allowed.items():
            full_at.append((_part_when_full(limit, most, wants, growing, parts), limit))
        part, first_limit = min(full_at)
        if part >= 1.0:
            break
        for role in list(growing):
            if wants[role].get(first_limit):
                parts[role] = part
                growing.remove(role)
    return parts


def _part_when_full(
    limit: Limit,
    most: float,
    wants: Mapping[str, Mapping[Limit, float]],
    growing: set[str],
    parts: Mapping[str, float],
) -> float:
    """Return the part of the growing roles at which a limit is full. 1 or more: the limit does
    not fill.
    """
    asked = taken = 0.0
    for role, usage in wants.items():
        if role in growing:
            asked += usage.get(limit, 0.0)
        else:
            taken += parts[role] * usage.get(limit, 0.0)
    if asked > 0:
        return max(0.0, most - taken) / asked
    return float("inf")


def usage_of(standing: JobStanding | HandoffStanding) -> dict[str, Any]:
    """Return the counted usage of a job or a handoff, in the form of `JobResult.usage`."""
    cut_usd = None
    if standing.cost_microusd is not None:
        cut_usd = cost_usd(standing.cut_microusd)
    return {
        "turns": standing.turns,
        "input_tokens": standing.input_tokens,
        "output_tokens": standing.output_tokens,
        "cost_usd": cost_usd(standing.cost_microusd),
        "cut": {
            "calls": standing.cut_calls,
            "tokens": standing.cut_tokens,
            "cost_usd": cut_usd,
        },
    }


@dataclass(frozen=True, slots=True)
class RoleStats:
    """Statistics of one specialist, or of all roles of the supervisor. A slot runs one handoff."""

    role: str
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

    0 for a paused role. While the providers of the role refuse calls, this is at most `busy`.
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
    roles: tuple[RoleStats, ...]
    supervisor_roles: RoleStats
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
        spent = self.spent_today
        return asdict(self) | {
            "spent_today": {
                "usd": cost_usd(spent.microusd),
                "tokens": spent.tokens,
                "most_usd": cost_usd(spent.most_microusd) if spent.most_microusd else None,
                "most_tokens": spent.most_tokens or None,
            }
        }


def stats_of(
    load: FleetLoad,
    served: Mapping[str, ServedSpecialist],
    samples: Samples,
    spent: DaySpending,
    window_s: float,
    amounts: Amounts | None = None,
) -> FleetStats:
    """Compute the statistics.

    Args:
        window_s: window of the provider's rate limits in seconds.
        amounts: sums over all model calls of today.
    """
    amounts = amounts or Amounts()
    samples = _by_queue(samples)
    names = _queue_names(load, served)
    refused = {bucket.name for bucket in load.buckets if bucket.refused_until is not None}
    demand: dict[str, int] = {}
    wants: dict[str, dict[Limit, float]] = {}
    for name in names:
        newest = sorted(samples.get(name, ()), key=_ended_at, reverse=True)[:NEWEST]
        demand[name] = _demand(load, name, _refused_part(load, name, newest, refused))
        wants[name] = {}
        for limit, amount in _usage_per_slot(newest).items():
            wants[name][limit] = demand[name] * amount
    parts = fair_parts(wants, _allowed(load.buckets, window_s))
    stats: dict[str, RoleStats] = {}
    for name in names:
        wanted = math.ceil(round(demand[name] * parts[name], 6))
        stats[name] = _role(name, load, served.get(name), samples.get(name, ()), wanted)
    return FleetStats(
        at=load.at,
        open_jobs=load.open_jobs,
        waiting_jobs=load.waiting_jobs,
        supervisors=load.supervisors,
        roles=tuple(stats[name] for name in names if name != ROLES_QUEUE),
        supervisor_roles=stats[ROLES_QUEUE],
        buckets=load.buckets,
        spent_today=spent,
        cached_share=amounts.cached_share,
        cache_saved_usd=cost_usd(amounts.net_saved),
        shared_handoffs=amounts.copies,
        shared_saved_usd=cost_usd(amounts.spared),
        batch_calls=amounts.batched,
        batch_saved_usd=cost_usd(amounts.batch_saved),
        dead_letters=load.dead_letters,
        used_memory_bytes=load.used_memory_bytes,
        max_memory_bytes=load.max_memory_bytes,
    )


def stats_now(store: Store, load: FleetLoad) -> FleetStats:
    """Return the load with the served roles, the handoff times and the spending of today.

    Raises:
        StoreUnavailable: Redis is away.
    """
    served = store.presence.served()
    samples, _ = store.history.read({*served, *load.waiting, *ROLES})
    amounts = Amounts()
    for spending in store.spending.days([int(load.at) // DAY_S]):
        amounts.add(spending.amounts)
    return stats_of(
        load,
        served,
        samples,
        store.daily_budgets.today(DEFAULT_TENANT).installation,
        store.fleet_load.window_s,
        amounts,
    )


def _by_queue(samples: Samples) -> Samples:
    """Return the samples by queue. All roles of the supervisor share one queue."""
    by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for role, role_samples in samples.items():
        by_queue.setdefault(queue_of(role), []).extend(role_samples)
    return by_queue


def _queue_names(load: FleetLoad, served: Iterable[str]) -> list[str]:
    """Return the names of all queues that are served, have a backlog or have running handoffs."""
    names = {*served, *load.waiting, ROLES_QUEUE}
    for handoff in load.at_work:
        names.add(queue_of(handoff.role))
    return sorted(names - {""})


def _ended_at(sample: Mapping[str, Any]) -> float:
    return float(sample.get("at", 0))


def _demand(load: FleetLoad, role: str, refused_part: float) -> int:
    """Return the slots that a role could use. `refused_part`: of its waiting handoffs, from 0
    to 1.
    """
    if role in load.paused:
        return 0
    following = sum(work.role == role and work.follows for work in load.at_work)
    limited = load.limited(role) - following  # a copy of a result takes a moment
    waiting = limited + load.waiting.get(role, NO_BACKLOG).handoffs
    return load.busy(role) + math.ceil(round(waiting * (1.0 - refused_part), 6))


def _refused_part(
    load: FleetLoad, role: str, samples: Sequence[Mapping[str, Any]], refused: Set[str]
) -> float:
    """Return the part of a role's calls, from 0 to 1, that goes to refused buckets.

    A role without finished handoffs counts as refused if handoffs wait for rate limits, or if all
    buckets are refused.
    """
    turns = refused_turns = 0
    for sample in samples:
        if sample["bucket"] and sample["turns"] > 0:
            turns += sample["turns"]
            if sample["bucket"]["name"] in refused:
                refused_turns += sample["turns"]
    if turns:
        return refused_turns / turns
    if refused and (load.limited(role) > 0 or len(refused) == len(load.buckets)):
        return 1.0
    return 0.0


def _allowed(buckets: Sequence[RateLimitBucket], window_s: float) -> dict[Limit, float]:
    """Return the providers' allowance in a second, as far as they have reported it."""
    allowed: dict[Limit, float] = {}
    for bucket in buckets:
        for limit_name, allowance in bucket.limits.items():
            allowed[(bucket.name, limit_name)] = allowance.limit / window_s
    return allowed


def _usage_per_slot(samples: Sequence[Mapping[str, Any]]) -> dict[Limit, float]:
    """Return the usage of each limit in a second by one slot that always works.

    Empty: no usage is known, or no provider reports limits.
    """
    known = [sample for sample in samples if sample["turns"] > 0]
    turns = 0
    for sample in known:
        turns += sample["turns"]
    works_s = turns * _seconds_per_turn(known)
    if works_s <= 0:
        return {}
    usage: dict[Limit, float] = {}
    for sample in known:
        if bucket := sample["bucket"]:
            amounts = {
                "requests": sample["turns"],
                "input": bucket["input"],
                "output": bucket["output"],
            }
            for limit_name, amount in amounts.items():
                limit = (bucket["name"], limit_name)
                usage[limit] = usage.get(limit, 0.0) + amount / works_s
    return usage


def _seconds_per_turn(samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the median duration of a turn without waits for the provider; 0 without samples.

    The median ignores handoffs that lasted longer because of a pause or a dead worker.
    """
    if not samples:
        return 0.0
    milliseconds: list[float] = []
    for sample in samples:
        milliseconds.append(max(0, sample["ms"] - sample["waited_ms"]) / sample["turns"])
    return median(milliseconds) / 1000


def _role(
    name: str,
    load: FleetLoad,
    served: ServedSpecialist | None,
    samples: Sequence[Mapping[str, Any]],
    wanted: int,
) -> RoleStats:
    waiting = load.waiting.get(name, NO_BACKLOG)
    workers = slots = 0
    if name == ROLES_QUEUE:
        workers, slots = load.supervisors, load.role_slots
    elif served is not None:
        workers, slots = len(served.workers), served.slots
    return RoleStats(
        role=name,
        workers=workers,
        slots=slots,
        busy=load.busy(name),
        queued=waiting.handoffs,
        oldest_s=None if waiting.since is None else max(0.0, load.at - waiting.since),
        deferred=load.deferred(name),
        is_paused=name in load.paused,
        seconds=median(sample["ms"] for sample in samples) / 1000 if samples else None,
        wanted_slots=wanted,
    )
