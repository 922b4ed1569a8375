"""How one step stands after what happened to it."""

from __future__ import annotations

from shared.wire.events import HandoffFinished, NeedsResolved
from shared.wire.handoff import BlobRef, ResultStatus, StopReason
from shared.wire.ids import StepId
from supervisor.lifecycle.state import JobState, Remark, StepState, StepStatus


def with_result(step: StepState, event: HandoffFinished) -> StepState:
    if event.status is ResultStatus.FAILED and step.sent_back:
        return stood_in_for(step, event.result, event.stop_reason)
    needy = event.status is ResultStatus.NEEDS_INPUT
    return step.model_copy(
        update={
            "status": StepStatus.IN_NEED if needy else StepStatus.SETTLED,
            "result": event.result,
            "result_status": event.status,
            "stop_reason": event.stop_reason,
            "comparable": event.comparable,
            "trouble": event.result if event.status is not ResultStatus.OK else None,
            "failures": step.failures + (event.status is ResultStatus.FAILED),
        }
    )


def stood_in_for(step: StepState, trouble: BlobRef | None, stop_reason: StopReason | None) -> StepState:
    """A result that was sent back is better than none: it is the step's result again, and what came of mending it is said."""
    return step.model_copy(
        update={
            "status": StepStatus.SETTLED,
            "result": step.sent_back,
            "result_status": ResultStatus.PARTIAL,
            "stop_reason": stop_reason,
            "trouble": trouble,
        }
    )


def again(step: StepState, remark: Remark | None) -> StepState:
    """The step before its next attempt."""
    return step.model_copy(
        update={
            "status": StepStatus.WAITING,
            "result": None,
            "result_status": None,
            "stop_reason": None,
            "trouble": None,
            "sent_back": step.result if step.usable else step.sent_back,
            "remarks": (*step.remarks, remark) if remark else step.remarks,
        }
    )


def resolved(state: JobState, event: NeedsResolved) -> dict[StepId, StepState]:
    steps = dict(state.steps)
    asked = {step_id: step for step_id, step in steps.items() if step.status is StepStatus.IN_NEED}
    for step_id in asked.keys() & {*event.answered}:
        steps[step_id] = again(asked[step_id], Remark(author="planner", result=event.result, previous=asked[step_id].result))
    for step_id in asked.keys() & {*event.given_up}:
        step = asked[step_id]
        given_up = step.model_copy(update={"status": StepStatus.SETTLED})
        steps[step_id] = stood_in_for(step, step.trouble, step.stop_reason) if step.sent_back else given_up
    return steps
