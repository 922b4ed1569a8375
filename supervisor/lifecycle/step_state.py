"""The state of one step after an event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.types.events import (
    ConditionsChecked,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    NeedsResolved,
    StepsAbandoned,
    StepsTriedAgain,
)
from handoff_queue.shared.types.handoff import UNREADABLE, BlobRef, ResultStatus, StopReason
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.supervisor.lifecycle.state import (
    AttemptFeedback,
    JobState,
    Phase,
    Question,
    StepState,
    StepStatus,
    create_steps,
    get_outlines,
)

if TYPE_CHECKING:
    from handoff_queue.shared.types.ids import HandoffId
    from handoff_queue.shared.types.step_events import HandoffIssued

BY_CODE = frozenset({StopReason.INTERNAL_ERROR, StopReason.TOO_MANY_CLAIMS})
"""Stop reasons of results that were made without the agent loop, so that `acted` is unknown."""


def with_result(step: StepState, event: HandoffFinished) -> StepState:
    """Return the step after its attempt has ended. If a revision fails, the result that was
    sent back stands.
    """
    if event.status is ResultStatus.FAILED and step.sent_back:
        return restore_earlier_result(step, event.result, event.stop_reason)
    status = StepStatus.SETTLED
    if event.status is ResultStatus.NEEDS_INPUT and not event.acted:
        status = StepStatus.IN_NEED
    problem_result = None
    if event.status is not ResultStatus.OK:
        problem_result = event.result
    failures = step.failures
    tried_specialists = step.tried
    if event.status is ResultStatus.FAILED:
        failures += 1
        if step.specialist not in tried_specialists:
            tried_specialists = (*tried_specialists, step.specialist)
    may_have_acted = bool(event.acted)
    if event.stop_reason in BY_CODE:
        may_have_acted = may_have_acted or step.acted
    return step.model_copy(
        update={
            "status": status,
            "result": event.result,
            "result_status": event.status,
            "stop_reason": event.stop_reason,
            "comparable_claims": event.comparable_claims,
            "passages": event.passages or (),
            **_add_claims(step, event),
            "cost_microusd": event.usage.cost_microusd,
            "to_finish_microusd": event.to_finish_microusd,
            "problem_result": problem_result,
            "acted": may_have_acted,
            "failures": failures,
            "tried": tried_specialists,
        }
    )


def _add_claims(step: StepState, event: HandoffFinished) -> dict[str, Any]:
    """Return the changes of a step whose result may have claims."""
    if not event.claims:
        return {}
    restated = None
    if step.restated is not None and event.restated is not None:
        restated = tuple(dict.fromkeys((*step.restated, *event.restated)))
    return {
        "results_with_claims": (*step.results_with_claims, event.result),
        "restated": restated,
    }


def restore_earlier_result(
    step: StepState, problem_result: BlobRef | None, stop_reason: StopReason | None
) -> StepState:
    """Return the step with the result that was sent back, as a partial result, because the new
    attempt brought none.

    Args:
        problem_result: the failed result of the new attempt.
        stop_reason: stop reason of the new attempt; None: it was abandoned.
    """
    return step.model_copy(
        update={
            "status": StepStatus.SETTLED,
            "result": step.sent_back,
            "result_status": ResultStatus.PARTIAL,
            "stop_reason": stop_reason,
            "problem_result": problem_result,
        }
    )


def reopen_step(
    step: StepState, remark: AttemptFeedback | None, *, is_named: bool = False
) -> StepState:
    """Return the step before its next attempt. A step that may have acted stays as it is.

    Args:
        remark: feedback for the next attempt.
        is_named: True if a person named the step, which then runs again although it may have acted.
    """
    if step.acted and not is_named:
        return step
    sent_back = step.sent_back
    if step.is_usable:
        sent_back = step.result
    remarks = step.remarks
    if remark:
        remarks = (*remarks, remark)
    return step.model_copy(
        update={
            "status": StepStatus.WAITING,
            "result": None,
            "result_status": None,
            "stop_reason": None,
            "problem_result": None,
            "gaps_only": False,
            "acted": False,
            "is_met": False,
            "is_approved": None,
            "sent_back": sent_back,
            "remarks": remarks,
        }
    )


def resolve_steps(state: JobState, event: NeedsResolved) -> dict[str, Any]:
    """Return the changes after the planner's answers to the questions of steps. The planner's
    helper steps are added only if the plan, and the steps that wait for them, are as the
    planner knew them.
    """
    steps = dict(state.steps)
    in_need: dict[StepId, StepState] = {}
    for step_id, step in steps.items():
        if step.status is StepStatus.IN_NEED:
            in_need[step_id] = step
    for step_id in in_need.keys() & {*event.answered}:
        steps[step_id] = _reopen_with_answer(in_need[step_id], event.result)
    for step_id in in_need.keys() & {*event.given_up}:
        step = in_need[step_id]
        if step.sent_back:
            steps[step_id] = restore_earlier_result(step, step.problem_result, step.stop_reason)
        else:
            steps[step_id] = step.model_copy(update={"status": StepStatus.SETTLED})
    if event.plan is None or state.plan is None or event.added_to != state.plan.plan:
        return {"steps": steps}
    if not all(outline.id in in_need for outline in event.changed):
        return {"steps": steps}
    for outline in event.changed:
        reopened = _reopen_with_answer(in_need[outline.id], event.result, outline.helpers[-1])
        steps[outline.id] = reopened.model_copy(update={"outline": outline})
    steps |= create_steps(event.added)
    plan = state.plan.model_copy(update={"plan": event.plan, "steps": get_outlines(steps)})
    return {"steps": steps, "plan": plan}


def _reopen_with_answer(
    step: StepState, answers: BlobRef, helper: StepId | None = None
) -> StepState:
    """Return a step with a question before its next attempt.

    Args:
        answers: the planner's HandoffResult.
        helper: the added step whose result answers the question; None: the planner answers it.
    """
    remark = AttemptFeedback(author="planner", result=answers, previous=step.result, helper=helper)
    return reopen_step(step, remark)


def abandon_steps(state: JobState, event: StepsAbandoned) -> dict[str, Any]:
    """Return the changes after steps were abandoned. A result that was sent back
    replaces the failed result that code made. A result that came after the decision counts,
    unless it cannot be read.
    """
    steps: dict[StepId, StepState] = {}
    open_steps = {handoff.step_id for handoff in state.open.values()}
    for abandoned_step in event.steps:
        step = steps.get(abandoned_step.step) or state.steps[abandoned_step.step]
        came_later = step.is_settled and abandoned_step.step not in open_steps
        if came_later and event.why != UNREADABLE:
            continue
        steps[abandoned_step.step] = _fail_by_code(step, abandoned_step.result)
    still_open: dict[HandoffId, HandoffIssued] = {}
    for handoff_id, handoff in state.open.items():
        if handoff.step_id not in steps:
            still_open[handoff_id] = handoff
    after = state.steps | steps
    return {
        "steps": after,
        "open": still_open,
        "question": keep_open_question(state.question, after),
    }


def _fail_by_code(step: StepState, result: BlobRef) -> StepState:
    """Return the step with a failed result that code made, or with the result that was sent back
    if there is one.
    """
    if step.sent_back is not None and step.sent_back != step.result:
        return restore_earlier_result(step, result, None)
    return _with_result_by_code(step, result, ResultStatus.FAILED)


def _with_result_by_code(step: StepState, result: BlobRef, status: ResultStatus) -> StepState:
    """Return the step with a result that code made in place of a missing one."""
    return step.model_copy(
        update={
            "status": StepStatus.SETTLED,
            "result": result,
            "result_status": status,
            "problem_result": result,
            "stop_reason": None,
        }
    )


def apply_conditions(state: JobState, event: ConditionsChecked) -> dict[str, Any]:
    """Return the changes after conditions were checked: steps whose conditions are met,
    skipped steps, and steps that failed because their conditions could not be decided.
    """
    steps: dict[StepId, StepState] = {}
    for step_id in event.met:
        steps[step_id] = state.steps[step_id].model_copy(update={"is_met": True})
    for skipped_step in event.skipped:
        step = state.steps[skipped_step.step]
        steps[skipped_step.step] = _with_result_by_code(
            step, skipped_step.result, ResultStatus.SKIPPED
        )
    for undecided_step in event.undecided:
        step = state.steps[undecided_step.step]
        steps[undecided_step.step] = _fail_by_code(step, undecided_step.result)
    after = state.steps | steps
    return {"steps": after, "question": keep_open_question(state.question, after)}


def keep_open_question(
    question: Question | None,
    steps: Mapping[StepId, StepState],
    changed_steps: Collection[StepId] = (),
) -> Question | None:
    """Return a question about the beginning of steps without the steps that no longer wait for
    its answer. None: no step is left. Other questions stay as they are.

    Args:
        changed_steps: steps that have another task now, and must be asked about again.
    """
    if question is None or question.what is not ApprovalOf.STEP:
        return question
    left: list[StepId] = []
    for step_id in question.steps:
        is_waiting = step_id in steps and steps[step_id].status is StepStatus.WAITING
        if is_waiting and step_id not in changed_steps:
            left.append(step_id)
    if left:
        return question.model_copy(update={"steps": tuple(left)})
    return None


def retry_steps(state: JobState, event: StepsTriedAgain) -> dict[StepId, StepState]:
    """Return the steps that an event names, open again for their next attempt."""
    steps: dict[StepId, StepState] = {}
    for retry in event.steps:
        step = state.steps[retry.step]
        remark = AttemptFeedback(author="supervisor", result=step.result, previous=step.result)
        steps[retry.step] = reopen_step(step, remark).model_copy(
            update={
                "given_to": retry.specialist or step.given_to,
                "is_met": step.is_met,
                "is_approved": step.is_approved,
            }
        )
    return steps


def send_back_answer(
    state: JobState, check: GatesChecked | FactsChecked, at: float
) -> dict[str, Any]:
    """Return the changes after a check rejected an answer: the steps that the check names run
    again. If it names none, the synthesizer runs again.
    """
    changes = {"synthesized": None, "gate_rounds": state.gate_rounds + 1}
    if not check.steps:
        return {**changes, "phase": Phase.SYNTHESIZING, "turned_down": check.result}
    steps: dict[StepId, StepState] = {}
    for step_id in check.steps:
        step = state.steps[step_id]
        remark = AttemptFeedback(author="gate", result=check.result, previous=step.result)
        steps[step_id] = reopen_step(step, remark)
    return {
        **changes,
        "phase": Phase.WORKING,
        "steps": state.steps | steps,
        "reworks": state.reworks + state.is_reviewed,
        "review_over": False,
        "sent_back_at": at,
    }
