"""Events of a job as a whole. `shared.types.events` has the union of all events."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from handoff_queue.shared.types.audit import Actor
from handoff_queue.shared.types.cost_quote import Quote
from handoff_queue.shared.types.gates import Gates, GatesFrom
from handoff_queue.shared.types.handoff import BlobRef, EarlierJob, GivenResult, ResultStatus
from handoff_queue.shared.types.ids import (
    Digest,
    HandoffIdField,
    JobIdField,
    MessageIdField,
    NameField,
    StepIdField,
)
from handoff_queue.shared.types.job_options import Approvals, Mode, Priority
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.message import Message, OmitNone
from handoff_queue.shared.types.names import DEFAULT_TENANT
from handoff_queue.shared.types.origins import Origins
from handoff_queue.shared.types.review import Rubric
from handoff_queue.shared.types.step_events import Passage


class JobStatus(StrEnum):
    """Status of a job, for its users."""

    QUEUED = "queued"
    """The job is accepted, and no supervisor has evaluated it."""
    RUNNING = "running"
    WAITING = "waiting"
    """The job waits for a person to approve or decide. This status is computed, and not
    stored.
    """
    OK = "ok"
    PARTIAL = "partial"
    """There is an answer, with named gaps or open points."""
    FAILED = "failed"
    """There is no answer, but a reason."""
    CANCELLED = "cancelled"
    UNREADABLE = "unreadable"
    """Another program has changed the record of the job in Redis, so the job can only be deleted.
    This status is computed, and not stored.
    """

    @property
    def has_ended(self) -> bool:
        """Return whether the job has ended."""
        return self not in OPEN_STATUSES


OPEN_STATUSES = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.WAITING)
"""Statuses of a job that has not ended."""


class Parent(Message):
    """The parent job of a child job, and the parent's handoff that the child does."""

    job_id: JobIdField
    handoff_id: HandoffIdField


class KeptStep(Message):
    """A step of a forked job that the fork does not run again."""

    step: StepIdField
    result: BlobRef
    """The step's `HandoffResult`, copied into the payloads of the fork."""
    results_with_claims: Annotated[tuple[BlobRef, ...] | None, OmitNone] = None
    """The results of all its attempts that have claims, oldest first, copied in the same way. Other
    results may restate these claims. None: at most `result`.
    """
    status: ResultStatus
    comparable_claims: NonNegativeInt = 0
    """Number of claims that code can compare with other claims."""
    passages: Annotated[tuple[Passage, ...] | None, OmitNone] = None
    """Places that the step's own claims cite, as in `HandoffFinished`."""
    problem_result: BlobRef | None = None
    """The `HandoffResult` with the reason of a status other than `ok`."""
    given_to: NameField | None = None
    """The specialist that did the step; None: the specialist of the plan."""
    acted: bool = False
    """True if the step may have acted on the world."""
    origins: Origins = ()
    """Origins of the results of all attempts at the step."""


class Fork(Message):
    """The job that this job was forked from, and its finished steps. The plan is the `workflow`
    of the submission.
    """

    job_id: JobIdField
    from_step: StepIdField
    """The step that runs again, with all steps that depend on it."""
    kept: tuple[KeptStep, ...] = ()
    task_origins: Origins | None = None
    """Origins of the tasks of the plan; None: the request."""
    specialists: dict[NameField, Digest] = Field(default_factory=dict)
    """Name of a specialist -> digest of the definition that the fork uses in place of the
    announced spec. The worker's own file still sets the maximum.
    """
    new_tasks: Annotated[tuple[StepIdField, ...] | None, OmitNone] = None
    """Steps that have another task than in the job that was forked first; None: there are none."""
    is_planned_by_agent: Annotated[bool | None, OmitNone] = None
    """True if a planner or the router made the plan of the job that was forked first."""
    is_plan_approved: Annotated[bool | None, OmitNone] = None
    """True if a person has approved this plan for the forked job. The fork asks for all other
    approvals of the job again, because it makes other results and another answer.
    """


class JobSubmitted(Message):
    """A user submitted the job, or a supervisor made it for a step of a parent job."""

    type: Literal["job_submitted"] = "job_submitted"
    request: BlobRef
    title: str
    """The first words of the request, for lists."""
    limits: JobLimits
    manifest: BlobRef | None = None
    document_count: NonNegativeInt = 0
    model: str | None = None
    """Model of all agents; None: each agent's own."""
    answer_schema: BlobRef | None = None
    tenant: str = DEFAULT_TENANT
    priority: Priority = Priority.INTERACTIVE
    webhook_url: str | None = None
    on_end: Annotated[BlobRef | None, OmitNone] = None
    """The task of the host that is sent when the job has ended, as JSON."""
    specialists: tuple[NameField, ...] = ()
    """Allowed specialists; empty: all specialists that live workers announce."""
    mode: Mode = Mode.TEAM
    """The requested mode."""
    workflow: BlobRef | None = None
    """The plan of a workflow, as JSON, with mode `pipeline`."""
    is_reviewed: bool = True
    """True if an assessor judges the results of a team or of a workflow's steps."""
    gates: Gates | None = None
    """Conditions that the answer must meet."""
    gates_from: GatesFrom | None = None
    """Origin of the gates; None if there are no gates."""
    facts: BlobRef | None = None
    """A `shared.types.gates.FactTable`, as JSON, with which the answer's claims are compared.
    A job with facts has gates.
    """
    approvals: Approvals = Approvals()
    given: tuple[GivenResult, ...] = ()
    """Documents and results that the job has from the beginning."""
    after: EarlierJob | None = None
    """Earlier job that this job follows; None if there is none."""
    is_quoted: bool = False
    """True if the supervisor quotes the likely cost and time before the first step."""
    rubric: Rubric | None = None
    """Criteria of the assessor, in any mode; None: the default criteria, in modes with a review."""
    parent: Parent | None = None
    """The parent of a child job; None for a user's job."""
    depth: NonNegativeInt = 0
    """Number of jobs above this one."""
    actor: Annotated[Actor | None, OmitNone] = None
    """The user who submitted the job. A repeated submission with the same key keeps the first."""
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of the request of a child job; None: the user wrote the request."""
    fork: Annotated[Fork | None, OmitNone] = None
    """The job that this job was forked from; None: the job is not a fork."""
    is_batched: Annotated[bool | None, OmitNone] = None
    """True if calls of its specialists go through batches of the provider while there is time."""
    shares_runs: Annotated[bool | None, OmitNone] = None
    """False: no handoff of the job, or of a job below it, copies the result of an equal handoff.
    None: a handoff may copy one.
    """

    def is_same_request(self, other: Message) -> bool:
        """Return whether the other event has the same request, from any user."""
        return (
            isinstance(other, JobSubmitted)
            and other.model_copy(update={"actor": self.actor}) == self
        )

    @property
    def fact_checker(self) -> str | None:
        """Return the specialist that checks the facts of the answer; None: no specialist."""
        if self.gates:
            return self.gates.fact_checker
        return None


class Routed(Message):
    """The router decided about a job of mode `auto`."""

    type: Literal["routed"] = "routed"
    mode: Mode
    """`single` or `team`."""
    specialist: NameField | None = None
    """The specialist that does the job alone; None: a team."""
    result: BlobRef | None = None
    """The router's `HandoffResult`, with its reason; None: there was no choice, and no router
    call.
    """
    problem: str | None = None
    """Reason why the router did not decide."""


class Quoted(Message):
    """The supervisor quoted the likely cost and time of the job."""

    type: Literal["quoted"] = "quoted"
    quote: Quote


class JobEnded(Message):
    """The job has ended with an answer, or with a reason why there is no answer. A job that a
    limit has ended has both.
    """

    type: Literal["job_ended"] = "job_ended"
    status: JobStatus
    answer: BlobRef | None = None
    """A `shared.types.answer.Answer`, as JSON."""
    reason: str | None = None
    because: BlobRef | None = None
    """The `HandoffResult` with more about the reason."""


BY_SCHEDULE = "schedule "
"""Beginning of `CancelRequested.by` if the next slot of a schedule cancels the job."""


class CancelRequested(Message):
    """The job must stop: no new work begins, and running handoffs are cut."""

    type: Literal["cancel_requested"] = "cancel_requested"
    by: str = "user"
    """`user`, `schedule NAME` for the next slot of the schedule, or the id of the parent job."""
    actor: Annotated[Actor | None, OmitNone] = None


class Continuation(Message):
    """A child job continues, because its parent repeats the step to fill gaps of this child."""

    parent: Parent
    """The parent's handoff that the child works for from now on."""
    max_seconds: PositiveInt
    """Seconds that the child may take for it."""
    is_known: bool = False
    """True if the parent has the earlier result of the child."""


class RetryRequested(NewLimits):
    """A user retries the job after its end or while it waits for a decision. The retry repeats
    failed steps, or one step and its dependents, and may raise the limits.
    """

    type: Literal["retry_requested"] = "retry_requested"
    from_step: StepIdField | None = None
    fills_gaps: bool = False
    """True if the retry only fills gaps: missing or incomplete steps, and their dependents. No
    join ends a wait.
    """
    keeps_results: bool = False
    """True if dependents keep their results until the repeated step has a different result.
    With `fills_gaps` this includes the answer. A retry that names a step repeats all dependents.
    """
    continuation: Annotated[Continuation | None, OmitNone] = None
    """The continuation of a child job by its parent; None for a user's retry."""
    key: Annotated[str | None, OmitNone] = None
    """First 16 characters of the digest of the idempotency key; None: the request has no key."""
    actor: Annotated[Actor | None, OmitNone] = None


class DecisionAsked(Message):
    """The job's budget is spent, and its limits say `ask`. The job waits for a retry with a
    higher limit, or for a cancel.
    """

    type: Literal["decision_asked"] = "decision_asked"
    why: str


class WebhookTried(Message):
    """An attempt to post the job's end to its webhook."""

    type: Literal["webhook_tried"] = "webhook_tried"
    attempt: PositiveInt
    delivered: bool
    detail: str = ""
    under_way: bool = False
    """True if the event was written before the POST, so that only one supervisor makes it. An
    event with the outcome follows.
    """
    end: NonNegativeInt
    """Version of the `job_ended` event. A retried job has several such events."""


class EndTaskTried(Message):
    """An attempt to send the job's end task to the host's broker."""

    type: Literal["end_task_tried"] = "end_task_tried"
    attempt: PositiveInt
    delivered: bool
    detail: str = ""
    under_way: bool = False
    """True if the event was written before the task is sent, so that only one supervisor sends
    it. An event with the outcome follows.
    """
    end: NonNegativeInt
    """Version of the `job_ended` event, of which a retried job has several."""


class ParentTold(Message):
    """The parent's journal has the result of a child job, or no longer needs it."""

    type: Literal["parent_told"] = "parent_told"


class UserMessageSent(Message):
    """A user sent a message to the agents of the job, or of one step."""

    type: Literal["user_message_sent"] = "user_message_sent"
    message_id: MessageIdField
    text: BlobRef
    step: Annotated[StepIdField | None, OmitNone] = None
    """The step whose agents get the message; None: all agents of the job."""
    actor: Annotated[Actor | None, OmitNone] = None


class UserMessageTaken(Message):
    """A running agent took a user's message: its next model call contains the message."""

    type: Literal["user_message_taken"] = "user_message_taken"
    message_id: MessageIdField
    handoff_id: HandoffIdField
    turn: PositiveInt
    """Turn of the handoff that begins with the message; 1 for the first turn."""


class EventRefused(Message):
    """The event at this place is not used, because its signature does not hold. No journal has this
    event: a reader with a keyring puts it in the place of the refused one.
    """

    type: Literal["event_refused"] = "event_refused"
    reason: str


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
    | UserMessageSent
    | UserMessageTaken
    | EventRefused
)
