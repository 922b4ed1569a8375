"""Events of the journal: approvals, and the union of all events.

What a person has written is a payload, like what a model has: an event refers to it. An answer
names the question that it is for, by its
version in the journal: one that comes late, or second, answers nothing.

Nothing that a model or a tool has written stands in an event: where its words matter, the
event refers to the HandoffResult that holds them (`supervisor.lifecycle.result_texts` reads
them there). Of a plan alone, names and first words of tasks are here, for lists and Flower.

A journal is a list of these; nothing else is true about a job. Fields are only ever added,
with a default, so that a newer version reads what an older one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, TypeAdapter, ValidationError

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.job_events import (
    DEFAULT_TENANT,
    CancelRequested,
    DecisionAsked,
    EndTaskTried,
    JobEnded,
    JobEvent,
    JobStatus,
    JobSubmitted,
    Parent,
    ParentTold,
    Quoted,
    RetryRequested,
    Routed,
    TakenUp,
    WebhookTried,
)
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import NO_PAYLOAD_IN_ERRORS, Message, problems_of
from handoff_queue.shared.types.step_events import (
    LAST,
    Abandoned,
    AnswerMethod,
    Arbitrated,
    Child,
    ConditionsChecked,
    ConflictsFound,
    Counted,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    Judged,
    NeedsResolved,
    PlanMade,
    PlanPatched,
    Reviewed,
    SecondChance,
    StepEvent,
    StepOutline,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesised,
)


class ApprovalAsked(Message):
    """The job waits until somebody has approved or rejected."""

    type: Literal["approval_asked"] = "approval_asked"
    what: ApprovalOf
    why: str
    wait_s: PositiveInt
    """It waits so long at most."""
    steps: tuple[StepIdField, ...] = ()
    """The steps that failed, or that are ready to begin."""
    draft: BlobRef | None = None
    """The `shared.types.answer.Answer` that would leave, as JSON."""


class ApprovalReminded(Message):
    """Nobody has answered yet."""

    type: Literal["approval_reminded"] = "approval_reminded"
    asked: PositiveInt
    number: PositiveInt
    """1 for the first reminder of this question."""


class Approved(Message):
    """The job may go on."""

    type: Literal["approved"] = "approved"
    asked: PositiveInt
    by: Literal["user", "timeout"] = "user"
    note: BlobRef | None = None
    steps: tuple[StepIdField, ...] = ()
    """The steps that may begin. Empty: all that were asked about."""
    plan: PlanMade | None = None
    """It takes the place of the plan that was asked about."""


class Rejected(Message):
    """It may not go on like this."""

    type: Literal["rejected"] = "rejected"
    asked: PositiveInt
    note: BlobRef | None = None
    """What is to be mended."""
    steps: tuple[StepIdField, ...] = ()
    """To do again; empty: those that make the answer."""
    own_plan: BlobRef | None = None
    """The `shared.types.plan.Plan` that the person would make, as JSON: a draft for the planner."""


ApprovalEvent = ApprovalAsked | ApprovalReminded | Approved | Rejected


Event = JobEvent | StepEvent | ApprovalEvent
_adapter: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="type")], config=NO_PAYLOAD_IN_ERRORS
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event in its place in the journal."""

    version: int
    """1 for the first."""
    at: float
    """Unix time in seconds, by Redis's clock."""
    event: Event


def parse_event(text: str | bytes) -> Event:
    """Raises: MalformedMessage."""
    try:
        return _adapter.validate_json(text)
    except ValidationError as error:
        raise MalformedMessage(f"event: {problems_of(error)}") from error


__all__ = [
    "DEFAULT_TENANT",
    "LAST",
    "Abandoned",
    "AnswerMethod",
    "ApprovalAsked",
    "ApprovalEvent",
    "ApprovalReminded",
    "Approved",
    "Arbitrated",
    "CancelRequested",
    "Child",
    "ConditionsChecked",
    "ConflictsFound",
    "Counted",
    "DecisionAsked",
    "EndTaskTried",
    "Event",
    "FactsChecked",
    "GatesChecked",
    "HandoffFinished",
    "HandoffIssued",
    "JobEnded",
    "JobEvent",
    "JobStatus",
    "JobSubmitted",
    "Judged",
    "NeedsResolved",
    "Parent",
    "ParentTold",
    "PlanMade",
    "PlanPatched",
    "Quoted",
    "Recorded",
    "Rejected",
    "RetryRequested",
    "Reviewed",
    "Routed",
    "SecondChance",
    "StepEvent",
    "StepOutline",
    "StepsAbandoned",
    "StepsTriedAgain",
    "Synthesised",
    "TakenUp",
    "WebhookTried",
    "parse_event",
]
