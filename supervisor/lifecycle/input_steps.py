"""Steps that the planner adds to answer questions of other steps. Pure."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus

HANDOFFS_OF_A_NEED = 3
"""The planner's, the helper's, and the next one of the step in need."""


def room(state: JobState) -> int:
    """Steps that may be added. One agent alone has no team that could help it."""
    return (
        0
        if state.mode is Mode.SINGLE
        else max(0, state.submitted.limits.max_steps - len(state.steps))
    )


def can_help(state: JobState) -> bool:
    """Return whether another added step is still possible."""
    waiting = sum(step.status is StepStatus.WAITING for step in state.steps.values())
    return (
        bool(room(state))
        and state.handoffs + waiting + HANDOFFS_OF_A_NEED <= state.submitted.limits.max_handoffs
    )


def helpers_of(state: JobState) -> frozenset[StepId]:
    """The steps that were added so. They get no helpers of their own."""
    return frozenset(helper for step in state.steps.values() for helper in step.outline.helpers)
