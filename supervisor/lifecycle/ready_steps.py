"""The nodes of the plan's graph that are ready to run, and the nodes that can never run."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.commands import AbandonSteps, SkipSteps
from handoff_queue.supervisor.lifecycle.job_retry import in_doubt
from handoff_queue.supervisor.lifecycle.joins import (
    FanIn,
    JoinState,
    evaluate_join,
    get_fan_in,
    is_met,
)
from handoff_queue.supervisor.lifecycle.state import JobState

ALL_SKIPPED = "the steps that it depends on were skipped"


def find_ready_steps(state: JobState, now: float) -> list[StepId]:
    """Return the steps that can begin. A step waits if the review may still send back a step that
    it depends on.
    """
    doubtful = in_doubt(state)
    step_ids: list[StepId] = []
    for step_id in state.step_index.next:
        is_certain = doubtful.isdisjoint(state.steps[step_id].outline.depends_on)
        if is_certain and is_met(state, get_fan_in(state, step_id), now):
            step_ids.append(step_id)
    return step_ids


def end_hopeless_steps(state: JobState, now: float) -> tuple[AbandonSteps | SkipSteps, ...]:
    """Return the commands that abandon or skip the steps that can never begin.

    A step is skipped if each dependency without a usable result was skipped.
    """
    broken_steps: dict[str, list[StepId]] = {}
    skipped_steps: list[StepId] = []
    for step_id in state.step_index.next:
        if state.steps[step_id].outline.depends_on:
            fan_in = get_fan_in(state, step_id)
            join, why = evaluate_join(state, fan_in, now)
            if join is JoinState.BROKEN and _lacks_only_skipped_parts(state, fan_in):
                skipped_steps.append(step_id)
            elif join is JoinState.BROKEN:
                broken_steps.setdefault(why, []).append(step_id)
    commands: list[AbandonSteps | SkipSteps] = []
    for why, steps in broken_steps.items():
        commands.append(AbandonSteps(tuple(steps), why))
    if skipped_steps:
        commands.append(SkipSteps(tuple(skipped_steps), ALL_SKIPPED))
    return tuple(commands)


def _lacks_only_skipped_parts(state: JobState, fan_in: FanIn) -> bool:
    """Return whether all settled parts without a usable result were skipped, and there is one."""
    has_skipped = False
    for part in fan_in.parts:
        step = state.steps[part]
        if step.is_settled and not step.is_usable:
            if not step.is_skipped:
                return False
            has_skipped = True
    return has_skipped
