"""Effects of a question to a person and of its answer. `supervisor.lifecycle.approval_policy`
decides when to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.types.events import (
    ApprovalAsked,
    ApprovalEvent,
    ApprovalReminded,
    JobStatus,
    PlanMade,
    Recorded,
    Rejected,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.supervisor.lifecycle.attempt_feedback import AttemptFeedback
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.state import (
    JobState,
    Phase,
    Question,
    RejectedPlan,
    StepState,
)
from handoff_queue.supervisor.lifecycle.steps import again

ONCE = (ApprovalOf.PLAN, ApprovalOf.COST)
"""Approvals that hold when an ended job is retried, because its plan and its spending stay."""


def apply_plan(made: PlanMade) -> dict[str, Any]:
    """Return a plan, and its steps before their first attempt."""
    return {
        "plan": made,
        "steps": {outline.id: StepState(outline=outline) for outline in made.steps},
    }


def ask_again_on_retry() -> dict[str, Any]:
    """Return the changes for the retry of an ended job."""
    return {"question": None, "rejected": None, "rejected_plans": (), "waited_s": 0.0}


def clear_approvals(state: JobState) -> dict[str, Any]:
    """Return the changes for a job whose answer is made again, too."""
    return {"approved": tuple(what for what in state.approved if what in ONCE), "reworks": 0}


def heard(state: JobState, event: ApprovalEvent, recorded: Recorded) -> dict[str, Any]:
    """Return the changes of a question, a reminder or an answer. An event about a question that is
    no longer open changes nothing.
    """
    question = state.question
    if isinstance(event, ApprovalAsked):
        until = recorded.at + event.wait_s
        asked = Question(
            what=event.what,
            version=recorded.version,
            at=recorded.at,
            until=until,
            steps=event.steps,
        )
        return {"question": asked, "status": JobStatus.RUNNING}
    if question is None or event.asked != question.version:
        return {}
    if isinstance(event, ApprovalReminded):
        return {"question": question.model_copy(update={"reminders": event.number})}
    answered: dict[str, Any] = {"question": None}
    if question.what is not ApprovalOf.STEP:  # of steps, `evolve` has counted the wait
        answered["waited_s"] = state.waited_s + max(0.0, recorded.at - question.at)
    if isinstance(event, Rejected):
        return answered | _rejected(state.model_copy(update=answered), question, event, recorded.at)
    if question.what in (ApprovalOf.STEP, ApprovalOf.FAILURE):
        is_failure = question.what is ApprovalOf.FAILURE
        if is_failure:
            steps = _let_go(state, question)
        else:
            steps = _with_answer(state, question, event.steps, is_approved=True)
        return {**answered, "steps": steps}
    if event.plan and question.what is ApprovalOf.PLAN:
        edited = {**apply_plan(event.plan), "quote": None}
    else:
        edited = {}
    return {**answered, **edited, "approved": (*state.approved, question.what)}


def _rejected(state: JobState, question: Question, event: Rejected, at: float) -> dict[str, Any]:
    """Return the changes of a rejection.

    Args:
        state: state with the waiting time added.
    """
    is_last, what = state.spent is not None or at >= state.deadline, question.what
    match what:
        case ApprovalOf.PLAN if not is_last and can_plan_again(state) and state.plan:
            mode = state.mode if state.mode is Mode.ADAPTIVE else Mode.TEAM
            rejected = (
                *state.rejected_plans,
                RejectedPlan(plan=state.plan.plan, note=event.note, own_plan=event.own_plan),
            )
            return {
                "plan": None,
                "steps": {},
                "phase": Phase.PLANNING,
                "mode": mode,
                "rejected_plans": rejected,
                "quote": None,
            }
        case ApprovalOf.STEP:
            return {"steps": _with_answer(state, question, event.steps, is_approved=False)}
        case ApprovalOf.FAILURE if is_last:
            return {"steps": _let_go(state, question)}
        case ApprovalOf.FAILURE:
            return {"steps": _tried_anew(state, question, event), "sent_back_at": at}
        case ApprovalOf.RESEARCH | ApprovalOf.ANSWER if (
            not is_last and state.may_send_back and _to_redo(state, event)
        ):
            again = _done_again(state, event)
            sent_back = {
                "reworks": state.reworks + 1,
                "sent_back_at": at,
                "review_over": False,
            }
            return {"steps": again, "phase": Phase.WORKING, "synthesised": None, **sent_back}
        case _:
            return {"rejected": what}


def can_plan_again(state: JobState) -> bool:
    """Return whether a planner can plan again. Code would make the same plan again."""
    is_planners = state.mode in (Mode.TEAM, Mode.ADAPTIVE) or state.routed is not None
    return is_planners and len(state.rejected_plans) < state.submitted.limits.max_rounds


def _done_again(state: JobState, event: Rejected) -> dict[Any, StepState]:
    named = _to_redo(state, event)
    steps = dict(state.steps)
    for step_id in {*named, *state.downstream(named)}:
        step = steps[step_id]
        own = {"result": event.note} if step_id in named else {"follows": True}
        remark = AttemptFeedback(author="user", previous=step.result, **own)
        steps[step_id] = again(step, remark, is_named=step_id in event.steps)
    return steps


def _to_redo(state: JobState, event: Rejected) -> frozenset[StepId]:
    """Return the steps that a rejection names, or the sinks that have not acted."""
    named = frozenset(event.steps) & state.steps.keys()
    return named or frozenset(step_id for step_id in state.sinks if not state.steps[step_id].acted)


def _with_answer(
    state: JobState, question: Question, named: Sequence[StepId], *, is_approved: bool
) -> PersistentMap[StepId, StepState]:
    """Return the steps with a person's answer. Without names, it is about all steps of the
    question.
    """
    about = _asked_about(state, question)
    steps = {asked_id: about[asked_id] for asked_id in named if asked_id in about} or about
    return state.steps | {
        step_id: step.model_copy(update={"is_approved": is_approved})
        for step_id, step in steps.items()
    }


def _asked_about(state: JobState, question: Question) -> dict[StepId, StepState]:
    by_step_id: dict[StepId, StepState] = {}
    for step_id in question.steps:
        if step_id in state.steps:
            by_step_id[step_id] = state.steps[step_id]
    return by_step_id


def _let_go(state: JobState, question: Question) -> PersistentMap[StepId, StepState]:
    about = _asked_about(state, question)
    return state.steps | {
        step_id: step.model_copy(update={"is_let_go": True}) for step_id, step in about.items()
    }


def _tried_anew(
    state: JobState, question: Question, event: Rejected
) -> PersistentMap[StepId, StepState]:
    """Let the step's own specialist try the rejected steps again with the note, as if it were the
    first time. Steps that were not named are released.
    """
    about = _asked_about(state, question)
    named = frozenset(event.steps) & about.keys() or frozenset(
        step_id for step_id, step in about.items() if not step.acted
    )
    remark = {
        step_id: AttemptFeedback(author="user", result=event.note, previous=about[step_id].result)
        for step_id in named
    }
    fresh = {"failures": 0, "tried": (), "given_to": None}
    return _let_go(state, question) | {
        step_id: again(about[step_id], remark[step_id], is_named=True).model_copy(update=fresh)
        for step_id in named
    }
