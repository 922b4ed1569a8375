"""Agents that share a limit never exceed it. An agent takes only from agents that have more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.client.wanted_slots import Limit, compute_fair_parts

REQUESTS, INPUT, OTHER = ("a:wide", "requests"), ("a:wide", "input"), ("a:narrow", "requests")
LIMITS = [REQUESTS, INPUT, OTHER, ("a:narrow", "output")]
AGENTS = ["coder", "critic", "researcher", "roles", "writer"]
TOLERANCE = 1 + 1e-9

amounts = st.floats(min_value=0.001, max_value=1_000)
allowances = st.dictionaries(st.sampled_from(LIMITS), amounts)
wants_by_agent = st.dictionaries(
    st.sampled_from(AGENTS),
    st.dictionaries(st.sampled_from(LIMITS), st.one_of(st.just(0.0), amounts)),
)
Wants = dict[str, dict[Limit, float]]


def used_amount(limit: Limit, wants: Wants, parts: dict[str, float]) -> float:
    return sum(parts[agent] * limits.get(limit, 0.0) for agent, limits in wants.items())


@given(wants_by_agent, allowances)
def test_no_limit_is_exceeded_and_no_agent_gets_more_than_all(
    wants: Wants, allowed: dict[Limit, float]
) -> None:
    parts = compute_fair_parts(wants, allowed)

    assert parts.keys() == wants.keys()
    assert all(0.0 <= part <= 1.0 for part in parts.values())
    assert all(
        used_amount(limit, wants, parts) <= most * TOLERANCE for limit, most in allowed.items()
    )


@given(wants_by_agent, allowances)
def test_an_agent_with_less_than_all_uses_a_full_limit_in_which_no_agent_has_a_larger_part(
    wants: Wants, allowed: dict[Limit, float]
) -> None:
    parts = compute_fair_parts(wants, allowed)
    full = {
        limit
        for limit, most in allowed.items()
        if used_amount(limit, wants, parts) * TOLERANCE >= most
    }

    for agent, part in parts.items():
        held_by = [limit for limit in full if wants[agent].get(limit)]
        assert part == 1.0 or any(
            all(
                parts[other] <= part * TOLERANCE
                for other, limits in wants.items()
                if limits.get(limit)
            )
            for limit in held_by
        ), agent


@given(wants_by_agent, allowances, st.sampled_from(AGENTS))
def test_a_separate_bucket_is_not_narrowed_by_other_buckets(
    wants: Wants, allowed: dict[Limit, float], agent: str
) -> None:
    own_limits = wants.get(agent, {})
    others = {
        name: {limit: amount for limit, amount in limits.items() if not own_limits.get(limit)}
        for name, limits in wants.items()
    }

    assert compute_fair_parts(others | {agent: own_limits}, allowed)[agent] == pytest.approx(
        compute_fair_parts({agent: own_limits}, allowed)[agent]
    )


@given(wants_by_agent, allowances)
def test_the_order_of_agents_and_limits_changes_nothing(
    wants: Wants, allowed: dict[Limit, float]
) -> None:
    turned = compute_fair_parts(dict(reversed(wants.items())), dict(reversed(allowed.items())))

    assert turned == pytest.approx(compute_fair_parts(wants, allowed))


@given(wants_by_agent)
def test_without_a_known_limit_every_agent_gets_all(wants: Wants) -> None:
    assert set(compute_fair_parts(wants, {}).values()) <= {1.0}


def test_the_part_that_an_agent_cannot_use_goes_to_the_others() -> None:
    wants = {"researcher": {REQUESTS: 10.0, OTHER: 10.0}, "writer": {REQUESTS: 10.0}}

    assert compute_fair_parts(wants, {REQUESTS: 10.0, OTHER: 1.0}) == pytest.approx(
        {"researcher": 0.1, "writer": 0.9}
    )
