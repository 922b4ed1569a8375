"""`handoff stats` on a real store."""

from __future__ import annotations

from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import SharedRun
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.cli.stats import format_headline
from handoff_queue.supervisor.client.fleet_statistics import read_stats
from tests.doubles.jobs import (
    a_job,
    finish_with,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    result_of,
)

WORST = WorstCase(1_000, 1_000, 0)
LONG_CALL_MS = 101_000
USAGE = Usage(input_tokens=10_000, output_tokens=100)


def store_handoffs(store: Store, agent: str, model: str, limits: RateLimits) -> None:
    """Store a finished handoff of the agent, and 30 waiting handoffs.

    The handoff ran for just over 100 seconds and made one call. The provider reported `limits`.
    """
    job_id, expected = a_job(store), ExpectedUsage(f"account:{model}", 400, 500)
    issue(store, job_id, "a.1", *(f"b{n}.1" for n in range(30)), role=agent)
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST, expected) is None
    claimed.report_limits(limits)
    claimed.checkpoint(model_reply())
    store.connection.redis.hincrby(
        handoff_key(store, job_id, claimed.handoff_id), "started_at", -LONG_CALL_MS
    )
    result = result_of(claimed).model_copy(update={"usage": USAGE})
    finish_with(claimed, result)


def test_each_agent_is_compared_with_the_limits_of_the_model_that_its_handoffs_call(
    store: Store,
) -> None:
    """A slot makes less than one call of 10,000 tokens in a hundred seconds."""
    store_handoffs(store, "researcher", "narrow", RateLimits(requests=Allowance(6, 0)))
    store_handoffs(
        store,
        "writer",
        "wide",
        RateLimits(requests=Allowance(6_000, 0), input_tokens=Allowance(120_000, 0)),
    )
    store_handoffs(store, "critic", "unknown", RateLimits())

    stats = read_stats(store, store.fleet_load.now())

    assert {agent.agent: agent.wanted_slots for agent in stats.agents} == {
        "critic": 30,
        "researcher": 11,
        "writer": 21,
    }


def test_a_fleet_whose_calls_are_all_refused_wants_no_more_slots(
    store: Store,
) -> None:
    job_id, expected = a_job(store), ExpectedUsage("account:narrow", 400, 500)
    issue(store, job_id, "a.1", *(f"b{n}.1" for n in range(30)), role="researcher")
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST, expected) is None
    claimed.report_refusal("rate limit", 120, RateLimits(requests=Allowance(5, 0)))

    stats = read_stats(store, store.fleet_load.now())

    assert [
        (agent.agent, agent.busy, agent.queued, agent.wanted_slots) for agent in stats.agents
    ] == [("researcher", 1, 30, 1)]
    assert [
        (bucket.refused_until is not None, bucket.limits["requests"].limit)
        for bucket in stats.buckets
    ] == [(True, 5)]


def test_the_headline_names_shared_results_and_the_money_that_they_saved(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    shared = SharedRun(job_id=job_id, handoff_id=claimed.handoff_id, saved_microusd=20_000)
    finish_with(claimed, result_of(claimed).model_copy(update={"shared": shared}))

    line = format_headline(read_stats(store, store.fleet_load.now()))

    assert "(1 shared result, $0.0200 saved)" in line
