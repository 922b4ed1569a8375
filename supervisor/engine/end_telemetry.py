"""The report of a job's end to OpenTelemetry and Flower."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.observability.telemetry import telemetry
from handoff_queue.shared.observability.trace_ids import JobSpan
from handoff_queue.shared.types.events import JobEnded, JobStatus, RecordedEvent
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.lifecycle.state import JobState


def tell_end(state: JobState, recorded: Sequence[RecordedEvent], dispatcher: Dispatcher) -> None:
    """Report a job's end to OpenTelemetry and Flower, if these new events of its journal end
    it.

    The process that commits the end calls this, so the end is reported once.
    """
    ends: list[RecordedEvent] = []
    for record in recorded:
        if isinstance(record.event, JobEnded):
            ends.append(record)
    if not ends:
        return
    span = JobSpan(
        state.job_id,
        state.mode.value,
        state.status.value,
        state.status is JobStatus.FAILED,
        state.started_at,
        ends[-1].at,
        state.retries,
    )
    if telemetry().is_on:
        telemetry().job_ended(span)
    dispatcher.tell_ended(span)
