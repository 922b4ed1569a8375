"""Statistics of the fleet, and usage of jobs.

The length of a queue alone misleads an autoscaler. If the provider admits no more calls, additional
workers only wait. So the wanted slots of a role are compared with each rate limit of the buckets
that its newest handoffs used: requests, input tokens and output tokens. Roles that share a bucket
get fair shares (`supervisor.client.fair_share`). An unknown limit has no effect.

While a bucket is refused, its throttled and queued handoffs need no slot. Only handoffs that have a
slot keep it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from handoff_queue.shared.store.daily_budget import DaySpending
from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.queue_load import FleetLoad, QueueBacklog, RateLimitBucket
from handoff_queue.shared.types.names import ROLES_QUEUE, queue_of
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.client.fair_share import Limit, fair_parts


def usage_of(books: JobStanding | HandoffStanding) -> dict[str, Any]:
    """Return the counted usage of a job or a handoff, in the form of `JobResult.usage`."""
    return {
        "turns": books.turns,
        "input_tokens": books.input_tokens,
        "output_tokens": books.output_tokens,
        "cost_usd": cost_usd(books.cost_microusd),
        "cut": {
            "calls": books.cut_calls,
            "tokens": books.cut_tokens,
            "cost_usd": None if books.cost_microusd is None else cost_usd(books.cut_microusd),
        },
    }


NEWEST = 50
"""Newest handoffs of a role that the statistics use, so that a changed model shows soon."""
NOBODY = QueueBacklog(0, None)


@dataclass(frozen=True, slots=True)
class RoleStats:
    """Statistics of one specialist. A slot runs one handoff."""

    role: str
    workers: int
    """Processes that serve the role. 0: none."""
    slots: int
    busy: int
    queued: int
    oldest_s: float | None
    """Seconds that the oldest queued handoff has waited."""
    throttled: int
    """Handoffs that wait for the provider without a slot."""
    is_paused: bool
    seconds: float | None
    """Median duration of the newest handoffs in seconds. None: there was none."""
    wanted_slots: int
    """Slots that would have work, and that the provider's limits allow.

    While the provider refuses calls, this is at most `busy`.
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
    thinking: RoleStats
    """The supervisor's roles together, under the name of their queue. Supervisors run them in
    addition to their other work.
    """
    lanes: tuple[RateLimitBucket, ...]
    spent_today: DaySpending
    dead_letters: int
    used_memory_bytes: int
    max_memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        spent = self.spent_today
        return asdict(self) | {
            "spent_today": {
                "usd": cost_usd(spent.microusd),
                "tokens": spent.tokens,
                "most_usd": cost_usd(spent.most_microusd) if spent.most_microusd else None,
                "most_tokens": spent.most_tokens or None,
            }
        }


Samples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Usage of the newest handoffs, by role: see `History.read`."""


def stats_of(
    load: FleetLoad,
    served: Mapping[str, ServedSpecialist],
    samples: Samples,
    spent: DaySpending,
    window_s: float,
) -> FleetStats:
    """Compute the statistics. `window_s`: the window of the provider's rate limits in seconds."""
    samples = _by_queue(samples)
    newest = {
        queue: sorted(its, key=lambda entry: entry.get("at", 0), reverse=True)[:NEWEST]
        for queue, its in samples.items()
    }
    names = sorted(
        {*served, *load.waiting, *(queue_of(entry.role) for entry in load.at_work), ROLES_QUEUE}
        - {""}
    )
    refused = {lane.name for lane in load.lanes if lane.refused_until is not None}
    held = {name: _held(load, name, newest.get(name, ()), refused) for name in names}
    demand = {name: 0 if name in load.paused else _demand(load, name, held[name]) for name in names}
    wants = {
        name: {
            limit: demand[name] * much for limit, much in _taken_by(newest.get(name, ())).items()
        }
        for name in names
    }
    parts = fair_parts(wants, _allowed(load.lanes, window_s))
    wanted = {name: math.ceil(round(demand[name] * parts[name], 6)) for name in names}
    stats = {
        name: _role(name, load, served.get(name), samples.get(name, ()), wanted[name])
        for name in names
    }
    return FleetStats(
        at=load.at,
        open_jobs=load.open_jobs,
        waiting_jobs=load.waiting_jobs,
        supervisors=load.supervisors,
        roles=tuple(stats[name] for name in names if name != ROLES_QUEUE),
        thinking=stats[ROLES_QUEUE],
        lanes=load.lanes,
        spent_today=spent,
        dead_letters=load.dead_letters,
        used_memory_bytes=load.used_memory_bytes,
        max_memory_bytes=load.max_memory_bytes,
    )


def _by_queue(samples: Samples) -> Samples:
    """Add up the supervisor's roles, which call the model under the same limits."""
    by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for role, its in samples.items():
        by_queue.setdefault(queue_of(role), []).extend(its)
    return by_queue


def _demand(load: FleetLoad, role: str, held: float) -> int:
    """Return the slots that a role could use. `held`: the part of its waiting work that is
    refused.
    """
    return load.busy(role) + math.ceil(
        round((load.throttled(role) + load.waiting.get(role, NOBODY).handoffs) * (1.0 - held), 6)
    )


def _held(
    load: FleetLoad, role: str, samples: Sequence[Mapping[str, Any]], refused: Set[str]
) -> float:
    """Return the part of a role's calls, from 0 to 1, that goes to refused buckets.

    A role without finished handoffs counts as refused if its handoffs are throttled, or if all
    buckets are refused.
    """
    known = [sample for sample in samples if sample.get("lane") and sample["turns"] > 0]
    if known:
        return float(
            sum(sample["turns"] for sample in known if sample["lane"]["name"] in refused)
            / sum(sample["turns"] for sample in known)
        )
    if refused and (load.throttled(role) > 0 or len(refused) == len(load.lanes)):
        return 1.0
    return 0.0


def _allowed(lanes: Sequence[RateLimitBucket], window_s: float) -> dict[Limit, float]:
    """Return the providers' allowance in a second, as far as they have reported it."""
    mapping: dict[Limit, float] = {}
    for lane in lanes:
        for limit_name, allowance in lane.limits.items():
            mapping[(lane.name, limit_name)] = allowance.limit / window_s
    return mapping


def _taken_by(samples: Sequence[Mapping[str, Any]]) -> dict[Limit, float]:
    """Return the usage of each limit in a second by one slot that always works.

    Empty: no usage is known, or no provider reports limits. The time of a handoff is the time
    of its turns without waits for the provider. The median ignores handoffs that lasted longer
    because of a pause or a dead worker.
    """
    known = [sample for sample in samples if "lane" in sample and sample["turns"] > 0]
    a_turn_s = 0.0
    if known:
        a_turn_s = (
            median(max(0, sample["ms"] - sample["waited_ms"]) / sample["turns"] for sample in known)
            / 1000
        )
    if a_turn_s <= 0:
        return {}
    works_s, taken = a_turn_s * sum(sample["turns"] for sample in known), dict[Limit, float]()
    for sample in known:
        if lane := sample["lane"]:
            for limit_name, much in (
                ("requests", sample["turns"]),
                ("input", lane["input"]),
                ("output", lane["output"]),
            ):
                taken[lane["name"], limit_name] = (
                    taken.get((lane["name"], limit_name), 0.0) + much / works_s
                )
    return taken


def _role(
    name: str,
    load: FleetLoad,
    served: ServedSpecialist | None,
    samples: Sequence[Mapping[str, Any]],
    wanted: int,
) -> RoleStats:
    waiting = load.waiting.get(name, NOBODY)
    return RoleStats(
        role=name,
        workers=len(served.workers) if served else 0,
        slots=served.slots if served else 0,
        busy=load.busy(name),
        queued=waiting.handoffs,
        oldest_s=None if waiting.since is None else max(0.0, load.at - waiting.since),
        throttled=load.throttled(name),
        is_paused=name in load.paused,
        seconds=median(sample["ms"] for sample in samples) / 1000 if samples else None,
        wanted_slots=wanted,
    )
