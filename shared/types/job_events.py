"""What can happen to a job as a whole. `shared.types.events` has all events, and what they
have in common.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import NonNegativeInt, PositiveInt

from handoff_queue.shared.types.gates import Gates, GatesFrom
from handoff_queue.shared.types.handoff import BlobRef, Earlier, Given
from handoff_queue.shared.types.ids import HandoffIdField, JobIdField, NameField, StepIdField
from handoff_queue.shared.types.job_options import Approvals, Mode, Priority
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.message import Message, Unsaid
from handoff_queue.shared.types.quote import Quote
from handoff_queue.shared.types.review import Rubric

DEFAULT_TENANT = "default"
"""Whose a job is when nobody says so."""


class JobStatus(StrEnum):
    """How a job stands, for its users."""

    QUEUED = "queued"
    """Accepted; no supervisor has looked at it."""
    RUNNING = "running"
    WAITING = "waiting"
    """A person has to approve or to decide something. `shared.store.jobs.job_standing` derives
    it; no journal and no hash holds it.
    """
    OK = "ok"
    PARTIAL = "partial"
    """There is an answer, with named gaps or open points."""
    FAILED = "failed"
    """There is no answer; the reason is given."""
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.WAITING)


class Parent(Message):
    """The handoff that a child job is there to do."""

    job_id: JobIdField
    handoff_id: HandoffIdField


class JobSubmitted(Message):
    """A user asked for something, or a supervisor handed a step to a sub-supervisor."""

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
    priority: Priority = Priority.INTERACTIVE
    webhook_url: str | None = None
    on_end: Annotated[BlobRef | None, Unsaid] = None
    """The `shared.types.job_options.EndTask` that is sent when the job has ended, as JSON."""
    specialists: tuple[NameField, ...] = ()
    """Only these may be used; empty: all that live workers announce."""
    mode: Mode = Mode.TEAM
    """What the user asked for; journals from before there were modes say nothing, and mean this."""
    workflow: BlobRef | None = None
    """The plan of a workflow, as JSON, with mode `pipeline`."""
    is_reviewed: bool = True
    """Whether an assessor judges what a workflow's steps have made."""
    gates: Gates | None = None
    """What the answer has to be before it leaves."""
    gates_from: GatesFrom | None = None
    """Who set them; None: there are none, or a version set them that did not say so."""
    facts: BlobRef | None = None
    """A `shared.types.facts.FactTable`, as JSON, that the answer's claims are held against;
    there are gates then, too.
    """
    approvals: Approvals = Approvals()
    given: tuple[Given, ...] = ()
    """What it knows from the beginning."""
    after: Earlier | None = None
    """What it follows on; None: nothing."""
    is_quoted: bool = False
    """Whether what it will likely cost and take is said before its first step."""
    rubric: Rubric | None = None
    """What the assessor measures by, in every mode; None: its own, where there is a review."""
    parent: Parent | None = None
    """None: it is a user's."""
    depth: NonNegativeInt = 0
    """How many jobs there are above it."""

    @property
    def fact_checker(self) -> str | None:
        """The specialist that checks the facts of its answer; None: nobody does."""
        return self.gates.fact_checker if self.gates else None


class Routed(Message):
    """It was decided who does a job of mode `auto`."""

    type: Literal["routed"] = "routed"
    mode: Mode
    """`single` or `team`."""
    specialist: NameField | None = None
    """Who does it alone; None: a team."""
    result: BlobRef | None = None
    """The router's HandoffResult, which says why. None: there was only one to choose."""
    problem: str | None = None
    """Why it was not the router that decided."""


class Quoted(Message):
    """It was said what the job will likely cost and take."""

    type: Literal["quoted"] = "quoted"
    quote: Quote


class JobEnded(Message):
    """The answer is there, or the reason why there is none. One that something cut short, a
    limit or its time, has both.
    """

    type: Literal["job_ended"] = "job_ended"
    status: JobStatus
    answer: BlobRef | None = None
    """A `shared.types.answer.Answer`, as JSON."""
    reason: str | None = None
    because: BlobRef | None = None
    """The HandoffResult that says more about the reason."""


class CancelRequested(Message):
    """Stop, everywhere."""

    type: Literal["cancel_requested"] = "cancel_requested"
    by: str = "user"
    """Or the job whose child it is."""


class TakenUp(Message):
    """A child job goes on, because its parent's step is to be done again and has gaps here alone."""

    parent: Parent
    """What it is there to do from now on."""
    max_seconds: PositiveInt
    """How long that may take."""
    is_known: bool = False
    """Its parent has what it ended with before."""


class RetryRequested(NewLimits):
    """Go on with a job that has ended or waits for a decision: what failed again, or
    everything from one step on. With more to spend, if it says so.
    """

    type: Literal["retry_requested"] = "retry_requested"
    from_step: StepIdField | None = None
    whole: bool = False
    """Only what is missing or not whole, and what builds on it; no join ends a wait (`handoff
    finish`).
    """
    holds: bool = False
    """What builds on that stands until that has another result, and so does, if it is `whole`,
    the answer. Retries from before there was a choice say nothing, and have it all done again;
    so has one that names a step.
    """
    taken_up: Annotated[TakenUp | None, Unsaid] = None
    """None: a user has asked for it."""


class DecisionAsked(Message):
    """The job's budget is spent, and its user said to be asked: it waits for a retry with
    more, or for a cancel.
    """

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
    """The version of the `job_ended` that it speaks of: a retried job has several. 0, of an
    older version: the latest.
    """


class EndTaskTried(Message):
    """The job's task was sent to the host's broker, or could not be."""

    type: Literal["end_task_tried"] = "end_task_tried"
    attempt: PositiveInt
    delivered: bool
    detail: str = ""
    under_way: bool = False
    """Written before the task is sent, so that only one supervisor sends it. The outcome follows.
    """
    end: NonNegativeInt
    """The version of the `job_ended` that it is about: a retried job has several."""


class ParentTold(Message):
    """The result of a child job stands in its parent's journal, or nobody there waits for it
    any more.
    """

    type: Literal["parent_told"] = "parent_told"


JobEvent = (
    JobSubmitted
    | Routed
    | Quoted
    | JobEnded
    | CancelRequested
    | RetryRequested
    | DecisionAsked
    | WebhookTried
    | EndTaskTried
    | ParentTold
)
