"""Replanning of adaptive jobs: when the replanner is asked, the effect of its patch, and when
replanning ends. Pure.

Ready steps start while the replanner works, so the plan may have changed when it answers. A
patch is therefore checked against the plan in the same commit that applies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from handoff_queue.shared.types.events import (
    Event,
    HandoffFinished,
    HandoffIssued,
    PlanMade,
    PlanPatched,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import BUDGETS, list_own_dependencies
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Patch, Plan, Synthesis
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.plan_graph import find_reachable
from handoff_queue.supervisor.lifecycle.plan_patches import PatchHistory
from handoff_queue.supervisor.lifecycle.state import (
    JobState,
    StepState,
    StepStatus,
    create_steps,
    get_outlines,
)
from handoff_queue.supervisor.lifecycle.step_state import keep_open_question

PATCH_IS_OUTDATED = "its patch does not fit the plan any more"


def should_replan(state: JobState, now: float) -> bool:
    """Return whether the replanner is asked: there are new results, and a patch is still
    possible. A retry that fills gaps (`waits_for_all`) changes no plan.
    """
    is_possible = (
        state.mode is Mode.ADAPTIVE and state.spent is None and now < state.working_deadline
    )
    return (
        is_possible
        and not state.waits_for_all
        and not state.patches.is_final
        and explain_patch_limit(state) is None
        and has_news(state)
    )


def has_news(state: JobState) -> bool:
    """Return whether there is a result that the replanner has not seen and whose chord has
    ended.
    """
    running_groups = {handoff.group for handoff in state.open.values()}
    for step in state.steps.values():
        if step.is_settled and step.handoff_id:
            group = state.patches.news.get(step.handoff_id)
            if group is not None and group not in running_groups:
                return True
    return False


def compute_max_new_steps(state: JobState) -> int:
    """Return the number of steps that a patch may add. One handoff is for the replanner."""
    limits = state.submitted.limits
    within_steps = limits.max_steps - len(state.steps)
    within_handoffs = limits.max_handoffs - state.handoffs - state.waiting_count - 1
    return max(0, min(within_steps, within_handoffs))


def find_patchable_steps(state: JobState) -> tuple[StepId, ...]:
    """Return the steps that a patch can change or drop: steps without a handoff so far."""
    step_ids: list[StepId] = []
    for step_id, step in state.steps.items():
        if step.status is StepStatus.WAITING and step.attempt == 0:
            step_ids.append(step_id)
    return tuple(step_ids)


def explain_patch_limit(state: JobState) -> str | None:
    """Return which limit of the job forbids another patch; None: no limit does."""
    limits = state.submitted.limits
    if state.patches.changes >= limits.max_rounds:
        return f"its limit of {limits.max_rounds} rounds is reached"
    if not compute_max_new_steps(state):
        return f"it has {len(state.steps)} steps, and its limits allow no more"
    return None


def explain_no_replanning(state: JobState) -> str | None:
    """Return why the job is not replanned any more; None if it is not adaptive, or the
    replanner had nothing more to change.
    """
    if state.mode is not Mode.ADAPTIVE:
        return None
    loop = state.patches.loop
    if loop is not None:
        repeated_steps = ", ".join(f"{repeat.step} is {repeat.earlier}" for repeat in loop.repeats)
        return f"the replanner asked for the same work again ({repeated_steps})"
    if has_news(state) and not state.patches.is_final:
        return explain_patch_limit(state)
    return None


@dataclass(frozen=True, slots=True)
class PatchedPlan:
    """A plan after a patch, and the parts of the patch that had an effect."""

    plan: Plan | None
    """None: the patch changes nothing, or does not fit the plan."""
    added: tuple[Step, ...] = ()
    changed: tuple[Step, ...] = ()
    dropped: tuple[StepId, ...] = ()
    too_late: tuple[StepId, ...] = ()
    """Steps that the patch wanted to change or drop, but that had begun."""
    problem: str | None = None
    """Reason why the patch does not fit."""


def apply_patch(
    plan: Plan, patch: Patch, unbegun: Sequence[StepId], most_steps: int
) -> PatchedPlan:
    """Return the plan with every change of the patch that is still possible.

    Args:
        unbegun: steps that can be changed or dropped.
        most_steps: most steps of a plan with added steps.
    """
    dropped_ids = _find_steps_to_drop(plan, patch, unbegun)
    changeable, absent = set(unbegun), set(dropped_ids)
    changed_steps: dict[StepId, Step] = {}
    late_ids = dict.fromkeys(step_id for step_id in patch.drop if step_id not in changeable)
    for step in patch.change:
        if step.id not in changeable:
            late_ids[step.id] = None
        elif step.id not in absent:
            changed_steps[step.id] = step
    too_late = tuple(late_ids)
    added_steps: tuple[Step, ...] = ()
    synthesis = plan.synthesis
    if patch.add and not patch.finalize:
        added_steps = patch.add
        synthesis = Synthesis.RECONCILE
    if not (dropped_ids or changed_steps or added_steps):
        return PatchedPlan(None, too_late=too_late)
    kept_steps = [changed_steps.get(step.id, step) for step in plan.steps if step.id not in absent]
    steps = (*kept_steps, *added_steps)
    if added_steps and len(steps) > most_steps:
        return PatchedPlan(None, too_late=too_late, problem=PATCH_IS_OUTDATED)
    try:
        patched = Plan(
            steps=steps, synthesis=synthesis, join=plan.join, given=plan.given, why=plan.why
        )
    except ValidationError:
        return PatchedPlan(None, too_late=too_late, problem=PATCH_IS_OUTDATED)
    return PatchedPlan(patched, added_steps, tuple(changed_steps.values()), dropped_ids, too_late)


def _find_steps_to_drop(plan: Plan, patch: Patch, unbegun: Sequence[StepId]) -> tuple[StepId, ...]:
    """Return the steps that the patch drops.

    A final patch drops each step that has not begun, unless a kept step depends on it. The steps
    that have begun are kept.
    """
    droppable = set(unbegun)
    if not patch.finalize:
        return tuple(step_id for step_id in patch.drop if step_id in droppable)
    begun_ids = [step.id for step in plan.steps if step.id not in droppable]
    needed_ids = find_reachable(
        begun_ids, lambda name: list_own_dependencies(plan.by_id[name].depends_on, plan.given)
    )
    return tuple(step_id for step_id in unbegun if step_id not in needed_ids)


def with_patch(state: JobState, event: PlanPatched) -> dict[str, Any]:
    """Return the patched plan and its steps; no changes if the patch left the plan as it is.

    Added steps work on the same question as earlier steps, so the synthesizer reconciles the
    results.
    """
    if event.plan is None or state.plan is None:
        return {}
    dropped_ids = set(event.dropped)
    steps: dict[StepId, StepState] = {}
    for step_id, step in state.steps.items():
        if step_id not in dropped_ids:
            steps[step_id] = step
    changed_steps = create_steps(event.changed)
    steps |= changed_steps | create_steps(event.added)
    changes: dict[str, Any] = {"plan": event.plan, "steps": get_outlines(steps)}
    if event.added:
        changes["synthesis"] = Synthesis.RECONCILE
    if any(outline.after for outline in (*event.added, *event.changed)):
        changes["is_reviewed"] = True
    plan = state.plan.model_copy(update=changes)
    return {
        "plan": plan,
        "steps": steps,
        "review_over": False,
        "question": keep_open_question(state.question, steps, changed_steps),
    }


def remember_event(state: JobState, event: Event) -> PatchHistory:
    """Return the patch history after an event.

    Args:
        state: the state before the event.
    """
    history = state.patches
    match event:
        case PlanMade():
            return _without_counted_patches(history)
        case HandoffIssued(assigned_to=role) if role == Role.REPLANNER:
            return history.model_copy(update={"shown": tuple(history.news)})
        case HandoffFinished() if event.handoff_id in state.open:
            return _apply_result(history, state.open[event.handoff_id], event)
        case PlanPatched():
            return _apply_patch(history, event)
        case RetryRequested() if state.ended:
            return _apply_retry(history, event)
        case _:
            return history


def _without_counted_patches(history: PatchHistory) -> PatchHistory:
    """Return a history whose earlier patches no longer count against the job's limits."""
    return PatchHistory(made=history.made, made_before=len(history.made))


def _apply_retry(history: PatchHistory, event: RetryRequested) -> PatchHistory:
    """Return the history after a retry. A retry that only fills gaps is not replanned, so the
    reason against replanning stays.
    """
    if event.fills_gaps:
        return history.model_copy(update={"shown": (), "proposal": None})
    return _without_counted_patches(history)


def _apply_patch(history: PatchHistory, patch: PlanPatched) -> PatchHistory:
    """Return the history after a patch, without the results that the replanner has now seen."""
    unseen: dict[HandoffId, str] = {}
    for handoff_id, group in history.news.items():
        if handoff_id not in history.shown:
            unseen[handoff_id] = group
    return history.model_copy(
        update={"news": unseen, "shown": (), "proposal": None, "made": (*history.made, patch)}
    )


def _apply_result(
    history: PatchHistory, issued: HandoffIssued, event: HandoffFinished
) -> PatchHistory:
    """Return the history after a result of a step or of the replanner."""
    if issued.is_fact_check:
        return history
    if not issued.is_role_handoff:  # a child job is in no chord, and does not wait for other steps
        return history.model_copy(
            update={"news": {**history.news, event.handoff_id: issued.group or ""}}
        )
    if issued.assigned_to != Role.REPLANNER:
        return history
    if event.stop_reason in BUDGETS:  # it is asked again when the job may go on
        return history.model_copy(update={"shown": ()})
    return history.model_copy(update={"proposal": event.result})


def find_unseen_results(state: JobState) -> tuple[StepId, ...]:
    """Return the steps whose results the replanner has not seen."""
    news = state.patches.news
    step_ids: list[StepId] = []
    for step_id, step in state.steps.items():
        if step.handoff_id in news and step.is_settled:
            step_ids.append(step_id)
    return tuple(step_ids)
