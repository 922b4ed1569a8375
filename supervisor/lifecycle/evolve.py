"""evolve(state, event) -> state: what an event makes true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from shared.wire.errors import MalformedMessage
from shared.wire.events import (
    ApprovalEvent,
    CancelRequested,
    ConflictsFound,
    DecisionAsked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobEvent,
    JobStatus,
    JobSubmitted,
    Judged,
    NeedsResolved,
    PlanMade,
    Recorded,
    RetryRequested,
    Reviewed,
    Routed,
    StepEvent,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesised,
    WebhookTried,
)
from shared.wire.handoff import BUDGETS, ResultStatus, StopReason
from shared.wire.ids import HandoffId, JobId, StepId
from shared.wire.limits import raised
from shared.wire.mode import Mode
from shared.wire.names import ROLES
from shared.wire.verdict import Decision
from supervisor.lifecycle.approved import asked_anew, heard, planned
from supervisor.lifecycle.disputes import judged_well, looked_into
from supervisor.lifecycle.state import JobState, Phase, Remark, StepState, StepStatus
from supervisor.lifecycle.steps import again, resolved, stood_in_for, with_result


def fold(job_id: JobId, state: JobState | None, events: Iterable[Recorded]) -> JobState | None:
    """The state after all of these events; None: there are none."""
    for recorded in events:
        state = begin(job_id, recorded) if state is None else evolve(state, recorded)
    return state


def fold_on(state: JobState, events: Iterable[Recorded]) -> JobState:
    """The state after more events."""
    for recorded in events:
        state = evolve(state, recorded)
    return state


def begin(job_id: JobId, recorded: Recorded) -> JobState:
    """Raises: MalformedMessage: a journal that does not begin with the submission."""
    if not isinstance(recorded.event, JobSubmitted):
        raise MalformedMessage(f"the journal of {job_id} does not begin with job_submitted")
    submitted = recorded.event
    return JobState(
        job_id=job_id,
        version=recorded.version,
        as_of=recorded.at,
        submitted=submitted,
        started_at=recorded.at,
        mode=submitted.mode,
        phase=_first_phase(submitted.mode),
    )


def evolve(state: JobState, recorded: Recorded) -> JobState:
    """One event further. It refuses none: what the journal holds has happened. (One that speaks of a step that no plan has is a KeyError: a
    defect of ours, or a journal that was tampered with.)"""
    return state.model_copy(update={"version": recorded.version, "as_of": recorded.at, **_changes(state, recorded)})


def _changes(state: JobState, recorded: Recorded) -> dict[str, Any]:
    event = recorded.event
    if isinstance(event, ApprovalEvent):
        return heard(state, event, recorded)
    return _of_job(state, event, recorded) if isinstance(event, JobEvent) else _of_steps(state, event)


def _of_job(state: JobState, event: JobEvent, recorded: Recorded) -> dict[str, Any]:  # noqa: PLR0911 (one case an event)
    match event:
        case JobSubmitted():
            return {}
        case Routed():
            return {"mode": event.mode, "routed": event, "phase": Phase.PLANNING, "fruitless": 0}
        case JobEnded():
            return {
                "ended": event,
                "ended_version": recorded.version,
                "phase": Phase.ENDED,
                "status": event.status,
                "open": {},
                "question": None,
            }
        case CancelRequested():
            return {} if state.ended else {"cancel_requested": True}
        case RetryRequested():
            return _retried(state, event, recorded.at)
        case DecisionAsked():
            return {"asked": True}
        case WebhookTried():
            if event.end and event.end != state.ended_version:
                return {}  # it was under way when the user retried: the end that comes has not been posted
            return {
                "webhook_attempts": event.attempt,
                "webhook_delivered": event.delivered,
                "webhook_under_way": event.under_way,
                "webhook_tried_at": recorded.at,
            }
        case _:
            assert_never(event)


def _of_steps(state: JobState, event: StepEvent) -> dict[str, Any]:  # noqa: PLR0911 (one case an event)
    match event:
        case HandoffIssued():
            return _issued(state, event)
        case HandoffFinished():
            return _finished(state, event)
        case PlanMade():
            return {**planned(event), "phase": Phase.WORKING, "fruitless": 0}
        case NeedsResolved():
            return {"steps": resolved(state, event), "fruitless": 0}
        case ConflictsFound() | Judged():
            return looked_into(state, event)
        case Reviewed():
            return {**_reviewed(state, event), "fruitless": 0}
        case StepsAbandoned():
            return _abandoned(state, event)
        case StepsTriedAgain():
            return {"steps": _tried_again(state, event)}
        case Synthesised():
            return {"synthesised": event, "phase": Phase.ANSWERING, "open": _without(state, "synthesizer"), "gated": None, "fruitless": 0}
        case GatesChecked():
            return _gated(state, event)
        case _:
            assert_never(event)


def _issued(state: JobState, event: HandoffIssued) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "status": JobStatus.RUNNING,
        "open": {**state.open, event.handoff_id: event},
        "handoffs": state.handoffs + 1,
        "specialists": {**state.specialists, event.assigned_to: event.specialist},
    }
    if event.group is None:
        changes["role_attempts"] = {**state.role_attempts, event.assigned_to: event.attempt}
        return changes
    step = state.steps[event.step_id]
    running = step.model_copy(update={"status": StepStatus.RUNNING, "attempt": event.attempt, "handoff_id": event.handoff_id})
    changes["steps"] = {**state.steps, event.step_id: running}
    changes["groups"] = max(state.groups, int(event.group[1:]))
    return changes


def _finished(state: JobState, event: HandoffFinished) -> dict[str, Any]:
    issued = state.open.get(event.handoff_id)
    model = event.model
    changes: dict[str, Any] = {
        "open": {handoff_id: handoff for handoff_id, handoff in state.open.items() if handoff_id != event.handoff_id},
        "usage": state.usage + event.usage,
        "turns": state.turns + event.turns,
        "spent_its_own": state.spent_its_own or event.stop_reason is StopReason.JOB_BUDGET,
        "models": state.models if model is None or model in state.models else (*state.models, model),
    }
    if issued is None:
        return changes
    if event.stop_reason in BUDGETS:
        changes["spent"] = state.spent or event.stop_reason
    if issued.assigned_to in ROLES and event.stop_reason in BUDGETS:
        return changes
    if issued.assigned_to in ROLES:  # what follows from its result comes next, and with it
        return {**changes, "fruitless": state.fruitless + 1}
    step = state.steps[issued.step_id]
    changes["steps"] = {**state.steps, issued.step_id: with_result(step, event)}
    return changes


def _reviewed(state: JobState, event: Reviewed) -> dict[str, Any]:
    rounds, still_open = (*state.rounds, event), _without(state, "assessor")
    if event.decision is not Decision.REVISE or not state.may_send_back or state.spent or event.goes_in_circles:
        return {"rounds": rounds, "phase": Phase.SYNTHESISING, "open": still_open}
    steps = dict(state.steps)
    named = frozenset(event.steps) & steps.keys()
    for step_id in {*named, *state.downstream(named)}:
        step = steps[step_id]
        steps[step_id] = again(step, Remark(author="assessor", result=event.result, previous=step.result))
    return {"rounds": rounds, "steps": steps, "open": still_open, "reworks": state.reworks + 1}


def _abandoned(state: JobState, event: StepsAbandoned) -> dict[str, Any]:
    steps, abandoned = dict(state.steps), {item.step for item in event.steps}
    for item in event.steps:
        step = steps[item.step]
        failed = {"status": StepStatus.SETTLED, "result": item.result, "result_status": ResultStatus.FAILED, "trouble": item.result}
        given_up = step.model_copy(update={**failed, "stop_reason": None})
        steps[item.step] = stood_in_for(step, item.result, None) if step.sent_back else given_up
    still_open = {handoff_id: handoff for handoff_id, handoff in state.open.items() if handoff.step_id not in abandoned}
    return {"steps": steps, "open": still_open}


def _gated(state: JobState, event: GatesChecked) -> dict[str, Any]:
    if not event.is_sent_back:
        return {"gated": event}
    sent_back = {"synthesised": None, "gate_rounds": state.gate_rounds + 1}
    if not event.steps:
        return {**sent_back, "phase": Phase.SYNTHESISING, "turned_down": event.result}
    remarks = {step_id: Remark(author="gate", result=event.result, previous=state.steps[step_id].result) for step_id in event.steps}
    steps = state.steps | {step_id: again(state.steps[step_id], remark) for step_id, remark in remarks.items()}
    return {**sent_back, "phase": Phase.WORKING, "steps": steps, "reworks": state.reworks + state.is_reviewed}


def _tried_again(state: JobState, event: StepsTriedAgain) -> dict[StepId, StepState]:
    steps = dict(state.steps)
    for item in event.steps:
        step = steps[item.step]
        remark = Remark(author="supervisor", result=step.result, previous=step.result)
        steps[item.step] = again(step, remark).model_copy(update={"given_to": item.specialist or step.given_to})
    return steps


def _without(state: JobState, role: str) -> dict[HandoffId, HandoffIssued]:
    """The open handoffs, but for those of a role whose answer is no longer waited for."""
    return {handoff_id: handoff for handoff_id, handoff in state.open.items() if handoff.assigned_to != role}


def _retried(state: JobState, event: RetryRequested, at: float) -> dict[str, Any]:
    if not state.ended:
        return _gone_on(state, event) if state.asked else {}
    roots = {step_id for step_id, step in state.steps.items() if step.status is not StepStatus.SETTLED}  # nothing comes of these any more
    if event.from_step in state.steps:
        roots.add(event.from_step)
    elif event.from_step is None:
        roots |= {step_id for step_id, step in state.steps.items() if step.result_status is not ResultStatus.OK}
    steps = dict(state.steps)
    for step_id in {*roots, *state.downstream(frozenset(roots))}:
        step = steps[step_id]
        steps[step_id] = again(step, Remark(author="user", previous=step.result) if step.result else None)
    return {
        "status": state.status_again,
        "phase": _first_phase(state.mode) if state.plan is None else Phase.WORKING,
        "steps": steps,
        "started_at": at,
        "submitted": state.submitted.model_copy(update={"limits": raised(state.submitted.limits, event)}),
        "handoffs": 0,
        "fruitless": 0,
        "spent": None,
        "spent_its_own": False,
        "asked": False,
        "rounds_before": len(state.rounds),
        "judged": judged_well(state),
        **asked_anew(state),
        "synthesised": None,
        "gated": None,
        "gate_rounds": 0,
        "turned_down": None,
        "ended": None,
        "ended_version": 0,
        "cancel_requested": False,
        "webhook_attempts": 0,
        "webhook_delivered": False,
        "webhook_under_way": False,
    }


def _gone_on(state: JobState, event: RetryRequested) -> dict[str, Any]:
    """Where it stood: only what its budget had stopped is done again. Its time has run on."""
    steps = dict(state.steps)
    for step_id, step in state.steps.items():
        if step.status is StepStatus.SETTLED and step.stop_reason in BUDGETS:
            steps[step_id] = again(step, Remark(author="user", previous=step.result) if step.result else None)
    return {
        "status": state.status_again,
        "steps": steps,
        "spent": None,
        "spent_its_own": False,
        "asked": False,
        "judged": judged_well(state),
        "submitted": state.submitted.model_copy(update={"limits": raised(state.submitted.limits, event)}),
    }


def _first_phase(mode: Mode) -> Phase:
    """Of a job that has no plan."""
    return Phase.ROUTING if mode is Mode.AUTO else Phase.PLANNING
