"""Rules of a retry: its event, and the retries that are refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.supervisor.lifecycle.job_budget import amount
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.step_failure import had_too_small_a_slice

RAISE_IT = "raise max_turns (--max-job-turns N) or max_microusd (--max-usd X)"


def retry_of(
    state: JobState,
    used: Mapping[str, int],
    from_step: str | None,
    new: NewLimits,
) -> RetryRequested:
    """Return the event that retries the job.

    Without `from_step`, a retry of a job whose answer has gaps fills the gaps. It waits for
    every step, also where a join could do without one. A retry of any other job runs again the
    steps that did not succeed.

    Args:
        used: usage of the job, by the name of the limit that counts it.
        from_step: the step that runs again with its dependents; None: all incomplete steps.
        new: new limits of the job.

    Raises:
        UserError: the job is a child, has not ended, is `ok`, or has no such step; a new limit
            is below the usage; or the budget of the job or of one of its teams stays spent.
    """
    if state.submitted.parent:
        raise UserError(
            f"{state.job_id} is a child job of {state.submitted.parent.job_id}: retry the"
            " parent job"
        )
    if not state.ended and state.asked_at is None:
        raise UserError(f"{state.job_id} has not ended yet: cancel it first, or wait")
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
    asked: dict[str, Any] = {}
    for name, value in used.items():
        limit = getattr(new, name)
        if limit is not None and limit <= value:
            raise UserError(
                f"{state.job_id} has used {amount(name, value)} already: give a higher limit"
            )
        if limit is not None:
            asked[name] = limit
    if not asked and state.spent_its_own:
        raise UserError(
            f"the budget of {state.job_id} is spent ({_used_parts(state, used)}): {RAISE_IT}"
        )
    if not asked and state.ended:
        teams = ", ".join(_cut_short(state, from_step))
        if teams:
            why = f"the budget of {state.job_id} leaves too small a share for the team of {teams}"
            raise UserError(f"{why}: {RAISE_IT}")
    return RetryRequested(
        from_step=StepId(from_step) if from_step else None,
        fills_gaps=from_step is None and _has_gaps(state),
        keeps_results=from_step is None,
        **asked,
    )


def check_gaps(state: JobState) -> None:
    """Check that the job ended with an answer that has gaps.

    Raises:
        UserError: the job has not ended, or its answer has no gaps.
    """
    if not state.ended:
        raise UserError(f"{state.job_id} has not ended yet: its gaps are known at its end")
    if not _has_gaps(state):
        raise UserError(
            f"{state.job_id} is {state.status}, and its answer has no gaps to fill: `retry` repeats"
            " failed steps, or a part of the job from a step"
        )


def _has_gaps(state: JobState) -> bool:
    """Return whether the job ended with an answer that lacks a step or a part of a step."""
    return state.status is JobStatus.PARTIAL and bool(state.incomplete_steps)


def _used_parts(state: JobState, used: Mapping[str, int]) -> str:
    """Return the usage of each limit that the job has: `12 turns of 12 turns, $0.5 of $0.4`."""
    parts: list[str] = []
    for name, value in used.items():
        limit = getattr(state.submitted.limits, name)
        if limit:
            parts.append(f"{amount(name, value)} of {amount(name, limit)}")
    return ", ".join(parts)


def _cut_short(state: JobState, from_step: str | None) -> list[StepId]:
    """Return the steps whose teams would start again and reach the end of the same slice. A
    team with an answer only fills its gaps, with a new slice.
    """
    step_ids: list[StepId] = []
    for step_id, step in state.steps.items():
        runs_again = step_id == from_step if from_step else not step.usable
        if runs_again and had_too_small_a_slice(step):
            step_ids.append(step_id)
    return step_ids
