"""`handoff stats` on a real store."""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.rate_limits import Allowance, Expected, RateLimits
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.cli.stats import stats_now
from tests.doubles.jobs import a_job, ended, granted, issue, replied, result_of

WORST = WorstCase(1_000, 1_000, 0)
A_LONG_CALL_MS = 101_000
USED = Usage(input_tokens=10_000, output_tokens=100)


def have_done(store: Store, role: str, model: str, limits: RateLimits) -> None:
    """Store one handoff of over a hundred seconds with one call, the model's limits, and thirty
    more waiting handoffs of the role.
    """
    job_id, expected = a_job(store), Expected(f"account:{model}", 400, 500)
    issue(store, job_id, "a.1", *(f"b{n}.1" for n in range(30)), role=role)
    claimed = granted(store, job_id, "a.1")
    assert claimed.reserve(WORST, expected) is None
    claimed.heard(limits)
    claimed.checkpoint(replied())
    store.connection.redis.hincrby(
        keys.handoff(job_id, claimed.handoff_id), "started_at", -A_LONG_CALL_MS
    )
    result = result_of(claimed).model_copy(update={"usage": USED})
    ended(claimed, result)


def test_each_role_is_held_against_the_limits_of_the_model_that_its_handoffs_have_called(
    store: Store,
) -> None:
    """A slot makes less than one call of 10,000 tokens in a hundred seconds."""
    have_done(store, "researcher", "narrow", RateLimits(requests=Allowance(6, 0)))
    have_done(
        store,
        "writer",
        "wide",
        RateLimits(requests=Allowance(6_000, 0), input_tokens=Allowance(120_000, 0)),
    )
    have_done(store, "critic", "unknown", RateLimits())

    found = stats_now(store, store.fleet_load.now())

    assert {one.role: one.wanted_slots for one in found.roles} == {
        "critic": 30,
        "researcher": 11,
        "writer": 21,
    }


def test_a_fleet_that_is_refused_from_its_first_call_on_wants_no_more_slots_and_knows_the_limits(
    store: Store,
) -> None:
    job_id, expected = a_job(store), Expected("account:narrow", 400, 500)
    issue(store, job_id, "a.1", *(f"b{n}.1" for n in range(30)), role="researcher")
    claimed = granted(store, job_id, "a.1")
    assert claimed.reserve(WORST, expected) is None
    claimed.refused("rate limit", 120, RateLimits(requests=Allowance(5, 0)))

    found = stats_now(store, store.fleet_load.now())

    assert [(one.role, one.busy, one.queued, one.wanted_slots) for one in found.roles] == [
        ("researcher", 1, 30, 1)
    ]
    assert [
        (lane.refused_until is not None, lane.limits["requests"].limit) for lane in found.lanes
    ] == [(True, 5)]
