"""Events of journals that supervisors refuse, because their signatures do not hold."""

from __future__ import annotations

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.types.ids import HandoffId, JobId


class RefusedEvents:
    """The refused events of all jobs. A refusal is recorded once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_recorded(self, job_id: JobId, version: int) -> bool:
        """Return whether a supervisor has recorded that it refuses this event."""
        with translated_errors():
            return bool(self._connection.redis.hexists(keys.refused(job_id), version))

    def record(self, job_id: JobId, version: int, reason: str, keep_s: int) -> None:
        """Record that a supervisor refuses an event.

        Args:
            keep_s: seconds for which the record stays.
        """
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hset(keys.refused(job_id), version, reason)
            pipe.expire(keys.refused(job_id), keep_s)
            pipe.execute()

    def reopen_handoff(self, job_id: JobId, handoff_id: HandoffId, version: int) -> bool:
        """Open a handoff again if the event at this version has ended it. Return whether it was
        opened.
        """
        return bool(
            self._connection.script("reopen_handoff", [keys.job(job_id)], [handoff_id, version])
        )
