"""The Celery message that wakes a job. Supervisors, workers and chords send it."""

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
    """Return a message that calls `supervisor.advance` for a job.

    Args:
        suspects: handoffs that may need a repair.
        task_id: id of the message; a new id if it is left out.
    """
    shown = f"({job_id})"
    if suspects:
        shown = f"({job_id}, {' '.join(suspects)})"
    return TaskMessage(
        ADVANCE, task_id or uuid(), queue, (job_id, list(suspects)), shown, is_for=job_id
    )
