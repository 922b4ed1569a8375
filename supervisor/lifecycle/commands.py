"""Commands of `decide`: imperative, plain values. `supervisor.advance` records and executes them."""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.types.events import AnswerMethod, JobStatus, SecondChance
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Mode


@dataclass(frozen=True, slots=True)
class Route:
    """Decide by code who does the job."""

    mode: Mode
    specialist: str | None = None


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Make the plan by code: of the job's workflow, or of one step."""

    specialist: str | None = None
    """The specialist that does the whole job; None: the workflow decides."""


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

    role: str
    attempt: int


@dataclass(frozen=True, slots=True)
class IssueGroup:
    """Hand these steps to their specialists, as one chord."""

    group: str
    steps: tuple[StepId, ...]
    instead: tuple[tuple[StepId, str], ...] = ()
    """Steps that another specialist gets than the plan says, because it is less busy."""


@dataclass(frozen=True, slots=True)
class IssueToChild:
    """Give this step to a sub-supervisor, as a child job."""

    step: StepId


@dataclass(frozen=True, slots=True)
class AbandonSteps:
    """Wait for these no longer."""

    steps: tuple[StepId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class CheckConditions:
    """Check the conditions of the given steps, which could begin, against the results so far."""

    steps: tuple[StepId, ...]


@dataclass(frozen=True, slots=True)
class SkipSteps:
    """Do not begin these steps, for all that they build on was skipped."""

    steps: tuple[StepId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Give these steps, which failed, another attempt."""

    steps: tuple[SecondChance, ...]


@dataclass(frozen=True, slots=True)
class FindConflicts:
    """Hold the claims of all steps against each other, by code."""


@dataclass(frozen=True, slots=True)
class SkipReview:
    """Go on without a verdict."""

    why: str


@dataclass(frozen=True, slots=True)
class ChooseAnswer:
    """Make the answer of what there is, by code."""

    method: AnswerMethod


@dataclass(frozen=True, slots=True)
class CheckGates:
    """Have code look at the answer before it leaves."""

    may_send_back: bool


@dataclass(frozen=True, slots=True)
class IssueFactCheck:
    """Hand the answer to the specialist that checks its facts, as a chord of one."""

    group: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TakeFactCheck:
    """Apply a fact-checker's result to the answer."""

    result: BlobRef
    """The fact-checker's HandoffResult."""
    may_send_back: bool


@dataclass(frozen=True, slots=True)
class SkipFactCheck:
    """Let the answer leave with its facts unchecked."""

    why: str


@dataclass(frozen=True, slots=True)
class EndJob:
    """Write the answer, or the reason why there is none."""

    status: JobStatus
    reason: str | None = None
    because: BlobRef | None = None
    """The HandoffResult that says more."""


@dataclass(frozen=True, slots=True)
class AskUser:
    """Wait until the user decides that the job may continue."""

    why: str


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Wait until a person has approved or rejected."""

    what: ApprovalOf
    why: str
    status: JobStatus | None = None
    """Status with which the job would end with the answer in question."""
    steps: tuple[StepId, ...] = ()
    """Which ones, of a failure."""


@dataclass(frozen=True, slots=True)
class RemindUser:
    """Say again that the job waits."""

    asked: int
    """The version of the question."""
    number: int


@dataclass(frozen=True, slots=True)
class ApproveBySilence:
    """Take silence for an approval."""

    asked: int


@dataclass(frozen=True, slots=True)
class PublishAgain:
    """Publish handoffs again whose messages or workers were lost."""

    handoffs: tuple[HandoffId, ...]


@dataclass(frozen=True, slots=True)
class RunRole:
    """Run a role's handoff that no process has claimed."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class StartChild:
    """The child job of this handoff is not there yet."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class TellParent:
    """Send the result of the parent's handoff to the parent."""


@dataclass(frozen=True, slots=True)
class DeliverWebhook:
    """Tell the job's webhook that it has ended."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SendEndTask:
    """Send the task of the host's app that waits for the end of the job."""

    attempt: int


FactCheckCommand = IssueFactCheck | TakeFactCheck | SkipFactCheck
Command = (
    Route
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
    | AskApproval
    | RemindUser
    | ApproveBySilence
    | PublishAgain
    | RunRole
    | StartChild
    | TellParent
    | DeliverWebhook
    | SendEndTask
)
