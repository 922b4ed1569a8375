"""Answers of a planner to steps in need, and the events that follow."""

from __future__ import annotations

from collections.abc import Mapping

from handoff_queue.shared.types.events import NeedsResolved
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import OnFailure, Plan, Resolution, Resolutions, Step
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.roles.outcomes import with_helpers

Known = tuple[JobState, Plan | None]
"""A job, and its plan."""


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
    known: Known, said: Resolutions, result: BlobRef
) -> tuple[NeedsResolved, tuple[str, ...]]:
    """Return the event, and the plan's payload if there is a new plan. `known`: the job as the
    planner knew it.
    """
    (state, plan), by = known, {item.step: item.by for item in said.resolutions if item.by}
    answered = tuple(item.step for item in said.resolutions if item.answer)
    given_up = tuple(item.step for item in said.resolutions if not item.answer and not item.by)
    event = NeedsResolved(result=result, answered=answered, given_up=given_up)
    return with_helpers(state, event, plan, by) if by and plan else (event, ())
