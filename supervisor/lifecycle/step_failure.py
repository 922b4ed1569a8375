"""Consequences of a failed step: another attempt, another specialist, or a gap."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.events import SecondChance
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.plan import OnFailure
from handoff_queue.supervisor.lifecycle.commands import Command, PublishAgain, RunRole, StartChild
from handoff_queue.supervisor.lifecycle.joins import is_wanted
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.routing import GENERALIST
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus


def recoveries(state: JobState, seen: Observations, now: float) -> tuple[Command, ...]:
    """Return the commands that publish lost messages, run lost roles and begin child jobs again."""
    again: list[HandoffId] = []
    commands: list[Command] = []
    for handoff_id, observed in seen.handoffs.items():
        issued = state.open.get(handoff_id)
        if issued is None or observed.held:
            continue
        abandoned = observed.state == "running" and (observed.lease_until or 0.0) < now
        if issued.child:
            if observed.state == "issued":
                commands.append(StartChild(handoff_id))
        elif issued.group is None:
            if abandoned or (observed.state == "issued" and (observed.lost or not observed.queued)):
                commands.append(RunRole(handoff_id))
        elif abandoned or (observed.state == "issued" and observed.lost):
            again.append(handoff_id)
    return (
        (PublishAgain(tuple(again)), *commands) if again else tuple(commands)
    )  # running a role takes as long as its model does


MOST_RETRIES = 2
"""Retries of one step by its planned specialist."""
RETRIED = frozenset({StopReason.FINISHED, StopReason.INVALID_OUTPUT})
"""Stop reasons that lead to a retry. An agent that reports a failure, or fails the output format,
may succeed with feedback. The agent loop has already retried a silent provider, and a limit
would be reached again.
"""
GIVEN_AWAY = RETRIED | {StopReason.REFUSED}
"""Stop reasons that lead to another specialist, which has other instructions."""
SLICES = frozenset({StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.MAX_USD})
"""Stop reasons of a team whose slice of the job's budget is spent. One agent needs less than a
team, and the job has more than the slice.
"""


def second_chances(state: JobState, seen: Observations, now: float) -> tuple[SecondChance, ...]:
    """Return the steps that get another attempt now."""
    if state.spent is not None or now >= state.working_deadline:
        return ()
    unusable = ((step_id, state.steps[step_id]) for step_id in state.overview.unusable)
    failed = ((step_id, step) for step_id, step in unusable if _may_try(state, step_id, step))
    chances = [chance for step_id, step in failed if (chance := _chance(step_id, step, seen))]
    if chances:
        return _wanted(state, chances, now)
    return ()


def _wanted(
    state: JobState, chances: Sequence[SecondChance], now: float
) -> tuple[SecondChance, ...]:
    """Return the chances for steps that a fan-in still needs. Steps with the same dependents are
    checked once.
    """
    dependents, known = state.dependents, dict[frozenset[StepId], bool]()
    for chance in chances:
        if (waiting := dependents[chance.step]) not in known:
            known[waiting] = is_wanted(state, waiting, now)
    return tuple(chance for chance in chances if known[dependents[chance.step]])


def has_failed(step: StepState) -> bool:
    """Return whether the step failed by itself and was not abandoned."""
    may_be_done_by_others = step.stop_reason in GIVEN_AWAY or had_too_small_a_slice(step)
    return step.is_settled and step.result_status is ResultStatus.FAILED and may_be_done_by_others


def had_too_small_a_slice(step: StepState) -> bool:
    """Return whether a team did the step last, and its slice of the budget ended it. The same slice
    would end it again.
    """
    return step.specialist == SUB_SUPERVISOR and step.stop_reason in SLICES


def steps_to_ask_about(state: JobState, seen: Observations, now: float) -> tuple[StepId, ...]:
    """Return the steps that need a person: no other specialist can try them, or they need
    information that the planner does not have. Child jobs ask no person.
    """
    if state.submitted.parent:
        return ()
    unusable = ((step_id, state.steps[step_id]) for step_id in state.overview.unusable)
    return tuple(
        step_id
        for step_id, step in unusable
        if step.outline.on_failure is OnFailure.ASK
        and not step.is_let_go
        and _is_stuck(step_id, step, seen)
        if _is_unused(state, step_id) and is_wanted(state, state.dependents[step_id], now)
    )


def reason_of_failure(state: JobState, steps: Sequence[StepId]) -> str:
    """Return the reason for the question about steps that failed, in words of our own."""
    acted: list[StepId] = []
    for step_id in steps:
        if state.steps[step_id].acted:
            acted.append(step_id)
    named = f"; {', '.join(acted)} may have acted already: name the step to run it again"
    return (
        f"{', '.join(steps)} failed: approve to continue without a result, or reject with a note to"
        f" try again{named if acted else ''}"
    )


def _may_try(state: JobState, step_id: StepId, step: StepState) -> bool:
    return (
        has_failed(step)
        and not step.acted
        and step.outline.on_failure is not OnFailure.DROP
        and _is_unused(state, step_id)
    )


def _is_unused(state: JobState, step_id: StepId) -> bool:
    """Return whether no dependent has begun to use its outcome."""
    return all(
        state.steps[waiting].status is StepStatus.WAITING
        or waiting in state.held.steps  # which only has its earlier outcome
        for waiting in state.dependents[step_id]
    )


def _is_stuck(step_id: StepId, step: StepState, seen: Observations) -> bool:
    is_needy = step.is_settled and step.result_status is ResultStatus.NEEDS_INPUT
    return is_needy or (has_failed(step) and (step.acted or _chance(step_id, step, seen) is None))


def _chance(step_id: StepId, step: StepState, seen: Observations) -> SecondChance | None:
    """Return the next chance of a step. `failures` counts the failures of its first specialist; any
    other specialist tries once.
    """
    is_child = (
        step.outline.specialist == SUB_SUPERVISOR
    )  # its steps had their own second chances; then the generalist has one
    if step.stop_reason in RETRIED and step.failures <= MOST_RETRIES and not is_child:
        return SecondChance(step=step_id)
    others = (*seen.able(step.outline.specialist), *({GENERALIST} & seen.roles))
    untried = None
    for name in others:
        if name not in step.tried and name != step.outline.specialist:
            untried = name
            break
    if untried:
        return SecondChance(step=step_id, specialist=untried)
    return None
