"""The span of a job that has ended."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.observability.trace_ids import JobSpan
from handoff_queue.shared.types.events import JobEnded, JobStatus, Recorded
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.lifecycle.state import JobState


def tell_end(state: JobState, recorded: Sequence[Recorded], dispatcher: Dispatcher) -> None:
    """Tell telemetry and Flower that a job has ended, if these new events of its journal end it.

    The process that commits the end calls this, so the end is told once.
    """
    ends: list[Recorded] = []
    for each in recorded:
        if isinstance(each.event, JobEnded):
            ends.append(each)
    if not ends:
        return
    life = JobSpan(
        state.job_id,
        state.mode.value,
        state.status.value,
        state.status is JobStatus.FAILED,
        state.started_at,
        ends[-1].at,
        state.retries,
    )
    if telemetry().is_on:
        telemetry().job_ended(life)
    dispatcher.tell_ended(life)
