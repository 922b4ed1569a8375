"""Repair of Celery's queues: messages of deleted jobs are dropped from queues without a
worker.

A worker consumes each message of its queues, so served queues need no repair. A message has
the text of its task, so a queue of orphans takes much memory. A message whose job is deleted
has no effect. All other messages stay.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import get_entry
from handoff_queue.shared.store.presence import PresenceStore
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.ids import JobId, create_word, is_job_id

MESSAGES_A_CHECK = 200
"""Messages of a queue that one call checks. They take some milliseconds of Redis's time, more
at the far end of a long queue, and half a megabyte.
"""
OWNERSHIP_S = 60
"""Seconds for which a supervisor owns the repair after its last call. So only one supervisor
reads the queues after a common restart.
"""


class QueueRepair:
    """Drops the orphans of unserved queues, some messages at a time."""

    def __init__(self, connection: Connection, presence: PresenceStore) -> None:
        self._connection = connection
        self._presence = presence
        self._name = create_word()
        self._passed: dict[str, int] = {}
        """Number of messages, counted from the head, that were checked and kept, for each
        queue whose check is not complete.
        """

    @property
    def has_more(self) -> bool:
        """Return whether the check of a queue is not complete."""
        return bool(self._passed)

    def drop_orphans(self) -> int:
        """Check the next `MESSAGES_A_CHECK` messages of each unserved queue, and drop the
        messages of deleted jobs. Return the number of dropped messages; 0 if another supervisor
        owns the repair.
        """
        if not self._take_ownership():
            self._passed = {}
            return 0
        served = self._presence.read_presence().queues
        with self._connection.translate_errors():
            names = self._connection.redis.hkeys(keys.QUEUES)
        known = {name.decode() for name in names}
        unserved = known - served
        unserved_queues = sorted(unserved - self._connection.queue_access.find_refused(unserved))
        for queue in list(self._passed):
            if queue not in unserved_queues:
                del self._passed[queue]
        return sum(map(self._drop_in, unserved_queues))

    def _take_ownership(self) -> bool:
        """Return whether this supervisor owns the repair. Take it if no supervisor owns it."""
        redis = self._connection.redis
        with self._connection.translate_errors():
            is_free = redis.set(keys.ORPHANS, self._name, nx=True, ex=OWNERSHIP_S)
            if is_free or redis.get(keys.ORPHANS) != self._name.encode():
                return bool(is_free)
            redis.expire(keys.ORPHANS, OWNERSHIP_S)
        return True

    def _drop_in(self, queue: str) -> int:
        """Check the next messages of a queue, and drop the orphans. Return their number."""
        passed = self._passed.pop(queue, 0)
        with self._connection.translate_errors():
            frames = self._connection.redis.lrange(queue, -passed - MESSAGES_A_CHECK, -passed - 1)
        messages = list(map(_parse_frame, frames))
        deleted_jobs = self._find_deleted_jobs(messages)
        orphans: list[Any] = []
        for place, (frame, (job_id, entry)) in enumerate(zip(frames, messages, strict=True), 1):
            if job_id in deleted_jobs:
                orphans += (place, frame, entry)
        dropped_count = 0
        if orphans:
            first, last = -passed - len(frames), -passed - 1
            arguments = [first, last, *orphans]
            dropped_count = self._connection.run_script(
                "drop_orphaned_messages", [queue], arguments
            )
        if len(frames) == MESSAGES_A_CHECK:
            self._passed[queue] = passed + len(frames) - dropped_count
        return dropped_count

    def _find_deleted_jobs(self, messages: Sequence[tuple[JobId | None, str]]) -> set[JobId]:
        """Return the jobs of these messages that the store no longer has."""
        job_ids: dict[JobId, None] = {}
        for job_id, _ in messages:
            if job_id:
                job_ids[job_id] = None
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.exists(keys.job(job_id))
            exist = pipe.execute()
        deleted_jobs: set[JobId] = set()
        for job_id, exists in zip(job_ids, exist, strict=True):
            if not exists:
                deleted_jobs.add(job_id)
        return deleted_jobs


def _parse_frame(frame: bytes) -> tuple[JobId | None, str]:
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
        return JobId(job_id), get_entry(message) or ""
    except (LookupError, TypeError):
        return JobId(job_id), ""
