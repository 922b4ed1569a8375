"""Results that nobody made."""

from __future__ import annotations

from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.ids import JobId, StepId, handoff_id


def failed_by_code(
    job_id: JobId, step_id: StepId, attempt: int, error: str, stop_reason: StopReason
) -> HandoffResult:
    """It stands where a result is looked for, and says why there is none."""
    return HandoffResult(
        handoff_id=handoff_id(step_id, attempt),
        job_id=job_id,
        step_id=step_id,
        attempt=attempt,
        status=ResultStatus.FAILED,
        error=error,
        stop_reason=stop_reason,
    )
