"""The replanner's brief, and the event that follows from its answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.shared.types.handoff import BlobRef, ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.engine.pending_writes import PendingWrites
from handoff_queue.supervisor.lifecycle.effects import patch_after_review
from handoff_queue.supervisor.lifecycle.replanning import (
    apply_patch,
    room,
    unbegun_steps,
    unseen_results,
)
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus
from handoff_queue.supervisor.roles.briefs import Candidate, JobContext, replan_brief
from handoff_queue.supervisor.roles.outcomes import outline_of
from handoff_queue.supervisor.roles.replanner import patch_schema


def replanning(
    state: JobState, request: str, plan: Plan, candidates: Sequence[Candidate], known: JobContext
) -> tuple[str, tuple[StepId, ...], Mapping[str, Any]]:
    """Return the replanner's brief, the steps whose results it sees, and the schema of its answer."""
    standings: dict[StepId, str] = {}
    settled: list[StepId] = []
    for step_id, step in state.steps.items():
        standings[step_id] = _standing(step)
        if step.status is StepStatus.SETTLED:
            settled.append(step_id)
    most, left = room(state), state.submitted.limits.max_rounds - state.patches.changes
    task = replan_brief(
        request, plan, standings, unseen_results(state), candidates, most, left, known
    )
    names = [candidate.name for candidate in candidates]
    return task, (*plan.given, *settled), patch_schema(names, unbegun_steps(state), most)


def _standing(step: StepState) -> str:
    """Return the standing of a step in words: its result's status, `not begun` or `under way`."""
    if step.status is StepStatus.SETTLED and step.result_status:
        return step.result_status.value
    if step.status is StepStatus.WAITING and step.attempt == 0:
        return "not begun"
    return "under way"


def record_patch(
    state: JobState,
    plan: Plan,
    proposal: BlobRef,
    texts: ResultTexts,
    writes: PendingWrites,
    acting: Collection[str] = (),
) -> None:
    """Record the outcome of the replanner's proposal.

    Args:
        texts: payloads of the proposal.
        acting: the specialists that have tools with effects.
    """
    event, text = make_patch_event(state, plan, proposal, texts, acting)
    if text is not None:
        writes.ref(text)
    writes.events.append(event)


def make_patch_event(
    state: JobState,
    plan: Plan,
    proposal: BlobRef,
    texts: ResultTexts,
    acting: Collection[str] = (),
) -> tuple[PlanPatched, str | None]:
    """Return the event of a patch, and the payload of the plan if the patch changes it.

    If the steps that were added last brought nothing new, the patch adds no steps. See
    `record_patch` for the arguments.
    """
    patch = texts.patch(proposal)
    if patch is None:
        return PlanPatched(result=proposal, problem="the replanner failed"), None
    if state.is_reviewed:
        patch = patch_after_review(patch, acting)
    made = apply_patch(plan, patch, unbegun_steps(state), state.submitted.limits.max_steps)
    text = None
    if made.plan:
        text = made.plan.to_json()
    event = PlanPatched(
        result=proposal,
        plan=ref(text) if text else None,
        added=tuple(outline_of(step, plan.given, acting) for step in made.added),
        changed=tuple(outline_of(step, plan.given, acting) for step in made.changed),
        dropped=made.dropped,
        too_late=made.too_late,
        repeats=patch.repeats,
        is_final=patch.finalize,
        problem=made.problem,
    )
    return event, text
