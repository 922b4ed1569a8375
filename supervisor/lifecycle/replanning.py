"""Replanning of adaptive jobs: when the replanner is asked, the effect of its patch, and when
replanning ends. Pure.

The replanner only proposes. Ready steps start while it thinks, so its view may be old when it
answers. A patch is checked against the plan in the same commit that applies it.
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
    StepOutline,
)
from handoff_queue.shared.types.handoff import BUDGETS
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Patch, Plan, Step, Synthesis
from handoff_queue.supervisor.lifecycle.plan_patches import (
    FRUITLESS_ROUNDS,
    REPLANNER,
    PatchHistory,
)
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus
from handoff_queue.supervisor.lifecycle.steps import keep_open_question

FITS_NO_MORE = "its patch does not fit the plan any more"


def wants_a_look(state: JobState, now: float) -> bool:
    """Return whether a fan-in brought new results, and a patch is still possible. A user who fills
    gaps (`waits_for_all`) wants no other change.
    """
    may = state.mode is Mode.ADAPTIVE and state.spent is None and now < state.working_deadline
    return (
        may
        and not state.waits_for_all
        and not state.patches.is_final
        and why_no_more(state) is None
        and has_news(state)
    )


def has_news(state: JobState) -> bool:
    """Return whether there is a new result whose chord has ended."""
    out = {handoff.group for handoff in state.open.values()}
    latest = (step.handoff_id for step in state.steps.values() if step.status is StepStatus.SETTLED)
    groups = (state.patches.news.get(handoff_id) for handoff_id in latest if handoff_id)
    return any(group is not None and group not in out for group in groups)


def room(state: JobState) -> int:
    """Return the number of steps that a patch may add."""
    limits, waiting = (
        state.submitted.limits,
        sum(step.status is StepStatus.WAITING for step in state.steps.values()),
    )
    return max(
        0,
        min(
            limits.max_steps - len(state.steps), limits.max_handoffs - state.handoffs - waiting - 1
        ),
    )


def unbegun_of(state: JobState) -> tuple[StepId, ...]:
    """Return the steps that can still be changed or dropped."""
    items: list[StepId] = []
    for step_id, step in state.steps.items():
        if step.status is StepStatus.WAITING and step.attempt == 0:
            items.append(step_id)
    return tuple(items)


def why_no_more(state: JobState) -> str | None:
    """Return in fixed words which limit forbids a patch; None: there is none."""
    limits = state.submitted.limits
    if state.patches.changes >= limits.max_rounds:
        return f"its limit of {limits.max_rounds} rounds is reached"
    if not room(state):
        return f"it has {len(state.steps)} steps, and its limits allow no more"
    return None


def reason_for_no_replanning(state: JobState) -> str | None:
    """Return the note on a plan that was not replanned although new results came; None if there is
    nothing to say.
    """
    if state.mode is not Mode.ADAPTIVE:
        return None
    if (loop := state.patches.loop) is not None:
        asked = ", ".join(f"{repeat.step} is {repeat.earlier}" for repeat in loop.repeats)
        return f"the replanner asked for the same work again, in other words ({asked})"
    if fruitless := state.patches.fruitless:
        return f"what the replanner asked for brought nothing new, {FRUITLESS_ROUNDS} rounds in a row ({', '.join(fruitless)})"
    if has_news(state) and not state.patches.is_final:
        return why_no_more(state)
    return None


# A patch is made


@dataclass(frozen=True, slots=True)
class PatchedPlan:
    """A plan after a patch. `plan` None: there is nothing to change."""

    plan: Plan | None
    added: tuple[Step, ...] = ()
    changed: tuple[Step, ...] = ()
    dropped: tuple[StepId, ...] = ()
    too_late: tuple[StepId, ...] = ()
    problem: str | None = None


def apply_patch(
    plan: Plan, patch: Patch, unbegun: Sequence[StepId], most_steps: int
) -> PatchedPlan:
    """Return the plan with every change of the patch that is still possible."""
    held = {
        dependency
        for step in plan.steps
        if step.id not in unbegun
        for dependency in step.depends_on
    }  # by fan-ins that did not wait for them
    unwanted = (
        [step_id for step_id in unbegun if step_id not in held] if patch.finalize else patch.drop
    )
    dropped = tuple(step_id for step_id in unwanted if step_id in unbegun)
    changes = {
        step.id: step for step in patch.change if step.id in unbegun and step.id not in dropped
    }
    late = dict.fromkeys(
        step_id
        for step_id in (*patch.drop, *(step.id for step in patch.change))
        if step_id not in unbegun
    )
    added = () if patch.finalize else patch.add
    if not (dropped or changes or added):
        return PatchedPlan(None, too_late=tuple(late))
    steps = (*(changes.get(step.id, step) for step in plan.steps if step.id not in dropped), *added)
    try:
        synthesis = Synthesis.RECONCILE if added else plan.synthesis
        new = Plan(steps=steps, synthesis=synthesis, join=plan.join, given=plan.given, why=plan.why)
    except ValidationError:
        return PatchedPlan(None, too_late=tuple(late), problem=FITS_NO_MORE)
    if added and len(steps) > most_steps:
        return PatchedPlan(None, too_late=tuple(late), problem=FITS_NO_MORE)
    return PatchedPlan(new, added, tuple(changes.values()), dropped, tuple(late))


# What events make true


def with_patch(state: JobState, event: PlanPatched) -> dict[str, Any]:
    """Return the patched plan and its steps. Added steps answer the same question, so several last
    results are weighed against each other.
    """
    if event.plan is None or state.plan is None:
        return {}
    steps = {}
    for step_id, step in state.steps.items():
        if step_id not in event.dropped:
            steps[step_id] = step
    steps |= {outline.id: StepState(outline=outline) for outline in (*event.changed, *event.added)}
    plan = state.plan.model_copy(
        update={"plan": event.plan, "steps": _outlines(steps), **_synthesis(event)}
    )
    changed = {outline.id for outline in event.changed}
    return {
        "plan": plan,
        "steps": steps,
        "review_over": False,
        "question": keep_open_question(state.question, steps, changed),
    }


def _outlines(steps: dict[StepId, StepState]) -> tuple[StepOutline, ...]:
    return tuple(step.outline for step in steps.values())


def _synthesis(event: PlanPatched) -> dict[str, Synthesis]:
    if event.added:
        return {"synthesis": Synthesis.RECONCILE}
    return {}


def remember_event(state: JobState, event: Event) -> PatchHistory:
    """Return the patch history after an event.

    Args:
        state: the state before the event.
    """
    known = state.patches
    match event:
        case PlanMade():
            return PatchHistory(made=known.made, made_before=len(known.made))
        case HandoffIssued(assigned_to=role) if role == REPLANNER:
            return known.model_copy(update={"shown": tuple(known.news)})
        case HandoffFinished() if (issued := state.open.get(event.handoff_id)) is not None:
            return _finished(known, issued, event)
        case PlanPatched():
            left = {
                handoff_id: group
                for handoff_id, group in known.news.items()
                if handoff_id not in known.shown
            }
            return known.model_copy(
                update={"news": left, "shown": (), "proposal": None, "made": (*known.made, event)}
            )
        case RetryRequested() if (
            state.ended
        ):  # a user who fills gaps gets no replanning: the earlier reason stays true
            kept = known.model_copy(update={"shown": (), "proposal": None})
            return (
                kept if event.whole else PatchHistory(made=known.made, made_before=len(known.made))
            )
        case _:
            return known


def _finished(known: PatchHistory, issued: HandoffIssued, event: HandoffFinished) -> PatchHistory:
    if issued.is_fact_check:
        return known
    if not issued.is_of_a_role:  # a child job is in no chord, and does not wait for other steps
        return known.model_copy(
            update={"news": {**known.news, event.handoff_id: issued.group or ""}}
        )
    if issued.assigned_to != REPLANNER:
        return known
    if event.stop_reason in BUDGETS:  # it is asked again when the job may go on
        return known.model_copy(update={"shown": ()})
    return known.model_copy(update={"proposal": event.result})


def news_of(state: JobState) -> tuple[StepId, ...]:
    """Return the steps whose results the replanner has not seen."""
    news: set[HandoffId] = set(state.patches.news)
    items: list[StepId] = []
    for step_id, step in state.steps.items():
        if step.handoff_id in news and step.status is StepStatus.SETTLED:
            items.append(step_id)
    return tuple(items)
