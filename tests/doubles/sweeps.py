"""What tests of the sweep do to a store: messages published, jobs made due, wake-ups sent so
long ago.
"""

from __future__ import annotations

from handoff_queue.chaos.messages_server import lose_all
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId, new_job_id
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from tests.doubles.jobs import (
    a_job,
    submission,
    version_of,
)

QUEUE = "researcher"


def make_due(store: Store, job_id: JobId) -> None:
    store.connection.redis.zadd(keys.DUE, {job_id: 1})


def published(store: Store, *messages: str, queue: str = QUEUE) -> None:
    """Messages in the queue, whoever's they are: nothing that waits for it is on anybody's hands."""
    store.connection.redis.lpush(queue, *messages)
    store.connection.redis.delete(keys.OUT + queue)


def messages_vanish(store: Store, *queues: str) -> None:
    """All of these queues'."""
    for queue in queues:
        lose_all(store.connection.redis, queue)


def issued_ago(store: Store, job_id: JobId, seconds: float, *handoff_ids: str) -> None:
    """As if these had been issued so long ago. Those that nobody has published since are on
    the hands of who was to.
    """
    _since(store, seconds, QUEUE, *(f"{job_id}/{handoff_id}" for handoff_id in handoff_ids))


def taken_ago(store: Store, job_id: JobId, seconds: float, *handoff_ids: str) -> None:
    """As if somebody had taken their messages so long ago, and died with them."""
    at_ms = (store.connection.now() - seconds) * 1000
    store.connection.redis.zadd(
        keys.OUT + QUEUE, {f"{job_id}/{handoff_id}": at_ms for handoff_id in handoff_ids}
    )


def looked_at(store: Store, job_id: JobId) -> None:
    """A supervisor has taken the wake-up, and found nothing to do."""
    store.journal.set_due(job_id, store.connection.now() + 3_600, version_of(store, job_id))


def woken_ago(store: Store, seconds: float, *job_ids: JobId, queue: str = SUPERVISOR_QUEUE) -> None:
    """As if these wake-ups had been sent so long ago."""
    _since(store, seconds, queue, *job_ids)


def _since(store: Store, seconds: float, queue: str, *members: str) -> None:
    times = dict.fromkeys(members, (store.connection.now() - seconds) * 1000)
    store.connection.redis.zadd(keys.WAITING + queue, times)
    store.connection.redis.zadd(keys.OUT + queue, times, xx=True)


def time_passes(store: Store, seconds: float) -> None:
    """As if all that is due, waits or is on somebody's hands had been noted so much earlier."""
    redis, by_ms = store.connection.redis, -int(seconds * 1000)
    for name in (
        keys.DUE,
        *redis.scan_iter(match=f"{keys.WAITING}*"),
        *redis.scan_iter(match=f"{keys.OUT}*"),
    ):
        for member in redis.zrange(name, 0, -1):
            redis.zincrby(name, by_ms, member)


def silent_for(store: Store, seconds: float) -> None:
    """As if nobody had spoken to Redis of leases for so long."""
    store.connection.redis.hset(
        keys.SILENCE, "heard", int((store.connection.now() - seconds) * 1000)
    )


def looks_begun_ago(store: Store, job_id: JobId, *seconds: float) -> None:
    """As if looks at the job had begun so long ago, and none of them had come to its end."""
    now = store.connection.now()
    begun = " ".join(
        f"{n:x}:{int((now - ago) * 1000)}" for n, ago in enumerate(seconds, start=0xA0)
    )
    store.connection.redis.hset(keys.job(job_id), "looks", begun)


def looks_noted(store: Store, job_id: JobId) -> int:
    """Those that have not come to their end."""
    return len((store.connection.redis.hget(keys.job(job_id), "looks") or b"").split())


def running_and_queued(store: Store) -> tuple[JobId, JobId]:
    """A job that was begun, and one that nobody has looked at yet."""
    fresh = new_job_id()
    fields: dict[str, str | int] = {"status": "queued"}
    store.journal.commit(
        Commit(
            job_id=fresh, expected=0, events=[submission()], fields=fields, due_at=1, creates=True
        )
    )
    return a_job(store), fresh
