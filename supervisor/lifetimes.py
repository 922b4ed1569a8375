"""What is told of a job when it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from shared.telemetry import telemetry
from shared.trace_ids import Lifetime
from shared.wire.events import JobEnded, JobStatus, Recorded
from supervisor.lifecycle.state import JobState


def tell_end(state: JobState, recorded: Sequence[Recorded]) -> None:
    """`recorded`: what has just entered its journal. Whoever's commit it is that ends a job tells of it, so it is told once."""
    ends = [one for one in recorded if isinstance(one.event, JobEnded)]
    if ends and telemetry().is_on:
        is_failed = state.status is JobStatus.FAILED
        telemetry().job_ended(
            Lifetime(
                state.job_id,
                state.mode.value,
                state.status.value,
                is_failed,
                state.started_at,
                ends[-1].at,
                state.retries,
            )
        )
