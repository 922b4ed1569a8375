"""A planner's resolutions for steps that need input, and their event."""

from __future__ import annotations

from collections.abc import Mapping

from handoff_queue.shared.types.events import NeedsResolved
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan, Resolution, Resolutions
from handoff_queue.shared.types.step import OnFailure, Step
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.role_events import with_helpers

PlannerView = tuple[JobState, Plan | None]
"""State of a job, and its plan."""


def an_input_step(name: str, specialist: str = "researcher") -> Step:
    return Step(
        id=StepId(name), specialist=specialist, task=f"Find out {name}.", on_failure=OnFailure.RETRY
    )


def resolutions_of(answers: Mapping[str, str | Step | None]) -> Resolutions:
    return Resolutions(
        resolutions=tuple(_resolution(StepId(step), answer) for step, answer in answers.items())
    )


def _resolution(step: StepId, answer: str | Step | None) -> Resolution:
    return (
        Resolution(step=step, by=answer)
        if isinstance(answer, Step)
        else Resolution(step=step, answer=answer)
    )


def resolution_event(
    planner_view: PlannerView, resolutions: Resolutions, result: BlobRef
) -> tuple[NeedsResolved, tuple[str, ...]]:
    """Return the event of the resolutions, and the payload of the changed plan, if any.

    `planner_view`: the job's state and plan when the planner was called.
    """
    (state, plan), helper_steps = (
        planner_view,
        {item.step: item.by for item in resolutions.resolutions if item.by},
    )
    answered = tuple(item.step for item in resolutions.resolutions if item.answer)
    given_up = tuple(
        item.step for item in resolutions.resolutions if not item.answer and not item.by
    )
    event = NeedsResolved(result=result, answered=answered, given_up=given_up)
    return with_helpers(state, event, plan, helper_steps) if helper_steps and plan else (event, ())
