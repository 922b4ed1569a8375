"""Effects of a question to a person and of its answer. `supervisor.lifecycle.approval_policy`
decides when to ask.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from handoff_queue.shared.types.events import (
    ApprovalAsked,
    ApprovalEvent,
    ApprovalReminded,
    Approved,
    JobStatus,
    PlanMade,
    RecordedEvent,
    Rejected,
)
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.state import (
    AskedCall,
    AttemptFeedback,
    JobState,
    Phase,
    Question,
    RejectedPlan,
    StepState,
    create_steps,
)
from handoff_queue.supervisor.lifecycle.step_state import reopen_step

LASTING_APPROVALS = (ApprovalOf.PLAN, ApprovalOf.COST)
"""Approvals that hold when an ended job is retried, because its plan and its spending stay."""


def apply_plan(event: PlanMade) -> dict[str, Any]:
    """Return the changes for a new plan: the plan, and its steps before their first attempt."""
    return {"plan": event, "steps": create_steps(event.steps)}


def ask_again_on_retry() -> dict[str, Any]:
    """Return the changes for the retry of an ended job: open questions and rejections are
    dropped.
    """
    return {"question": None, "rejected": None, "rejected_plans": (), "waited_s": 0.0}


def clear_approvals(state: JobState) -> dict[str, Any]:
    """Return the changes for a retry that makes the answer again: only the approvals in
    `LASTING_APPROVALS` stay.
    """
    return {
        "approved": tuple(subject for subject in state.approved if subject in LASTING_APPROVALS),
        "reworks": 0,
    }


def apply_approval_event(
    state: JobState, event: ApprovalEvent, recorded: RecordedEvent
) -> dict[str, Any]:
    """Return the changes after a question, a reminder or an answer. A reminder or an answer
    about a question that is no longer open changes nothing.
    """
    if isinstance(event, ApprovalAsked):
        opened = Question(
            what=event.what,
            version=recorded.version,
            at=recorded.at,
            until=recorded.at + event.wait_s,
            steps=event.steps,
        )
        return {"question": opened, "status": JobStatus.RUNNING}
    question = state.question
    if question is None or event.asked != question.version:
        return {}
    if isinstance(event, ApprovalReminded):
        return {"question": question.model_copy(update={"reminders": event.number})}
    changes: dict[str, Any] = {"question": None}
    if question.what is not ApprovalOf.STEP:  # `reduce` counts the wait of a question about steps
        changes["waited_s"] = state.waited_s + max(0.0, recorded.at - question.at)
    if isinstance(event, Rejected):
        answered_state = state.model_copy(update=changes)
        return changes | _apply_rejection(answered_state, question, event, recorded.at)
    return changes | _apply_approval(state, question, event)


def _apply_approval(state: JobState, question: Question, event: Approved) -> dict[str, Any]:
    if question.what is ApprovalOf.STEP:
        return {"steps": _with_answer(state, question, event.steps, is_approved=True)}
    if question.what is ApprovalOf.FAILURE:
        return {"steps": _release_steps(state, question)}
    changes: dict[str, Any] = {"approved": (*state.approved, question.what)}
    if event.plan and question.what is ApprovalOf.PLAN:
        changes |= {**apply_plan(event.plan), "quote": None}
    return changes


def find_open_call_questions(
    state: JobState, handoffs: Container[HandoffId]
) -> tuple[AskedCall, ...]:
    """Return the questions about tool calls that these open handoffs wait for."""
    return tuple(call for call in state.asked_calls if call.handoff_id in handoffs)


def update_call_questions(
    state: JobState, event: ApprovalEvent, recorded: RecordedEvent
) -> tuple[AskedCall, ...] | None:
    """Return the questions about tool calls after an event about one. None: the event is about
    another question.
    """
    if isinstance(event, ApprovalAsked):
        if event.call is None:
            return None
        opened = AskedCall(
            what=event.what,
            version=recorded.version,
            at=recorded.at,
            until=recorded.at + event.wait_s,
            handoff_id=event.call.handoff_id,
            call_id=event.call.call_id,
            tool=event.call.tool,
        )
        if opened.handoff_id not in state.open:
            return state.asked_calls
        return (*state.asked_calls, opened)
    if event.asked not in {call.version for call in state.asked_calls}:
        return None
    changes: dict[str, Any] = {"is_answered": True}
    if isinstance(event, ApprovalReminded):
        changes = {"reminders": event.number, "is_told": True}
    calls: list[AskedCall] = []
    for call in state.asked_calls:
        if call.version == event.asked and not call.is_answered:
            calls.append(call.model_copy(update=changes))
        else:
            calls.append(call)
    return tuple(calls)


def _apply_rejection(
    state: JobState, question: Question, event: Rejected, at: float
) -> dict[str, Any]:
    """Return the changes after a rejection. Without time or budget left, no step runs
    again.

    Args:
        state: state with the waiting time added.
    """
    is_last = state.spent is not None or at >= state.deadline
    match question.what:
        case ApprovalOf.PLAN if not is_last and can_plan_again(state) and state.plan:
            mode = state.mode if state.mode is Mode.ADAPTIVE else Mode.TEAM
            rejected_plan = RejectedPlan(
                plan=state.plan.plan, note=event.note, own_plan=event.own_plan
            )
            return {
                "plan": None,
                "steps": {},
                "phase": Phase.PLANNING,
                "mode": mode,
                "rejected_plans": (*state.rejected_plans, rejected_plan),
                "quote": None,
            }
        case ApprovalOf.STEP:
            return {"steps": _with_answer(state, question, event.steps, is_approved=False)}
        case ApprovalOf.FAILURE if is_last:
            return {"steps": _release_steps(state, question)}
        case ApprovalOf.FAILURE:
            return {"steps": _retry_steps(state, question, event), "sent_back_at": at}
        case ApprovalOf.RESEARCH | ApprovalOf.ANSWER if (
            not is_last and state.may_send_back and _find_steps_to_redo(state, event)
        ):
            return {
                "steps": _reopen_rejected_steps(state, event),
                "phase": Phase.WORKING,
                "synthesized": None,
                "reworks": state.reworks + 1,
                "sent_back_at": at,
                "review_over": False,
            }
        case _:
            return {"rejected": question.what}


def can_plan_again(state: JobState) -> bool:
    """Return whether a planner can plan again after a rejection. A plan that code made for the
    requested mode is not made again, because code would make the same plan.
    """
    is_planners = state.mode in (Mode.TEAM, Mode.ADAPTIVE) or state.routed is not None
    return is_planners and len(state.rejected_plans) < state.submitted.limits.max_rounds


def _reopen_rejected_steps(state: JobState, event: Rejected) -> dict[StepId, StepState]:
    """Return all steps. The rejected steps run again with the person's note, and so do their
    dependents.
    """
    steps_to_redo = _find_steps_to_redo(state, event)
    rejected_ids = set(event.steps)
    steps = dict(state.steps)
    for step_id in {*steps_to_redo, *state.find_downstream(steps_to_redo)}:
        step = steps[step_id]
        if step_id in steps_to_redo:
            remark = AttemptFeedback(author="user", previous=step.result, result=event.note)
        else:
            remark = AttemptFeedback(author="user", previous=step.result, follows=True)
        steps[step_id] = reopen_step(step, remark, is_named=step_id in rejected_ids)
    return steps


def _find_steps_to_redo(state: JobState, event: Rejected) -> frozenset[StepId]:
    """Return the steps that a rejection names, or the sinks that have not acted."""
    named_steps = frozenset(event.steps) & state.steps.keys()
    if named_steps:
        return named_steps
    return frozenset(step_id for step_id in state.sinks if not state.steps[step_id].acted)


def _with_answer(
    state: JobState, question: Question, step_ids: Sequence[StepId], *, is_approved: bool
) -> PersistentMap[StepId, StepState]:
    """Return all steps with a person's answer. An answer that names no step of the question is
    about all steps of the question.
    """
    about = _get_question_steps(state, question)
    named_ids = about.keys() & {*step_ids}
    answered_steps: dict[StepId, StepState] = {}
    for step_id in named_ids or about.keys():
        answered_steps[step_id] = about[step_id].model_copy(update={"is_approved": is_approved})
    return state.steps | answered_steps


def _get_question_steps(state: JobState, question: Question) -> dict[StepId, StepState]:
    """Return the question's steps that the plan still has."""
    by_step_id: dict[StepId, StepState] = {}
    for step_id in question.steps:
        if step_id in state.steps:
            by_step_id[step_id] = state.steps[step_id]
    return by_step_id


def _release_steps(state: JobState, question: Question) -> PersistentMap[StepId, StepState]:
    """Return all steps. The job continues without results of the question's steps."""
    released_steps: dict[StepId, StepState] = {}
    for step_id, step in _get_question_steps(state, question).items():
        released_steps[step_id] = step.model_copy(update={"is_released": True})
    return state.steps | released_steps


def _retry_steps(
    state: JobState, question: Question, event: Rejected
) -> PersistentMap[StepId, StepState]:
    """Return all steps. The planned specialists try the named steps again with the person's
    note, as if for the first time. The job continues without results of the question's other
    steps.

    Without names, the steps that have not acted run again.
    """
    about = _get_question_steps(state, question)
    named_ids = about.keys() & {*event.steps}
    retried_steps: dict[StepId, StepState] = {}
    for step_id, step in about.items():
        if step_id in named_ids or (not named_ids and not step.acted):
            remark = AttemptFeedback(author="user", result=event.note, previous=step.result)
            reopened_step = reopen_step(step, remark, is_named=True)
            as_untried = {"failures": 0, "tried": (), "given_to": None}
            retried_steps[step_id] = reopened_step.model_copy(update=as_untried)
    return _release_steps(state, question) | retried_steps
