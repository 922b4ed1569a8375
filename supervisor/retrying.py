"""What a retry asks for, and when it would come to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.ledger.jobs import JobStanding
from shared.ledger.journal import Commit
from shared.wire.errors import UserError
from shared.wire.events import HandoffFinished, JobStatus, JobSubmitted, PlanMade, Recorded, RetryRequested
from shared.wire.handoff import StopReason
from shared.wire.ids import StepId
from shared.wire.limits import JobLimits, raised
from supervisor.submission import books_of


@dataclass(frozen=True, slots=True)
class NewLimits:
    """Of the whole job, from its beginning. None: as it was."""

    max_turns: int | None = None
    max_tokens: int | None = None
    max_microusd: int | None = None


def retry_commit(events: Sequence[Recorded], books: JobStanding, from_step: str | None, new: NewLimits, due_at: float) -> Commit:
    """The decision to go on, made on this journal and no other: of two at once, one finds that the job has not ended any more.

    `due_at`: Unix time in seconds at which a sweeper looks, should the wake-up be lost.

    Raises:
        UserError: see `retry_of`.
    """
    event, last = retry_of(events, books, from_step, new), events[-1]
    status = JobStatus.RUNNING if any(isinstance(one.event, PlanMade) for one in events) else JobStatus.QUEUED
    fields = {"status": status.value, "cancelled": "", "asks": "", **books_of(event)}
    return Commit(job_id=books.job_id, expected=last.version, tip=last.at, events=[event], fields=fields, due_at=due_at)


def retry_of(events: Sequence[Recorded], books: JobStanding, from_step: str | None, new: NewLimits) -> RetryRequested:
    """The event, if something can come of it.

    Raises:
        UserError: no such step, a limit below what is spent, or a budget that is spent and stays as it is.
    """
    steps = next(([step.id for step in one.event.steps] for one in reversed(events) if isinstance(one.event, PlanMade)), [])
    if from_step is not None and from_step not in steps:
        raise UserError(f"{books.job_id} has no step {from_step}: its steps are {', '.join(steps) or 'not planned yet'}")
    spent = {"max_turns": books.turns, "max_tokens": books.input_tokens + books.output_tokens, "max_microusd": books.cost_microusd or 0}
    asked = {name: value for name in spent if (value := getattr(new, name)) is not None}
    for name, value in asked.items():
        if value <= spent[name]:
            raise UserError(f"{books.job_id} has used {_amount(name, spent[name])} already: give it more than that")
    if not asked and _ended_by_its_budget(events):
        limits = _limits(events)
        used = ", ".join(
            f"{_amount(name, used)} of {_amount(name, most)}" for name, used in spent.items() if (most := getattr(limits, name))
        )
        raise UserError(f"the budget of {books.job_id} is spent ({used}): raise it with --max-turns N or --max-usd X")
    return RetryRequested(from_step=StepId(from_step) if from_step else None, **asked)


def _amount(name: str, value: int) -> str:
    return f"${value / 1_000_000:.6g}" if name == "max_microusd" else f"{value} {name.removeprefix('max_')}"


def _ended_by_its_budget(events: Sequence[Recorded]) -> bool:
    """Since the submission, or the latest retry."""
    for recorded in reversed(events):
        match recorded.event:
            case HandoffFinished(stop_reason=StopReason.JOB_BUDGET):
                return True
            case RetryRequested():
                return False
    return False


def _limits(events: Sequence[Recorded]) -> JobLimits:
    submitted = events[0].event
    assert isinstance(submitted, JobSubmitted)
    limits = submitted.limits
    for recorded in events:
        if isinstance(recorded.event, RetryRequested):
            limits = raised(limits, recorded.event)
    return limits
