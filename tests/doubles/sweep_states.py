"""Put a store into states that the sweeper repairs: lost messages, due jobs, old wake-ups."""

from __future__ import annotations

from handoff_queue.chaos.faults import delete_queue
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId, create_job_id
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from tests.doubles.jobs import (
    a_job,
    submission,
    version_of,
)

QUEUE = "researcher"


def make_due(store: Store, job_id: JobId) -> None:
    store.connection.redis.zadd(keys.DUE, {job_id: 1})


def publish(store: Store, *messages: str, queue: str = QUEUE) -> None:
    """Put messages into the queue, and forget which of its handoffs were taken."""
    store.connection.redis.lpush(queue, *messages)
    store.connection.redis.delete(keys.OUT + queue)


def delete_messages(store: Store, *queues: str) -> None:
    """Delete all messages in the queues."""
    for queue in queues:
        delete_queue(store.connection.redis, queue)


def age_issued(store: Store, job_id: JobId, seconds: float, *handoff_ids: str) -> None:
    """Make these handoffs look issued some seconds ago.

    A handoff without a later publication counts as held by its publisher.
    """
    _since(store, seconds, QUEUE, *(f"{job_id}/{handoff_id}" for handoff_id in handoff_ids))


def age_taken(store: Store, job_id: JobId, seconds: float, *handoff_ids: str) -> None:
    """Make the messages look taken some seconds ago by a worker that then died."""
    at_ms = (store.connection.now() - seconds) * 1000
    store.connection.redis.zadd(
        keys.OUT + QUEUE, {f"{job_id}/{handoff_id}": at_ms for handoff_id in handoff_ids}
    )


def mark_evaluated(store: Store, job_id: JobId) -> None:
    """Record that a supervisor has evaluated the job, and found nothing to do."""
    store.journal.set_due(job_id, store.connection.now() + 3_600, version_of(store, job_id))


def age_wake_ups(
    store: Store, seconds: float, *job_ids: JobId, queue: str = SUPERVISOR_QUEUE
) -> None:
    """Make these wake-ups look sent some seconds ago."""
    _since(store, seconds, queue, *job_ids)


def _since(store: Store, seconds: float, queue: str, *members: str) -> None:
    times = dict.fromkeys(members, (store.connection.now() - seconds) * 1000)
    store.connection.redis.zadd(keys.WAITING + queue, times)
    store.connection.redis.zadd(keys.OUT + queue, times, xx=True)


def age_everything(store: Store, seconds: float) -> None:
    """Make every due time, waiting message and dispatch look older by some seconds."""
    redis, delta_ms = store.connection.redis, -int(seconds * 1000)
    for name in (
        *redis.scan_iter(match=f"{keys.DUE}*"),
        *redis.scan_iter(match=f"{keys.WAITING}*"),
        *redis.scan_iter(match=f"{keys.OUT}*"),
    ):
        for member in redis.zrange(name, 0, -1):
            redis.zincrby(name, delta_ms, member)


def simulate_silence(store: Store, seconds: float) -> None:
    """Make the store believe that Redis has been silent for some seconds."""
    store.connection.redis.hset(
        keys.OUTAGE, "last_call", int((store.connection.now() - seconds) * 1000)
    )


def add_unfinished_evaluations(store: Store, job_id: JobId, *seconds: float) -> None:
    """Record evaluations of the job that began some seconds ago and never ended."""
    now = store.connection.now()
    evaluations = " ".join(
        f"{number:x}:{int((now - age_s) * 1000)}"
        for number, age_s in enumerate(seconds, start=0xA0)
    )
    store.connection.redis.hset(keys.job(job_id), "evaluations", evaluations)


def count_unfinished_evaluations(store: Store, job_id: JobId) -> int:
    """Return the number of evaluations without an end."""
    return len((store.connection.redis.hget(keys.job(job_id), "evaluations") or b"").split())


def running_and_queued(store: Store) -> tuple[JobId, JobId]:
    """Return a job that has begun, and a job that no supervisor has evaluated yet."""
    fresh = create_job_id()
    fields: dict[str, str | int] = {"status": "queued"}
    store.journal.commit(
        Commit(
            job_id=fresh, expected=0, events=[submission()], fields=fields, due_at=1, creates=True
        )
    )
    return a_job(store), fresh
