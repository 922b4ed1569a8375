"""Steps that the planner adds to answer questions of other steps. Pure."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus

HANDOFFS_OF_A_NEED = 3
"""The planner's, the helper's, and the next one of the step in need."""


def room(state: JobState) -> int:
    """Return the number of steps that may be added. A single agent has no team that could help."""
    if state.mode is Mode.SINGLE:
        return 0
    return max(0, state.submitted.limits.max_steps - len(state.steps))


def can_help(state: JobState) -> bool:
    """Return whether another added step is still possible."""
    waiting = 0
    for step in state.steps.values():
        waiting += step.status is StepStatus.WAITING
    return (
        bool(room(state))
        and state.handoffs + waiting + HANDOFFS_OF_A_NEED <= state.submitted.limits.max_handoffs
    )


def helpers_of(state: JobState) -> frozenset[StepId]:
    """Return the steps that were added as helpers. They get no helpers."""
    helpers: set[StepId] = set()
    for step in state.steps.values():
        for helper in step.outline.helpers:
            helpers.add(helper)
    return frozenset(helpers)
