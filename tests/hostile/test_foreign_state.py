"""A program that reaches Redis writes state that no process of this project writes. The sweep and
the commits go on.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys, metrics
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import a_job, issue, version_of

FOREIGN = JobId("j-0123456789ab")
HANDOFF = HandoffId("a.1")
KEPT_S = 600
"""Seconds for which Redis keeps the foreign keys."""


@pytest.fixture
def job_id(store: Store) -> JobId:
    return a_job(store)


def make_running(store: Store, job_id: JobId, **fields: str) -> None:
    """Write a job with a running handoff whose lease has ended."""
    redis = store.connection.redis
    redis.hset(keys.job(job_id), mapping={"status": "running", **fields})
    redis.hset(keys.progress(job_id), "turns", "0")
    reservation = {"r_turns": "1", "r_in": "1", "r_out": "1", "r_usd": "1", "r_day": "1"}
    handoff = {"state": "running", "lease": "0", "agent": "a", "queue": "a", **reservation}
    redis.hset(keys.agents(job_id), HANDOFF, "a")
    redis.hset(keys.handoff(job_id, "a", HANDOFF), mapping=handoff)
    for key in (
        keys.job(job_id),
        keys.progress(job_id),
        keys.agents(job_id),
        keys.handoff(job_id, "a", HANDOFF),
    ):
        redis.expire(key, KEPT_S)
    redis.hset(keys.QUEUES, "a", 0)
    redis.zadd(keys.due("a"), {f"{job_id}/{HANDOFF}": 1})


def test_a_job_that_is_its_own_parent_stops_no_sweep(store: Store) -> None:
    make_running(store, FOREIGN, parent=f"{FOREIGN}/{HANDOFF}")

    assert FOREIGN in store.due_work.sweep().due


def test_jobs_that_are_children_of_each_other_stop_no_commit(store: Store, job_id: JobId) -> None:
    redis = store.connection.redis
    chain = [JobId(f"j-{number:012x}") for number in range(40)]
    for child, below in zip(chain, [*chain[1:], job_id], strict=True):
        redis.hset(keys.job(child), mapping={"status": "running", "children": f"{below} {below}"})
        redis.expire(keys.job(child), KEPT_S)
    redis.hset(keys.job(job_id), "children", f"{chain[0]} {chain[0]}")

    before = version_of(store, job_id)
    store.journal.commit(Commit(job_id, before, [CancelRequested()]))

    assert version_of(store, job_id) == before + 1


def test_a_lease_that_is_not_a_number_stops_no_sweep(store: Store, job_id: JobId) -> None:
    make_running(store, FOREIGN)
    store.connection.redis.hset(keys.handoff(FOREIGN, "a", HANDOFF), "lease", "garbage")
    issue(store, job_id, "a.1")
    store.connection.redis.zadd(keys.DUE, {job_id: 1})

    assert job_id in store.due_work.sweep().due


@pytest.mark.parametrize("member", [b"\xff\xfe/a.1", b"no job", b" j-0123456789ab/a.1"])
def test_a_due_entry_without_a_job_is_removed(store: Store, job_id: JobId, member: bytes) -> None:
    store.connection.redis.zadd(keys.DUE, {member: 1, job_id.encode(): 1})

    assert job_id in store.due_work.sweep().due

    assert store.connection.redis.zscore(keys.DUE, member) is None


def test_an_entry_without_a_member_in_a_queues_order_is_removed(
    store: Store, job_id: JobId
) -> None:
    redis = store.connection.redis
    redis.zadd(f"{keys.FAIR}supervisor", {" no member": 1})
    redis.hset(f"{keys.FAIR}supervisor:messages", " no member", "{}")
    redis.zadd(keys.DUE, {job_id: 1})

    assert job_id in store.due_work.sweep().due

    assert redis.zcard(f"{keys.FAIR}supervisor") == 0


def test_an_outage_key_of_another_type_is_written_again(store: Store, job_id: JobId) -> None:
    redis = store.connection.redis
    redis.delete(keys.OUTAGE)
    redis.set(keys.OUTAGE, "1")
    redis.zadd(keys.DUE, {job_id: 1})

    assert job_id in store.due_work.sweep().due

    assert redis.type(keys.OUTAGE) == b"hash"


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5_000, "nan", "-1"])
def test_a_count_that_is_not_an_integer_of_redis_is_left_out(store: Store, text: str) -> None:
    store.connection.redis.hset(keys.METRICS, mapping={"jobs_submitted\tacme": text})

    assert store.metrics.read_counts() == []


@pytest.mark.parametrize("wrong", ["many fields", "another type"])
def test_counts_with_fields_without_end_are_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """500,000 fields of a worker gave each scrape of `/metrics` 7 s of work and 38 MB."""
    redis, today = store.connection.redis, int(store.connection.now()) // DAY_S
    field = "calls\tacme\tresearcher\ta-model\tteam"
    redis.hset(keys.spending(today - 1), field, 7)
    redis.hset(keys.METRICS, "jobs_submitted\tacme", 7)
    readable = store.metrics.read_counts()
    monkeypatch.setattr(metrics, "MAX_FIELDS", 1)
    for key in (keys.METRICS, keys.spending(today)):
        if wrong == "another type":
            redis.delete(key)
            redis.set(key, 1)
        else:
            redis.hset(key, mapping={field: 7, f"{field}2": 7})

    assert [count.value for count in readable] == [7]
    assert store.metrics.read_counts() == []
    (spending,) = store.spending.read_days([today - 1, today])
    assert (spending.day, spending.amounts.calls) == (today - 1, 7)
    redis.delete(keys.spending(today), keys.spending(today - 1))


def test_an_outage_without_an_end_keeps_no_claim_for_ever(store: Store) -> None:
    make_running(store, FOREIGN)
    redis = store.connection.redis
    redis.hset(keys.handoff(FOREIGN, "a", HANDOFF), "lease", 1_000)
    redis.hset(keys.OUTAGE, mapping={"since": 0, "until": 2**53})

    assert FOREIGN in store.due_work.sweep().due


@pytest.mark.parametrize(
    "batch", [b"\xff\xfe", b"", b"x" * 60_000, b"a\r\nb"], ids=["bytes", "empty", "long", "lines"]
)
def test_a_text_that_is_not_an_id_of_a_batch_is_not_in_the_list_to_cancel(
    store: Store, job_id: JobId, batch: bytes
) -> None:
    issue(store, job_id, "a.1", "a.2", role="a")
    redis = store.connection.redis
    redis.hset(keys.handoff(job_id, "a", HANDOFF), "batch", batch)
    known = {"batch": "msgbatch_2 a_call", "r_model": "a-model"}
    redis.hset(keys.handoff(job_id, "a", HandoffId("a.2")), mapping=known)

    dropped = [HANDOFF, HandoffId("a.2")]
    store.journal.commit(
        Commit(job_id, version_of(store, job_id), [CancelRequested()], drop=dropped)
    )

    entry = f"{job_id} a.2 msgbatch_2 a_call a-model"
    assert redis.zrange(keys.BATCHES, 0, -1) == [entry.encode()]
