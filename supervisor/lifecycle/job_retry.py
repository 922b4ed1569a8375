"""A retry of a job. The module has its event, the retries that are refused, and the steps that run
again. Other results stand until a dependency ends differently. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handoff_queue.shared.types.budget_measures import MEASURES, Measure
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import (
    HandoffFinished,
    JobStatus,
    JobSubmitted,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import BUDGETS, ResultStatus
from handoff_queue.shared.types.ids import StepId, parse_step_id
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits, NewLimits, raise_limits
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.supervisor.lifecycle.approval_events import ask_again_on_retry, clear_approvals
from handoff_queue.supervisor.lifecycle.conflict_resolution import keep_good_judgement
from handoff_queue.supervisor.lifecycle.fact_gate import reset_checks
from handoff_queue.supervisor.lifecycle.forks import get_fork_specialists
from handoff_queue.supervisor.lifecycle.helper_steps import find_helpers
from handoff_queue.supervisor.lifecycle.job_budget import find_spent_limits, format_amount
from handoff_queue.supervisor.lifecycle.state import (
    AttemptFeedback,
    Delivery,
    JobState,
    KeptResults,
    Phase,
    StepState,
    StepStatus,
)
from handoff_queue.supervisor.lifecycle.step_failure import had_too_small_slice
from handoff_queue.supervisor.lifecycle.step_state import reopen_step

USABLE = frozenset({ResultStatus.OK, ResultStatus.PARTIAL})


def build_retry(
    state: JobState,
    usage: Mapping[str, int],
    from_step: str | None,
    new: NewLimits,
) -> RetryRequested:
    """Return the event that retries the job.

    Without `from_step`, a retry of a job whose answer has gaps fills the gaps. It waits for
    every step, also where a join could do without one. A retry of any other job runs again the
    steps that did not succeed.

    Args:
        usage: usage of the job, by the name of the limit that counts it.
        from_step: the step that runs again with its dependents; None: all incomplete steps.
        new: new limits of the job.

    Raises:
        UserError: the job is a child, has not ended, is `ok`, or has no such step. Or a new limit
            is below the usage. Or the budget of the job or of one of its child jobs stays spent.
    """
    _check_can_be_retried(state, from_step)
    new_limits: dict[str, Any] = {}
    for name, used in usage.items():
        limit = getattr(new, name)
        if limit is None:
            continue
        if limit <= used:
            raise UserError(
                f"{state.job_id} has used {format_amount(name, used)} already: give a higher limit"
            )
        new_limits[name] = limit
    _check_budget_is_left(state, usage, new_limits, from_step)
    return RetryRequested(
        from_step=StepId(from_step) if from_step else None,
        fills_gaps=from_step is None and _has_gaps(state),
        keeps_results=from_step is None,
        **new_limits,
    )


def _check_can_be_retried(state: JobState, from_step: str | None) -> None:
    """Check that the job and the step can be retried.

    Raises:
        UserError: the job is a child, has not ended or has no such step. Or it is complete, and no
            step is named.
    """
    if state.submitted.parent:
        raise UserError(
            f"{state.job_id} is a child job of {state.submitted.parent.job_id}: retry the"
            " parent job"
        )
    if not state.ended and state.asked_at is None:
        raise UserError(
            f"{state.job_id} has not ended yet: wait for its end, or cancel it",
            command=f"handoff watch {state.job_id}",
        )
    if from_step is not None and from_step not in state.steps:
        raise UserError(
            f"{state.job_id} has no step {from_step}: its steps are"
            f" {', '.join(state.steps) or 'not planned yet'}"
        )
    if from_step is None and state.ended and state.status is JobStatus.OK:
        raise UserError(
            f"{state.job_id} is complete: from_step (--from STEP) runs a part again (its steps are"
            f" {', '.join(state.steps)})"
        )


def _check_budget_is_left(
    state: JobState, usage: Mapping[str, int], new: Mapping[str, int], from_step: str | None
) -> None:
    """Check that a retry would not stop at the same limits.

    Raises:
        UserError: the budget of the job is spent, or the slice of one of its child jobs.
    """
    limits = state.submitted.limits
    if state.spent_its_own:
        spent_limits = find_spent_limits(limits, usage)
        if not _is_one_raised(limits, spent_limits, new):
            spent = _describe_usage(state, usage)
            raise UserError(
                f"the budget of {state.job_id} is spent ({spent}): raise"
                f" {_name_limits(spent_limits)}"
            )
    steps = ", ".join(_cut_short(state, from_step)) if state.ended and not new else ""
    if steps:
        raise UserError(
            f"the budget of {state.job_id} leaves a child job of {steps} too small a share: raise"
            f" {_name_limits(MEASURES)}"
        )


def _is_one_raised(limits: JobLimits, measures: Sequence[Measure], new: Mapping[str, int]) -> bool:
    """Return whether a new limit is higher than the limit of one of these measures."""
    for measure in measures:
        limit, new_limit = measure.get_limit(limits), new.get(measure.limit)
        if limit is not None and new_limit is not None and new_limit > limit:
            return True
    return False


def _name_limits(measures: Sequence[Measure]) -> str:
    """Return the limits with their options: `max_turns (--max-turns N) or max_microusd ...`."""
    names = [f"{measure.limit} ({measure.option_with_value})" for measure in measures]
    return " or ".join(names)


def _has_gaps(state: JobState) -> bool:
    """Return whether the job ended with an answer that lacks a step or a part of a step."""
    return state.status is JobStatus.PARTIAL and bool(state.incomplete_steps)


def _describe_usage(state: JobState, usage: Mapping[str, int]) -> str:
    """Return the usage of each limit that the job has: `12 turns of 12 turns, $0.5 of $0.4`."""
    parts: list[str] = []
    for name, value in usage.items():
        limit = getattr(state.submitted.limits, name)
        if limit:
            parts.append(f"{format_amount(name, value)} of {format_amount(name, limit)}")
    return ", ".join(parts)


def _cut_short(state: JobState, from_step: str | None) -> list[StepId]:
    """Return the steps whose child jobs would start again and reach the end of the same slice. A
    team with an answer only fills its gaps, with a new slice.
    """
    step_ids: list[StepId] = []
    for step_id, step in state.steps.items():
        runs_again = step_id == from_step if from_step else not step.is_usable
        if runs_again and had_too_small_slice(step):
            step_ids.append(step_id)
    return step_ids


def reduce_retry(state: JobState, event: RetryRequested, at: float) -> dict[str, Any]:
    """Return the changes for a job that has ended, or that waits for its user to raise a
    budget; none for other jobs.
    """
    if not state.ended:
        if state.asked_at is not None:
            return _build_raised_budget_changes(state, event)
        return {}
    roots = _find_roots(state, event)
    downstream = state.find_downstream(roots) - roots
    kept_ids = frozenset[StepId]()
    keeps_answer = False
    if event.keeps_results and event.from_step is None:
        kept_ids = downstream
        keeps_answer = event.fills_gaps and bool(roots) and state.synthesized is not None
    kept_results = KeptResults(
        steps=tuple(step_id for step_id in state.steps if step_id in kept_ids),
        answer=keeps_answer,
        is_known_above=event.continuation is not None and event.continuation.is_known,
    )
    phase = Phase.WORKING if state.plan else get_first_phase(state.mode)
    steps = dict(state.steps)
    for step_id in {*roots, *downstream}:
        steps[step_id] = _without_failures(steps[step_id], event)
        if step_id not in kept_ids:
            steps[step_id] = _reset_for_attempt(steps[step_id], event)
    return {
        "status": _get_status_after_retry(state),
        "phase": phase,
        "steps": steps,
        "specialists": get_fork_specialists(state.submitted),
        "started_at": at,
        "submitted": _raise_limits(state, event),
        "handoffs": 0,
        "verified_usage": state.verified_usage.restart(),
        "retries": state.retries + 1,
        "waits_for_all": event.fills_gaps,
        "kept": kept_results,
        "fruitless": 0,
        "spent": None,
        "spent_its_own": False,
        "asked_at": None,
        **ask_again_on_retry(),
        **({} if keeps_answer else _without_answer(state)),
        "ended": None,
        "ended_version": 0,
        "cancelled_by": None,
        "parent_told": False,
        "end_task": Delivery(),
        "webhook": Delivery(),
    }


def rebuild_kept_steps(
    state: JobState, event: HandoffFinished, step_id: StepId
) -> dict[StepId, StepState]:
    """Return the kept steps that depend on this step, which has a different result.

    These steps run again. If they have different results too, so do their dependents. A
    failure is not a different result: the earlier outcome of the dependents stands.
    """
    if not state.kept.steps or event.status not in USABLE:
        return {}
    steps: dict[StepId, StepState] = {}
    for kept_id in state.dependents[step_id] & {*state.kept.steps}:
        step = state.steps[kept_id]
        if step.is_settled:
            remark = AttemptFeedback(author="user", previous=step.result, follows=True)
            steps[kept_id] = reopen_step(step, remark)
    return steps


def drop_kept_answer(
    state: JobState, event: HandoffFinished, reopened: Mapping[StepId, StepState]
) -> dict[str, Any]:
    """Return the changes that discard a kept answer after a different result of a step. A
    result of a helper step is in no answer, so it discards nothing unless kept steps run
    again.

    Args:
        reopened: the steps from `rebuild_kept_steps`.
    """
    if state.kept.is_nothing or event.status not in USABLE:
        return {}
    if not reopened and parse_step_id(event.handoff_id) in find_helpers(state):
        return {}
    changes: dict[str, Any] = {}
    if state.kept.answer:
        changes = _without_answer(state)
    kept_ids = tuple(kept_id for kept_id in state.kept.steps if kept_id not in reopened)
    return {**changes, "kept": KeptResults(steps=kept_ids)}


def in_doubt(state: JobState) -> frozenset[StepId]:
    """Return the kept steps that may have to run again, because a direct or indirect
    dependency has not ended.
    """
    if not state.kept.steps:
        return frozenset()
    return state.find_downstream(frozenset(state.unsettled_steps)) & {*state.kept.steps}


def answer_stands(state: JobState) -> bool:
    """Return whether a retry keeps the earlier answer, and no step has a different result so
    far.
    """
    return state.kept.answer and state.synthesized is not None


def get_first_phase(mode: Mode) -> Phase:
    """Return the first phase of a job without a plan."""
    if mode is Mode.AUTO:
        return Phase.ROUTING
    return Phase.PLANNING


def _find_roots(state: JobState, event: RetryRequested) -> frozenset[StepId]:
    """Return the steps at which the retry begins: the unsettled steps and the named step.
    Without a named step: the unsettled and the incomplete steps.
    """
    roots = set(state.unsettled_steps)
    if event.from_step is None:
        roots.update(state.incomplete_steps)
    elif event.from_step in state.steps:
        roots.add(event.from_step)
    return frozenset(roots)


def _without_failures(step: StepState, event: RetryRequested) -> StepState:
    """Return the step without its failures and the specialists that tried it. The planned
    specialist does it again. A child job gets its step again only if the retry raises
    a budget.
    """
    has_more = any(measure.get_limit(event) for measure in MEASURES)
    given_to = None
    if step.outline.specialist == CHILD_JOB_SPECIALIST and not has_more:
        given_to = step.given_to
    return step.model_copy(
        update={"failures": 0, "tried": (), "is_released": False, "given_to": given_to}
    )


def _reset_for_attempt(step: StepState, event: RetryRequested) -> StepState:
    """Return the step before another attempt. A child job that has received all feedback only
    fills its gaps. A step that may have acted runs again only if the user names it.
    """
    remark = None
    if step.result:
        remark = AttemptFeedback(author="user", previous=step.result)
    is_named = step.outline.id == event.from_step
    if step.acted and not is_named:
        return _keep_acted_step(step)
    gaps_only = event.keeps_results and step.child_job_knows_all
    return reopen_step(step, remark, is_named=is_named).model_copy(update={"gaps_only": gaps_only})


def _keep_acted_step(step: StepState) -> StepState:
    """Return a step that may have acted and does not run again. An unsettled step waits, and
    `find_blocked_steps` abandons it.
    """
    if step.is_settled:
        return step
    return step.model_copy(update={"status": StepStatus.WAITING})


def _raise_limits(state: JobState, event: RetryRequested) -> JobSubmitted:
    """Return the submission with its raised limits and, for a resumed child job, its new parent."""
    limits = raise_limits(state.submitted.limits, event)
    if event.continuation is None:
        return state.submitted.model_copy(update={"limits": limits})
    limits = limits.model_copy(update={"max_seconds": event.continuation.max_seconds})
    return state.submitted.model_copy(
        update={"limits": limits, "parent": event.continuation.parent}
    )


def _without_answer(state: JobState) -> dict[str, Any]:
    """Return the changes that discard the earlier answer."""
    return {
        "rounds_before": len(state.rounds),
        "judged": keep_good_judgement(state),
        "arbitrated": None,
        "review_over": False,
        "synthesized": None,
        **clear_approvals(state),
        **reset_checks(state),
    }


def _build_raised_budget_changes(state: JobState, event: RetryRequested) -> dict[str, Any]:
    """Return the changes for a job that continues after its user raised a budget. Only steps
    that a budget stopped run again, and the job's time was not stopped.
    """
    steps = dict(state.steps)
    for step_id, step in state.steps.items():
        if step.is_settled and step.stop_reason in BUDGETS:
            steps[step_id] = _reset_for_attempt(step, event)
    return {
        "status": _get_status_after_retry(state),
        "steps": steps,
        "spent": None,
        "spent_its_own": False,
        "asked_at": None,
        "judged": keep_good_judgement(state),
        "submitted": _raise_limits(state, event),
    }


def _get_status_after_retry(state: JobState) -> JobStatus:
    """Return the status of the continued job. A job without a plan has not begun."""
    if state.plan is None:
        return JobStatus.QUEUED
    return JobStatus.RUNNING
