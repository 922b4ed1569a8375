"""Rules of a retry: its event, and the cases in which it would have no effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.supervisor.lifecycle.budget import amount
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.step_failure import had_too_small_a_slice


def retry_of(
    state: JobState,
    used: Mapping[str, int],
    from_step: str | None,
    new: NewLimits,
) -> RetryRequested:
    """Return the event that continues the job.

    A job whose answer has gaps fills the gaps and waits for every step, also where a join could
    do without one. Any other job runs again the steps that did not succeed.

    Args:
        used: usage of the job, by the name of the limit that counts it.

    Raises:
        UserError: the job is a child, has not ended, is `ok`, or has no such step; a new limit
            is below the usage; or the budget of the job or of one of its teams stays spent.
    """
    if state.submitted.parent:
        raise UserError(
            f"{state.job_id} does a step of {state.submitted.parent.job_id}: retry that job"
        )
    if not state.ended and state.asked_at is None:
        raise UserError(f"{state.job_id} has not ended yet: cancel it first, or wait")
    if from_step is not None and from_step not in state.steps:
        raise UserError(
            f"{state.job_id} has no step {from_step}: its steps are {', '.join(state.steps) or 'not planned yet'}"
        )
    if from_step is None and state.ended and state.status is JobStatus.OK:
        raise UserError(
            f"{state.job_id} is complete: --from STEP runs a part again (its steps are {', '.join(state.steps)})"
        )
    asked = {name: value for name in used if (value := getattr(new, name)) is not None}
    for name, value in asked.items():
        if value <= used[name]:
            raise UserError(
                f"{state.job_id} has used {amount(name, used[name])} already: give it more than that"
            )
    if not asked and state.spent_its_own:
        limits = state.submitted.limits
        books = ", ".join(
            f"{amount(name, value)} of {amount(name, most)}"
            for name, value in used.items()
            if (most := getattr(limits, name))
        )
        raise UserError(
            f"the budget of {state.job_id} is spent ({books}): raise it with --max-job-turns N or --max-usd X"
        )
    if not asked and state.ended and (teams := ", ".join(_cut_short(state, from_step))):
        why = f"the budget of {state.job_id} leaves too small a share for the team of {teams}"
        raise UserError(f"{why}: raise it with --max-job-turns N or --max-usd X")
    return RetryRequested(
        from_step=StepId(from_step) if from_step else None,
        whole=from_step is None and _has_gaps(state),
        holds=from_step is None,
        **asked,
    )


def _has_gaps(state: JobState) -> bool:
    """Return whether the job ended with an answer that lacks a step or a part of a step."""
    is_complete = all(step.is_whole for step in state.steps.values())
    return state.status is JobStatus.PARTIAL and not is_complete


def _cut_short(state: JobState, from_step: str | None) -> list[StepId]:
    """Return the steps whose teams would start again and reach the end of the same slice. A team
    with an answer only fills its gaps, with a new slice.
    """
    if from_step:
        again = {from_step}
    else:
        again = {step_id for step_id, step in state.steps.items() if not step.usable}
    return [
        step_id
        for step_id, step in state.steps.items()
        if step_id in again and had_too_small_a_slice(step)
    ]
