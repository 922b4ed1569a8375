"""A sweep reports a suspect until a supervisor has acted, because a wake-up may be lost."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.due_work import ACTED_WITHIN_S, LOST_AFTER_S
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES_QUEUE, SUPERVISOR_QUEUE
from tests.doubles.jobs import a_job, expire_lease, granted_claim, issue
from tests.doubles.sweep_states import QUEUE, age_everything, age_taken, mark_evaluated, publish

SUSPECT = HandoffId("a.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job whose worker died with its first handoff. Thousands of messages wait in its
    queue.
    """
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", "c.1")
    publish(store, *(f"message {number}" for number in range(10_000)))
    expire_lease(store, granted_claim(store, job_id, "a.1"))
    return job_id


def test_the_next_sweep_sends_the_wake_up_of_a_dead_sweeper(store: Store, job_id: JobId) -> None:
    assert store.due_work.sweep().due == {job_id: [SUSPECT]}
    age_everything(store, ACTED_WITHIN_S - 0.5)
    assert store.due_work.sweep().due == {}
    age_everything(store, 0.6)

    assert store.due_work.sweep().due == {job_id: [SUSPECT]}


def test_a_wake_up_is_found_if_its_receiver_died_before_it_acted(
    store: Store, job_id: JobId
) -> None:
    store.due_work.sweep()
    mark_evaluated(store, job_id)
    age_everything(store, ACTED_WITHIN_S + 0.1)

    assert store.due_work.sweep().due == {job_id: [SUSPECT]}


def test_while_the_wake_up_waits_in_its_queue_no_other_is_sent(store: Store, job_id: JobId) -> None:
    store.due_work.sweep()
    publish(store, "the wake-up", queue=SUPERVISOR_QUEUE)
    for _ in range(3):
        age_everything(store, 600)

        assert store.due_work.sweep().due == {}


def test_a_republished_suspect_is_not_searched_while_it_waits_behind_10_000_others(
    store: Store, job_id: JobId
) -> None:
    store.due_work.sweep()
    store.due_work.mark_sent(job_id, [SUSPECT])
    mark_evaluated(store, job_id)
    for _ in range(3):
        age_everything(store, 600)

        assert store.due_work.sweep().due == {}
    assert not store.jobs.read_handoffs(job_id, [SUSPECT])[SUSPECT].lost


def test_a_message_ahead_of_10_000_others_does_not_make_the_others_look_lost(
    store: Store, job_id: JobId
) -> None:
    age_everything(store, 600)
    store.due_work.sweep()
    store.due_work.mark_sent(job_id, [SUSPECT])
    mark_evaluated(store, job_id)
    granted_claim(store, job_id, "a.1")

    assert store.due_work.sweep().due == {}


def test_a_handoff_claimed_before_its_publication_was_recorded_keeps_its_lease(
    store: Store, job_id: JobId
) -> None:
    store.due_work.sweep()
    claimed = granted_claim(store, job_id, "a.1")
    due_ms = store.connection.redis.zscore(keys.due("researcher"), f"{job_id}/a.1")

    store.due_work.mark_sent(job_id, [SUSPECT])

    assert store.connection.redis.zscore(keys.due("researcher"), f"{job_id}/a.1") == due_ms
    assert store.connection.redis.zscore(keys.WAITING + QUEUE, f"{job_id}/a.1") is None
    expire_lease(store, claimed)
    mark_evaluated(store, job_id)
    assert store.due_work.sweep().due == {job_id: [SUSPECT]}


def test_a_job_deleted_during_the_sweep_does_not_come_back(store: Store, job_id: JobId) -> None:
    store.due_work.sweep()
    store.jobs.delete(job_id)

    store.due_work.mark_sent(job_id, [SUSPECT])

    assert not store.connection.redis.exists(keys.job(job_id), keys.agents(job_id))


def test_a_message_that_was_lost_in_its_queue_is_found_until_it_is_sent(
    store: Store, job_id: JobId
) -> None:
    store.due_work.sweep()
    store.due_work.mark_sent(job_id, [SUSPECT])
    mark_evaluated(store, job_id)
    age_taken(store, job_id, 2 * LOST_AFTER_S, "a.1")

    for _ in range(2):
        assert store.due_work.sweep().due == {job_id: [SUSPECT]}
        mark_evaluated(store, job_id)
        age_everything(store, ACTED_WITHIN_S + 0.1)
    store.due_work.mark_sent(job_id, [SUSPECT])
    assert store.due_work.sweep().due == {}


def test_the_unsent_handoff_of_a_role_is_found_until_it_is_sent(store: Store) -> None:
    job_id, planner = a_job(store), HandoffId("planner.1")
    issue(store, job_id, planner, role="planner", group=None)
    store.connection.redis.lpush(ROLES_QUEUE, *(f"message {number}" for number in range(100)))
    assert store.due_work.queue_role_handoff(job_id, planner, ROLES_QUEUE)
    age_everything(store, ACTED_WITHIN_S + 0.1)

    assert store.due_work.sweep().due == {job_id: [planner]}
    assert store.due_work.queue_role_handoff(job_id, planner, ROLES_QUEUE)
    store.due_work.mark_sent(job_id, [planner])
    mark_evaluated(store, job_id)
    age_everything(store, 600)
    assert store.due_work.sweep().due == {}
    assert not store.due_work.queue_role_handoff(job_id, planner, ROLES_QUEUE)
