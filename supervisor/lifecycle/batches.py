"""The time until which model calls of a job go through batches of the provider. Pure.

Calls of the plan's steps go through batches, and calls of the roles that end the job: no step waits
for these roles, unless a review sends steps back. Calls of all other roles are live, because steps
wait for them.
"""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import CLOSING_ROLES
from handoff_queue.supervisor.lifecycle.state import JobState

LIVE_STEP_S = 300.0
"""Seconds that are kept for each step that is left, and for the end of the job, if all their calls
are live.
"""
ASSESSOR = "assessor"
MAX_KEPT = 0.5
"""Largest share of the job's time that is kept for live calls. Batches have the rest."""


def batch_until(state: JobState, step_id: StepId) -> float | None:
    """Return the time until which calls of a step go through batches, in Unix seconds. After it,
    there is just enough time to end the job with live calls. None: all its calls are live.
    """
    return _until(state, state.steps_after.get(step_id, 0))


def role_batch_until(state: JobState, role: str) -> float | None:
    """Return the time until which calls of a role go through batches, in Unix seconds. After it,
    there is just enough time to end the job with live calls, also if a review sends all steps back.
    None: all its calls are live.
    """
    if role not in CLOSING_ROLES:
        return None
    after = 0
    if role == ASSESSOR and state.may_send_back:
        after = 2 + max(state.steps_after.values(), default=0)  # the longest chain, and a review
    return _until(state, after)


def _until(state: JobState, after: int) -> float | None:
    """Return the time until which calls go through batches.

    Args:
        after: number of handoffs that come one after the other, after this one.
    """
    if not state.submitted.is_batched:
        return None
    kept_s = LIVE_STEP_S * (2 + after)
    return state.working_deadline - min(kept_s, MAX_KEPT * state.submitted.limits.max_seconds)
