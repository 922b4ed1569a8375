"""The origins of the texts in a job: tasks, contexts and results. Pure.

See `shared.types.origins`. The journal has the origins of each result, so no text is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from handoff_queue.shared.types.origins import MODEL, USER, Origin, get_origins, union

if TYPE_CHECKING:
    from handoff_queue.shared.types.handoff import BlobRef, HandoffResult
    from handoff_queue.shared.types.ids import StepId
    from handoff_queue.supervisor.lifecycle.state import JobState

_SEES_THE_STEP = frozenset({"user", "supervisor"})
"""Authors of remarks that have seen no other result than the one of the step."""


def find_request_origins(state: JobState) -> tuple[Origin, ...]:
    """Return the origins of the job's request."""
    if state.submitted.origins is None:
        return (USER,)
    return state.submitted.origins


def find_job_origins(state: JobState) -> tuple[Origin, ...]:
    """Return the origins of everything in the job so far. The roles of the supervisor, except
    the first ones, see all results.
    """
    given_origins = [get_origins(result.origins) for result in state.submitted.given]
    return union(find_request_origins(state), (MODEL,), state.origins, *given_origins)


def find_step_origins(
    state: JobState, step_id: StepId, inputs: Sequence[StepId]
) -> tuple[Origin, ...]:
    """Return the origins of the next handoff of a step: of its task, its context and its remarks.

    Args:
        inputs: the steps and given results whose results the handoff gets.
    """
    step = state.steps[step_id]
    groups = [find_request_origins(state), (MODEL,), step.outline.origins or ()]
    given_origins = {result.step: get_origins(result.origins) for result in state.submitted.given}
    for name in inputs:
        before = state.steps.get(name)
        groups.append(before.origins if before else given_origins.get(name, ()))
    for remark in step.remarks:
        groups.append(step.origins)
        if remark.author not in _SEES_THE_STEP:
            groups.append(find_job_origins(state))
    return union(*groups)


def find_task_origins(result: HandoffResult) -> tuple[Origin, ...] | None:
    """Return the origins of a task in a planner's or replanner's result. None: the role has seen
    no other text than the words of the user.
    """
    origins = get_origins(result.origins)
    if {*origins} <= {USER, MODEL}:
        return None
    return origins


def find_plan_origins(state: JobState) -> tuple[Origin, ...] | None:
    """Return the origins of the tasks of a plan that a person has edited: those of the plan
    before it, whose tasks may stay.
    """
    if state.plan is None:
        return None
    groups: list[tuple[Origin, ...]] = []
    for outline in state.plan.steps:
        if outline.origins is not None:
            groups.append(outline.origins)
    return union(*groups) or None


def get_user_request(state: JobState) -> BlobRef | None:
    """Return the request if a user wrote it; None if a model did."""
    if state.submitted.origins is None and state.submitted.parent is None:
        return state.submitted.request
    return None
