"""Steps that act on the world: the review and the approval before them, and the ban on
repeats. Pure.

A step acts if its specialist has a tool with effects: a tool that is not safe to repeat. A
step that may have acted runs again only if a person names it. A review, a retry, a changed
plan or a lost worker does not repeat it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Patch, Plan
from handoff_queue.shared.types.plan_validation import find_steps_after_review
from handoff_queue.shared.types.step import AFTER_REVIEW, Step
from handoff_queue.supervisor.lifecycle.answer import find_usable_sinks
from handoff_queue.supervisor.lifecycle.commands import AbandonSteps, AskApproval
from handoff_queue.supervisor.lifecycle.helper_steps import find_helpers
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.plan_graph import get_plan_graph
from handoff_queue.supervisor.lifecycle.review_arbitration import is_accepted
from handoff_queue.supervisor.lifecycle.state import JobState, StepState

NOT_PASSED = "it waits for a review that passes the results, and there was none"
CUT_SHORT = "the job ended while the step ran"
NOT_APPROVED = "a person rejected it before it began"


def find_review_dependents(state: JobState) -> frozenset[StepId]:
    """Return the steps that wait for the review, and the steps that depend on those."""
    if state.plan:
        return get_plan_graph(state.plan.steps).after_review
    return frozenset()


def is_ready_for_review(state: JobState) -> bool:
    """Return whether all steps that do not wait for the review are settled. After the review:
    whether all steps are.
    """
    waiting = find_review_dependents(state)
    if state.review_over or not waiting:
        return state.step_index.are_settled
    unsettled_waiting = sum(not state.steps[step_id].is_settled for step_id in waiting)
    return state.step_index.unsettled == unsettled_waiting


def list_reviewed_steps(state: JobState) -> tuple[StepId, ...]:
    """Return the steps that a review sees now: all settled steps that were not skipped."""
    step_ids: list[StepId] = []
    for step_id, step in state.steps.items():
        if step.is_settled and not step.is_skipped:
            step_ids.append(step_id)
    return tuple(step_ids)


def find_blocked_steps(state: JobState) -> tuple[AbandonSteps, ...]:
    """Return the command that abandons the steps that cannot begin any more, or an empty
    tuple.

    One command has one reason. The first reason with such steps is taken: a review that did
    not pass, a person's rejection, an earlier attempt that may have acted.
    """
    without_review: frozenset[StepId] = frozenset()
    if (state.review_over or not state.is_reviewed) and not is_passed(state):
        without_review = find_review_dependents(state)
    unreviewed_steps: list[StepId] = []
    rejected_steps: list[StepId] = []
    acted_steps: list[StepId] = []
    for step_id in state.step_index.next:
        if step_id in without_review:
            unreviewed_steps.append(step_id)
        if state.steps[step_id].is_approved is False:
            rejected_steps.append(step_id)
        if state.steps[step_id].acted:
            acted_steps.append(step_id)
    for step_ids, why in (
        (unreviewed_steps, NOT_PASSED),
        (rejected_steps, NOT_APPROVED),
        (acted_steps, CUT_SHORT),
    ):
        if step_ids:
            return (AbandonSteps(tuple(step_ids), why),)
    return ()


def is_passed(state: JobState) -> bool:
    """Return whether the review is over and accepted the results so far."""
    return state.is_reviewed and state.review_over and is_accepted(state)


def select_startable_steps(state: JobState, steps: Sequence[StepId]) -> list[StepId]:
    """Return the steps among these that may start now. A step that waits for the review may
    start after the review has passed.
    """
    waiting = find_review_dependents(state)
    if not waiting or is_passed(state):
        return list(steps)
    return [step_id for step_id in steps if step_id not in waiting]


def find_unapproved_steps(
    state: JobState, observations: Observations, steps: Sequence[StepId]
) -> tuple[StepId, ...]:
    """Return the steps among these that a person must approve before they begin. They are steps
    with `approve: true`, and acting steps in a job whose research or answer needs approval. Helpers
    count as steps that do not act.
    """
    subjects = state.submitted.approvals.what
    covers_effects = ApprovalOf.ANSWER in subjects or ApprovalOf.RESEARCH in subjects
    helpers = find_helpers(state) if covers_effects else frozenset()
    unapproved: list[StepId] = []
    for step_id in steps:
        step = state.steps[step_id]
        if step.is_approved is not None:
            continue
        may_act = step_id not in helpers and _may_act(step, observations)
        if step.outline.approve or (covers_effects and may_act):
            unapproved.append(step_id)
    return tuple(unapproved)


def _may_act(step: StepState, observations: Observations) -> bool:
    """Return whether a step may have an effect, by its plan or by the planned specialist's
    tools. A specialist that replaces the planned one has the same capability, and its handoff
    allows no other tool with an effect (`acts_with`).

    The tools of a specialist that no worker announces are not known. A worker of another specialist
    may have removed the announcement.
    """
    outline = step.outline
    is_known = outline.specialist in (*observations.specialists, CHILD_JOB_SPECIALIST)
    is_acting = outline.specialist in observations.acting or not is_known
    return bool(outline.acts or outline.after or is_acting)


def has_open_condition(step: StepState) -> bool:
    """Return whether a step has a condition that was not checked yet."""
    return bool(step.outline.when) and not step.is_met


def ask_to_begin(steps: Sequence[StepId]) -> AskApproval:
    """Return the question whether these steps may begin."""
    subject = f"{len(steps)} steps are"
    if len(steps) == 1:
        subject = f"step {steps[0]} is"
    return AskApproval(ApprovalOf.STEP, f"{subject} ready to begin", steps=tuple(steps))


def find_sinks_to_redo(state: JobState) -> tuple[StepId, ...]:
    """Return the steps whose results are the answer, without steps that may have acted."""
    return tuple(step_id for step_id in find_usable_sinks(state) if not state.steps[step_id].acted)


def with_effects_after_review(plan: Plan, acting: Collection[str]) -> Plan:
    """Return the plan with its acting steps after the review, if that leaves steps to review.

    Args:
        acting: the specialists that have tools with effects.
    """
    steps = _put_acting_steps_after_review(plan.steps, acting)
    if steps == plan.steps or len(find_steps_after_review(steps)) == len(steps):
        return plan
    return Plan.model_validate({**dict(plan), "steps": steps})


def move_patch_after_review(patch: Patch, acting: Collection[str]) -> Patch:
    """Return the patch with its added and changed acting steps after the review."""
    return patch.model_copy(
        update={
            "add": _put_acting_steps_after_review(patch.add, acting),
            "change": _put_acting_steps_after_review(patch.change, acting),
        }
    )


def _put_acting_steps_after_review(
    steps: Sequence[Step], acting: Collection[str]
) -> tuple[Step, ...]:
    """Return the steps, with the acting steps after the review."""
    marked_steps: list[Step] = []
    for step in steps:
        if step.specialist in acting and step.after is None:
            marked_steps.append(step.model_copy(update={"after": AFTER_REVIEW}))
        else:
            marked_steps.append(step)
    return tuple(marked_steps)
