"""A decision is appended to the journal completely or not at all. Facts are appended at any
version.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.journal import MAX_EVENTS_A_READ
from handoff_queue.shared.store.redis.connection import MAX_CONNECTIONS
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreRefusesWrites, UnknownJob, VersionConflict
from handoff_queue.shared.types.events import (
    CancelRequested,
    JobEnded,
    JobStatus,
    StepsAbandoned,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, create_job_id
from tests.doubles.jobs import (
    a_job,
    finish,
    granted_claim,
    issue,
    issued_event,
    redis_dump,
    submission,
    version_of,
)
from tests.redis_clock import MAX_OFFSET_S, redis_time_s
from tests.waiting import wait_until


def a_batch(name: str, size: int) -> list[StepsAbandoned]:
    return [StepsAbandoned(steps=(), why=f"{name} {place}") for place in range(size)]


def commit(store: Store, job_id: JobId, expected: int, *events: object, **changes: object) -> int:
    order = Commit(job_id=job_id, expected=expected, events=list(events), **changes)  # type: ignore[arg-type]
    recorded = store.journal.commit(order)
    assert recorded == store.journal.read(job_id, after=expected)[: len(recorded)]
    return recorded[-1].version if recorded else expected


def test_a_commit_appends_its_events_in_order_and_returns_the_new_version(store: Store) -> None:
    job_id = a_job(store)

    version = commit(store, job_id, 1, *a_batch("first", 3))

    assert version == 4
    assert [recorded.version for recorded in store.journal.read(job_id)] == [1, 2, 3, 4]
    assert [recorded.event for recorded in store.journal.read(job_id, after=1)] == a_batch(
        "first", 3
    )


def test_after_a_refused_commit_no_later_commit_is_written(store: Store) -> None:
    there, deleted_job, last = a_job(store), create_job_id(), create_job_id()
    first, second, third = (
        Commit(job_id=job_id, expected=0, events=[CancelRequested()], after=after)
        for job_id, after in ((there, None), (deleted_job, last), (last, deleted_job))
    )

    came_to = store.journal.commit_each([first, second, third])

    assert [type(problem) for problem in came_to] == [
        VersionConflict,
        StoreRefusesWrites,
        StoreRefusesWrites,
    ]
    assert store.journal.read(deleted_job) == store.journal.read(last) == []


def test_a_commit_on_a_stale_version_is_refused_and_writes_nothing(store: Store) -> None:
    job_id = a_job(store)
    commit(store, job_id, 1, CancelRequested())
    before = redis_dump(store)

    with pytest.raises(VersionConflict):
        commit(
            store,
            job_id,
            1,
            issued_event("find.1"),
            JobEnded(status=JobStatus.OK),
            fields={"status": "ok"},
            payloads=["a payload"],
            drop=[HandoffId("other.1")],
            due_at=1.0,
            creates=True,
        )

    assert redis_dump(store) == before


def test_a_commit_on_a_future_version_is_refused(store: Store) -> None:
    job_id = a_job(store)

    with pytest.raises(VersionConflict):
        commit(store, job_id, 7, CancelRequested())


@pytest.mark.slow
def test_eight_contending_threads_split_no_batch_and_lose_none(store: Store) -> None:
    job_id, each, size = a_job(store), 15, 4

    def contend(name: int) -> None:
        for turn in range(each):
            while True:
                version = version_of(store, job_id)
                try:
                    commit(store, job_id, version, *a_batch(f"{name}-{turn}", size))
                    break
                except VersionConflict:
                    continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(contend, range(8)))

    whys = [
        recorded.event.why
        for recorded in store.journal.read(job_id, after=1)
        if isinstance(recorded.event, StepsAbandoned)
    ]
    batches = [whys[at : at + size] for at in range(0, len(whys), size)]
    assert len(batches) == 8 * each
    assert len({batch[0] for batch in batches}) == 8 * each
    assert all(
        batch == [f"{batch[0].split()[0]} {place}" for place in range(size)] for batch in batches
    )


def test_one_of_many_decisions_on_the_same_version_wins(store: Store) -> None:
    job_id, start = a_job(store), threading.Barrier(8)

    def decide(name: int) -> bool:
        start.wait()
        try:
            commit(store, job_id, 1, *a_batch(str(name), 2))
        except VersionConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(decide, range(8))) == 1
    assert version_of(store, job_id) == 3


def test_facts_commute_with_each_other_and_with_commits(store: Store) -> None:
    job_id, start = a_job(store), threading.Barrier(8)

    def append(attempt: int) -> int:
        start.wait()
        return store.journal.append(job_id, WebhookTried(attempt=attempt, delivered=False, end=1))

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(append, range(1, 9)))

    assert sorted(versions) == list(range(2, 10))
    recorded = store.journal.read(job_id, after=1)
    by_version = {
        item.version: item.event.attempt
        for item in recorded
        if isinstance(item.event, WebhookTried)
    }
    assert {version: attempt for attempt, version in enumerate(versions, start=1)} == by_version


def test_a_fact_about_no_job_is_refused(store: Store) -> None:
    with pytest.raises(UnknownJob):
        store.journal.append(create_job_id(), CancelRequested())
    assert store.connection.redis.keys() == []


def test_a_fact_sets_fields_and_removes_empty_fields(store: Store) -> None:
    job_id = a_job(store)

    store.journal.append(job_id, CancelRequested(), {"cancelled": 1})
    assert store.jobs.read([job_id])[0].cancelled
    store.journal.append(job_id, CancelRequested(), {"cancelled": ""})
    assert not store.jobs.read([job_id])[0].cancelled


def test_a_fact_for_a_running_job_does_not_change_an_ended_job(store: Store) -> None:
    job_id = a_job(store)

    assert store.journal.append_unless_ended(job_id, CancelRequested(), {"cancelled": 1})
    store.journal.append(
        job_id, JobEnded(status=JobStatus.CANCELLED), {"status": "cancelled", "cancelled": ""}
    )
    assert not store.journal.append_unless_ended(job_id, CancelRequested(), {"cancelled": 1})
    assert not store.jobs.read([job_id])[0].cancelled
    assert version_of(store, job_id) == 3


def test_the_second_submission_of_a_job_is_refused(store: Store) -> None:
    job_id = a_job(store)

    with pytest.raises(VersionConflict):
        commit(store, job_id, 0, submission("Another."), creates=True)


def test_each_payload_is_stored_once_under_its_digest(store: Store) -> None:
    job_id, text = a_job(store), "A payload. " * 500

    commit(store, job_id, 1, CancelRequested(), payloads=[text, text])
    commit(store, job_id, 2, CancelRequested(), payloads=[text])

    assert store.payloads.get(job_id, [make_ref(text).digest]) == {make_ref(text).digest: text}
    assert store.connection.redis.hlen(keys.blobs(job_id)) == 2  # the other blob is the request


def test_a_long_journal_is_read_completely(store: Store) -> None:
    job_id = a_job(store)
    commit(store, job_id, 1, *a_batch("long", MAX_EVENTS_A_READ + 10))

    assert [recorded.version for recorded in store.journal.read(job_id)] == list(
        range(1, MAX_EVENTS_A_READ + 12)
    )


def test_followers_get_an_event_when_it_is_appended(store: Store) -> None:
    job_id = a_job(store)

    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(store.journal.follow, job_id, 1, 20.0)
        wait_until(
            lambda: store.connection.redis.info("clients")["blocked_clients"] == 1,
            expected="the follower",
        )
        store.journal.append(job_id, CancelRequested())

        assert [recorded.event for recorded in heard.result(5)] == [CancelRequested()]


def test_any_number_of_followers_leaves_the_other_callers_their_connections(store: Store) -> None:
    job_id, many = a_job(store), MAX_CONNECTIONS + 1

    with ThreadPoolExecutor(many) as pool:
        heard = [pool.submit(store.journal.follow, job_id, 1, 20.0) for _ in range(many)]
        with redis.Redis.from_url(store.connection.url) as looking:
            wait_until(
                lambda: looking.info("clients")["blocked_clients"] == many, expected="the followers"
            )
        store.journal.append(job_id, CancelRequested())

        assert all(len(future.result(10)) == 1 for future in heard)


def test_followers_of_a_silent_job_return_empty(store: Store) -> None:
    job_id = a_job(store)

    assert store.journal.follow(job_id, 1, 0.01) == []


def test_times_come_from_redis(store: Store) -> None:
    before = redis_time_s(store)
    job_id = a_job(store)
    after = redis_time_s(store)

    assert before <= store.journal.read(job_id)[0].at <= after
    assert before - MAX_OFFSET_S < store.connection.now() < redis_time_s(store) + MAX_OFFSET_S


def test_a_job_with_an_event_since_its_decision_is_due_within_a_second(store: Store) -> None:
    """The decision did not know the event, so its later due time does not count."""
    job_id = a_job(store)
    issue(store, job_id, "find.1")
    decided_on = version_of(store, job_id)
    finish(granted_claim(store, job_id, "find.1"))

    store.journal.set_due(job_id, store.connection.now() + 3_000, decided_on)

    due = store.connection.redis.zscore(keys.DUE, job_id)
    assert due
    assert due / 1_000 <= store.connection.now() + 1


def test_the_due_time_is_set_and_removed(store: Store) -> None:
    job_id = a_job(store)

    store.journal.set_due(job_id, 12.345, 1)
    assert store.connection.redis.zscore(keys.DUE, job_id) == 12_345
    store.journal.set_due(job_id, None, 1)
    assert store.connection.redis.zscore(keys.DUE, job_id) is None
