"""Commands of `decide`: plain values. The supervisor's engine records them as events and
executes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.types.events import AnsweredCall, AnswerMethod, JobStatus, StepRetry
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.shared.types.names import Role


@dataclass(frozen=True, slots=True)
class SetMode:
    """Set the mode of a job by code, without a call of the router."""

    mode: Mode
    specialist: str | None = None
    """The specialist that does the whole job in mode `single`."""


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Make the plan by code: from the job's workflow, or with one step."""

    specialist: str | None = None
    """The specialist of the one step; None: the plan is the workflow."""


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """Apply the replanner's patch to the plan, as far as the plan still allows."""

    proposal: BlobRef
    """The replanner's HandoffResult."""


@dataclass(frozen=True, slots=True)
class MakeQuote:
    """Quote the likely cost and time of the job."""


@dataclass(frozen=True, slots=True)
class IssueRole:
    """Issue a handoff for a role of the supervisor."""

    role: Role
    attempt: int


@dataclass(frozen=True, slots=True)
class IssueGroup:
    """Issue handoffs for these steps to their specialists, as one chord."""

    group: str
    steps: tuple[StepId, ...]
    instead: tuple[tuple[StepId, str], ...] = ()
    """Steps that go to a less busy specialist than the planned one, with its name."""


@dataclass(frozen=True, slots=True)
class IssueToChild:
    """Start a child job for this step."""

    step: StepId


@dataclass(frozen=True, slots=True)
class AbandonSteps:
    """Stop waiting for these steps. A failed result replaces the result of each step."""

    steps: tuple[StepId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class CheckConditions:
    """Check the conditions of steps that could begin, against the results so far."""

    steps: tuple[StepId, ...]


@dataclass(frozen=True, slots=True)
class SkipSteps:
    """Skip these steps, because all dependencies that they lack were skipped."""

    steps: tuple[StepId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Give these failed steps another attempt."""

    steps: tuple[StepRetry, ...]


@dataclass(frozen=True, slots=True)
class FindConflicts:
    """Search the claims of all steps for contradictions, by code."""


@dataclass(frozen=True, slots=True)
class SkipReview:
    """Continue without a review of the results."""

    why: str


@dataclass(frozen=True, slots=True)
class ChooseAnswer:
    """Make the answer from the results so far, by code."""

    method: AnswerMethod


@dataclass(frozen=True, slots=True)
class CheckGates:
    """Check the answer with the job's gates before it is delivered."""

    may_send_back: bool
    """True if an answer with faults may be made again."""


@dataclass(frozen=True, slots=True)
class IssueFactCheck:
    """Issue a handoff to the specialist that checks the facts of the answer, as a chord of one."""

    group: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TakeFactCheck:
    """Apply a fact-checker's result to the answer."""

    result: BlobRef
    """The fact-checker's HandoffResult."""
    may_send_back: bool
    """True if an answer with wrong statements may be made again."""


@dataclass(frozen=True, slots=True)
class SkipFactCheck:
    """Deliver the answer without a fact-check."""

    why: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the job with its answer, or with the reason why there is none."""

    status: JobStatus
    reason: str | None = None
    because: BlobRef | None = None
    """The HandoffResult with the details of the reason."""


@dataclass(frozen=True, slots=True)
class AskUser:
    """Wait until the user raises the spent budget."""

    why: str


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask a person to approve or reject, and wait for the answer."""

    what: ApprovalOf
    why: str
    status: JobStatus | None = None
    """Status with which the job would end, if the question is about its end."""
    steps: tuple[StepId, ...] = ()
    """Steps that a question of kind `failure` or `step` is about."""


@dataclass(frozen=True, slots=True)
class RemindUser:
    """Remind the user that the job waits for an answer."""

    question_version: int
    """Journal version of the question."""
    number: int
    """1 for the first reminder of the question. 0: the webhook is told about a new call."""


@dataclass(frozen=True, slots=True)
class ApproveOnTimeout:
    """Approve a question that had no answer in time."""

    question_version: int
    """Journal version of the question."""
    call: AnsweredCall | None = None
    """The call of a tool that the question is about, or None."""


@dataclass(frozen=True, slots=True)
class PublishAgain:
    """Publish handoffs again, because their messages or workers were lost."""

    handoffs: tuple[HandoffId, ...]


@dataclass(frozen=True, slots=True)
class RunRole:
    """Run a role's handoff that no process runs."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class StartChild:
    """Start the child job of this handoff, which does not exist yet."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class TellParent:
    """Send the result of this child job to its parent."""


@dataclass(frozen=True, slots=True)
class DeliverWebhook:
    """Report the end of the job to its webhook."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SendEndTask:
    """Send the Celery task that the host application set for the end of the job."""

    attempt: int


FactCheckCommand = IssueFactCheck | TakeFactCheck | SkipFactCheck
Effect = (
    AskApproval
    | RemindUser
    | PublishAgain
    | RunRole
    | StartChild
    | TellParent
    | DeliverWebhook
    | SendEndTask
)
"""Commands that a supervisor executes after the commit."""
Command = (
    SetMode
    | MakePlan
    | PatchPlan
    | MakeQuote
    | IssueRole
    | IssueGroup
    | IssueToChild
    | AbandonSteps
    | CheckConditions
    | SkipSteps
    | TryAgain
    | FindConflicts
    | SkipReview
    | ChooseAnswer
    | CheckGates
    | FactCheckCommand
    | EndJob
    | AskUser
    | ApproveOnTimeout
    | Effect
)
