"""Time without contact to Redis does not count against a lease, up to a bound.

The bound is the time that live workers need to return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.due_work import MAX_SWEPT
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import StoreRefusesWrites
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import (
    a_job,
    accounts,
    claim,
    expire_lease,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    reservation_verdict,
)
from tests.doubles.sweep_states import mark_evaluated, simulate_silence
from tests.waiting import wait_until

LEASE_S = 0.6
SILENCE_S = 2 * 3_600.0
"""Longer than the leases of every store in this file."""
FOUND = [HandoffId("a.1")]


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with three issued handoffs for the researcher."""
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1")
    return job_id


@pytest.fixture
def short_lease_store(redis_url: str, store: Store) -> Iterator[Store]:
    """Yield a store with short leases."""
    store = open_store(redis_url, Settings(lease_s=LEASE_S))
    yield store
    store.connection.close()


def claim_after_silence(store: Store, job_id: JobId) -> HandoffClaim:
    """Return a claim whose lease ended a second ago, after two hours without contact to Redis."""
    own_claim = claim(
        store, job_id, "a.1", first=WorstCase(input_tokens=100, output_tokens=50, microusd=7)
    )
    expire_lease(store, own_claim)
    simulate_silence(store, SILENCE_S)
    return own_claim


def test_a_worker_that_could_not_renew_during_the_silence_keeps_its_handoff(
    store: Store, job_id: JobId
) -> None:
    own_claim = claim_after_silence(store, job_id)

    assert store.due_work.sweep().due == {}
    assert claim(store, job_id, "a.1", "w2").verdict is ClaimVerdict.BUSY
    own_claim.renew()
    own_claim.checkpoint(model_reply())
    assert accounts(store, job_id)["turns"] == 1
    assert store.due_work.sweep().due == {}


FIRST: dict[str, Callable[[Store, JobId, HandoffClaim], object]] = {
    "a sweep": lambda store, job_id, other: store.due_work.sweep(),
    "another's renewal": lambda store, job_id, other: other.renew(),
    "another's turn": lambda store, job_id, other: reservation_verdict(
        other, WorstCase(input_tokens=1, output_tokens=1, microusd=1)
    ),
    "a claim of another": lambda store, job_id, other: granted_claim(store, job_id, "c.1"),
    "a second copy of its message": lambda store, job_id, other: claim(store, job_id, "a.1", "w2"),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST.keys())
def test_no_first_client_after_the_silence_takes_the_handoff_over(
    store: Store, job_id: JobId, first: Callable[[Store, JobId, HandoffClaim], object]
) -> None:
    """The first client, for example a new supervisor, does not know about the silence."""
    other = granted_claim(store, job_id, "b.1")
    own_claim = claim_after_silence(store, job_id)

    first(store, job_id, other)

    assert store.due_work.sweep().due == {}
    assert claim(store, job_id, "a.1", "w2").verdict is ClaimVerdict.BUSY
    own_claim.renew()


def test_a_worker_that_does_not_renew_after_the_silence_is_found_half_a_lease_later(
    short_lease_store: Store, job_id: JobId
) -> None:
    claim_after_silence(short_lease_store, job_id)
    assert short_lease_store.due_work.sweep().due == {}
    redis = short_lease_store.connection.redis
    until_s = int(redis.hget(keys.OUTAGE, "until")) / 1000
    seconds, microseconds = redis.time()
    assert until_s <= seconds + microseconds / 1e6 + LEASE_S / 2

    swept = wait_until(
        lambda: short_lease_store.due_work.sweep().due, expected="the end of the grace"
    )

    assert swept == {job_id: FOUND}


def test_a_worker_that_was_dead_before_the_silence_is_found_at_once(
    store: Store, job_id: JobId
) -> None:
    expire_lease(store, granted_claim(store, job_id, "a.1"))
    simulate_silence(store, SILENCE_S)
    before_ms = int((store.connection.now() - 2 * SILENCE_S) * 1000)
    store.connection.redis.hset(handoff_key(store, job_id, HandoffId("a.1")), "lease", before_ms)

    assert store.due_work.sweep().due == {job_id: FOUND}


def test_consecutive_silences_add_up_to_at_most_three(store: Store, job_id: JobId) -> None:
    """Each silence starts before live workers can renew. Dead claims must end nevertheless."""
    own_claim = claim_after_silence(store, job_id)
    ended_ms = int((store.connection.now() - SILENCE_S / 2) * 1000)
    store.connection.redis.hset(handoff_key(store, job_id, own_claim.handoff_id), "lease", ended_ms)

    sweeps = []
    for _ in range(4):
        store.connection.redis.zadd(keys.due("researcher"), {f"{job_id}/a.1": ended_ms})
        sweeps.append(store.due_work.sweep().due)
        simulate_silence(store, SILENCE_S / 4)

    assert sweeps == [{}, {}, {}, {job_id: FOUND}]


@pytest.mark.slow
def test_of_hundreds_of_claims_that_could_not_renew_no_claim_counts_as_dead(
    store: Store, job_id: JobId
) -> None:
    many = [f"many-{number}.1" for number in range(MAX_SWEPT + 20)]
    issue(store, job_id, *many)
    for handoff_id in many:
        expire_lease(store, granted_claim(store, job_id, handoff_id))
    simulate_silence(store, SILENCE_S)

    sweeps = [store.due_work.sweep() for _ in range(3)]

    assert [(swept.due, swept.more) for swept in sweeps] == [({}, True), ({}, False), ({}, False)]


def test_a_role_is_not_run_twice_after_a_silence(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "planner.1", role="planner", group=None)
    expire_lease(store, granted_claim(store, job_id, "planner.1"))
    simulate_silence(store, SILENCE_S)
    mark_evaluated(store, job_id)

    assert claim(store, job_id, "planner.1", "s2").verdict is ClaimVerdict.BUSY


def test_a_redis_that_took_no_writes_was_silent(store: Store, job_id: JobId) -> None:
    own_claim = granted_claim(store, job_id, "a.1")
    redis = store.connection.redis
    last_call = redis.hget(keys.OUTAGE, "last_call")
    redis.config_set("maxmemory", 1)
    try:
        for speak in (store.due_work.sweep, own_claim.renew):
            with pytest.raises(StoreRefusesWrites):
                speak()
    finally:
        redis.config_set("maxmemory", 0)

    assert redis.hget(keys.OUTAGE, "last_call") == last_call
