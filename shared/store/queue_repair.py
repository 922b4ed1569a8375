"""Repair of Celery's queues: messages of deleted jobs are dropped from queues without a worker.

A worker takes each message to its end, so served queues need no repair. The messages carry the text
of their tasks. A message without its job has no effect for any worker. All other messages stay.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import entry_of
from handoff_queue.shared.store.presence import PresenceStore
from handoff_queue.shared.store.redis.connection import Connection, in_our_words
from handoff_queue.shared.types.ids import JobId, is_job_id, new_word

LOOKED_AT = 200
"""Messages of a queue at a time: some milliseconds of Redis, the more the further from their
taking end they stand, and half a megabyte.
"""
MINE_FOR_S = 60
"""Seconds after its last piece during which one supervisor owns the repair. So not every supervisor
reads the queues after a common restart.
"""


class QueueRepair:
    """Reads unserved queues, one piece at a time."""

    def __init__(self, connection: Connection, roles: PresenceStore) -> None:
        self._connection = connection
        self._roles = roles
        self._name = new_word()
        self._passed: dict[str, int] = {}
        """Number of messages, counted from the head, that were checked and kept, for each queue
        whose check is not complete.
        """

    @property
    def has_more(self) -> bool:
        return bool(self._passed)

    def drop_orphans(self) -> int:
        """Check the next `LOOKED_AT` messages of each unserved queue, and drop the messages of
        deleted jobs. Return the number of dropped messages; 0 if another supervisor owns the
        repair.
        """
        if not self._is_mine():
            self._passed = {}
            return 0
        redis, served = self._connection.redis, self._roles.presence().queues
        with in_our_words():
            known: set[Any] = set()
            for name in redis.hkeys(keys.QUEUES):
                known.add(name.decode())
        unserved = sorted(known - served)
        self._passed = {
            queue: passed for queue, passed in self._passed.items() if queue in unserved
        }
        return sum(map(self._drop_in, unserved))

    def _is_mine(self) -> bool:
        redis = self._connection.redis
        with in_our_words():
            is_free = redis.set(keys.ORPHANS, self._name, nx=True, ex=MINE_FOR_S)
            if is_free or redis.get(keys.ORPHANS) != self._name.encode():
                return bool(is_free)
            redis.expire(keys.ORPHANS, MINE_FOR_S)
        return True

    def _drop_in(self, queue: str) -> int:
        passed, redis = self._passed.pop(queue, 0), self._connection.redis
        with in_our_words():
            frames = redis.lrange(queue, -passed - LOOKED_AT, -passed - 1)
            messages = [_named(frame) for frame in frames]
            named = list(dict.fromkeys(job_id for job_id, _ in messages if job_id))
            pipe = redis.pipeline(transaction=False)
            for job_id in named:
                pipe.exists(keys.job(job_id))
            gone = {
                job_id for job_id, there in zip(named, pipe.execute(), strict=True) if not there
            }
        numbered = enumerate(zip(frames, messages, strict=True), start=1)
        orphans = [
            (place, frame, entry) for place, (frame, (job_id, entry)) in numbered if job_id in gone
        ]
        piece = [-passed - len(frames), -passed - 1]
        dropped = (
            self._connection.script(
                "drop_orphans", [queue], [*piece, *chain.from_iterable(orphans)]
            )
            if orphans
            else 0
        )
        if len(frames) == LOOKED_AT:
            self._passed[queue] = passed + len(frames) - dropped
        return dropped


def _named(frame: bytes) -> tuple[JobId | None, str]:
    """Return the job and the fair-queue entry of a message, from the id of its task.

    The job is None for a message of another application, which is left in place.
    """
    try:
        message = json.loads(frame)
        job_id, _, handoff_id = message["headers"]["id"].partition(":")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None, ""
    if not handoff_id or not is_job_id(job_id):
        return None, ""
    try:
        return JobId(job_id), entry_of(message) or ""
    except (LookupError, TypeError):
        return JobId(job_id), ""
