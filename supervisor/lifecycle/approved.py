"""What a question to a person, and the answer to it, make true. `supervisor.lifecycle.approving` decides when one is asked."""

from __future__ import annotations

from typing import Any

from shared.wire.approval import ApprovalOf
from shared.wire.events import (
    ApprovalAsked,
    ApprovalEvent,
    ApprovalReminded,
    JobStatus,
    PlanMade,
    Recorded,
    Rejected,
)
from shared.wire.ids import StepId
from shared.wire.mode import Mode
from supervisor.lifecycle.asked import Question, RejectedPlan
from supervisor.lifecycle.attempts import Remark
from supervisor.lifecycle.layers import Layers
from supervisor.lifecycle.state import JobState, Phase, StepState
from supervisor.lifecycle.steps import again

ONCE = (ApprovalOf.PLAN, ApprovalOf.COST)
"""What stays approved when an ended job is retried: its plan stays, and so does what it has cost."""


def planned(made: PlanMade) -> dict[str, Any]:
    """A plan, and its steps before their first attempt."""
    return {
        "plan": made,
        "steps": {outline.id: StepState(outline=outline) for outline in made.steps},
    }


def asked_anew() -> dict[str, Any]:
    """When an ended job is retried."""
    return {"question": None, "rejected": None, "rejected_plans": (), "waited_s": 0.0}


def approved_anew(state: JobState) -> dict[str, Any]:
    """When its answer is made anew, too."""
    return {"approved": tuple(what for what in state.approved if what in ONCE), "reworks": 0}


def heard(state: JobState, event: ApprovalEvent, recorded: Recorded) -> dict[str, Any]:
    """Asked, reminded, answered. What speaks of a question that does not stand any more changes nothing."""
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
    answered = {"question": None, "waited_s": state.waited_s + max(0.0, recorded.at - question.at)}
    if isinstance(event, Rejected):
        return answered | _rejected(state.model_copy(update=answered), question, event, recorded.at)
    if question.what is ApprovalOf.FAILURE:
        return {**answered, "steps": _let_go(state, question)}
    edited = (
        {**planned(event.plan), "quote": None}
        if event.plan and question.what is ApprovalOf.PLAN
        else {}
    )
    return {**answered, **edited, "approved": (*state.approved, question.what)}


def _rejected(state: JobState, question: Question, event: Rejected, at: float) -> dict[str, Any]:
    """`state`: with the wait added to its time."""
    is_last, what = state.spent is not None or at >= state.deadline, question.what
    match what:
        case ApprovalOf.PLAN if not is_last and may_be_planned_again(state) and state.plan:
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
        case ApprovalOf.FAILURE if is_last:
            return {"steps": _let_go(state, question)}
        case ApprovalOf.FAILURE:
            return {"steps": _tried_anew(state, question, event), "sent_back_at": at}
        case ApprovalOf.RESEARCH | ApprovalOf.ANSWER if not is_last and state.may_send_back:
            again = _done_again(state, event)
            sent_back = {"reworks": state.reworks + 1, "sent_back_at": at}
            return {"steps": again, "phase": Phase.WORKING, "synthesised": None, **sent_back}
        case _:
            return {"rejected": what}


def may_be_planned_again(state: JobState) -> bool:
    """By a planner, that is: of what code plans, it would make the same."""
    is_planners = state.mode in (Mode.TEAM, Mode.ADAPTIVE) or state.routed is not None
    return is_planners and len(state.rejected_plans) < state.submitted.limits.max_rounds


def _done_again(state: JobState, event: Rejected) -> dict[Any, StepState]:
    named = frozenset(event.steps) & state.steps.keys() or frozenset(state.sinks)
    steps = dict(state.steps)
    for step_id in {*named, *state.downstream(named)}:
        step = steps[step_id]
        own = {"result": event.note} if step_id in named else {"follows": True}
        steps[step_id] = again(step, Remark(author="user", previous=step.result, **own))
    return steps


def _asked_about(state: JobState, question: Question) -> dict[StepId, StepState]:
    return {step_id: state.steps[step_id] for step_id in question.steps if step_id in state.steps}


def _let_go(state: JobState, question: Question) -> Layers[StepId, StepState]:
    about = _asked_about(state, question)
    return state.steps | {
        step_id: step.model_copy(update={"is_let_go": True}) for step_id, step in about.items()
    }


def _tried_anew(state: JobState, question: Question, event: Rejected) -> Layers[StepId, StepState]:
    """By its own specialist, as if it had never been tried, with what was said. Those that were not named are let go."""
    about = _asked_about(state, question)
    named = frozenset(event.steps) & about.keys() or about.keys()
    remark = {
        step_id: Remark(author="user", result=event.note, previous=about[step_id].result)
        for step_id in named
    }
    fresh = {"failures": 0, "tried": (), "given_to": None}
    return _let_go(state, question) | {
        step_id: again(about[step_id], remark[step_id]).model_copy(update=fresh)
        for step_id in named
    }
