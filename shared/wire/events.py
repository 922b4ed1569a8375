"""What can happen to a job, in the past tense. Small: ids, digests, figures, and words of our own; payloads are blobs.

Nothing that a model or a tool has written stands in an event: where its words matter, the event refers to the HandoffResult that holds
them (`supervisor.lifecycle.words` reads them there). Of a plan alone, names and first words of tasks are here, for lists and Flower.

A journal is a list of these; nothing else is true about a job. Fields are only ever added, with a default, so that a newer version reads
what an older one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from shared.wire.errors import MalformedMessage
from shared.wire.handoff import BlobRef, ResultStatus, StopReason
from shared.wire.ids import Digest, HandoffIdField, NameField, StepIdField
from shared.wire.limits import JobLimits, NewLimits
from shared.wire.message import NO_PAYLOAD_IN_ERRORS, Message, problems_of
from shared.wire.plan import Synthesis
from shared.wire.usage import Usage
from shared.wire.verdict import Decision

DEFAULT_TENANT = "default"
"""Whose a job is when nobody says so."""


class JobStatus(StrEnum):
    """How a job stands, for its users."""

    QUEUED = "queued"
    """Accepted; no supervisor has looked at it."""
    RUNNING = "running"
    OK = "ok"
    PARTIAL = "partial"
    """There is an answer, with named gaps or open points."""
    FAILED = "failed"
    """There is no answer; the reason is given."""
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


class JobSubmitted(Message):
    """A user asked for something."""

    type: Literal["job_submitted"] = "job_submitted"
    request: BlobRef
    title: str
    """The first words of the request, for lists."""
    limits: JobLimits
    manifest: BlobRef | None = None
    document_count: NonNegativeInt = 0
    model: str | None = None
    """Overrides every agent's model."""
    answer_schema: BlobRef | None = None
    tenant: str = DEFAULT_TENANT
    webhook_url: str | None = None
    specialists: tuple[NameField, ...] = ()
    """Only these may be used; empty: all that live workers announce."""


class HandoffIssued(Message):
    """An attempt at a step was given to a specialist, or to one of the supervisor's roles."""

    type: Literal["handoff_issued"] = "handoff_issued"
    handoff_id: HandoffIdField
    step_id: StepIdField
    attempt: PositiveInt
    assigned_to: NameField
    handoff: BlobRef
    """The AgentHandoff, as JSON: what was published, to the byte."""
    specialist: Digest
    group: str | None = None
    """The chord that it is part of; None: a role, run by a supervisor."""
    index: NonNegativeInt = 0
    """Its place in the chord."""
    group_size: NonNegativeInt = 0
    """How many the chord has; 0: it is in none."""
    deadline: float | None = None
    max_microusd: PositiveInt | None = None
    """What it may cost; None: as much as its job."""


class HandoffFinished(Message):
    """A result is there. A failure is a result; why stands in it."""

    type: Literal["handoff_finished"] = "handoff_finished"
    handoff_id: HandoffIdField
    status: ResultStatus
    result: BlobRef
    usage: Usage
    turns: NonNegativeInt
    stop_reason: StopReason
    confidence: float
    claims: NonNegativeInt = 0
    model: str | None = None
    worker: str = ""


class StepOutline(Message):
    """A step without its text, which lies in the plan's blob."""

    id: StepIdField
    specialist: NameField
    depends_on: tuple[StepIdField, ...] = ()
    title: str = ""
    """The first words of its task."""


class PlanMade(Message):
    """The job has a plan."""

    type: Literal["plan_made"] = "plan_made"
    plan: BlobRef
    steps: tuple[StepOutline, ...]
    synthesis: Synthesis = Synthesis.MERGE
    degraded: BlobRef | None = None
    """The planner's HandoffResult, if that is no plan: then there is one step, the whole request, for the generalist."""


class NeedsResolved(Message):
    """The planner has dealt with what steps needed."""

    type: Literal["needs_resolved"] = "needs_resolved"
    result: BlobRef
    """The planner's HandoffResult; its output is a `shared.wire.resolutions.Resolutions`."""
    answered: tuple[StepIdField, ...] = ()
    given_up: tuple[StepIdField, ...] = ()
    repeats: tuple[StepIdField, ...] = ()
    """Those among the given up that asked again, in other words, for what the planner had answered them before."""


class Reviewed(Message):
    """A round of results was judged. `decision` None: it could not be; the answer says so."""

    type: Literal["reviewed"] = "reviewed"
    round: PositiveInt
    decision: Decision | None
    result: BlobRef | None = None
    """The assessor's HandoffResult; its output is the `shared.wire.verdict.Verdict`. None: nobody was asked."""
    steps: tuple[StepIdField, ...] = ()
    """To do again."""
    repeats: tuple[StepIdField, ...] = ()
    """Those among them that are sent back for what an earlier round has asked of them already, in other words."""
    open_points: NonNegativeInt = 0
    problem: str | None = None
    """Why there is no decision."""


class Abandoned(Message):
    """A step, and the failed HandoffResult that stands in for its own: whoever depends on it is told."""

    step: StepIdField
    result: BlobRef


class StepsAbandoned(Message):
    """These will not be waited for any longer, and neither will what is running of them."""

    type: Literal["steps_abandoned"] = "steps_abandoned"
    steps: tuple[Abandoned, ...]
    why: str


class AnswerMethod(StrEnum):
    """How results became the answer."""

    SINGLE_SINK = "single_sink"
    """The plan's one last step said it; taken as it is."""
    MERGED = "merged"
    """Independent sections, one after the other, by code."""
    SYNTHESIZED = "synthesized"
    """A synthesizer call."""
    NONE = "none"
    """No step has anything usable."""


class Synthesised(Message):
    """The supervisor knows what the answer is made of: a synthesizer's result, or those of steps."""

    type: Literal["synthesised"] = "synthesised"
    method: AnswerMethod
    result: BlobRef | None = None
    """The synthesizer's HandoffResult, if one was asked: what the answer is made of, or, with another method, why it is not."""
    problem: str | None = None
    """What is not as it should be with the synthesis."""


class JobEnded(Message):
    """The answer is there, or the reason why there is none. One that something cut short, a limit or its time, has both."""

    type: Literal["job_ended"] = "job_ended"
    status: JobStatus
    answer: BlobRef | None = None
    """A `shared.wire.answer.Answer`, as JSON."""
    reason: str | None = None
    because: BlobRef | None = None
    """The HandoffResult that says more about the reason."""


class CancelRequested(Message):
    """Stop, everywhere."""

    type: Literal["cancel_requested"] = "cancel_requested"
    by: str = "user"


class RetryRequested(NewLimits):
    """Go on with a job that has ended or waits for a decision: what failed again, or everything from one step on. With more to spend, if it
    says so.
    """

    type: Literal["retry_requested"] = "retry_requested"
    from_step: StepIdField | None = None


class DecisionAsked(Message):
    """The job's budget is spent, and its user said to be asked: it waits for a retry with more, or for a cancel."""

    type: Literal["decision_asked"] = "decision_asked"
    why: str


class WebhookTried(Message):
    """The job's end was posted to its webhook, or could not be."""

    type: Literal["webhook_tried"] = "webhook_tried"
    attempt: PositiveInt
    delivered: bool
    detail: str = ""
    under_way: bool = False
    """Written before the POST, so that only one supervisor makes it; how it went comes after it."""
    end: NonNegativeInt = 0
    """The version of the `job_ended` that it speaks of: a retried job has several. 0, of an older version: the latest."""


Event = (
    JobSubmitted
    | HandoffIssued
    | HandoffFinished
    | PlanMade
    | NeedsResolved
    | Reviewed
    | StepsAbandoned
    | Synthesised
    | JobEnded
    | CancelRequested
    | RetryRequested
    | DecisionAsked
    | WebhookTried
)
_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")], config=NO_PAYLOAD_IN_ERRORS)


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
