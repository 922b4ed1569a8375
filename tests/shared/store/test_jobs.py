"""Jobs have a status, are listed, and are deleted completely."""

from __future__ import annotations

import inspect

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, create_job_id
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import a_job, finish, granted_claim, issue, model_reply
from tests.redis_clock import redis_time_s


def test_missing_jobs_are_left_out(store: Store) -> None:
    before = redis_time_s(store)
    job_id = a_job(store)

    (info,) = store.jobs.read([create_job_id(), job_id])
    assert (info.job_id, info.status, info.version) == (job_id, "running", 1)
    assert before <= info.submitted_at <= redis_time_s(store)


def test_the_newest_jobs_come_first(store: Store) -> None:
    job_ids = [a_job(store) for _ in range(3)]
    for place, job_id in enumerate(job_ids):
        store.connection.redis.zadd(keys.JOBS, {job_id: place})

    assert store.jobs.list_newest(2) == [job_ids[2], job_ids[1]]
    assert store.jobs.list_newest(3) == job_ids[::-1]


def test_each_handoff_has_its_current_state(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    finish(granted_claim(store, job_id, "a.1"))

    handoff_infos = store.jobs.read_handoffs(
        job_id, [HandoffId("a.1"), HandoffId("b.1"), HandoffId("c.1")]
    )
    assert {name: info.state for name, info in handoff_infos.items()} == {
        "a.1": "done",
        "b.1": "issued",
    }
    assert handoff_infos[HandoffId("a.1")].finished_at is not None
    assert store.jobs.read_handoffs(job_id, []) == {}


def test_a_deleted_job_leaves_nothing_but_documents(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    running = granted_claim(store, job_id, "a.1")
    running.checkpoint(model_reply())
    running.heartbeat("thinking", "A draft")
    running.renew()
    page = Document(
        path="https://example.org/a", digest=compute_digest("text"), media_type="text/html", chars=4
    )
    store.payloads.put_fetched_page(job_id, page, "text")
    store.payloads.put_documents({compute_digest("text"): "text"}, 600)
    store.dead_letters.add("researcher", "garbage", "{")

    store.jobs.delete(job_id)

    left = {name.decode() for name in store.connection.redis.scan_iter()}
    assert not {name for name in left if job_id in name}
    assert store.connection.redis.zcard(keys.DUE) == 0
    assert store.connection.redis.zcard(keys.due("researcher")) == 0
    assert store.connection.redis.zcard(keys.JOBS) == 0
    store.due_work.sweep()
    assert store.payloads.read_documents([page.digest]) == {page.digest: "text"}


def test_a_deleted_job_leaves_no_key_of_any_kind(store: Store) -> None:
    """Each function of `keys` with a job's id names a key of the job."""
    job_id, handoff_id = a_job(store), HandoffId("a.1")
    issue(store, job_id, handoff_id)
    values = {"job_id": job_id, "agent": "researcher", "handoff_id": handoff_id}
    redis = store.connection.redis
    kinds: list[str] = []
    for kind, name_of in inspect.getmembers(keys, inspect.isfunction):
        parameters = inspect.signature(name_of).parameters
        if "job_id" in parameters:
            redis.setnx(name_of(*[values[parameter] for parameter in parameters]), "x")
            kinds.append(kind)

    store.jobs.delete(job_id)

    assert len(kinds) >= 10
    assert not [name for name in redis.scan_iter() if job_id.encode() in name]


def test_jobs_removed_by_retention_leave_the_list(store: Store) -> None:
    old, new, waits = a_job(store), a_job(store), a_job(store)
    store.connection.redis.zadd(keys.JOBS, {old: 1_000, waits: 900})
    store.connection.redis.delete(keys.job(old))

    store.jobs.forget_older_than(2.0)

    left = [name.decode() for name in store.connection.redis.zrange(keys.JOBS, 0, -1)]
    assert left == [waits, new], "a job that is still there stays, however old"


def test_dead_letters_keep_the_reason_and_the_newest_first(store: Store) -> None:
    store.dead_letters.add("researcher", "not JSON", "{")
    store.dead_letters.add("writer", "no such field", "{}")

    assert [
        (dead_letter.queue, dead_letter.reason, dead_letter.body)
        for dead_letter in store.dead_letters.list_newest(10)
    ] == [
        ("writer", "no such field", "{}"),
        ("researcher", "not JSON", "{"),
    ]
