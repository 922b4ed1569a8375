"""A worker that has lost its claim can write nothing. The first of two results counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Cancelled, LeaseLost
from handoff_queue.shared.types.events import CancelRequested, HandoffFinished
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import (
    a_job,
    drop_handoff,
    expire_lease,
    finish,
    finish_with,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    redis_dump,
    result_of,
    stored_fence,
    turns_key,
)

HANDOFF_ID = HandoffId("find.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with two issued handoffs."""
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1")
    return job_id


def test_a_stale_claim_can_write_nothing(store: Store, job_id: JobId) -> None:
    stale = granted_claim(store, job_id, "find.1")
    expire_lease(store, stale)
    granted_claim(store, job_id, "find.1", "w2")
    before = redis_dump(store)

    assert finish(stale) is None
    stale.release()
    with pytest.raises(LeaseLost):
        stale.checkpoint(model_reply())
    with pytest.raises(LeaseLost):
        stale.renew()
    with pytest.raises(LeaseLost):
        stale.reserve(WorstCase(1, 1, 1))
    assert redis_dump(store) == before


def test_a_lapsed_claim_without_a_successor_still_holds(store: Store, job_id: JobId) -> None:
    late = granted_claim(store, job_id, "find.1")
    expire_lease(store, late)

    late.checkpoint(model_reply())
    assert finish(late) is not None


def test_a_lost_claim_is_known_as_lost_without_another_request(store: Store, job_id: JobId) -> None:
    stale = granted_claim(store, job_id, "find.1")
    expire_lease(store, stale)
    granted_claim(store, job_id, "find.1", "w2")
    with pytest.raises(LeaseLost):
        stale.renew()
    store.connection.close()

    with pytest.raises(LeaseLost):
        stale.heartbeat("thinking")
    with pytest.raises(LeaseLost):
        stale.checkpoint(model_reply())


def test_a_dropped_handoff_can_write_nothing(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.checkpoint(model_reply())
    drop_handoff(store, job_id, "find.1")

    assert finish(running) is None
    with pytest.raises(Cancelled):
        running.checkpoint(model_reply())
    assert not store.connection.redis.exists(turns_key(store, job_id, HANDOFF_ID))


def test_the_first_result_wins(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")

    assert finish(running, "The first.") == 1
    assert finish(running, "The second.") is None

    results = [
        recorded.event
        for recorded in store.journal.read(job_id)
        if isinstance(recorded.event, HandoffFinished)
    ]
    assert [event.result.digest for event in results] == [
        result_of(running, "The first.").content_digest
    ]
    assert (
        result_of(running, "The first.").to_json()
        in store.payloads.get(job_id, [results[0].result.digest]).values()
    )


def test_a_result_and_its_consequences_enter_the_journal_together(
    store: Store, job_id: JobId
) -> None:
    finish(granted_claim(store, job_id, "find.1"), "An answer.", CancelRequested(by="a test"))

    assert [recorded.event.type for recorded in store.journal.read(job_id)[-2:]] == [
        "handoff_finished",
        "cancel_requested",
    ]


def test_the_end_of_a_handoff_returns_the_number_of_open_parts_in_its_group(
    store: Store, job_id: JobId
) -> None:
    issue(store, job_id, "planner.1", role="planner", group=None)

    assert finish(granted_claim(store, job_id, "find.1")) == 1
    assert finish(granted_claim(store, job_id, "look.1")) == 0
    assert finish(granted_claim(store, job_id, "planner.1")) == -1


def test_a_dropped_part_is_not_waited_for(store: Store, job_id: JobId) -> None:
    drop_handoff(store, job_id, "find.1")
    drop_handoff(store, job_id, "find.1")

    assert finish(granted_claim(store, job_id, "look.1")) == 0


def test_a_result_for_a_removed_job_restores_nothing(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    store.connection.redis.delete(keys.job(job_id))
    before = redis_dump(store)

    assert finish(running) is None
    assert redis_dump(store) == before


def test_redis_never_holds_the_fence_of_a_claim(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    claimed.checkpoint(model_reply())

    fields = store.connection.redis.hgetall(handoff_key(store, job_id, HANDOFF_ID))
    assert fields[b"fence"] == stored_fence(claimed)
    assert claimed.fence not in str(fields)


def test_a_reader_of_redis_cannot_end_a_running_handoff(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    stored = store.connection.redis.hget(handoff_key(store, job_id, HANDOFF_ID), "fence")
    thief = replace(claimed, fence=stored.decode())

    with pytest.raises(LeaseLost):
        finish_with(thief, result_of(thief, "Forged."))
    assert finish(claimed) is not None
