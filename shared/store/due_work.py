"""The due work of supervisors. The sweep finds the jobs to evaluate. Notes say that a message is on
its way. Other entries are batches of the provider to cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import (
    build_settled_usage,
    encode_json,
    parse_job_id,
    read_entries,
)
from handoff_queue.shared.types.budget_measures import AMOUNTS
from handoff_queue.shared.types.ids import HandoffId, JobId, is_job_id
from handoff_queue.shared.types.usage import NOTHING_USED, Usage

MAX_AT_ONCE = 100
"""Most batches to cancel that one call returns."""
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
        return bool(
            self._connection.run_script("queue_role_handoff", [keys.job(job_id)], arguments)
        )

    def mark_sent(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> None:
        """Note that the handoffs were sent to their queues, so that the sweep does not find
        them unless they are lost again.
        """
        self._connection.run_script("mark_sent", [keys.job(job_id)], list(handoff_ids))

    def sweep(self) -> SweepResult:
        """Return the jobs that need an evaluation now.

        Each job is returned once, until a supervisor has evaluated it or the wake-up is lost.
        Any number of sweepers share the work.
        """
        members, fresh, more = self._connection.run_script(
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
        return SweepResult(due, tuple(map(parse_job_id, fresh)), bool(more))

    def _drop_due(self, member: bytes) -> None:
        """Remove an entry that another program wrote, and that names no job."""
        with self._connection.translate_errors():
            self._connection.redis.zrem(keys.DUE, member)


@dataclass(frozen=True, slots=True)
class UnwantedBatch:
    """A batch of the provider whose handoff has ended before it. The reservation of its call stays
    until the batch has ended.
    """

    entry: str
    """Entry of `keys.BATCHES`."""
    job_id: JobId
    handoff_id: HandoffId
    batch_id: str
    custom_id: str
    """Name of the call in the batch."""
    model: str


class UnwantedBatches:
    """Batches of the provider whose handoffs have ended, of all jobs. A supervisor cancels them,
    and settles the reservations of their calls. The commit of a drop and the sweep write them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_oldest(self) -> list[UnwantedBatch]:
        """Return the batches that were noted or postponed first."""
        with self._connection.translate_errors():
            batches = self._connection.redis.zrange(keys.BATCHES, 0, MAX_AT_ONCE - 1)
        return read_entries(batches, _parse_batch, keys.BATCHES)

    def postpone(self, batch: UnwantedBatch) -> None:
        """Return this batch after all others, because it has not ended."""
        now_ms = int(self._connection.now() * 1000)
        with self._connection.translate_errors():
            self._connection.redis.zadd(keys.BATCHES, {batch.entry: now_ms}, xx=True)

    def settle(self, batch: UnwantedBatch, usage: Usage | None) -> None:
        """Replace the reservation of the call by its usage, and forget the batch. Any number of
        supervisors may do so: only the first one does.

        Args:
            usage: usage of the reply. `NOTHING_USED`: there is no reply. None: it is not known, so
                the call counts at its upper bound.
        """
        if usage is None:
            usage_json = ""
        elif usage == NOTHING_USED:
            usage_json = encode_json({amount.name: 0 for amount in AMOUNTS})
        else:
            usage_json = encode_json(build_settled_usage(usage))
        arguments = [batch.handoff_id, batch.entry, usage_json]
        self._connection.run_script("settle_batch", [keys.job(batch.job_id)], arguments)


def _parse_batch(entry: bytes) -> UnwantedBatch:
    """Return the batch in an entry of `keys.BATCHES`. Raises ValueError for another entry."""
    text = entry.decode()
    job_id, handoff_id, batch_id, custom_id, model = text.split(" ", 4)
    return UnwantedBatch(text, JobId(job_id), HandoffId(handoff_id), batch_id, custom_id, model)
