"""Helper steps, which the planner adds to answer questions of other steps. Pure."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.lifecycle.state import JobState

HANDOFFS_OF_A_NEED = 3
"""Handoffs that a helper step leads to: the planner's, its own, and the next one of the step
with the question.
"""


def count_steps_left(state: JobState) -> int:
    """Return the number of steps that the job's limit still allows; 0 in mode `single`, which
    has no other specialists.
    """
    if state.mode is Mode.SINGLE:
        return 0
    return max(0, state.submitted.limits.max_steps - len(state.steps))


def can_help(state: JobState) -> bool:
    """Return whether the job's limits on steps and handoffs allow another helper step."""
    foreseen = state.handoffs + state.waiting_count + HANDOFFS_OF_A_NEED
    return count_steps_left(state) > 0 and foreseen <= state.submitted.limits.max_handoffs


def find_helpers(state: JobState) -> frozenset[StepId]:
    """Return the helper steps. A helper step has no helper steps."""
    helpers: set[StepId] = set()
    for step in state.steps.values():
        helpers.update(step.outline.helpers)
    return frozenset(helpers)
