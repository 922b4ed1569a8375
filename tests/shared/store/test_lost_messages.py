"""The sweep finds lost messages and late wake-ups."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.due_work import LOST_AFTER_S, MAX_SWEPT
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import Cancelled
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import (
    a_job,
    claim,
    due_at,
    finish,
    finish_with,
    granted_claim,
    handoff_key,
    issue,
    issued_event,
    model_reply,
    result_of,
    stored_fence,
    version_of,
)
from tests.doubles.sweep_states import QUEUE, age_issued, age_taken, publish


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with three issued handoffs for the researcher."""
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1")
    return job_id


def test_a_message_missing_from_an_empty_queue_is_lost(store: Store, job_id: JobId) -> None:
    age_issued(store, job_id, LOST_AFTER_S + 1, "a.1")

    assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}
    assert store.jobs.read_handoffs(job_id, [HandoffId("a.1")])[HandoffId("a.1")].lost
    assert store.due_work.sweep().due == {}


def test_a_message_that_is_on_its_way_to_a_worker_is_not_lost(store: Store, job_id: JobId) -> None:
    age_issued(store, job_id, LOST_AFTER_S - 2, "a.1")

    assert store.due_work.sweep().due == {}


def test_a_taken_and_unclaimed_message_is_lost_while_others_wait_in_its_queue(
    store: Store, job_id: JobId
) -> None:
    publish(store, "a.1", "b.1", "c.1")
    age_issued(store, job_id, 60, "a.1", "b.1", "c.1")
    age_taken(store, job_id, LOST_AFTER_S - 2, "b.1")
    assert store.due_work.sweep().due == {}
    age_taken(store, job_id, LOST_AFTER_S + 1, "b.1")

    assert store.due_work.sweep().due == {job_id: [HandoffId("b.1")]}


def test_an_unpublished_message_is_lost_while_others_wait_in_its_queue(
    store: Store, job_id: JobId
) -> None:
    publish(store, "of others")
    issue(store, job_id, "d.1", group="g2")
    age_issued(store, job_id, LOST_AFTER_S + 1, "a.1", "d.1")

    assert store.due_work.sweep().due == {job_id: [HandoffId("d.1")]}


def test_a_released_message_waits_like_any_other(store: Store, job_id: JobId) -> None:
    age_issued(store, job_id, 60, "a.1", "b.1")
    granted_claim(store, job_id, "a.1").release()
    publish(store, "a.1", "c.1")
    granted_claim(store, job_id, "b.1")

    assert store.due_work.sweep().due == {}


@pytest.mark.slow
def test_thousands_that_wait_in_a_queue_for_hours_are_not_lost(store: Store) -> None:
    job_id, names = a_job(store), [f"s{n}.1" for n in range(10_000)]
    for at in range(0, 10_000, 1_000):
        issue(store, job_id, *names[at : at + 1_000], group=f"g{at}")
    publish(store, *names)
    age_issued(store, job_id, 7_200, *names)

    assert store.due_work.sweep().due == {}
    for name in names[5_000:5_050]:
        store.connection.redis.rpop(QUEUE)
        granted_claim(store, job_id, name)
        assert store.due_work.sweep().due == {}


@pytest.mark.slow
def test_the_last_of_thousands_is_not_lost_while_the_first_are_being_published(
    store: Store,
) -> None:
    """Publishing 10,000 messages takes a while."""
    job_id, names = a_job(store), [f"s{n}.1" for n in range(10_000)]
    store.journal.commit(
        Commit(job_id=job_id, expected=1, events=[issued_event(name) for name in names])
    )
    committed_ms = store.connection.now() * 1000

    assert (
        store.connection.redis.zscore(keys.OUT + QUEUE, f"{job_id}/{names[-1]}") - committed_ms
        > 10_000
    )


def test_thousands_of_lost_messages_of_one_job_hide_none_of_another(
    store: Store, job_id: JobId
) -> None:
    """The wake-up of the first job stays in its queue."""
    crowd, names = a_job(store), [f"s{n}.1" for n in range(2 * MAX_SWEPT + 50)]
    issue(store, crowd, *names)
    publish(store, "of others")
    age_taken(store, crowd, 60, *names)
    age_taken(store, job_id, LOST_AFTER_S + 1, "a.1")
    sweeps = [store.due_work.sweep().due for _ in range(4)]

    assert {job_id: [HandoffId("a.1")]} in sweeps


def test_a_place_without_its_message_ends_no_sweep(store: Store, job_id: JobId) -> None:
    """Another program may have deleted the message and left its place."""
    store.connection.redis.zadd(keys.FAIR + QUEUE, {f"{job_id}/a.1 tag": 1})
    age_issued(store, job_id, LOST_AFTER_S + 1, "a.1")

    assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}
    assert not store.connection.redis.exists(keys.FAIR + QUEUE)


def test_a_role_that_waits_on_the_roles_queue_is_not_a_lost_message(store: Store) -> None:
    issue(store, a_job(store), "planner.1", role="planner", group=None)

    assert store.connection.redis.keys(keys.WAITING + "*") == []


def test_when_the_last_part_of_a_chord_is_done_its_job_is_due_soon(
    store: Store, job_id: JobId
) -> None:
    """The chord's body should arrive now. Otherwise the sweeper acts."""
    finish(granted_claim(store, job_id, "a.1"))
    finish(granted_claim(store, job_id, "b.1"))
    assert due_at(store, job_id) > store.connection.now() + 60

    finish(granted_claim(store, job_id, "c.1"))
    assert due_at(store, job_id) < store.connection.now() + 10


@pytest.mark.parametrize("status", [ResultStatus.FAILED, ResultStatus.NEEDS_INPUT])
def test_an_urgent_result_makes_its_job_due_soon(
    store: Store, job_id: JobId, status: ResultStatus
) -> None:
    """The worker wakes the supervisor now. If it dies before, the sweeper acts."""
    running = granted_claim(store, job_id, "a.1")
    result = result_of(running).model_copy(
        update={"status": status, "error": "it broke", "needs": "a key"}
    )
    assert finish_with(running, result).parts_left == 2

    assert due_at(store, job_id) < store.connection.now() + 10


def test_a_job_that_was_cancelled_is_due_soon(store: Store, job_id: JobId) -> None:
    store.journal.append(job_id, CancelRequested(), {"cancelled": 1})

    assert due_at(store, job_id) < store.connection.now() + 10


def test_a_dropped_handoff_leaves_no_entry(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "a.1")
    everything = [HandoffId("a.1"), HandoffId("b.1"), HandoffId("c.1")]
    store.journal.commit(
        Commit(
            job_id=job_id,
            expected=version_of(store, job_id),
            events=[CancelRequested()],
            drop=everything,
        )
    )

    fences = [
        store.connection.redis.hget(handoff_key(store, job_id, name), "fence")
        for name in everything
    ]
    assert fences == [stored_fence(running), None, None], "nobody else has claimed it"
    with pytest.raises(Cancelled):
        running.checkpoint(model_reply())
    assert store.connection.redis.zrange(keys.DUE, 0, -1) == []
    assert store.connection.redis.zrange(keys.WAITING + QUEUE, 0, -1) == []


def test_entries_of_jobs_removed_by_retention_are_deleted(store: Store) -> None:
    store.connection.redis.zadd(keys.DUE, {"j-000000000000/a.1": 1})
    store.connection.redis.hset(keys.QUEUES, QUEUE, 0)
    store.connection.redis.zadd(keys.WAITING + QUEUE, {"j-000000000000/b.1": 1})

    assert store.due_work.sweep().due == {}
    assert not store.connection.redis.exists(keys.DUE, keys.WAITING + QUEUE)


def test_a_handoff_that_is_claimed_waits_no_longer(store: Store, job_id: JobId) -> None:
    for name in ("a.1", "b.1", "c.1"):
        claim(store, job_id, name)

    assert not store.connection.redis.exists(keys.WAITING + QUEUE)
