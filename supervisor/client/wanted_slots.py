"""The slots that each agent could use: the signal for an autoscaler.

The length of a queue alone misleads an autoscaler. If the provider admits no more calls,
additional workers only wait. So the wanted slots of an agent are cut to what the rate limits
allow. These are the limits of the buckets that its newest handoffs used: requests, input
tokens and output tokens. Agents that share a bucket get fair shares. An unknown limit has no
effect.

While a bucket is refused, its deferred and queued handoffs need no slot. Only handoffs that
have a slot keep it.

`compute_fair_parts` gives each agent a part of its wanted slots. All parts grow together from 0
until a limit is full. The agents that use the full limit stop there, and the others continue. The
result is max-min fair. An agent could only get more if an agent with an equal or smaller part got
less. The method is progressive filling (Bertsekas and Gallager, "Data Networks", 1992, 6.5.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import median
from typing import Any

from handoff_queue.shared.store.fleet_load import FleetLoad, QueueBacklog, RateLimitBucket

Limit = tuple[str, str]
"""A rate-limit bucket, and the limited quantity: requests, input tokens or output tokens."""
NEWEST = 50
"""Newest handoffs of an agent that set its wanted slots, so that a changed model shows soon."""
NO_BACKLOG = QueueBacklog(0, None)
Samples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Usage of the newest handoffs, by agent: see `History.read`."""


def compute_wanted_slots(
    load: FleetLoad, agents: Iterable[str], samples: Samples, window_s: float
) -> dict[str, int]:
    """Return the wanted slots of each agent.

    Args:
        window_s: window of the provider's rate limits in seconds.
    """
    refused_buckets = {bucket.name for bucket in load.buckets if bucket.refused_until is not None}
    demand: dict[str, int] = {}
    wants: dict[str, dict[Limit, float]] = {}
    for agent in agents:
        newest = sorted(samples.get(agent, ()), key=_get_end_time, reverse=True)[:NEWEST]
        demand[agent] = _demand(
            load, agent, _compute_refused_share(load, agent, newest, refused_buckets)
        )
        wants[agent] = {}
        for limit, amount in _compute_usage_per_slot(newest).items():
            wants[agent][limit] = demand[agent] * amount
    parts = compute_fair_parts(wants, _compute_allowance_per_s(load.buckets, window_s))
    wanted_slots: dict[str, int] = {}
    for agent, slots in demand.items():
        wanted_slots[agent] = math.ceil(round(slots * parts[agent], 6))
    return wanted_slots


def compute_fair_parts(
    wants: Mapping[str, Mapping[Limit, float]], allowances: Mapping[Limit, float]
) -> dict[str, float]:
    """Return the part of its wanted work, from 0 to 1, that each agent gets.

    Args:
        wants: for each agent, the usage of each limit in a second.
        allowances: the allowance of each known limit in a second.
    """
    growing = set(wants)
    parts = dict.fromkeys(wants, 1.0)
    while growing and allowances:
        full_at: list[tuple[float, Limit]] = []
        for limit, most in allowances.items():
            full_at.append((_compute_share_at_limit(limit, most, wants, growing, parts), limit))
        part, first_limit = min(full_at)
        if part >= 1.0:
            break
        for agent in list(growing):
            if wants[agent].get(first_limit):
                parts[agent] = part
                growing.remove(agent)
    return parts


def _compute_share_at_limit(
    limit: Limit,
    most: float,
    wants: Mapping[str, Mapping[Limit, float]],
    growing: set[str],
    parts: Mapping[str, float],
) -> float:
    """Return the part of the growing agents at which a limit is full. 1 or more: the limit does
    not fill.
    """
    requested_usage = settled_usage = 0.0
    for agent, usage in wants.items():
        if agent in growing:
            requested_usage += usage.get(limit, 0.0)
        else:
            settled_usage += parts[agent] * usage.get(limit, 0.0)
    if requested_usage > 0:
        return max(0.0, most - settled_usage) / requested_usage
    return float("inf")


def _get_end_time(sample: Mapping[str, Any]) -> float:
    return float(sample.get("at", 0))


def _demand(load: FleetLoad, agent: str, refused_part: float) -> int:
    """Return the slots that an agent could use.

    Args:
        refused_part: the part of its waiting handoffs that is refused, from 0 to 1.
    """
    if agent in load.paused:
        return 0
    following = sum(work.agent == agent and work.waits_for_equal_run for work in load.at_work)
    limited = load.count_rate_limited(agent) - following  # a copy of a result takes a moment
    waiting = limited + load.waiting.get(agent, NO_BACKLOG).handoffs
    return load.count_busy_slots(agent) + math.ceil(round(waiting * (1.0 - refused_part), 6))


def _compute_refused_share(
    load: FleetLoad, agent: str, samples: Sequence[Mapping[str, Any]], refused_buckets: Set[str]
) -> float:
    """Return the part of an agent's calls, from 0 to 1, that goes to refused buckets.

    An agent without finished handoffs counts as refused if handoffs wait for rate limits, or if all
    buckets are refused.
    """
    turns = refused_turns = 0
    for sample in samples:
        if sample["bucket"] and sample["turns"] > 0:
            turns += sample["turns"]
            if sample["bucket"]["name"] in refused_buckets:
                refused_turns += sample["turns"]
    if turns:
        return refused_turns / turns
    if refused_buckets and (
        load.count_rate_limited(agent) > 0 or len(refused_buckets) == len(load.buckets)
    ):
        return 1.0
    return 0.0


def _compute_allowance_per_s(
    buckets: Sequence[RateLimitBucket], window_s: float
) -> dict[Limit, float]:
    """Return the providers' allowance in a second, as far as they have reported it."""
    allowances: dict[Limit, float] = {}
    for bucket in buckets:
        for limit_name, allowance in bucket.limits.items():
            allowances[(bucket.name, limit_name)] = allowance.limit / window_s
    return allowances


def _compute_usage_per_slot(samples: Sequence[Mapping[str, Any]]) -> dict[Limit, float]:
    """Return the usage of each limit in a second by one slot that always works.

    Empty: no usage is known, or no provider reports limits.
    """
    known = [sample for sample in samples if sample["turns"] > 0]
    turns = sum(sample["turns"] for sample in known)
    works_s = turns * _compute_seconds_per_turn(known)
    if works_s <= 0:
        return {}
    usage: dict[Limit, float] = {}
    for sample in known:
        bucket = sample["bucket"]
        if not bucket:
            continue
        amounts = {
            "requests": sample["turns"],
            "input": bucket["input"],
            "output": bucket["output"],
        }
        for limit_name, amount in amounts.items():
            limit = (bucket["name"], limit_name)
            usage[limit] = usage.get(limit, 0.0) + amount / works_s
    return usage


def _compute_seconds_per_turn(samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the median duration of a turn without waits for the provider; 0 without samples.

    The median ignores handoffs that lasted longer because of a pause or a dead worker.
    """
    if not samples:
        return 0.0
    milliseconds: list[float] = []
    for sample in samples:
        milliseconds.append(max(0, sample["ms"] - sample["waited_ms"]) / sample["turns"])
    return median(milliseconds) / 1000
