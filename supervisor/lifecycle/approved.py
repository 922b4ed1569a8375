"""What a question to a person, and the answer to it, make true. `supervisor.lifecycle.approving` decides when one is asked."""

from __future__ import annotations

from typing import Any

from shared.wire.approval import ApprovalOf
from shared.wire.events import ApprovalAsked, ApprovalEvent, ApprovalReminded, JobStatus, PlanMade, Recorded, Rejected
from shared.wire.mode import Mode
from supervisor.lifecycle.state import JobState, Phase, Question, RejectedPlan, Remark, StepState
from supervisor.lifecycle.steps import again

ONCE = (ApprovalOf.PLAN, ApprovalOf.COST)
"""What stays approved when an ended job is retried: its plan stays, and so does what it has cost."""


def planned(made: PlanMade) -> dict[str, Any]:
    """A plan, and its steps before their first attempt."""
    return {"plan": made, "steps": {outline.id: StepState(outline=outline) for outline in made.steps}}


def asked_anew(state: JobState) -> dict[str, Any]:
    """When an ended job is retried."""
    approved = tuple(what for what in state.approved if what in ONCE)
    return {"question": None, "approved": approved, "rejected": None, "rejected_plans": (), "reworks": 0, "waited_s": 0.0}


def heard(state: JobState, event: ApprovalEvent, recorded: Recorded) -> dict[str, Any]:
    """Asked, reminded, answered. What speaks of a question that does not stand any more changes nothing."""
    question = state.question
    if isinstance(event, ApprovalAsked):
        until = recorded.at + event.wait_s
        asked = Question(what=event.what, version=recorded.version, at=recorded.at, until=until)
        return {"question": asked, "status": JobStatus.RUNNING}
    if question is None or event.asked != question.version:
        return {}
    if isinstance(event, ApprovalReminded):
        return {"question": question.model_copy(update={"reminders": event.number})}
    answered = {"question": None, "waited_s": state.waited_s + max(0.0, recorded.at - question.at)}
    if isinstance(event, Rejected):
        return answered | _rejected(state.model_copy(update=answered), question.what, event, recorded.at)
    edited = planned(event.plan) if event.plan and question.what is ApprovalOf.PLAN else {}
    return {**answered, **edited, "approved": (*state.approved, question.what)}


def _rejected(state: JobState, what: ApprovalOf, event: Rejected, at: float) -> dict[str, Any]:
    """`state`: with the wait added to its time."""
    is_last = state.spent is not None or at >= state.deadline
    match what:
        case ApprovalOf.PLAN if not is_last and _may_be_planned_again(state) and state.plan:
            rejected = (*state.rejected_plans, RejectedPlan(plan=state.plan.plan, note=event.note))
            return {"plan": None, "steps": {}, "phase": Phase.PLANNING, "mode": Mode.TEAM, "rejected_plans": rejected}
        case ApprovalOf.RESEARCH | ApprovalOf.ANSWER if not is_last and state.may_send_back:
            again = _done_again(state, event)
            return {"steps": again, "phase": Phase.WORKING, "synthesised": None, "reworks": state.reworks + 1}
        case _:
            return {"rejected": what}


def _may_be_planned_again(state: JobState) -> bool:
    """By a planner, that is: of what code plans, it would make the same."""
    is_planners = state.mode is Mode.TEAM or state.routed is not None
    return is_planners and len(state.rejected_plans) < state.submitted.limits.max_rounds


def _done_again(state: JobState, event: Rejected) -> dict[Any, StepState]:
    named = frozenset(event.steps) & state.steps.keys() or frozenset(state.sinks)
    steps = dict(state.steps)
    for step_id in {*named, *state.downstream(named)}:
        step = steps[step_id]
        own = {"result": event.note} if step_id in named else {"follows": True}
        steps[step_id] = again(step, Remark(author="user", previous=step.result, **own))
    return steps
