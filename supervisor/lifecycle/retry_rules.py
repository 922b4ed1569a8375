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
    *,
    whole: bool = False,
) -> RetryRequested:
    """Return the event of a retry.

    Args:
        used: spending of the job, by the limit that counts it.
        whole: True to fill all gaps, also gaps that its joins tolerate.

    Raises:
        UserError: the job is a child, has not ended, or is complete; the step does not exist; a
            limit is below the spending; the budget stays spent; or a team's slice would be too
            small again.
    """
    if state.submitted.parent:
        raise UserError(
            f"{state.job_id} does a step of {state.submitted.parent.job_id}: {'finish' if whole else 'retry'} that job"
        )
    if not state.ended and state.asked_at is None:
        raise UserError(f"{state.job_id} has not ended yet: cancel it first, or wait")
    if from_step is not None and from_step not in state.steps:
        raise UserError(
            f"{state.job_id} has no step {from_step}: its steps are {', '.join(state.steps) or 'not planned yet'}"
        )
    if whole and all(step.is_whole for step in state.steps.values()):
        raise UserError(f"{state.job_id} has no gaps: `handoff retry` does a part of it again")
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
        whole=whole,
        holds=from_step is None,
        **asked,
    )


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
