"""The state of a job, folded from its journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import Field, NonNegativeInt

from handoff_queue.shared.types.events import (
    AnswerMethod,
    Arbitrated,
    ConflictsFound,
    GatesChecked,
    HandoffIssued,
    JobEnded,
    JobStatus,
    JobSubmitted,
    Judged,
    PlanMade,
    Reviewed,
    Routed,
    StepOutline,
    Synthesised,
)
from handoff_queue.shared.types.handoff import BlobRef, ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, handoff_id
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.quote import Quote
from handoff_queue.shared.types.usage import NOTHING_USED, Usage
from handoff_queue.supervisor.lifecycle.attempt_feedback import AttemptFeedback, PreviousTeam
from handoff_queue.supervisor.lifecycle.fact_checks import FactChecks
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.plan_graph import shape_of
from handoff_queue.supervisor.lifecycle.plan_patches import PatchHistory


class Question(Message):
    """What the job waits for an approval of."""

    what: ApprovalOf
    version: NonNegativeInt
    """Of its `approval_asked`: an answer names it."""
    at: float
    until: float
    """Unix times in seconds."""
    steps: tuple[StepId, ...] = ()
    """Which ones, of a failure."""
    reminders: NonNegativeInt = 0


class RejectedPlan(Message):
    """A plan that a person did not want, and what was said of it."""

    plan: BlobRef
    note: BlobRef | None = None
    own_plan: BlobRef | None = None
    """The plan that the person would make."""


class Held(Message):
    """Whether it was worth its price is known only when what it builds on has ended."""

    steps: tuple[StepId, ...] = ()
    """Their results stand until a step that they build on has another one."""
    answer: bool = False
    """So does the answer, with its review, until any step has another result."""
    is_known_above: bool = False
    """The parent of this job has that answer."""

    @property
    def is_nothing(self) -> bool:
        return not (self.steps or self.answer or self.is_known_above)


NOTHING_HELD = Held()


@dataclass(frozen=True)
class StepIndex:
    """Of thousands of steps, most have been handed out, or have a result that nothing more
    follows from: these are the others.
    """

    next: tuple[StepId, ...] = ()
    """Those that wait, and whose fan-in may stand: all that they depend on is settled, or they
    have a join. In the plan's order, as all.
    """
    in_need: tuple[StepId, ...] = ()
    unusable: tuple[StepId, ...] = ()
    """Settled, with nothing that can be built on."""
    unsettled: int = 0
    """Steps."""
    waits_for: PersistentMap[StepId, int] = field(default_factory=PersistentMap)
    """How many of the steps that it depends on are not settled."""
    written: int = 0
    """Bytes of the results that there are."""
    unwritten: int = 0
    """Steps without a result."""
    apart: tuple[HandoffId, ...] = ()
    """Open handoffs that are in no chord: of roles, and of child jobs. In the order in which
    they were issued.
    """

    @property
    def are_settled(self) -> bool:
        """All steps."""
        return self.unsettled == 0


LAST_CHANCE_S = 30.0
"""At most; 5 % of the job's time, at its end, in which what came so far is made an answer."""
HAND_IN_SHARE = 0.2
"""Of the last chance, at its end: a role that was cut has this long to hand in what it has
written (6 s of 30).
"""


class Phase(StrEnum):
    """What the job is waiting for."""

    ROUTING = "routing"
    PLANNING = "planning"
    WORKING = "working"
    """Steps run; when all of them are settled, the assessor looks at the round."""
    SYNTHESISING = "synthesising"
    ANSWERING = "answering"
    ENDED = "ended"


class StepStatus(StrEnum):
    WAITING = "waiting"
    """For what it depends on, or for its turn."""
    RUNNING = "running"
    """A handoff is out."""
    IN_NEED = "in_need"
    """Its specialist asked for something that it needs; the planner is to answer."""
    SETTLED = "settled"
    """It has a result: its own, or a failed one that stands in for it."""


class StepState(Message):
    """One step of the plan."""

    outline: StepOutline
    status: StepStatus = StepStatus.WAITING
    attempt: NonNegativeInt = 0
    """How many handoffs it has had."""
    cost_microusd: NonNegativeInt | None = None
    """Of the latest that ended; None: none has, or its price is not known."""
    to_finish_microusd: NonNegativeInt | None = None
    """What its team says that filling its gaps alone would likely cost; None: it says nothing,
    or no team has it.
    """
    began_at: float = 0.0
    """When the latest was issued. Unix time in seconds."""
    waited_before_s: float = 0.0
    """What the job had waited for a person by then."""
    handoff_id: HandoffId | None = None
    """The latest of them."""
    result: BlobRef | None = None
    result_status: ResultStatus | None = None
    comparable: NonNegativeInt = 0
    """Claims of it that can be held against others."""
    stop_reason: StopReason | None = None
    """Why its latest attempt ended; None: it has not, or was given up."""
    trouble: BlobRef | None = None
    """The HandoffResult that says why its own is not `ok`: that one, or what came to nothing
    where `result` stands in for it.
    """
    failures: NonNegativeInt = 0
    """Attempts that came to nothing."""
    given_to: str | None = None
    """Who has it now, instead of the plan's specialist."""
    tried: tuple[str, ...] = ()
    """Those who have failed at it."""
    is_let_go: bool = False
    """A person has said that the job goes on without it."""
    is_met: bool = False
    """Its condition was found to be met, since it was last begun or sent back."""
    is_approved: bool | None = None
    """What a person has said of its beginning. None: nothing yet."""
    acted: bool = False
    """It may have acted on the world: only a person who names it has it done again."""
    remarks: tuple[AttemptFeedback, ...] = ()
    """For the next attempt, oldest first."""
    sent_back: BlobRef | None = None
    """The usable result of an earlier attempt: it stands in when the attempts after it come to
    nothing.
    """
    team: PreviousTeam | None = None
    """Who did it last, of the child jobs that did it; None: none has."""
    gaps_only: bool = False
    """Its next attempt need only do what that one lacks."""

    @property
    def specialist(self) -> str:
        """Who does it."""
        return self.given_to or self.outline.specialist

    @property
    def team_knows_all(self) -> bool:
        """Whether a team did it last that has heard all that was said of its work, but that
        its user wants what is missing.
        """
        return self.team is not None and all(
            one.author == "supervisor" or one.asks_for_the_rest
            for one in self.remarks[self.team.told :]
        )

    @property
    def is_skipped(self) -> bool:
        """Whether it did not begin, for a condition was not met."""
        return self.result_status is ResultStatus.SKIPPED

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is missing: it is done, or it was not to be done."""
        return self.result_status in (ResultStatus.OK, ResultStatus.SKIPPED)

    @property
    def usable(self) -> bool:
        """Whether something can be built on its result."""
        return self.result_status in (ResultStatus.OK, ResultStatus.PARTIAL)


class Delivery(Message):
    """How often the end of a job was sent to somebody, and whether it came through."""

    attempts: NonNegativeInt = 0
    tried_at: float = 0.0
    """Unix time in seconds."""
    delivered: bool = False
    under_way: bool = False
    """A try was begun, and its outcome is not known yet."""


class JobState(Message):
    """Everything that `decide` needs to know of a job's past."""

    job_id: JobId
    version: NonNegativeInt
    as_of: float
    """Unix time in seconds of its last event."""
    submitted: JobSubmitted
    started_at: float
    """Unix time in seconds of the submission or the latest retry: its time runs from here."""
    status: JobStatus = JobStatus.QUEUED
    mode: Mode = Mode.TEAM
    """As asked for; what the router made of `auto`."""
    quote: Quote | None = None
    retries_when_quoted: int = 0
    routed: Routed | None = None
    phase: Phase = Phase.PLANNING
    plan: PlanMade | None = None
    steps: PersistentMap[StepId, StepState] = Field(default_factory=PersistentMap)
    open: PersistentMap[HandoffId, HandoffIssued] = Field(default_factory=PersistentMap)
    """Handoffs that were issued and have not ended."""
    overview: StepIndex = Field(default_factory=StepIndex, exclude=True, repr=False)
    """What follows from these two, of all steps and handoffs."""
    specialists: dict[str, str] = Field(default_factory=dict)
    """Name -> digest of the spec: a job keeps the specialists that it started with."""
    handoffs: NonNegativeInt = 0
    """Issued since the submission or the latest retry."""
    groups: NonNegativeInt = 0
    """Chords so far."""
    role_attempts: dict[str, int] = Field(default_factory=dict)
    role_costs: dict[str, int] = Field(default_factory=dict)
    """Micro-dollars of the latest of each that ended, where prices are known."""
    fruitless: NonNegativeInt = 0
    """Results of roles, the latest in a row, that nothing followed from: each time a defect of
    ours, after the model was paid.
    """
    rounds: tuple[Reviewed, ...] = ()
    review_over: bool = False
    """The latest review sends nothing back, and no work was sent back since."""
    rounds_before: NonNegativeInt = 0
    """Rounds that ended with an earlier answer, before a retry."""
    conflicts: ConflictsFound | None = None
    conflicts_of: tuple[BlobRef, ...] = ()
    """The results that these were looked for in."""
    judged: Judged | None = None
    """What became of these."""
    patches: PatchHistory = Field(default_factory=PatchHistory)
    """Changes to its plan, in mode `adaptive`."""
    arbitrated: Arbitrated | None = None
    """What the judge said of a quarrel between writer and reviewer, since the submission or
    the latest retry.
    """
    synthesised: Synthesised | None = None
    gated: GatesChecked | None = None
    """What code has found in the answer that this would be."""
    fact_checks: FactChecks = FactChecks()
    gate_rounds: NonNegativeInt = 0
    """Answers that a veto has sent back, since the submission or the latest retry."""
    turned_down: BlobRef | None = None
    """Why the synthesizer's last answer was, for its next one."""
    ended: JobEnded | None = None
    ended_version: NonNegativeInt = 0
    """Of the journal, at that end; 0: it has not ended."""
    spent: StopReason | None = None
    """Whose budget a call of this job did not fit, the first one: its own, or the day's."""
    spent_its_own: bool = False
    """A call did not fit the job's own, first or not: it needs more to go on."""
    asked_at: float | None = None
    """Since when it waits for a decision, in Unix seconds; None: it does not."""
    question: Question | None = None
    """It waits for an approval."""
    approved: tuple[ApprovalOf, ...] = ()
    rejected: ApprovalOf | None = None
    """What was rejected, and cannot be made again."""
    rejected_plans: tuple[RejectedPlan, ...] = ()
    sent_back_at: float = 0.0
    """When work was last sent back. Unix time in seconds."""
    retries: NonNegativeInt = 0
    waits_for_all: bool = False
    """Its user wants the gaps filled: no join ends a wait."""
    held: Held = NOTHING_HELD
    """What stands meanwhile, until what it builds on ends otherwise."""
    reworks: NonNegativeInt = 0
    """How often work was sent back since the submission or the latest retry, by a review or by
    a person.
    """
    waited_s: float = 0.0
    """For answers of a person, since the submission or the latest retry: no part of its time."""
    cancelled_by: str | None = None
    parent_told: bool = False
    usage: Usage = NOTHING_USED
    turns: NonNegativeInt = 0
    models: tuple[str, ...] = ()
    """The models that answered, as their servers named them."""
    end_task: Delivery = Delivery()
    """Of the task that is sent when the job has ended."""
    webhook_attempts: NonNegativeInt = 0
    webhook_tried_at: float = 0.0
    webhook_delivered: bool = False
    webhook_under_way: bool = False
    """A try was begun, and how it went is not yet known."""

    @property
    def deadline(self) -> float:
        """Unix time in seconds."""
        return self.started_at + self.waited_s + self.submitted.limits.max_seconds

    @property
    def asks_about_steps(self) -> bool:
        """Whether a person is asked if single steps may begin. Everything else goes on meanwhile."""
        return self.question is not None and self.question.what is ApprovalOf.STEP

    @property
    def is_only_asking(self) -> bool:
        """Whether the job asks about steps, and nothing is under way beside that."""
        return self.asks_about_steps and not self.open

    @property
    def worked_s(self) -> float:
        """Seconds from its beginning, or the latest retry, to its last event, without those
        that it waited for a person.
        """
        return self.as_of - self.started_at - self.waited_s

    @property
    def working_deadline(self) -> float:
        """Handoffs end by then, so that what they have can still be made an answer. Unix time
        in seconds.
        """
        return self.deadline - min(LAST_CHANCE_S, 0.05 * self.submitted.limits.max_seconds)

    @property
    def role_deadline(self) -> float:
        """The same for the supervisor's own roles, which make that answer: a draft that came
        with the job's end would come too late.
        """
        return self.deadline - HAND_IN_SHARE * (self.deadline - self.working_deadline)

    @property
    def is_reviewed(self) -> bool:
        """Whether its results are judged before they become an answer."""
        return self.plan is None or self.plan.is_reviewed

    @property
    def may_send_back(self) -> bool:
        """Whether there is a round left in which work can be done again."""
        return self.reworks < self.submitted.limits.max_rounds

    @property
    def is_withheld(self) -> bool:
        """Whether a person was to approve of the answer, and has not; or has rejected the
        research, or is still asked about that.
        """
        unanswered = self.question.what if self.question else None
        is_unapproved = (
            ApprovalOf.ANSWER in self.submitted.approvals.what
            and ApprovalOf.ANSWER not in self.approved
        )
        return is_unapproved or ApprovalOf.RESEARCH in (self.rejected, unanswered)

    @property
    def rounds_now(self) -> tuple[Reviewed, ...]:
        """The rounds since the submission or the latest retry."""
        return self.rounds[self.rounds_before :]

    @property
    def last_round(self) -> Reviewed | None:
        return self.rounds_now[-1] if self.rounds_now else None

    @property
    def synthesis(self) -> BlobRef | None:
        """The synthesizer's result that the answer is made of; None: it is made of those of steps."""
        made = self.synthesised
        return made.result if made is not None and made.method is AnswerMethod.SYNTHESIZED else None

    @property
    def handed_over(self) -> tuple[HandoffId, ...]:
        """Every handoff of the roles, and of the steps of its plan."""
        attempts: dict[StepId, int] = {
            step_id: step.attempt for step_id, step in self.steps.items()
        }
        attempts |= {StepId(role): count for role, count in self.role_attempts.items()}
        return tuple(
            handoff_id(step_id, number)
            for step_id, count in attempts.items()
            for number in range(1, count + 1)
        )

    def has_open(self, role: str | None = None) -> bool:
        """Whether one of the supervisor's roles is at work on the job. None: any of them."""
        return any(
            one.is_of_a_role and role in (None, one.assigned_to)
            for one in map(self.open.__getitem__, self.overview.apart)
        )

    @property
    def dependents(self) -> Mapping[StepId, frozenset[StepId]]:
        """For every step, the steps that wait for it."""
        return shape_of(self.plan.steps).dependents if self.plan else {}

    @property
    def sinks(self) -> tuple[StepId, ...]:
        """The plan's last steps, in its order."""
        return shape_of(self.plan.steps).sinks if self.plan else ()

    def downstream(self, roots: frozenset[StepId]) -> frozenset[StepId]:
        """The steps that build, directly or not, on any of these."""
        dependents, found, frontier = self.dependents, set[StepId](), list(roots)
        while frontier:
            found |= (new := dependents[frontier.pop()] - found)
            frontier += new
        return frozenset(found)
