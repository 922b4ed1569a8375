"""Effects of a retry: the steps that run again, and the results that stand until a dependency ends
differently. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.types.events import (
    HandoffFinished,
    JobStatus,
    JobSubmitted,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import BUDGETS, ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import raise_limits
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.supervisor.lifecycle.approval_events import ask_again_on_retry, clear_approvals
from handoff_queue.supervisor.lifecycle.attempt_feedback import AttemptFeedback
from handoff_queue.supervisor.lifecycle.disputes import keep_good_judgement
from handoff_queue.supervisor.lifecycle.fact_gate import reset_checks
from handoff_queue.supervisor.lifecycle.input_steps import helpers_of
from handoff_queue.supervisor.lifecycle.state import (
    Delivery,
    Held,
    JobState,
    Phase,
    StepState,
    StepStatus,
)
from handoff_queue.supervisor.lifecycle.steps import again

USABLE = frozenset({ResultStatus.OK, ResultStatus.PARTIAL})


def reduce_retry(state: JobState, event: RetryRequested, at: float) -> dict[str, Any]:
    """Return the changes for a job that has ended, or waits for a decision; none for other jobs."""
    if not state.ended:
        if state.asked_at is not None:
            return _gone_on(state, event)
        return {}
    roots = _roots(state, event)
    downstream = state.downstream(roots) - roots
    holds = event.holds and event.from_step is None
    if holds:
        held = downstream
    else:
        held = frozenset()
    keeps_answer = holds and event.whole and bool(roots) and state.synthesised is not None
    is_known = event.taken_up is not None and event.taken_up.is_known
    steps = {**state.steps} | {
        step_id: _as_if_untried(state.steps[step_id], event) for step_id in {*roots, *downstream}
    }
    for step_id in {*roots, *downstream} - held:
        steps[step_id] = _done_again(steps[step_id], event)
    return {
        "status": _status_again(state),
        "phase": first_phase(state.mode) if state.plan is None else Phase.WORKING,
        "steps": steps,
        "started_at": at,
        "submitted": _submitted_again(state, event),
        "handoffs": 0,
        "retries": state.retries + 1,
        "waits_for_all": event.whole,
        "held": Held(
            steps=tuple(step_id for step_id in state.steps if step_id in held),
            answer=keeps_answer,
            is_known_above=is_known,
        ),
        "fruitless": 0,
        "spent": None,
        "spent_its_own": False,
        "asked_at": None,
        **ask_again_on_retry(),
        **({} if keeps_answer else _answered_anew(state)),
        "ended": None,
        "ended_version": 0,
        "cancelled_by": None,
        "parent_told": False,
        "end_task": Delivery(),
        "webhook_attempts": 0,
        "webhook_delivered": False,
        "webhook_under_way": False,
    }


def rebuild_held_steps(
    state: JobState, event: HandoffFinished, step_id: StepId
) -> dict[StepId, StepState]:
    """Return the held steps that depend on this step, which has a different result.

    They run again, and so do their dependents if they end differently, too. A failure is not a
    different result: the step's earlier outcome stands.
    """
    if not state.held.steps or event.status not in USABLE:
        return {}
    held = state.dependents[step_id] & {*state.held.steps}
    steps = {
        held_id: state.steps[held_id]
        for held_id in held
        if state.steps[held_id].status is StepStatus.SETTLED
    }
    return {
        held_id: again(step, AttemptFeedback(author="user", previous=step.result, follows=True))
        for held_id, step in steps.items()
    }


def drop_held_answer(
    state: JobState, event: HandoffFinished, again: Mapping[StepId, StepState]
) -> dict[str, Any]:
    """Return the other changes after a different result of a step: the answer is made again. A
    result of a helper step is in no answer.

    Args:
        again: the steps from `rebuild_held_steps`.
    """
    if state.held.is_nothing or event.status not in USABLE:
        return {}
    if not again and event.handoff_id.rpartition(".")[0] in helpers_of(state):
        return {}
    if state.held.answer:
        changes = _answered_anew(state)
    else:
        changes = {}
    return {
        **changes,
        "held": Held(steps=tuple(held_id for held_id in state.held.steps if held_id not in again)),
    }


def in_doubt(state: JobState) -> frozenset[StepId]:
    """Return the held steps that may have to run again, because a direct or indirect dependency has
    not ended.
    """
    if not state.held.steps:
        return frozenset()
    unsettled = frozenset(step_id for step_id, step in state.steps.items() if not step.is_settled)
    return state.downstream(unsettled) & {*state.held.steps}


def answer_stands(state: JobState) -> bool:
    """Return whether all parts of the answer are unchanged."""
    return state.held.answer and state.synthesised is not None


def first_phase(mode: Mode) -> Phase:
    """Return the first phase of a job without a plan."""
    if mode is Mode.AUTO:
        return Phase.ROUTING
    return Phase.PLANNING


def _roots(state: JobState, event: RetryRequested) -> frozenset[StepId]:
    """Return the steps at which the retry begins: the unsettled steps, and the named step, or else
    all incomplete steps.
    """
    roots = {step_id for step_id, step in state.steps.items() if not step.is_settled}
    if event.from_step is not None and event.from_step in state.steps:
        roots.add(event.from_step)
    elif event.from_step is None:
        roots |= {step_id for step_id, step in state.steps.items() if not step.is_whole}
    return frozenset(roots)


def _as_if_untried(step: StepState, event: RetryRequested) -> StepState:
    """Return the step as untried if the retry raises the budget that was too small for its team."""
    has_more = event.max_turns or event.max_tokens or event.max_microusd
    if has_more and step.outline.specialist == SUB_SUPERVISOR:
        to_the_team = {"given_to": None}
    else:
        to_the_team = {}
    return step.model_copy(update={"failures": 0, "tried": (), "is_let_go": False, **to_the_team})


def _done_again(step: StepState, event: RetryRequested) -> StepState:
    """Return the step for another attempt. A request for missing parts gives a team no new remarks.
    A remark that the team has not received is not a gap.
    """
    remark = None
    if step.result:
        remark = AttemptFeedback(author="user", previous=step.result)
    is_named = step.outline.id == event.from_step
    if step.acted and not is_named:
        return _not_again(step)
    gaps_only = event.holds and step.team_knows_all
    return again(step, remark, is_named=is_named).model_copy(update={"gaps_only": gaps_only})


def _not_again(step: StepState) -> StepState:
    """Return a step that may have acted. If it was not settled at the job's end, it waits again."""
    if step.is_settled:
        return step
    return step.model_copy(update={"status": StepStatus.WAITING})


def _submitted_again(state: JobState, event: RetryRequested) -> JobSubmitted:
    """Return the submission with its raised limits and, for a resumed child job, its new parent."""
    limits = raise_limits(state.submitted.limits, event)
    if event.taken_up is None:
        return state.submitted.model_copy(update={"limits": limits})
    limits = limits.model_copy(update={"max_seconds": event.taken_up.max_seconds})
    return state.submitted.model_copy(update={"limits": limits, "parent": event.taken_up.parent})


def _answered_anew(state: JobState) -> dict[str, Any]:
    """Return the changes that discard the earlier answer."""
    kept = {
        "rounds_before": len(state.rounds),
        "judged": keep_good_judgement(state),
        "arbitrated": None,
        "review_over": False,
        "synthesised": None,
    }
    return {**kept, **clear_approvals(state), **reset_checks(state)}


def _gone_on(state: JobState, event: RetryRequested) -> dict[str, Any]:
    """Return the changes for a job that continues at the same point: only steps that its budget
    stopped run again. Its time has passed on.
    """
    steps = dict(state.steps)
    for step_id, step in state.steps.items():
        if step.is_settled and step.stop_reason in BUDGETS:
            steps[step_id] = _done_again(step, event)
    return {
        "status": _status_again(state),
        "steps": steps,
        "spent": None,
        "spent_its_own": False,
        "asked_at": None,
        "judged": keep_good_judgement(state),
        "submitted": _submitted_again(state, event),
    }


def _status_again(state: JobState) -> JobStatus:
    """Return the status of the continued job. A job without a plan has not begun."""
    if state.plan is None:
        return JobStatus.QUEUED
    return JobStatus.RUNNING
