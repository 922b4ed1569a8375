"""A wake-up as a Celery message: whoever sends it, a supervisor, a worker or a chord."""

from __future__ import annotations

from collections.abc import Sequence

from celery.utils import uuid

from handoff_queue.shared.broker.publisher import TaskMessage
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ADVANCE, SUPERVISOR_QUEUE


def wake_up(
    job_id: JobId,
    suspects: Sequence[HandoffId] = (),
    *,
    queue: str = SUPERVISOR_QUEUE,
    task_id: str | None = None,
) -> TaskMessage:
    """`suspects`: handoffs that something may be wrong with. `task_id`: one of its own where
    it is left out.
    """
    shown = f"({job_id}{', ' + ' '.join(suspects) if suspects else ''})"
    return TaskMessage(
        ADVANCE, task_id or uuid(), queue, (job_id, list(suspects)), shown, is_for=job_id
    )
