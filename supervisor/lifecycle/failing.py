"""What becomes of a step that failed: the same specialist again, told why; then the generalist; then the job goes on without it."""

from __future__ import annotations

from shared.wire.events import SecondChance
from shared.wire.handoff import ResultStatus, StopReason
from shared.wire.ids import StepId
from shared.wire.plan import OnFailure
from supervisor.lifecycle.beginning import GENERALIST
from supervisor.lifecycle.seen import Seen
from supervisor.lifecycle.state import JobState, StepState, StepStatus

MOST_RETRIES = 2
"""Of one step, by the specialist that it was planned for."""
RETRIED = frozenset({StopReason.FINISHED, StopReason.INVALID_OUTPUT})
"""Who says that it failed, or could not say it in the form that was asked for, may do better when told so. A provider that does not
answer was asked again by the agent loop, as often as makes sense; a limit would be reached again."""
GIVEN_AWAY = RETRIED | {StopReason.REFUSED}
"""Somebody else, with other instructions, may do better even so."""


def second_chances(state: JobState, seen: Seen, now: float) -> tuple[SecondChance, ...]:
    """Steps that get another attempt now."""
    if state.spent is not None or now >= state.working_deadline:
        return ()
    failed = [(step_id, step) for step_id, step in state.steps.items() if _may_try(state, step_id, step)]
    return tuple(chance for step_id, step in failed if (chance := _chance(step_id, step, seen)))


def has_failed(step: StepState) -> bool:
    """Of its own, not because it was given up."""
    return step.status is StepStatus.SETTLED and step.result_status is ResultStatus.FAILED and step.stop_reason in GIVEN_AWAY


def _may_try(state: JobState, step_id: StepId, step: StepState) -> bool:
    """Nobody has begun to build on the failure."""
    return (
        has_failed(step)
        and step.outline.on_failure is OnFailure.RETRY
        and all(state.steps[waiting].status is StepStatus.WAITING for waiting in state.dependents[step_id])
    )


def _chance(step_id: StepId, step: StepState, seen: Seen) -> SecondChance | None:
    if step.stop_reason in RETRIED and step.failures <= MOST_RETRIES:
        return SecondChance(step=step_id)
    if step.given_to is None and GENERALIST in seen.roles and step.outline.specialist != GENERALIST:
        return SecondChance(step=step_id, specialist=GENERALIST)
    return None
