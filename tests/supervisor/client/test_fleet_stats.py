"""The slots that an agent could use follow from its backlog and the limits of the provider."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.store.daily_budgets import DaySpending
from handoff_queue.shared.store.fleet_load import (
    FleetLoad,
    QueueBacklog,
    RateLimitBucket,
    RunningHandoff,
)
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES_QUEUE
from handoff_queue.shared.types.rate_limits import Allowance
from handoff_queue.supervisor.client.fleet_statistics import AgentStats, FleetStats, compute_stats
from handoff_queue.supervisor.client.wanted_slots import NEWEST
from tests.doubles.handoffs import a_spec

NOW = 1_000.0
WINDOW_S = 60.0


def work_sample(
    model: str | None = "some-model", *, turns: int = 5, input_tokens: int = 0, waited_ms: int = 0
) -> dict[str, Any]:
    """Return a sample of ten seconds of work. `model` is None if no limit counts its calls."""
    bucket = (
        None
        if model is None
        else {"name": f"account:{model}", "input": input_tokens, "output": 100}
    )
    return {
        "usd": 1,
        "ms": 10_000 + waited_ms,
        "waited_ms": waited_ms,
        "turns": turns,
        "bucket": bucket,
    }


TEN_SECONDS_FOR_FIVE_TURNS = [work_sample()] * 3


def bucket_of(requests: int | None, model: str = "some-model", **tokens: int) -> RateLimitBucket:
    limits = tokens | ({"requests": requests} if requests else {})
    return RateLimitBucket(
        "account", model, {name: Allowance(limit, 0) for name, limit in limits.items()}, None, "", 0
    )


def refused_bucket(bucket: RateLimitBucket) -> RateLimitBucket:
    """Return the bucket, refused by the provider for the next two minutes."""
    return replace(bucket, refused_until=NOW + 120, why="rate limit")


def running_handoff(agent: str, *, deferred: bool = False) -> RunningHandoff:
    return RunningHandoff(
        JobId("j-0123456789ab"),
        HandoffId("a.1"),
        agent,
        "w",
        "",
        0,
        NOW,
        NOW + 9 if deferred else None,
    )


def served_specialist(*, slots: int = 4) -> ServedSpecialist:
    return ServedSpecialist(a_spec(), "d", ("w1", "w2"), slots, 0)


def stats_with(
    *works: RunningHandoff,
    waiting: dict[str, int] | None = None,
    requests: int | None = None,
    samples: Any = None,
    paused: bool = False,
    buckets: tuple[RateLimitBucket, ...] = (),
) -> FleetStats:
    return stats_with_buckets(
        bucket_of(requests), *buckets, works=works, waiting=waiting, samples=samples, paused=paused
    )


def stats_with_buckets(
    *buckets: RateLimitBucket,
    works: tuple[RunningHandoff, ...] = (),
    waiting: dict[str, int] | None = None,
    samples: Any = None,
    paused: bool = False,
) -> FleetStats:
    queues = {agent: QueueBacklog(many, NOW - 30) for agent, many in (waiting or {}).items()}
    load = FleetLoad(
        NOW,
        1,
        1,
        works,
        queues,
        buckets,
        paused=frozenset({"researcher", "poet"} if paused else ()),
    )
    everyone = {"researcher": served_specialist(), "writer": served_specialist()}
    return compute_stats(load, everyone, samples or {}, DaySpending(0, 0, 0, 0), WINDOW_S)


def agent_stats_of(stats: FleetStats, name: str = "researcher") -> AgentStats:
    return next(agent_stats for agent_stats in stats.agents if agent_stats.agent == name)


def test_a_handoff_that_waits_for_an_equal_one_needs_no_slot() -> None:
    waiting = replace(running_handoff("researcher", deferred=True), doing="equal handoff j-1 a.1")

    stats = agent_stats_of(stats_with(running_handoff("researcher"), waiting))

    assert (stats.deferred, stats.wanted_slots) == (1, 1)


def test_running_deferred_and_waiting_handoffs_need_a_slot_each() -> None:
    stats = stats_with(
        running_handoff("researcher"),
        running_handoff("researcher", deferred=True),
        waiting={"researcher": 5},
    )

    assert (
        agent_stats_of(stats).busy,
        agent_stats_of(stats).deferred,
        agent_stats_of(stats).queued,
        agent_stats_of(stats).wanted_slots,
    ) == (
        1,
        1,
        5,
        7,
    )
    assert agent_stats_of(stats).oldest_s == 30


@pytest.mark.parametrize(
    "doing", ["waits for batch msgbatch_1 since 09:00:00 UTC", "waits for approval of send_mail"]
)
def test_a_handoff_that_waits_for_a_batch_or_an_approval_needs_no_slot(doing: str) -> None:
    waits = replace(running_handoff("researcher", deferred=True), doing=doing)
    stats = agent_stats_of(stats_with(running_handoff("researcher"), waits))

    assert (stats.busy, stats.deferred, stats.wanted_slots) == (1, 1, 1)


def test_an_idle_agent_needs_no_slot() -> None:
    assert agent_stats_of(stats_with(), "writer").wanted_slots == 0


@pytest.mark.parametrize(("requests", "wanted"), [(600, 10), (150, 5), (30, 1), (None, 10)])
def test_the_number_of_slots_is_bounded_by_the_calls_that_the_provider_allows(
    requests: int | None, wanted: int
) -> None:
    """Ten slots with half a call per second each need 300 requests per minute."""
    stats = stats_with(
        waiting={"researcher": 10},
        requests=requests,
        samples={"researcher": TEN_SECONDS_FOR_FIVE_TURNS},
    )

    assert agent_stats_of(stats).wanted_slots == wanted


def test_agents_share_the_providers_limit_by_their_work() -> None:
    samples = {"researcher": TEN_SECONDS_FOR_FIVE_TURNS, "writer": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = stats_with(waiting={"researcher": 30, "writer": 10}, requests=600, samples=samples)

    assert (agent_stats_of(stats).wanted_slots, agent_stats_of(stats, "writer").wanted_slots) == (
        15,
        5,
    )


def test_the_supervisors_roles_share_the_same_limit() -> None:
    samples = {"researcher": TEN_SECONDS_FOR_FIVE_TURNS, "planner": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = stats_with(
        running_handoff("planner"),
        waiting={"researcher": 30, "roles": 9},
        requests=600,
        samples=samples,
    )

    assert (
        agent_stats_of(stats).wanted_slots,
        stats.supervisor_roles.wanted_slots,
        stats.supervisor_roles.seconds,
    ) == (
        15,
        5,
        10,
    )


def test_an_agent_is_bounded_only_by_the_bucket_of_its_own_calls() -> None:
    samples = {"researcher": [work_sample("narrow")], "writer": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = stats_with(
        waiting={"researcher": 30, "writer": 10},
        requests=600,
        samples=samples,
        buckets=(bucket_of(60, "narrow"),),
    )

    assert (agent_stats_of(stats).wanted_slots, agent_stats_of(stats, "writer").wanted_slots) == (
        2,
        10,
    )


def test_a_bucket_without_limits_does_not_affect_the_others() -> None:
    samples = {"researcher": [work_sample("narrow")], "writer": [work_sample("unknown")]}
    stats = stats_with(
        waiting={"researcher": 30, "writer": 10},
        samples=samples,
        buckets=(bucket_of(60, "narrow"), bucket_of(None, "unknown")),
    )

    assert (agent_stats_of(stats).wanted_slots, agent_stats_of(stats, "writer").wanted_slots) == (
        2,
        10,
    )


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [({"input": 120_000}, 2), ({"output": 1_800}, 3), ({"input": 120_000, "output": 1_800}, 2)],
)
def test_token_limits_bound_the_number_of_slots(tokens: dict[str, int], wanted: int) -> None:
    """Each slot uses 1,000 input tokens and 10 output tokens per second."""
    samples = {"researcher": [work_sample(input_tokens=10_000)]}
    stats = stats_with(
        waiting={"researcher": 10},
        samples=samples,
        buckets=(bucket_of(6_000, "some-model", **tokens),),
    )

    assert agent_stats_of(stats).wanted_slots == wanted


def test_an_agent_with_two_models_is_bounded_by_the_narrow_one_as_far_as_it_uses_it() -> None:
    samples = {
        "researcher": [work_sample(), work_sample("narrow"), work_sample(None), work_sample(None)]
    }
    stats = stats_with(
        waiting={"researcher": 30},
        requests=6_000,
        samples=samples,
        buckets=(bucket_of(60, "narrow"),),
    )

    assert agent_stats_of(stats).wanted_slots == 8


def test_the_wait_for_the_provider_is_not_work() -> None:
    """Otherwise an agent that waits for its provider would want more slots, which would wait."""
    samples = {"researcher": [work_sample(waited_ms=90_000)]}

    assert (
        agent_stats_of(
            stats_with(waiting={"researcher": 10}, requests=150, samples=samples)
        ).wanted_slots
        == 5
    )


def test_a_handoff_that_lasted_long_in_a_pause_makes_no_slot_look_slow() -> None:
    samples = {"researcher": [work_sample(), work_sample(), work_sample() | {"ms": 7_200_000}]}

    assert (
        agent_stats_of(
            stats_with(waiting={"researcher": 10}, requests=150, samples=samples)
        ).wanted_slots
        == 5
    )


def test_another_model_counts_once_the_newest_handoffs_have_used_it() -> None:
    samples = {"researcher": [work_sample("wide")] * NEWEST + [work_sample()] * 100}

    assert (
        agent_stats_of(
            stats_with(
                waiting={"researcher": 10},
                requests=6,
                samples=samples,
                buckets=(bucket_of(6_000, "wide"),),
            )
        ).wanted_slots
        == 10
    )


def test_while_the_provider_refuses_only_running_handoffs_need_a_slot() -> None:
    works = (running_handoff("researcher"), *[running_handoff("researcher", deferred=True)] * 40)
    samples = {"researcher": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = stats_with_buckets(
        refused_bucket(bucket_of(6_000)),
        bucket_of(6_000, "wide"),
        works=works,
        waiting={"researcher": 5},
        samples=samples,
    )

    assert (
        agent_stats_of(stats).busy,
        agent_stats_of(stats).deferred,
        agent_stats_of(stats).queued,
        agent_stats_of(stats).wanted_slots,
    ) == (
        1,
        40,
        5,
        1,
    )


def test_an_agent_whose_first_calls_are_refused_needs_no_slots_for_them() -> None:
    assert (
        agent_stats_of(
            stats_with_buckets(
                refused_bucket(bucket_of(None)),
                works=(running_handoff("researcher", deferred=True),) * 40,
            )
        ).wanted_slots
        == 0
    )
    assert (
        agent_stats_of(
            stats_with_buckets(refused_bucket(bucket_of(None)), waiting={"researcher": 40})
        ).wanted_slots
        == 0
    )


def test_an_agent_with_another_model_than_the_refused_one_needs_its_slots() -> None:
    samples = {"researcher": [work_sample("narrow")], "writer": TEN_SECONDS_FOR_FIVE_TURNS}
    buckets = (refused_bucket(bucket_of(None, "narrow")), bucket_of(None))
    stats = stats_with_buckets(
        *buckets, waiting={"researcher": 30, "writer": 10, "critic": 7}, samples=samples
    )

    assert (
        agent_stats_of(stats).wanted_slots,
        agent_stats_of(stats, "writer").wanted_slots,
        agent_stats_of(stats, "critic").wanted_slots,
    ) == (0, 10, 7)


def test_an_agent_that_sometimes_calls_a_refused_model_needs_the_slots_of_its_other_calls() -> None:
    samples = {"researcher": [work_sample("narrow"), *[work_sample()] * 3]}
    stats = stats_with_buckets(
        refused_bucket(bucket_of(None, "narrow")),
        bucket_of(None),
        waiting={"researcher": 40},
        samples=samples,
    )

    assert agent_stats_of(stats).wanted_slots == 30


def test_a_paused_agent_needs_no_slot() -> None:
    assert agent_stats_of(stats_with(waiting={"researcher": 5}, paused=True)).wanted_slots == 0


def test_an_unserved_paused_agent_needs_no_slot_and_is_shown_as_paused() -> None:
    stats = stats_with(waiting={"poet": 5}, paused=True)

    assert (
        agent_stats_of(stats, "poet").is_paused,
        agent_stats_of(stats, "poet").wanted_slots,
    ) == (
        True,
        0,
    )


def test_an_unserved_agent_is_named_and_needs_slots() -> None:
    lonely = agent_stats_of(stats_with(waiting={"poet": 2}), "poet")

    assert (lonely.workers, lonely.slots, lonely.wanted_slots) == (0, 0, 2)


def test_the_supervisors_roles_count_as_one_agent() -> None:
    stats = stats_with(running_handoff("planner"), running_handoff("judge"), waiting={"roles": 3})

    assert [agent_stats.agent for agent_stats in stats.agents] == ["researcher", "writer"]
    assert (stats.supervisor_roles.busy, stats.supervisor_roles.queued) == (2, 3)


def test_supervisors_serve_their_roles() -> None:
    load = FleetLoad(NOW, 1, supervisors=2, at_work=(), role_slots=16)

    roles = compute_stats(load, {}, {}, DaySpending(0, 0, 0, 0), WINDOW_S).supervisor_roles

    assert (roles.workers, roles.slots) == (2, 16)


def test_the_statistics_are_json() -> None:
    stats = json.loads(json.dumps(stats_with(running_handoff("researcher"), requests=60).as_json()))

    assert stats["buckets"][0]["limits"]["requests"] == {"limit": 60, "remaining": 0}
    assert stats["spent_today"] == {"usd": 0.0, "tokens": 0, "most_usd": None, "most_tokens": None}


def test_the_newest_handoffs_of_all_the_supervisors_roles_predict_their_cost() -> None:
    lately = [work_sample() | {"at": 2_000 + n} for n in range(NEWEST)]
    long_ago = [work_sample("a-model-of-before") | {"at": n} for n in range(NEWEST)]

    alone = stats_with(waiting={ROLES_QUEUE: 100}, requests=60, samples={"planner": lately})
    with_others = stats_with(
        waiting={ROLES_QUEUE: 100},
        requests=60,
        samples={"judge": long_ago, "planner": lately, "router": long_ago},
    )

    assert alone.supervisor_roles.wanted_slots < 100
    assert with_others.supervisor_roles.wanted_slots == alone.supervisor_roles.wanted_slots
