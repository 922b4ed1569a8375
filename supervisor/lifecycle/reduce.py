"""The reducer: evolve(state, event) -> state. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, assert_never

from handoff_queue.shared.types.errors import UnusableSubmission
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    ApprovalEvent,
    Arbitrated,
    CancelRequested,
    ConditionsChecked,
    ConflictsFound,
    DecisionAsked,
    EndTaskTried,
    EventRefused,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    JobEnded,
    JobEvent,
    JobStatus,
    JobSubmitted,
    Judged,
    NeedsResolved,
    ParentTold,
    PlanMade,
    PlanPatched,
    Quoted,
    RecordedEvent,
    RetryRequested,
    Reviewed,
    Routed,
    StepEvent,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesized,
    UserMessageSent,
    UserMessageTaken,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import BUDGETS, StopReason
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.origins import get_origins, union
from handoff_queue.shared.types.review import Decision
from handoff_queue.supervisor.lifecycle.approval_events import (
    apply_approval_event,
    apply_plan,
    find_open_call_questions,
    update_call_questions,
)
from handoff_queue.supervisor.lifecycle.child_jobs import record_child_job
from handoff_queue.supervisor.lifecycle.conflict_resolution import apply_conflicts
from handoff_queue.supervisor.lifecycle.fact_gate import (
    apply_check_result,
    apply_facts_checked,
    without_outcome,
)
from handoff_queue.supervisor.lifecycle.forks import (
    get_fork_approvals,
    get_fork_specialists,
    keep_results,
)
from handoff_queue.supervisor.lifecycle.job_retry import (
    drop_kept_answer,
    get_first_phase,
    rebuild_kept_steps,
    reduce_retry,
)
from handoff_queue.supervisor.lifecycle.origins import find_step_origins
from handoff_queue.supervisor.lifecycle.persistent_map import to_persistent_map
from handoff_queue.supervisor.lifecycle.replanning import remember_event, with_patch
from handoff_queue.supervisor.lifecycle.review_arbitration import apply_arbitration
from handoff_queue.supervisor.lifecycle.state import (
    NOTHING_KEPT,
    AttemptFeedback,
    Delivery,
    JobState,
    Phase,
    StepStatus,
)
from handoff_queue.supervisor.lifecycle.step_index import update_step_index
from handoff_queue.supervisor.lifecycle.step_state import (
    abandon_steps,
    apply_conditions,
    reopen_step,
    resolve_steps,
    retry_steps,
    send_back_answer,
    with_result,
)
from handoff_queue.supervisor.lifecycle.user_messages import apply_issue, apply_message_event
from handoff_queue.supervisor.lifecycle.verified_usage import clamp_to_limits


def fold(job_id: JobId, state: JobState | None, events: Iterable[RecordedEvent]) -> JobState | None:
    """Return the state after all events; None if there are none."""
    remaining = iter(events)
    if state is None:
        first = next(remaining, None)
        if first is None:
            return None
        state = begin(job_id, first)
    return fold_on(state, remaining)


def fold_pages(
    job_id: JobId, state: JobState | None, pages: Iterable[Iterable[RecordedEvent]]
) -> JobState | None:
    """Return the state after the events of all pages; None if there are none."""
    for events in pages:
        state = fold(job_id, state, events)
    return state


def fold_on(state: JobState, events: Iterable[RecordedEvent]) -> JobState:
    """Return the state after more events. The step index is updated once, after all events."""
    later = state
    for recorded in events:
        later = _apply_event(later, recorded)
    if later is state:
        return state
    return later.model_copy(update={"step_index": update_step_index(state, later)})


def begin(job_id: JobId, recorded: RecordedEvent) -> JobState:
    """Return the first state.

    Raises:
        UnusableSubmission: the journal does not begin with the submission.
    """
    if not isinstance(recorded.event, JobSubmitted):
        raise UnusableSubmission.for_job(job_id)
    submitted = recorded.event
    return JobState(
        job_id=job_id,
        version=recorded.version,
        as_of=recorded.at,
        tip=recorded.at,
        submitted=submitted,
        started_at=recorded.at,
        mode=submitted.mode,
        phase=get_first_phase(submitted.mode),
        specialists=get_fork_specialists(submitted),
        approved=get_fork_approvals(submitted),
    )


def evolve(state: JobState, recorded: RecordedEvent) -> JobState:
    """Return the state after one event. No event is refused, because the journal's events are
    facts.

    Raises:
        KeyError: no plan has the step of the event: an internal error, or a changed journal.
    """
    return fold_on(state, (recorded,))


def _apply_event(state: JobState, recorded: RecordedEvent) -> JobState:
    """Return the state after one event, with the step index of the state before the event."""
    changes: dict[str, Any] = {"version": recorded.version, "tip": recorded.at}
    if isinstance(recorded.event, EventRefused):
        return state.model_copy(update=changes)
    recorded = _with_possible_time(state, recorded)
    changes["as_of"] = recorded.at
    if state.is_only_asking:
        changes["waited_s"] = state.waited_s + max(0.0, recorded.at - state.as_of)
    changes |= _build_changes(state, recorded)
    if state.mode is Mode.ADAPTIVE:
        changes["patches"] = remember_event(state, recorded.event)
    if state.asked_calls and "open" in changes:
        changes["asked_calls"] = find_open_call_questions(state, changes["open"])
    for name in ("steps", "open"):
        if name in changes:
            changes[name] = to_persistent_map(changes[name])
    return state.model_copy(update=changes)


def _with_possible_time(state: JobState, recorded: RecordedEvent) -> RecordedEvent:
    """Return an event with a possible time. No signature holds for the time of an event, and a
    worker that was taken over may write any time of its events.

    An event of a worker has the time of the event before it if its own time is earlier, or after
    the deadline. So has a result of a handoff that is not open.
    """
    event, at = recorded.event, recorded.at
    if isinstance(event, HandoffFinished):
        is_late = event.handoff_id not in state.open
    elif isinstance(event, UserMessageTaken) or (isinstance(event, ApprovalAsked) and event.call):
        is_late = False
    else:
        return recorded
    if is_late or not state.as_of <= at <= state.deadline:
        return replace(recorded, at=state.as_of)
    return recorded


def _build_changes(state: JobState, recorded: RecordedEvent) -> dict[str, Any]:
    """Return the fields of the state that an event changes."""
    event = recorded.event
    if isinstance(event, ApprovalEvent):
        calls = update_call_questions(state, event, recorded)
        if calls is not None:
            return {"asked_calls": calls}
        return apply_approval_event(state, event, recorded)
    if isinstance(event, JobEvent):
        return _build_job_changes(state, event, recorded)
    return _build_step_changes(state, event, recorded.at)


def _build_job_changes(state: JobState, event: JobEvent, recorded: RecordedEvent) -> dict[str, Any]:  # noqa: PLR0911 (one case an event)
    match event:
        case JobSubmitted() | EventRefused():
            return {}
        case Routed():
            return {"mode": event.mode, "routed": event, "phase": Phase.PLANNING, "fruitless": 0}
        case Quoted():
            return {"quote": event.quote, "retries_when_quoted": state.retries}
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
            return {"cancelled_by": state.cancelled_by if state.ended else event.by}
        case RetryRequested():
            return reduce_retry(state, event, recorded.at)
        case DecisionAsked():
            return {"asked_at": recorded.at}
        case WebhookTried():
            return {"webhook": _apply_delivery_attempt(state, state.webhook, event, recorded.at)}
        case EndTaskTried():
            return {"end_task": _apply_delivery_attempt(state, state.end_task, event, recorded.at)}
        case ParentTold():
            # a report before the end is about an earlier end
            return {"parent_told": state.parent_told or state.ended is not None}
        case UserMessageSent() | UserMessageTaken():
            return apply_message_event(state, event, recorded.version)
        case _:
            assert_never(event)


def _apply_delivery_attempt(
    state: JobState, before: Delivery, event: WebhookTried | EndTaskTried, at: float
) -> Delivery:
    """Return the delivery of a report about the job's end after an attempt. An attempt to report
    an earlier end, before a retry, changes nothing.
    """
    if event.end != state.ended_version:
        return before
    return Delivery(
        attempts=event.attempt,
        tried_at=at,
        delivered=event.delivered,
        under_way=event.under_way,
    )


def _build_step_changes(state: JobState, event: StepEvent, at: float) -> dict[str, Any]:  # noqa: PLR0911 (one case an event)
    match event:
        case HandoffIssued():
            return _apply_handoff_issued(state, event, at)
        case HandoffFinished():
            return _apply_handoff_finished(state, event, at)
        case PlanMade() | PlanPatched() | NeedsResolved():
            return {**_build_plan_changes(state, event), "fruitless": 0}
        case StepsAbandoned():
            return abandon_steps(state, event)
        case ConditionsChecked():
            return apply_conditions(state, event)
        case StepsTriedAgain():
            return {"steps": state.steps | retry_steps(state, event)}
        case ConflictsFound() | Judged():
            return apply_conflicts(state, event)
        case Arbitrated():
            return apply_arbitration(state, event, at)
        case Reviewed() | Synthesized() | GatesChecked() | FactsChecked():
            return _build_answer_changes(state, event, at)
        case _:
            assert_never(event)


def _build_plan_changes(
    state: JobState, event: PlanMade | PlanPatched | NeedsResolved
) -> dict[str, Any]:
    match event:
        case PlanMade():
            changes = {**apply_plan(event), "phase": Phase.WORKING}
            if state.submitted.fork is None:
                return changes
            return changes | keep_results(state, event, changes["steps"])
        case PlanPatched():
            return with_patch(state, event)
        case NeedsResolved():
            return resolve_steps(state, event)


def _build_answer_changes(
    state: JobState, event: Reviewed | Synthesized | GatesChecked | FactsChecked, at: float
) -> dict[str, Any]:
    match event:
        case Reviewed():
            return {**_apply_review(state, event, at), "fruitless": 0, "kept": NOTHING_KEPT}
        case Synthesized():
            return {
                "synthesized": event,
                "phase": Phase.ANSWERING,
                "open": state.get_open_without(Role.SYNTHESIZER),
                "fruitless": 0,
                "kept": NOTHING_KEPT,
                "gated": None,
                "fact_checks": without_outcome(state),
            }
        case GatesChecked():
            if event.is_sent_back:
                return send_back_answer(state, event, at)
            return {"gated": event}
        case FactsChecked():
            return apply_facts_checked(state, event, at)


def _apply_handoff_issued(state: JobState, event: HandoffIssued, at: float) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "status": JobStatus.RUNNING,
        "open": state.open | {event.handoff_id: event},
        "handoffs": state.handoffs + 1,
        "specialists": {**state.specialists, event.assigned_to: event.specialist},
        "messages": apply_issue(state, event),
    }
    if not state.open:
        changes["verified_usage"] = state.verified_usage.model_copy(update={"busy_since": at})
    if event.group:
        changes["groups"] = max(state.groups, int(event.group[1:]))
    if event.is_role_handoff or event.is_fact_check:
        return {**changes, "role_attempts": {**state.role_attempts, event.step_id: event.attempt}}
    step = state.steps[event.step_id]
    given_to = None
    if event.assigned_to != step.outline.specialist:
        given_to = event.assigned_to
    child_job = step.child_job
    if event.child:
        child_job = record_child_job(state, event.step_id, event.child)
    running = step.model_copy(
        update={
            "status": StepStatus.RUNNING,
            "began_at": at,
            "waited_before_s": state.waited_s,
            "given_to": given_to,
            "attempt": event.attempt,
            "handoff_id": event.handoff_id,
            "child_job": child_job,
            "acted": bool(event.acts),
            "gaps_only": False,
        }
    )
    return {**changes, "steps": state.steps | {event.step_id: running}}


def _apply_handoff_finished(state: JobState, event: HandoffFinished, at: float) -> dict[str, Any]:
    """Return the changes after a result. A result of a handoff that was abandoned before only
    counts for the usage.
    """
    issued = state.open.get(event.handoff_id)
    event = clamp_to_limits(event, issued, state.submitted.limits)
    changes: dict[str, Any] = {
        "open": state.open.without(event.handoff_id),
        "usage": state.usage + event.usage,
        "verified_usage": state.verified_usage.with_result(event, at, is_open=issued is not None),
        "turns": state.turns + event.turns,
        "spent_its_own": state.spent_its_own or event.stop_reason is StopReason.JOB_BUDGET,
        "models": tuple(dict.fromkeys((*state.models, *event.models))),
        "origins": union(state.origins, get_origins(event.origins)),
    }
    if issued is None:
        return changes
    if event.stop_reason in BUDGETS:
        changes["spent"] = state.spent or event.stop_reason
    if issued.is_fact_check:
        return changes | apply_check_result(state, event)
    if issued.is_role_handoff:
        return changes | _apply_role_result(state, event, issued.assigned_to)
    return changes | _apply_step_result(state, event, issued.step_id)


def _apply_role_result(state: JobState, event: HandoffFinished, role: str) -> dict[str, Any]:
    cost = event.usage.cost_microusd or 0
    changes: dict[str, Any] = {"role_costs": {**state.role_costs, role: cost}}
    if event.stop_reason not in BUDGETS:
        # the effects of its result come next in the same commit, and reset the count
        changes["fruitless"] = state.fruitless + 1
    return changes


def _apply_step_result(state: JobState, event: HandoffFinished, step_id: StepId) -> dict[str, Any]:
    """Return the changes after a result of a step. Kept steps that depend on it run again."""
    step = state.steps[step_id]
    # a worker that was taken over may leave out the origins of the inputs
    inputs = find_step_origins(state, step_id, (*step.outline.depends_on, *step.outline.given))
    origins = union(step.origins, get_origins(event.origins), inputs)
    ended_step = with_result(step.model_copy(update={"origins": origins}), event)
    reopened = rebuild_kept_steps(state, event, step_id)
    return {
        "origins": union(state.origins, origins),
        "steps": state.steps | {step_id: ended_step} | reopened,
        **drop_kept_answer(state, event, reopened),
    }


def _apply_review(state: JobState, event: Reviewed, at: float) -> dict[str, Any]:
    """Return the changes after a review: its steps and their dependents run again, or the
    review is over.
    """
    changes: dict[str, Any] = {
        "rounds": (*state.rounds, event),
        "open": state.get_open_without(Role.ASSESSOR),
    }
    acted = {step_id for step_id, step in state.steps.items() if step.acted}
    may_revise = (
        event.decision is Decision.REVISE
        and state.may_send_back
        and state.spent is None
        and not event.repeats_earlier_revisions
        and not acted.issuperset(event.steps)
    )
    if not may_revise:
        phase = Phase.WORKING if state.unsettled_steps else Phase.SYNTHESIZING
        return {**changes, "phase": phase, "review_over": True}
    revised_steps = frozenset(state.steps.keys() & {*event.steps} - acted)
    if state.arbitrated:  # points that the judge settled for the writer are not revised again
        revised_steps -= {*state.arbitrated.writer} & {*event.repeats}
    steps = dict(state.steps)
    for step_id in {*revised_steps, *state.find_downstream(revised_steps)}:
        step = steps[step_id]
        remark = AttemptFeedback(author="assessor", result=event.result, previous=step.result)
        steps[step_id] = reopen_step(step, remark)
    return {**changes, "steps": steps, "reworks": state.reworks + 1, "sent_back_at": at}
