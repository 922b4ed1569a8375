"""The state of a job, folded from its journal.

It includes the state of fact-checks, and the feedback on earlier attempts at a step, as
references to its texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import Field, NonNegativeInt, PositiveInt

from handoff_queue.shared.types.cost_quote import Quote
from handoff_queue.shared.types.events import (
    AnswerMethod,
    Arbitrated,
    ConflictsFound,
    FactsChecked,
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
    Synthesized,
)
from handoff_queue.shared.types.handoff import Author, BlobRef, ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, build_handoff_id
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.origins import Origin
from handoff_queue.shared.types.step_events import Passage
from handoff_queue.shared.types.usage import NOTHING_USED, Usage
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.plan_graph import find_reachable, get_plan_graph
from handoff_queue.supervisor.lifecycle.plan_patches import PatchHistory
from handoff_queue.supervisor.lifecycle.verified_usage import NO_VERIFIED_USAGE, VerifiedUsage


class FactChecks(Message):
    """The latest fact-check of an answer and its outcome."""

    result: BlobRef | None = None
    """The fact-checker's HandoffResult; None: there is none, or it must be made again."""
    parts: tuple[BlobRef, ...] = ()
    """Parts of the checked answer. An answer of the same parts is not checked again."""
    outcome: FactsChecked | None = None
    """Outcome of the check for the current answer; None: no check was applied to this answer."""


class AttemptFeedback(Message):
    """Reason for another attempt. `ResultTexts.build_feedback` makes the specialist's Feedback from
    it.
    """

    author: Author
    result: BlobRef | None = None
    """The HandoffResult of the role that gave the feedback, or the user's text; None: the text
    is fixed.
    """
    previous: BlobRef | None = None
    """The HandoffResult of the earlier attempt."""
    ruling: BlobRef | None = None
    """The judge's HandoffResult that confirms the feedback; None: the judge was not asked."""
    follows: bool = False
    """True if the step runs again only because a dependency does."""
    helper: StepId | None = None
    """The step that was added to answer this step's question."""

    @property
    def asks_for_the_rest(self) -> bool:
        """Return whether the result was right but incomplete, and the user wants the rest."""
        return self.author == "user" and self.result is None and not self.follows


class PreviousChildJob(Message):
    """The child job that last did a step, and its inputs."""

    job_id: JobId
    knows: tuple[BlobRef, ...] = ()
    """Usable results of the steps that this one depends on."""
    remarks_received: NonNegativeInt = 0
    """Number of remarks on the step that it received."""


class Question(Message):
    """An open question for an approval."""

    what: ApprovalOf
    version: NonNegativeInt
    """Version of its `approval_asked` event, which an answer names."""
    at: float
    until: float
    """Unix times in seconds."""
    steps: tuple[StepId, ...] = ()
    """Steps that a question of kind `failure` or `step` is about."""
    reminders: NonNegativeInt = 0


class AskedCall(Question):
    """A question about a call of a tool. The job may have many, and its other work goes on."""

    handoff_id: HandoffId
    call_id: str
    tool: str
    is_answered: bool = False
    """True if it has an answer. Its handoff may still wait to be published again."""
    is_told: bool = False
    """True if the webhook of the job was told."""


class TakenMessage(Message):
    """A running agent that took a user's message, and the turn that began with it."""

    handoff_id: HandoffId
    turn: PositiveInt


class UserMessage(Message):
    """A user's message to the agents of the job."""

    message_id: str
    version: PositiveInt
    """Version of its event in the journal."""
    text: BlobRef
    step: StepId | None = None
    """The step whose agents get the message; None: all agents."""
    taken: tuple[TakenMessage, ...] = ()
    """The agents that ran when the message came, and have taken it."""
    in_tasks: NonNegativeInt = 0
    """Number of handoffs that were issued later, with the message in their task."""


class RejectedPlan(Message):
    """A plan that a person rejected, and the note."""

    plan: BlobRef
    note: BlobRef | None = None
    own_plan: BlobRef | None = None
    """The plan that the person would make."""


class KeptResults(Message):
    """Results that a retry keeps until their dependencies have ended."""

    steps: tuple[StepId, ...] = ()
    """Steps whose results stand until a dependency has a different result."""
    answer: bool = False
    """True if the answer and its review stand until any step has a different result."""
    is_known_above: bool = False
    """True if the parent job has that answer already."""

    @property
    def is_nothing(self) -> bool:
        return not (self.steps or self.answer or self.is_known_above)


NOTHING_KEPT = KeptResults()


@dataclass(frozen=True)
class StepIndex:
    """Index of the steps that may need a decision. Of thousands of steps, most are running, or
    have a result without further consequences.
    """

    next: tuple[StepId, ...] = ()
    """Waiting steps that may begin: all their dependencies are settled, or they have a join.
    In the plan's order, like `in_need` and `unusable`. Steps of this list can also be abandoned
    or skipped (`side_effects.py`, `joins.py`). A step that only must not start yet stays in the
    list, and `select_startable_steps` leaves it out.
    """
    in_need: tuple[StepId, ...] = ()
    """Steps with a question that the planner must answer."""
    unusable: tuple[StepId, ...] = ()
    """Settled steps without a usable result: failed or skipped."""
    unsettled: int = 0
    """Number of steps that are not settled."""
    waits_for: PersistentMap[StepId, int] = field(default_factory=PersistentMap)
    """Number of unsettled dependencies of each step."""
    result_bytes: int = 0
    """Total size of the results in bytes."""
    steps_without_result: int = 0
    """Number of steps without a result."""
    outside_chords: tuple[HandoffId, ...] = ()
    """Open handoffs in no chord, in the order of their issue: handoffs of roles and of child
    jobs.
    """

    @property
    def are_settled(self) -> bool:
        """Return whether all steps are settled."""
        return self.unsettled == 0


LAST_CHANCE_S = 30.0
"""Longest reserve in seconds. The last 5 % of a job's time, at most this long, is for the
answer from the results so far.
"""
HAND_IN_SHARE = 0.2
"""Last part of that reserve in which a role that was cut hands in its draft (6 s of 30)."""


class Phase(StrEnum):
    """Current phase of the job."""

    ROUTING = "routing"
    PLANNING = "planning"
    WORKING = "working"
    """Steps run; when all steps are settled, the assessor reviews the round."""
    SYNTHESIZING = "synthesizing"
    ANSWERING = "answering"
    ENDED = "ended"


class StepStatus(StrEnum):
    """Progress of a step."""

    WAITING = "waiting"
    """The step waits for its dependencies or for the next batch of handoffs."""
    RUNNING = "running"
    """A handoff is out."""
    IN_NEED = "in_need"
    """The specialist asked a question, which the planner must answer."""
    SETTLED = "settled"
    """The step has a result: its own result, or a failed result that replaces it."""


class StepState(Message):
    """State of one step of the plan."""

    outline: StepOutline
    status: StepStatus = StepStatus.WAITING
    attempt: NonNegativeInt = 0
    """Number of handoffs so far."""
    cost_microusd: NonNegativeInt | None = None
    """Cost of the latest ended handoff; None: there is none, or its price is unknown."""
    to_finish_microusd: NonNegativeInt | None = None
    """Likely cost of filling only the gaps of the child job, as it reported it; None: no report, or
    no child job.
    """
    began_at: float = 0.0
    """Issue time of the latest handoff. Unix time in seconds."""
    waited_before_s: float = 0.0
    """Seconds that the job had waited for a person by then."""
    handoff_id: HandoffId | None = None
    """Id of the latest handoff."""
    result: BlobRef | None = None
    result_status: ResultStatus | None = None
    comparable_claims: NonNegativeInt = 0
    """Number of its claims that can be compared with other claims."""
    passages: tuple[Passage, ...] = ()
    """Places in documents that its own claims cite."""
    results_with_claims: tuple[BlobRef, ...] = ()
    """The results of all its attempts that have claims, oldest first."""
    restated: tuple[StepId, ...] | None = ()
    """Other steps whose claims these results restate; None: unknown."""
    stop_reason: StopReason | None = None
    """Stop reason of its latest attempt; None: it runs, or was abandoned."""
    problem_result: BlobRef | None = None
    """The HandoffResult with the reason why the step is not `ok`: its own result, or the
    failed result that `result` replaces.
    """
    failures: NonNegativeInt = 0
    """Number of failed attempts, by all specialists together."""
    given_to: str | None = None
    """Current specialist, if it is not the plan's specialist."""
    tried: tuple[str, ...] = ()
    """Specialists that failed at the step."""
    is_released: bool = False
    """True if a person decided that the job continues without a result of the step."""
    is_met: bool = False
    """True if its condition was checked and met. Sending the step back resets it."""
    is_approved: bool | None = None
    """A person's decision about its beginning. None: no decision yet."""
    acted: bool = False
    """True if it may have acted on the world: it only runs again if a person names it."""
    remarks: tuple[AttemptFeedback, ...] = ()
    """Feedback for the next attempt, oldest first."""
    sent_back: BlobRef | None = None
    """The usable result of an earlier attempt. It counts if the attempts after it have no usable
    result.
    """
    child_job: PreviousChildJob | None = None
    """The child job that did the step last; None: no child job did."""
    gaps_only: bool = False
    """True if its next attempt only needs to fill that child job's gaps."""
    origins: tuple[Origin, ...] = ()
    """Origins of the results of all its attempts."""

    @property
    def specialist(self) -> str:
        """Return the specialist that does the step now."""
        return self.given_to or self.outline.specialist

    @property
    def child_job_knows_all(self) -> bool:
        """Return whether a child job did the step last and has received all feedback, except the
        request for missing parts.
        """
        if self.child_job is None:
            return False
        for remark in self.remarks[self.child_job.remarks_received :]:
            is_no_news = remark.author == "supervisor" or remark.asks_for_the_rest
            if not is_no_news:
                return False
        return True

    @property
    def is_settled(self) -> bool:
        return self.status is StepStatus.SETTLED

    @property
    def is_skipped(self) -> bool:
        """Return whether the step did not begin because its condition was not met, or because
        every step that it lacks was skipped.
        """
        return self.result_status is ResultStatus.SKIPPED

    @property
    def is_whole(self) -> bool:
        """Return whether the step is complete: it is done or skipped."""
        return self.result_status in (ResultStatus.OK, ResultStatus.SKIPPED)

    @property
    def is_usable(self) -> bool:
        """Return whether dependents can use its result."""
        return self.result_status in (ResultStatus.OK, ResultStatus.PARTIAL)


def create_steps(outlines: Iterable[StepOutline]) -> dict[StepId, StepState]:
    """Return the steps of a plan before their first attempt."""
    return {outline.id: StepState(outline=outline) for outline in outlines}


def get_outlines(steps: Mapping[StepId, StepState]) -> tuple[StepOutline, ...]:
    return tuple(step.outline for step in steps.values())


class Delivery(Message):
    """Attempts to report the end of a job to one receiver, and their outcome."""

    attempts: NonNegativeInt = 0
    tried_at: float = 0.0
    """Unix time in seconds."""
    delivered: bool = False
    under_way: bool = False
    """True if an attempt has begun and its outcome is not known yet."""


class JobState(Message):
    """State of a job: the facts from the journal that `decide` needs."""

    job_id: JobId
    version: NonNegativeInt
    as_of: float
    """Unix time in seconds of its last event that is not refused."""
    tip: float
    """Unix time in seconds of its last event, as the journal has it. A commit compares it. Do
    not compute with it, because a worker may have written the time of a refused event.
    """
    submitted: JobSubmitted
    started_at: float
    """Unix time in seconds of the submission or the latest retry. The job's time limit counts
    from here.
    """
    status: JobStatus = JobStatus.QUEUED
    mode: Mode = Mode.TEAM
    """The requested mode, or the router's choice for `auto`."""
    quote: Quote | None = None
    retries_when_quoted: int = 0
    routed: Routed | None = None
    phase: Phase = Phase.PLANNING
    plan: PlanMade | None = None
    steps: PersistentMap[StepId, StepState] = Field(default_factory=PersistentMap)
    open: PersistentMap[HandoffId, HandoffIssued] = Field(default_factory=PersistentMap)
    """Handoffs that were issued and have not ended."""
    step_index: StepIndex = Field(default_factory=StepIndex, exclude=True, repr=False)
    """Index of all steps and handoffs, derived from these two fields."""
    specialists: dict[str, str] = Field(default_factory=dict)
    """Name -> digest of the spec: a job keeps the specialists that it started with, until a retry
    of the ended job.
    """
    handoffs: NonNegativeInt = 0
    """Number of handoffs issued since the submission or the latest retry."""
    groups: NonNegativeInt = 0
    """Chords so far."""
    role_attempts: dict[str, int] = Field(default_factory=dict)
    """Number of handoffs of each role, and of the fact-check."""
    role_costs: dict[str, int] = Field(default_factory=dict)
    """Cost of the latest ended handoff of each role, and of the fact-check, in micro-dollars;
    0 if the price is unknown.
    """
    has_lost_decisions: bool = False
    """True if the first decision about the job is refused, because its key is not valid any more.
    Without an end, the job would begin again, and its steps would act again.
    """
    fruitless: NonNegativeInt = 0
    """Number of results of roles since the last result with an effect. A role's result without
    an effect is an internal error after a paid call.
    """
    rounds: tuple[Reviewed, ...] = ()
    review_over: bool = False
    """True if the latest review sent nothing back, and no work was sent back since."""
    rounds_before: NonNegativeInt = 0
    """Rounds that ended with an earlier answer, before a retry."""
    conflicts: ConflictsFound | None = None
    conflicts_of: tuple[BlobRef, ...] = ()
    """The results that were compared to find `conflicts`."""
    judged: Judged | None = None
    """The judge's event for these conflicts."""
    patches: PatchHistory = Field(default_factory=PatchHistory)
    """Changes to its plan, in mode `adaptive`."""
    arbitrated: Arbitrated | None = None
    """The judge's ruling between writer and assessor since the submission or the latest retry."""
    synthesized: Synthesized | None = None
    gated: GatesChecked | None = None
    """Findings of the gates in the current answer."""
    fact_checks: FactChecks = FactChecks()
    gate_rounds: NonNegativeInt = 0
    """Number of answers that the gates or the fact-checker sent back since the submission or
    the latest retry.
    """
    turned_down: BlobRef | None = None
    """The result with the reason why the synthesizer's last answer was rejected. Its next
    attempt reads it.
    """
    ended: JobEnded | None = None
    ended_version: NonNegativeInt = 0
    """Journal version of the `ended` event; 0: the job has not ended."""
    spent: StopReason | None = None
    """Stop reason of the first handoff that a budget ended: the budget of the job, of the day
    or of the parent job. None: no budget is spent.
    """
    spent_its_own: bool = False
    """True if any call did not fit the job's own budget: the job needs a higher limit to
    continue.
    """
    asked_at: float | None = None
    """Unix time in seconds since which the job waits for its user to raise a budget; None: it
    does not wait.
    """
    question: Question | None = None
    """Open question for an approval."""
    asked_calls: tuple[AskedCall, ...] = ()
    """Questions about tool calls of open handoffs, with and without an answer."""
    approved: tuple[ApprovalOf, ...] = ()
    rejected: ApprovalOf | None = None
    """Rejected subject that ends the job, because the job cannot make it again."""
    rejected_plans: tuple[RejectedPlan, ...] = ()
    sent_back_at: float = 0.0
    """Time at which work was last sent back. Unix time in seconds."""
    retries: NonNegativeInt = 0
    waits_for_all: bool = False
    """True if its user wants the gaps filled: no join ends a wait."""
    kept: KeptResults = NOTHING_KEPT
    """Results that stand until their dependencies end differently."""
    reworks: NonNegativeInt = 0
    """Number of times that a review, the judge, a gate, the fact-checker or a person sent work
    back since the submission or the latest retry.
    """
    waited_s: float = 0.0
    """Seconds of waiting for a person since the submission or the latest retry. They do not
    count as the job's time.
    """
    cancelled_by: str | None = None
    messages: tuple[UserMessage, ...] = ()
    """Messages of users, oldest first."""
    parent_told: bool = False
    origins: tuple[Origin, ...] = ()
    """Origins of all results so far."""
    usage: Usage = NOTHING_USED
    verified_usage: VerifiedUsage = NO_VERIFIED_USAGE
    turns: NonNegativeInt = 0
    models: tuple[str, ...] = ()
    """The models that answered, as their servers named them."""
    end_task: Delivery = Delivery()
    """Delivery of the task that is sent when the job has ended."""
    webhook: Delivery = Delivery()
    """Delivery of the webhook that reports the end of the job."""

    @property
    def deadline(self) -> float:
        """Return the time at which the job's time limit ends, without waits for a person. Unix
        time in seconds.
        """
        return self.started_at + self.waited_s + self.submitted.limits.max_seconds

    @property
    def open_calls(self) -> tuple[AskedCall, ...]:
        """Return the questions about tool calls that have no answer."""
        return tuple(call for call in self.asked_calls if not call.is_answered)

    @property
    def asks_about_steps(self) -> bool:
        """Return whether a person is asked about the beginning of single steps. All other work
        continues.
        """
        return self.question is not None and self.question.what is ApprovalOf.STEP

    @property
    def is_only_asking(self) -> bool:
        """Return whether the job asks about steps, and no other work is running."""
        return self.asks_about_steps and not self.open

    @property
    def worked_s(self) -> float:
        """Return the seconds from its beginning, or the latest retry, to its last event,
        without waits for a person.
        """
        return self.as_of - self.started_at - self.waited_s

    @property
    def working_deadline(self) -> float:
        """Return the time at which handoffs must end, so that an answer can still be made.
        Unix time in seconds.
        """
        return self.deadline - min(LAST_CHANCE_S, 0.05 * self.submitted.limits.max_seconds)

    @property
    def role_deadline(self) -> float:
        """Return the deadline of the handoffs of roles. It leaves time to make the answer from
        a role's draft. Unix time in seconds.
        """
        return self.deadline - HAND_IN_SHARE * (self.deadline - self.working_deadline)

    @property
    def is_reviewed(self) -> bool:
        """Return whether its results are reviewed before they become an answer."""
        return self.plan is None or self.plan.is_reviewed

    @property
    def may_send_back(self) -> bool:
        """Return whether a round is left in which work can be done again."""
        return self.reworks < self.submitted.limits.max_rounds

    @property
    def is_withheld(self) -> bool:
        """Return whether the answer needs an approval that it does not have, or the research
        was rejected or waits for its approval.
        """
        unanswered = None
        if self.question:
            unanswered = self.question.what
        is_unapproved = (
            ApprovalOf.ANSWER in self.submitted.approvals.what
            and ApprovalOf.ANSWER not in self.approved
        )
        return is_unapproved or ApprovalOf.RESEARCH in (self.rejected, unanswered)

    @property
    def rounds_now(self) -> tuple[Reviewed, ...]:
        """Return the rounds of review since the submission, or since a retry discarded the
        answer.
        """
        return self.rounds[self.rounds_before :]

    @property
    def last_round(self) -> Reviewed | None:
        if self.rounds_now:
            return self.rounds_now[-1]
        return None

    @property
    def synthesis(self) -> BlobRef | None:
        """Return the synthesizer's result that the answer is made from; None: it is made from
        results of steps.
        """
        event = self.synthesized
        if event is not None and event.method is AnswerMethod.SYNTHESIZED:
            return event.result
        return None

    @property
    def handed_over(self) -> tuple[HandoffId, ...]:
        """Return the ids of all handoffs of the plan's steps and of the roles."""
        attempts = {step_id: step.attempt for step_id, step in self.steps.items()}
        for role, count in self.role_attempts.items():
            attempts[StepId(role)] = count
        handoff_ids: list[HandoffId] = []
        for step_id, count in attempts.items():
            for number in range(1, count + 1):
                handoff_ids.append(build_handoff_id(step_id, number))
        return tuple(handoff_ids)

    def has_open(self, role: Role | None = None) -> bool:
        """Return whether a role of the supervisor has an open handoff. None: any role."""
        for open_id in self.step_index.outside_chords:
            issued = self.open[open_id]
            if issued.is_role_handoff and role in (None, issued.assigned_to):
                return True
        return False

    def get_open_without(self, role: str) -> dict[HandoffId, HandoffIssued]:
        """Return the open handoffs without those of a role whose result is not needed.

        Args:
            role: the name of a role, or FACT_GATE for the fact-checker.
        """
        handoffs: dict[HandoffId, HandoffIssued] = {}
        for open_id, issued in self.open.items():
            if issued.step_id != role:
                handoffs[open_id] = issued
        return handoffs

    @property
    def unsettled_steps(self) -> tuple[StepId, ...]:
        """Return the steps without an outcome, in the plan's order."""
        return tuple(step_id for step_id, step in self.steps.items() if not step.is_settled)

    @property
    def usable_steps(self) -> tuple[StepId, ...]:
        """Return the steps whose results dependents and the answer can use."""
        return tuple(step_id for step_id, step in self.steps.items() if step.is_usable)

    @property
    def incomplete_steps(self) -> tuple[StepId, ...]:
        """Return the steps that are neither done nor skipped: their results are missing or
        partial.
        """
        return tuple(step_id for step_id, step in self.steps.items() if not step.is_whole)

    @property
    def waiting_count(self) -> int:
        """Return the number of steps that wait to begin."""
        return sum(step.status is StepStatus.WAITING for step in self.steps.values())

    @property
    def dependents(self) -> Mapping[StepId, frozenset[StepId]]:
        """Return the dependents of each step."""
        if self.plan:
            return get_plan_graph(self.plan.steps).dependents
        return {}

    @property
    def steps_after(self) -> Mapping[StepId, int]:
        """Return the number of steps in the longest chain of dependents after each step."""
        if self.plan:
            return get_plan_graph(self.plan.steps).steps_after
        return {}

    @property
    def sinks(self) -> tuple[StepId, ...]:
        """Return the plan's steps without dependents, in the plan's order."""
        if self.plan:
            return get_plan_graph(self.plan.steps).sinks
        return ()

    def find_downstream(self, roots: frozenset[StepId]) -> frozenset[StepId]:
        """Return the direct and indirect dependents of the given steps."""
        return frozenset(find_reachable(roots, self.dependents.__getitem__))
