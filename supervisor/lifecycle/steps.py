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
from handoff_queue.shared.types.handoff import BlobRef, ResultStatus, StopReason
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.supervisor.lifecycle.attempt_feedback import AttemptFeedback
from handoff_queue.supervisor.lifecycle.state import (
    JobState,
    Phase,
    Question,
    StepState,
    StepStatus,
)

if TYPE_CHECKING:
    from handoff_queue.shared.types.ids import HandoffId
    from handoff_queue.shared.types.step_events import HandoffIssued

BY_CODE = frozenset({StopReason.DEFECT, StopReason.TOO_MANY_CLAIMS})
"""The result was made without the agent loop, which knows whether a tool with effects has run."""


def with_result(step: StepState, event: HandoffFinished) -> StepState:
    if event.status is ResultStatus.FAILED and step.sent_back:
        return stood_in_for(step, event.result, event.stop_reason)
    needy = event.status is ResultStatus.NEEDS_INPUT and not event.acted
    return step.model_copy(
        update={
            "status": StepStatus.IN_NEED if needy else StepStatus.SETTLED,
            "result": event.result,
            "result_status": event.status,
            "stop_reason": event.stop_reason,
            "comparable": event.comparable,
            "cost_microusd": event.usage.cost_microusd,
            "to_finish_microusd": event.to_finish_microusd,
            "trouble": event.result if event.status is not ResultStatus.OK else None,
            "acted": bool(event.acted) or (step.acted and event.stop_reason in BY_CODE),
            "failures": step.failures + (event.status is ResultStatus.FAILED),
            "tried": step.tried
            if event.status is not ResultStatus.FAILED
            else tuple(dict.fromkeys((*step.tried, step.specialist))),
        }
    )


def stood_in_for(
    step: StepState, trouble: BlobRef | None, stop_reason: StopReason | None
) -> StepState:
    """Return the step with the result that was sent back, since its revision failed. `trouble`
    is the result of the revision.
    """
    return step.model_copy(
        update={
            "status": StepStatus.SETTLED,
            "result": step.sent_back,
            "result_status": ResultStatus.PARTIAL,
            "stop_reason": stop_reason,
            "trouble": trouble,
        }
    )


def again(step: StepState, remark: AttemptFeedback | None, *, is_named: bool = False) -> StepState:
    """Return the step before its next attempt. A step that may have acted stays as it is.

    `is_named`: a person wants this very step done again.
    """
    if step.acted and not is_named:
        return step
    return step.model_copy(
        update={
            "status": StepStatus.WAITING,
            "result": None,
            "result_status": None,
            "stop_reason": None,
            "trouble": None,
            "gaps_only": False,
            "acted": False,
            "is_met": False,
            "is_approved": None,
            "sent_back": step.result if step.usable else step.sent_back,
            "remarks": (*step.remarks, remark) if remark else step.remarks,
        }
    )


def resolve_steps(state: JobState, event: NeedsResolved) -> dict[str, Any]:
    """Return the steps whose questions were answered and, with helpers, the plan."""
    steps = dict(state.steps)
    asked = {step_id: step for step_id, step in steps.items() if step.status is StepStatus.IN_NEED}
    for step_id in asked.keys() & {*event.answered}:
        steps[step_id] = again(
            asked[step_id],
            AttemptFeedback(author="planner", result=event.result, previous=asked[step_id].result),
        )
    for step_id in asked.keys() & {*event.given_up}:
        step = asked[step_id]
        given_up = step.model_copy(update={"status": StepStatus.SETTLED})
        if step.sent_back:
            steps[step_id] = stood_in_for(step, step.trouble, step.stop_reason)
        else:
            steps[step_id] = given_up
    is_unchanged = (
        state.plan is not None
        and event.added_to == state.plan.plan
        and asked.keys() >= {outline.id for outline in event.changed}
    )
    if event.plan is None or state.plan is None or not is_unchanged:
        return {"steps": steps}
    for outline in event.changed:
        remark = AttemptFeedback(
            author="planner",
            result=event.result,
            previous=asked[outline.id].result,
            helper=outline.helpers[-1],
        )
        steps[outline.id] = again(asked[outline.id], remark).model_copy(update={"outline": outline})
    steps |= {outline.id: StepState(outline=outline) for outline in event.added}
    plan = state.plan.model_copy(
        update={"plan": event.plan, "steps": tuple(step.outline for step in steps.values())}
    )
    return {"steps": steps, "plan": plan}


def abandon_steps(state: JobState, event: StepsAbandoned) -> dict[str, Any]:
    steps, gone = dict[StepId, StepState](), {item.step for item in event.steps}
    for item in event.steps:
        step = steps.get(item.step) or state.steps[item.step]
        failed = {
            "status": StepStatus.SETTLED,
            "result": item.result,
            "result_status": ResultStatus.FAILED,
            "trouble": item.result,
        }
        given_up = step.model_copy(update={**failed, "stop_reason": None})
        has_another = step.sent_back is not None and step.sent_back != step.result
        if has_another:
            steps[item.step] = stood_in_for(step, item.result, None)
        else:
            steps[item.step] = given_up
    still_open: dict[HandoffId, HandoffIssued] = {}
    for handoff_id, handoff in state.open.items():
        if handoff.step_id not in gone:
            still_open[handoff_id] = handoff
    after = state.steps | steps
    return {
        "steps": after,
        "open": still_open,
        "question": keep_open_question(state.question, after),
    }


def apply_conditions(state: JobState, event: ConditionsChecked) -> dict[str, Any]:
    """Return the steps whose conditions were checked."""
    steps: dict[StepId, StepState] = {}
    for step_id in event.met:
        steps[step_id] = state.steps[step_id].model_copy(update={"is_met": True})
    for items, status in (
        (event.skipped, ResultStatus.SKIPPED),
        (event.undecided, ResultStatus.FAILED),
    ):
        for item in items:
            ended = {
                "status": StepStatus.SETTLED,
                "result": item.result,
                "result_status": status,
                "trouble": item.result,
                "stop_reason": None,
            }
            step = state.steps[item.step]
            stands = step.sent_back is not None and status is ResultStatus.FAILED
            if stands:
                steps[item.step] = stood_in_for(step, item.result, None)
            else:
                steps[item.step] = step.model_copy(update=ended)
    after = state.steps | steps
    return {"steps": after, "question": keep_open_question(state.question, after)}


def keep_open_question(
    question: Question | None, steps: Mapping[StepId, StepState], changed: Collection[StepId] = ()
) -> Question | None:
    """Return the question without steps that no longer wait for its answer. None: no step is left.

    `changed`: steps that have another task now, and must be asked about again.
    """
    if question is None or question.what is not ApprovalOf.STEP:
        return question
    left = tuple(
        step_id
        for step_id in question.steps
        if step_id not in changed
        and step_id in steps
        and steps[step_id].status is StepStatus.WAITING
    )
    if left:
        return question.model_copy(update={"steps": left})
    return None


def retry_steps(state: JobState, event: StepsTriedAgain) -> dict[StepId, StepState]:
    """Return the steps of the event before their next attempt."""
    steps: dict[StepId, StepState] = {}
    for item in event.steps:
        step = state.steps[item.step]
        remark = AttemptFeedback(author="supervisor", result=step.result, previous=step.result)
        steps[item.step] = again(step, remark).model_copy(
            update={
                "given_to": item.specialist or step.given_to,
                "is_met": step.is_met,
                "is_approved": step.is_approved,
            }
        )
    return steps


def send_back_answer(
    state: JobState, look: GatesChecked | FactsChecked, at: float
) -> dict[str, Any]:
    """Return the changes after an answer was rejected: the steps of the answer run again, or else
    the synthesizer does.
    """
    changes = {"synthesised": None, "gate_rounds": state.gate_rounds + 1}
    if not look.steps:
        return {**changes, "phase": Phase.SYNTHESISING, "turned_down": look.result}
    remarks: dict[StepId, AttemptFeedback] = {}
    for step in look.steps:
        remarks[step] = AttemptFeedback(
            author="gate", result=look.result, previous=state.steps[step].result
        )
    steps = state.steps | {
        step_id: again(state.steps[step_id], remark) for step_id, remark in remarks.items()
    }
    return {
        **changes,
        "phase": Phase.WORKING,
        "steps": steps,
        "reworks": state.reworks + state.is_reviewed,
        "review_over": False,
        "sent_back_at": at,
    }
