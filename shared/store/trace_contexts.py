"""The trace contexts of jobs: the place of each job's spans in a caller's trace."""

from __future__ import annotations

from handoff_queue.shared.observability.trace_ids import StoredTrace
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection, translated_errors
from handoff_queue.shared.types.ids import JobId


class Traces:
    """The trace contexts of jobs. Reads only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def kept(self, job_id: JobId) -> StoredTrace:
        """Return the trace context of a job and its parent job; both None for an unknown job.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with translated_errors():
            traceparent, parent = self._connection.redis.hmget(
                keys.job(job_id), "traceparent", "parent"
            )
        return StoredTrace(
            traceparent.decode("ascii", "replace") if traceparent else None,
            JobId(parent.decode().partition("/")[0]) if parent else None,
        )
