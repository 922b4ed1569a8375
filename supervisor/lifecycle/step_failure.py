"""Consequences of a failed step or a lost handoff: another attempt, another specialist, a
question to a person, or a gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.events import StepRetry
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.step import OnFailure
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    Command,
    PublishAgain,
    RunRole,
    StartChild,
)
from handoff_queue.supervisor.lifecycle.joins import is_wanted
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.routing import GENERALIST
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus

MAX_RETRIES = 2
"""Failures of a step up to which its current specialist retries it."""
RETRIED = frozenset({StopReason.FINISHED, StopReason.INVALID_OUTPUT})
"""Stop reasons after which the same specialist retries. An agent that reports a failure, or an
output of the wrong form, may succeed with feedback. The agent loop has already retried failed
model calls, and a retry would reach a limit again.
"""
REASSIGNED = RETRIED | {StopReason.REFUSED}
"""Stop reasons after which another specialist, with other instructions, tries the step."""
SLICE_SPENT = frozenset(measure.stop_reason for measure in MEASURES)
"""Stop reasons of a child job whose slice of the job's budget is spent. One agent, which needs less
than a child job, may then do the step with the rest of the job's budget.
"""


QUEUE_IS_REFUSED = (
    "Redis does not let the supervisors use the queue of {}: correct the name, or add this"
    " specialist to the Redis users"
)


def build_recoveries(
    state: JobState, observations: Observations, now: float
) -> tuple[Command, ...]:
    """Return the commands that publish lost handoffs of steps again, run lost roles and start
    missing child jobs.
    """
    lost: list[HandoffId] = []
    commands: list[Command] = []
    for handoff_id, observed in observations.handoffs.items():
        issued = state.open.get(handoff_id)
        if issued is None or observed.waits:
            continue
        is_unclaimed = observed.state == "issued"
        is_abandoned = observed.state == "running" and (observed.lease_until or 0.0) < now
        if issued.child:
            if is_unclaimed:
                commands.append(StartChild(handoff_id))
        elif issued.group is None:
            has_message = observed.queued and not observed.lost
            if is_abandoned or (is_unclaimed and not has_message):
                commands.append(RunRole(handoff_id))
        elif issued.assigned_to in observations.refused_queues:
            continue  # `abandon_refused_steps` ends its step
        elif is_abandoned or (is_unclaimed and observed.lost):
            lost.append(handoff_id)
    if lost:  # first, because running a role takes as long as its model does
        return (PublishAgain(tuple(lost)), *commands)
    return tuple(commands)


def abandon_refused_steps(
    state: JobState, observations: Observations, ready: Sequence[StepId]
) -> tuple[AbandonSteps, ...]:
    """Return the commands that end the steps of specialists whose queue Redis refuses: steps that
    could begin, and steps whose message is lost. Empty if there are none.
    """
    if not observations.refused_queues:
        return ()
    steps_by_queue: dict[str, list[StepId]] = {}
    for step_id in ready:
        specialist = state.steps[step_id].specialist
        if specialist in observations.refused_queues:
            steps_by_queue.setdefault(specialist, []).append(step_id)
    for handoff_id, observed in observations.handoffs.items():
        issued = state.open.get(handoff_id)
        is_refused = issued is not None and issued.assigned_to in observations.refused_queues
        if issued is not None and is_refused and observed.lost and issued.step_id in state.steps:
            steps_by_queue.setdefault(issued.assigned_to, []).append(issued.step_id)
    commands: list[AbandonSteps] = []
    for queue, step_ids in steps_by_queue.items():
        commands.append(AbandonSteps(tuple(step_ids), QUEUE_IS_REFUSED.format(queue)))
    return tuple(commands)


def find_step_retries(
    state: JobState, observations: Observations, now: float
) -> tuple[StepRetry, ...]:
    """Return the steps that get another attempt now."""
    if state.spent is not None or now >= state.working_deadline:
        return ()
    retries: list[StepRetry] = []
    for step_id in state.step_index.unusable:
        step = state.steps[step_id]
        if not _may_try(state, step_id, step):
            continue
        retry = _build_step_retry(step_id, step, observations)
        if retry:
            retries.append(retry)
    return _select_needed_retries(state, retries, now)


def _select_needed_retries(
    state: JobState, retries: Sequence[StepRetry], now: float
) -> tuple[StepRetry, ...]:
    """Return the retries of the steps that a fan-in still needs. Steps with the same dependents
    are checked once.
    """
    wanted_retries: list[StepRetry] = []
    known: dict[frozenset[StepId], bool] = {}
    for retry in retries:
        dependents = state.dependents[retry.step]
        if dependents not in known:
            known[dependents] = is_wanted(state, dependents, now)
        if known[dependents]:
            wanted_retries.append(retry)
    return tuple(wanted_retries)


def has_failed(step: StepState) -> bool:
    """Return whether the step failed for a reason after which another attempt may succeed."""
    may_succeed = step.stop_reason in REASSIGNED or had_too_small_slice(step)
    return step.is_settled and step.result_status is ResultStatus.FAILED and may_succeed


def had_too_small_slice(step: StepState) -> bool:
    """Return whether a child job did the step last, and its slice of the budget ended it. The same
    slice would end it again.
    """
    return step.specialist == CHILD_JOB_SPECIALIST and step.stop_reason in SLICE_SPENT


def find_steps_to_ask_about(
    state: JobState, observations: Observations, now: float
) -> tuple[StepId, ...]:
    """Return the failed steps with `on_failure: ask` that need a person: no specialist can try
    them again, or the planner could not answer their question. Child jobs ask no person.
    """
    if state.submitted.parent:
        return ()
    step_ids: list[StepId] = []
    for step_id in state.step_index.unusable:
        step = state.steps[step_id]
        may_ask = step.outline.on_failure is OnFailure.ASK and not step.is_released
        if (
            may_ask
            and _is_stuck(step_id, step, observations)
            and _is_unused(state, step_id)
            and is_wanted(state, state.dependents[step_id], now)
        ):
            step_ids.append(step_id)
    return tuple(step_ids)


def describe_failure(state: JobState, steps: Sequence[StepId]) -> str:
    """Return the text of the question about failed steps."""
    reason = (
        f"{', '.join(steps)} failed: approve to continue without a result, or reject with a note to"
        " try again"
    )
    acted_steps = [step_id for step_id in steps if state.steps[step_id].acted]
    if acted_steps:
        reason += (
            f"; {', '.join(acted_steps)} may have acted already: name the step to run it again"
        )
    return reason


def _may_try(state: JobState, step_id: StepId, step: StepState) -> bool:
    return (
        has_failed(step)
        and not step.acted
        and step.outline.on_failure is not OnFailure.DROP
        and _is_unused(state, step_id)
    )


def _is_unused(state: JobState, step_id: StepId) -> bool:
    """Return whether no dependent has begun to use its outcome. A kept dependent uses only the
    earlier outcome.
    """
    dependents = state.dependents[step_id] - {*state.kept.steps}
    return all(state.steps[dependent].status is StepStatus.WAITING for dependent in dependents)


def _is_stuck(step_id: StepId, step: StepState, observations: Observations) -> bool:
    """Return whether the step has an unanswered question, or failed and no specialist may try
    it.
    """
    if step.is_settled and step.result_status is ResultStatus.NEEDS_INPUT:
        return True
    if not has_failed(step):
        return False
    return step.acted or _build_step_retry(step_id, step, observations) is None


def _build_step_retry(
    step_id: StepId, step: StepState, observations: Observations
) -> StepRetry | None:
    """Return the next attempt at a step; None if no specialist is left to try it.

    The current specialist retries up to MAX_RETRIES failures of the step. After that, the
    next specialist with the same capability tries it, and at last the generalist. A child job does
    not retry, because its own steps had second chances.
    """
    is_child = step.outline.specialist == CHILD_JOB_SPECIALIST
    if step.stop_reason in RETRIED and step.failures <= MAX_RETRIES and not is_child:
        return StepRetry(step=step_id)
    candidates = list(observations.list_able_specialists(step.outline.specialist))
    if GENERALIST in observations.specialists:
        candidates.append(GENERALIST)
    for name in candidates:
        if name not in step.tried and name != step.outline.specialist:
            return StepRetry(step=step_id, specialist=name)
    return None
