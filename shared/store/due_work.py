"""The due work of supervisors: the sweep that finds the jobs to evaluate, the notes that a message
is on its way, and the batches of the provider to cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import job_id_in, name_in
from handoff_queue.shared.types.ids import HandoffId, JobId, is_job_id

MAX_AT_ONCE = 100
"""Batches to cancel that one look returns."""
MAX_SWEPT = 200
"""Entries of each kind that one sweep reads."""
ACTED_WITHIN_S = 1.5
"""Seconds for which a wake-up in no queue counts as on its way to a supervisor. After that
time the sweeper finds its job again. With two sweeps of a second each, this fits into the 5 s
after a lost lease within which a handoff runs again.
"""
LOST_AFTER_S = 5.0
"""Seconds for which a message in no queue counts as on its way to the queue or to a claim.
After that time it counts as lost.
"""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Findings of one sweep."""

    due: dict[JobId, list[HandoffId]]
    """Jobs that a supervisor must evaluate, each with its handoffs that may be lost."""
    fresh: tuple[JobId, ...] = ()
    """Jobs that no supervisor has begun. They are put into the queue of submissions again."""
    more: bool = False
    """True if more entries may be due."""


class DueWork:
    """The due work of all jobs."""

    def __init__(self, connection: Connection, lease_s: float) -> None:
        self._connection = connection
        self._lease_s = lease_s

    def queue_role_handoff(self, job_id: JobId, handoff_id: HandoffId, queue: str) -> bool:
        """Note that a role's handoff will be sent to this queue. Return False if it must not
        be sent: it waits in a queue already, a process has claimed it, or it has ended.
        """
        arguments = [handoff_id, queue, int(ACTED_WITHIN_S * 1000)]
        return bool(self._connection.script("queue_role_handoff", [keys.job(job_id)], arguments))

    def mark_sent(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> None:
        """Note that the handoffs were sent to their queues, so that the sweep does not find
        them unless they are lost again.
        """
        self._connection.script("mark_sent", [keys.job(job_id)], list(handoff_ids))

    def sweep(self) -> SweepResult:
        """Return the jobs that need an evaluation now.

        Each job is returned once, until a supervisor has evaluated it or the wake-up is lost.
        Any number of sweepers share the work.
        """
        members, fresh, more = self._connection.script(
            "sweep",
            [keys.DUE, keys.QUEUES],
            [
                MAX_SWEPT,
                int(ACTED_WITHIN_S * 1000),
                int(LOST_AFTER_S * 1000),
                int(self._lease_s * 1000),
            ],
        )
        due: dict[JobId, list[HandoffId]] = {}
        for member in members:
            job_id, _, handoff_id = member.decode(errors="replace").partition("/")
            if not is_job_id(job_id):
                self._drop_due(member)
                continue
            suspects = due.setdefault(JobId(job_id), [])
            if handoff_id:
                suspects.append(HandoffId(handoff_id))
        return SweepResult(due, tuple(map(job_id_in, fresh)), bool(more))

    def _drop_due(self, member: bytes) -> None:
        """Remove an entry that another program wrote, and that names no job."""
        with self._connection.translate_errors():
            self._connection.redis.zrem(keys.DUE, member)


class UnwantedBatches:
    """Batches of the provider whose handoffs were dropped, of all jobs. A supervisor cancels them.
    `lua/commit.lua` writes them with the drop.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def oldest(self) -> list[str]:
        """Return the ids of the batches that were dropped first."""
        with self._connection.translate_errors():
            stored = self._connection.redis.zrange(keys.BATCHES, 0, MAX_AT_ONCE - 1)
        return [name_in(batch_id) for batch_id in stored]

    def forget(self, batch_ids: Sequence[str]) -> None:
        """Remove batches that were cancelled, or that the provider does not know."""
        if batch_ids:
            with self._connection.translate_errors():
                self._connection.redis.zrem(keys.BATCHES, *batch_ids)
