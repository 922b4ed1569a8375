"""Events of the journal: approvals, and the union of all events.

A journal is a list of these events, and is the only source of truth about a job. New fields
have a default, so that a newer version can read the journals of an older version.

Events do not contain long texts of users, models or tools. An event refers to such a text as a
payload or as a `HandoffResult`, and `supervisor.lifecycle.result_texts` reads it there. The
titles of jobs and steps are exceptions, for lists and Flower.

An `Approved` or `Rejected` names the version of its question in the journal (`asked`). A late
or second answer has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffIdField, StepIdField
from handoff_queue.shared.types.job_events import (
    BY_SCHEDULE,
    OPEN_STATUSES,
    CancelRequested,
    Continuation,
    DecisionAsked,
    EndTaskTried,
    EventRefused,
    Fork,
    JobEnded,
    JobEvent,
    JobStatus,
    JobSubmitted,
    KeptStep,
    Parent,
    ParentTold,
    Quoted,
    RetryRequested,
    Routed,
    UserMessageSent,
    UserMessageTaken,
    WebhookTried,
)
from handoff_queue.shared.types.job_options import MAX_WAIT_S, ApprovalOf
from handoff_queue.shared.types.message import (
    NO_PAYLOAD_IN_ERRORS,
    Message,
    OmitNone,
    describe_problems,
)
from handoff_queue.shared.types.names import DEFAULT_TENANT
from handoff_queue.shared.types.origins import Origins
from handoff_queue.shared.types.step_events import (
    LAST,
    AbandonedStep,
    AnswerMethod,
    Arbitrated,
    Child,
    ConditionsChecked,
    ConflictsFound,
    CountedFanIn,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    Judged,
    NeedsResolved,
    PlanMade,
    PlanPatched,
    Reviewed,
    StepEvent,
    StepOutline,
    StepRetry,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesized,
)

MAX_CALL_REASON_CHARS = 5_000
"""Characters of the reason of a question about a call. The policy of tools writes at most 4,900:
the name of the tool, and 64 origins of up to 69 characters.
"""
CallName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
"""The name of a tool, or the id of a call, as the provider takes it. A worker writes both, and they
go to webhooks and terminals.
"""


class CallInQuestion(Message):
    """A call of a tool that waits for a person's approval."""

    handoff_id: HandoffIdField
    call_id: CallName
    """The id of the call in the model's reply."""
    tool: CallName
    arguments: BlobRef
    """The arguments, as JSON."""
    input_schema: BlobRef
    """The JSON Schema that edited arguments must match."""
    origins: dict[str, Origins] = Field(default_factory=dict)
    """Origins of the texts that contain each argument."""


class AnsweredCall(Message):
    """The call of a tool that an answer is about. The signature of the answer covers it."""

    handoff_id: HandoffIdField
    call_id: str


class ApprovalAsked(Message):
    """The job waits for a person to approve or reject."""

    type: Literal["approval_asked"] = "approval_asked"
    what: ApprovalOf
    why: str
    wait_s: Annotated[int, Field(ge=1, le=MAX_WAIT_S)]
    """Longest wait in seconds. A worker that was taken over may write any number, and no float
    holds a number of 400 digits.
    """
    steps: tuple[StepIdField, ...] = ()
    """Steps that failed, or steps that are ready to begin."""
    draft: BlobRef | None = None
    """The `shared.types.answer.Answer` to approve, as JSON."""
    call: Annotated[CallInQuestion | None, OmitNone] = None
    """The call of a tool; None: the question is about something else."""

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        """Refuse a question about a call that is also about a plan, an answer or steps: a worker
        asks about calls only. Refuse a long reason, too, because the worker writes the reason.
        """
        if self.call is None:
            return self
        if self.what is not ApprovalOf.TOOLS or self.steps or self.draft:
            raise ValueError("a question about a call must be about nothing else")
        # with more, a person would read words of the worker in place of the arguments
        if len(self.why) > MAX_CALL_REASON_CHARS or not self.why.isprintable():
            raise ValueError("the reason of a question about a call must be one short line")
        return self


class ApprovalReminded(Message):
    """A person was reminded, because there is no answer yet."""

    type: Literal["approval_reminded"] = "approval_reminded"
    asked: PositiveInt
    number: NonNegativeInt
    """1 for the first reminder of this question. 0: the job's webhook was told about a call."""


class Approved(Message):
    """The question was approved, and the job continues."""

    type: Literal["approved"] = "approved"
    asked: PositiveInt
    by: Literal["user", "timeout"] = "user"
    note: BlobRef | None = None
    steps: tuple[StepIdField, ...] = ()
    """Steps that may begin; empty: all steps of the question."""
    plan: PlanMade | None = None
    """Plan that replaces the plan in question."""
    arguments: Annotated[BlobRef | None, OmitNone] = None
    """Arguments, as JSON, that replace the arguments of the call in question."""
    call: Annotated[AnsweredCall | None, OmitNone] = None
    """The call of a tool; None: the question is about something else."""
    actor: Annotated[Actor | None, OmitNone] = None


class Rejected(Message):
    """A person rejected the question."""

    type: Literal["rejected"] = "rejected"
    asked: PositiveInt
    note: BlobRef | None = None
    """The person's feedback: the changes that are needed."""
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again; empty: the steps that make the answer."""
    own_plan: BlobRef | None = None
    """The `shared.types.plan.Plan` of the person, as JSON: a draft for the planner."""
    call: Annotated[AnsweredCall | None, OmitNone] = None
    """The call of a tool; None: the question is about something else."""
    actor: Annotated[Actor | None, OmitNone] = None


ApprovalEvent = ApprovalAsked | ApprovalReminded | Approved | Rejected


Event = JobEvent | StepEvent | ApprovalEvent
_adapter: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="type")], config=NO_PAYLOAD_IN_ERRORS
)


@dataclass(frozen=True, slots=True)
class HandoffEnd:
    """The end of a handoff as the store has noted it."""

    fence: str
    """SHA-1 of the fence of the claim that ended the handoff. A child job's fence is its id."""
    version: int
    """Version of the journal after the end."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event in its place in the journal."""

    version: int
    """Place in the journal; 1 for the first event."""
    at: float
    """Unix time in seconds, by Redis's clock."""
    event: Event
    raw: bytes = field(default=b"", compare=False, repr=False)
    """The event as the journal holds it, with its signature; empty if this process wrote it."""
    end: HandoffEnd | None = field(default=None, compare=False, repr=False)
    """The end of the handoff that the event ends; None: the reader has not read it."""
    problem: str = field(default="", compare=False, repr=False)
    """Why this version cannot read the event, which is then an `EventRefused`; empty if it can."""


def parse_event(text: str | bytes) -> Event:
    """Parse an event.

    Raises:
        MalformedMessage: the text is not an event.
    """
    try:
        return _adapter.validate_json(text)
    except ValidationError as error:
        raise MalformedMessage(f"event: {describe_problems(error)}") from error


__all__ = [
    "BY_SCHEDULE",
    "DEFAULT_TENANT",
    "LAST",
    "OPEN_STATUSES",
    "AbandonedStep",
    "AnswerMethod",
    "AnsweredCall",
    "ApprovalAsked",
    "ApprovalEvent",
    "ApprovalReminded",
    "Approved",
    "Arbitrated",
    "CallInQuestion",
    "CancelRequested",
    "Child",
    "ConditionsChecked",
    "ConflictsFound",
    "Continuation",
    "CountedFanIn",
    "DecisionAsked",
    "EndTaskTried",
    "Event",
    "EventRefused",
    "FactsChecked",
    "Fork",
    "GatesChecked",
    "HandoffFinished",
    "HandoffIssued",
    "JobEnded",
    "JobEvent",
    "JobStatus",
    "JobSubmitted",
    "Judged",
    "KeptStep",
    "NeedsResolved",
    "Parent",
    "ParentTold",
    "PlanMade",
    "PlanPatched",
    "Quoted",
    "RecordedEvent",
    "Rejected",
    "RetryRequested",
    "Reviewed",
    "Routed",
    "StepEvent",
    "StepOutline",
    "StepRetry",
    "StepsAbandoned",
    "StepsTriedAgain",
    "Synthesized",
    "UserMessageSent",
    "UserMessageTaken",
    "WebhookTried",
    "parse_event",
]
