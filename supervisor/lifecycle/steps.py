"""How one step stands after what happened to it."""

from __future__ import annotations

from shared.wire.events import HandoffFinished
from shared.wire.handoff import BlobRef, ResultStatus, StopReason
from supervisor.lifecycle.state import Remark, StepState, StepStatus


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
