"""How many slots a role could use: as many as have something to do, and as the provider lets work."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handoff_queue.shared.store.daily_budget import DaySpending
from handoff_queue.shared.store.presence import ServedSpecialist
from handoff_queue.shared.store.queue_load import (
    FleetLoad,
    QueueBacklog,
    RateLimitBucket,
    RunningHandoff,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES_QUEUE
from handoff_queue.shared.types.rate_limits import Allowance
from handoff_queue.supervisor.client.fleet import NEWEST, FleetStats, RoleStats, stats_of
from tests.doubles.handoffs import a_spec

NOW = 1_000.0
WINDOW_S = 60.0


def a_sample(
    model: str | None = "some-model", *, turns: int = 5, input_tokens: int = 0, waited_ms: int = 0
) -> dict[str, Any]:
    """Return ten seconds of work. `model`: None if no limit counts its calls."""
    lane = (
        None
        if model is None
        else {"name": f"account:{model}", "input": input_tokens, "output": 100}
    )
    return {
        "usd": 1,
        "ms": 10_000 + waited_ms,
        "waited_ms": waited_ms,
        "turns": turns,
        "lane": lane,
    }


TEN_SECONDS_FOR_FIVE_TURNS = [a_sample()] * 3


def a_lane(requests: int | None, model: str = "some-model", **tokens: int) -> RateLimitBucket:
    limits = tokens | ({"requests": requests} if requests else {})
    return RateLimitBucket(
        "account", model, {name: Allowance(limit, 0) for name, limit in limits.items()}, None, "", 0
    )


def refused(lane: RateLimitBucket) -> RateLimitBucket:
    """It takes no call for two minutes."""
    return replace(lane, refused_until=NOW + 120, why="rate limit")


def at_work(role: str, *, parked: bool = False) -> RunningHandoff:
    return RunningHandoff(
        JobId("j-0123456789ab"),
        HandoffId("a.1"),
        role,
        "w",
        "",
        0,
        NOW,
        NOW + 9 if parked else None,
    )


def served(*, slots: int = 4) -> ServedSpecialist:
    return ServedSpecialist(a_spec(), "d", ("w1", "w2"), slots, 0)


def found(
    *works: RunningHandoff,
    waiting: dict[str, int] | None = None,
    requests: int | None = None,
    samples: Any = None,
    paused: bool = False,
    lanes: tuple[RateLimitBucket, ...] = (),
) -> FleetStats:
    return of_lanes(
        a_lane(requests), *lanes, works=works, waiting=waiting, samples=samples, paused=paused
    )


def of_lanes(
    *lanes: RateLimitBucket,
    works: tuple[RunningHandoff, ...] = (),
    waiting: dict[str, int] | None = None,
    samples: Any = None,
    paused: bool = False,
) -> FleetStats:
    queues = {role: QueueBacklog(many, NOW - 30) for role, many in (waiting or {}).items()}
    load = FleetLoad(
        NOW, 1, 1, works, queues, lanes, paused=frozenset({"researcher", "poet"} if paused else ())
    )
    everyone = {"researcher": served(), "writer": served()}
    return stats_of(load, everyone, samples or {}, DaySpending(0, 0, 0, 0), WINDOW_S)


def role(stats: FleetStats, name: str = "researcher") -> RoleStats:
    return next(one for one in stats.roles if one.role == name)


def test_running_parked_and_waiting_handoffs_need_a_slot_each() -> None:
    stats = found(
        at_work("researcher"), at_work("researcher", parked=True), waiting={"researcher": 5}
    )

    assert (
        role(stats).busy,
        role(stats).throttled,
        role(stats).queued,
        role(stats).wanted_slots,
    ) == (
        1,
        1,
        5,
        7,
    )
    assert role(stats).oldest_s == 30


def test_an_idle_role_needs_no_slot() -> None:
    assert role(found(), "writer").wanted_slots == 0


@pytest.mark.parametrize(("requests", "wanted"), [(600, 10), (150, 5), (30, 1), (None, 10)])
def test_the_number_of_slots_is_bounded_by_the_calls_that_the_provider_allows(
    requests: int | None, wanted: int
) -> None:
    """Ten slots of half a call a second each: 300 requests a minute."""
    stats = found(
        waiting={"researcher": 10},
        requests=requests,
        samples={"researcher": TEN_SECONDS_FOR_FIVE_TURNS},
    )

    assert role(stats).wanted_slots == wanted


def test_roles_share_the_providers_limit_by_their_work() -> None:
    samples = {"researcher": TEN_SECONDS_FOR_FIVE_TURNS, "writer": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = found(waiting={"researcher": 30, "writer": 10}, requests=600, samples=samples)

    assert (role(stats).wanted_slots, role(stats, "writer").wanted_slots) == (15, 5)


def test_the_supervisors_roles_share_the_same_limit() -> None:
    samples = {"researcher": TEN_SECONDS_FOR_FIVE_TURNS, "planner": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = found(
        at_work("planner"), waiting={"researcher": 30, "roles": 9}, requests=600, samples=samples
    )

    assert (role(stats).wanted_slots, stats.thinking.wanted_slots, stats.thinking.seconds) == (
        15,
        5,
        10,
    )


def test_a_role_is_bounded_only_by_the_lane_of_its_own_calls() -> None:
    samples = {"researcher": [a_sample("narrow")], "writer": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = found(
        waiting={"researcher": 30, "writer": 10},
        requests=600,
        samples=samples,
        lanes=(a_lane(60, "narrow"),),
    )

    assert (role(stats).wanted_slots, role(stats, "writer").wanted_slots) == (2, 10)


def test_a_lane_without_limits_does_not_affect_the_others() -> None:
    samples = {"researcher": [a_sample("narrow")], "writer": [a_sample("unknown")]}
    stats = found(
        waiting={"researcher": 30, "writer": 10},
        samples=samples,
        lanes=(a_lane(60, "narrow"), a_lane(None, "unknown")),
    )

    assert (role(stats).wanted_slots, role(stats, "writer").wanted_slots) == (2, 10)


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [({"input": 120_000}, 2), ({"output": 1_800}, 3), ({"input": 120_000, "output": 1_800}, 2)],
)
def test_token_limits_count_too(tokens: dict[str, int], wanted: int) -> None:
    """Each slot takes 1,000 input and 10 output tokens a second."""
    samples = {"researcher": [a_sample(input_tokens=10_000)]}
    stats = found(
        waiting={"researcher": 10}, samples=samples, lanes=(a_lane(6_000, "some-model", **tokens),)
    )

    assert role(stats).wanted_slots == wanted


def test_a_role_with_two_models_is_bounded_by_the_narrow_one_as_far_as_it_uses_it() -> None:
    samples = {"researcher": [a_sample(), a_sample("narrow"), a_sample(None), a_sample(None)]}
    stats = found(
        waiting={"researcher": 30}, requests=6_000, samples=samples, lanes=(a_lane(60, "narrow"),)
    )

    assert role(stats).wanted_slots == 8


def test_the_wait_for_the_provider_is_not_work() -> None:
    """Else a role that waits would want the slots that do nothing but wait."""
    samples = {"researcher": [a_sample(waited_ms=90_000)]}

    assert role(found(waiting={"researcher": 10}, requests=150, samples=samples)).wanted_slots == 5


def test_a_handoff_that_lasted_long_in_a_pause_makes_no_slot_look_slow() -> None:
    samples = {"researcher": [a_sample(), a_sample(), a_sample() | {"ms": 7_200_000}]}

    assert role(found(waiting={"researcher": 10}, requests=150, samples=samples)).wanted_slots == 5


def test_another_model_counts_once_the_newest_handoffs_have_used_it() -> None:
    samples = {"researcher": [a_sample("wide")] * NEWEST + [a_sample()] * 100}

    assert (
        role(
            found(
                waiting={"researcher": 10},
                requests=6,
                samples=samples,
                lanes=(a_lane(6_000, "wide"),),
            )
        ).wanted_slots
        == 10
    )


def test_while_the_provider_refuses_only_running_handoffs_need_a_slot() -> None:
    works = (at_work("researcher"), *[at_work("researcher", parked=True)] * 40)
    samples = {"researcher": TEN_SECONDS_FOR_FIVE_TURNS}
    stats = of_lanes(
        refused(a_lane(6_000)),
        a_lane(6_000, "wide"),
        works=works,
        waiting={"researcher": 5},
        samples=samples,
    )

    assert (
        role(stats).busy,
        role(stats).throttled,
        role(stats).queued,
        role(stats).wanted_slots,
    ) == (
        1,
        40,
        5,
        1,
    )


def test_a_role_whose_very_first_calls_are_refused_needs_no_slots_for_them() -> None:
    assert (
        role(
            of_lanes(refused(a_lane(None)), works=(at_work("researcher", parked=True),) * 40)
        ).wanted_slots
        == 0
    )
    assert role(of_lanes(refused(a_lane(None)), waiting={"researcher": 40})).wanted_slots == 0


def test_a_role_with_another_model_than_the_refused_one_needs_its_slots() -> None:
    samples = {"researcher": [a_sample("narrow")], "writer": TEN_SECONDS_FOR_FIVE_TURNS}
    lanes = (refused(a_lane(None, "narrow")), a_lane(None))
    stats = of_lanes(*lanes, waiting={"researcher": 30, "writer": 10, "critic": 7}, samples=samples)

    assert (
        role(stats).wanted_slots,
        role(stats, "writer").wanted_slots,
        role(stats, "critic").wanted_slots,
    ) == (0, 10, 7)


def test_a_role_that_sometimes_calls_a_refused_model_needs_the_slots_of_its_other_calls() -> None:
    samples = {"researcher": [a_sample("narrow"), *[a_sample()] * 3]}
    stats = of_lanes(
        refused(a_lane(None, "narrow")), a_lane(None), waiting={"researcher": 40}, samples=samples
    )

    assert role(stats).wanted_slots == 30


def test_a_paused_role_needs_no_slot() -> None:
    assert role(found(waiting={"researcher": 5}, paused=True)).wanted_slots == 0


def test_an_unserved_paused_role_needs_no_slot_and_is_shown_as_paused() -> None:
    stats = found(waiting={"poet": 5}, paused=True)

    assert (role(stats, "poet").is_paused, role(stats, "poet").wanted_slots) == (True, 0)


def test_an_unserved_role_is_named_and_needs_slots() -> None:
    lonely = role(found(waiting={"poet": 2}), "poet")

    assert (lonely.workers, lonely.slots, lonely.wanted_slots) == (0, 0, 2)


def test_the_supervisors_roles_count_as_one_role() -> None:
    stats = found(at_work("planner"), at_work("judge"), waiting={"roles": 3})

    assert [one.role for one in stats.roles] == ["researcher", "writer"]
    assert (stats.thinking.busy, stats.thinking.queued) == (2, 3)


def test_the_statistics_are_json() -> None:
    said = json.loads(json.dumps(found(at_work("researcher"), requests=60).as_json()))

    assert said["lanes"][0]["limits"]["requests"] == {"limit": 60, "remaining": 0}
    assert said["spent_today"] == {"usd": 0.0, "tokens": 0, "most_usd": None, "most_tokens": None}


def test_the_newest_handoffs_of_all_the_supervisors_roles_predict_their_cost() -> None:
    lately = [a_sample() | {"at": 2_000 + n} for n in range(NEWEST)]
    long_ago = [a_sample("a-model-of-before") | {"at": n} for n in range(NEWEST)]

    alone = found(waiting={ROLES_QUEUE: 100}, requests=60, samples={"planner": lately})
    with_others = found(
        waiting={ROLES_QUEUE: 100},
        requests=60,
        samples={"judge": long_ago, "planner": lately, "router": long_ago},
    )

    assert alone.thinking.wanted_slots < 100
    assert with_others.thinking.wanted_slots == alone.thinking.wanted_slots
