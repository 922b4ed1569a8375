"""What a retry asks for, and when it would come to nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shared.wire.errors import UserError
from shared.wire.events import JobStatus, RetryRequested
from shared.wire.ids import StepId
from shared.wire.limits import NewLimits
from shared.wire.usage import cost_usd
from supervisor.lifecycle.state import JobState


def retry_of(state: JobState, used: Mapping[str, int], from_step: str | None, new: NewLimits) -> RetryRequested:
    """The event, if something can come of it. `used`: what the job has spent, by the limit that counts it.

    Raises:
        UserError: it has not ended, all of it is ok, no such step, a limit below what is spent, a budget that is spent and stays as it is.
    """
    if not state.ended and not state.asked:
        raise UserError(f"{state.job_id} has not ended yet: cancel it first, or wait")
    if from_step is not None and from_step not in state.steps:
        raise UserError(f"{state.job_id} has no step {from_step}: its steps are {', '.join(state.steps) or 'not planned yet'}")
    if from_step is None and state.ended and state.status is JobStatus.OK:
        raise UserError(f"{state.job_id} is ok, all of it: --from STEP does a part of it again (its steps are {', '.join(state.steps)})")
    asked = {name: value for name in used if (value := getattr(new, name)) is not None}
    for name, value in asked.items():
        if value <= used[name]:
            raise UserError(f"{state.job_id} has used {_amount(name, used[name])} already: give it more than that")
    if not asked and state.spent_its_own:
        limits = state.submitted.limits
        books = ", ".join(
            f"{_amount(name, value)} of {_amount(name, most)}" for name, value in used.items() if (most := getattr(limits, name))
        )
        raise UserError(f"the budget of {state.job_id} is spent ({books}): raise it with --max-turns N or --max-usd X")
    return RetryRequested(from_step=StepId(from_step) if from_step else None, **asked)


def _amount(name: str, value: int) -> str:
    return f"${cost_usd(value):.6g}" if name == "max_microusd" else f"{value} {name.removeprefix('max_')}"
