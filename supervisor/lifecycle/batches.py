"""The time until which model calls of a job go through batches of the provider. Pure.

Only the calls of specialists go through batches. The roles of the supervisor are few calls, and
all steps wait for them.
"""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.state import JobState

LIVE_STEP_S = 300.0
"""Seconds that are kept for each step that is left, and for the end of the job, if all their calls
are live.
"""
MOST_KEPT = 0.5
"""Largest share of the job's time that is kept for live calls. Batches have the rest."""


def batch_until(state: JobState, step_id: StepId) -> float | None:
    """Return the time until which calls of a step go through batches, in Unix seconds. After it,
    there is just enough time to end the job with live calls. None: all its calls are live.
    """
    if not state.submitted.is_batched:
        return None
    after = state.steps_after.get(step_id, 0)
    kept_s = LIVE_STEP_S * (2 + after)
    return state.working_deadline - min(kept_s, MOST_KEPT * state.submitted.limits.max_seconds)
