"""Events about steps, their handoffs, their reviews and the conflicts between their results."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import NonNegativeInt, PositiveInt, StringConstraints

from handoff_queue.shared.types.handoff import (
    BlobRef,
    Citation,
    ClaimId,
    ResultStatus,
    SharedRun,
    StopReason,
)
from handoff_queue.shared.types.ids import (
    Digest,
    HandoffIdField,
    JobIdField,
    NameField,
    StepIdField,
)
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import Message, OmitNone, compute_digest
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.origins import Origins, find_tool
from handoff_queue.shared.types.plan import Repeat, Synthesis
from handoff_queue.shared.types.review import ConflictId, Decision
from handoff_queue.shared.types.step import Join, OnFailure
from handoff_queue.shared.types.usage import Figure, Usage


class ConflictsFound(Message):
    """Code has compared the claims of all steps with each other."""

    type: Literal["conflicts_found"] = "conflicts_found"
    conflicts: tuple[tuple[ClaimId, ...], ...] = ()
    """The claims of each conflict, which cannot all be true."""
    payload: BlobRef | None = None
    """A `shared.types.review.Conflicts` as JSON: the same conflicts with the texts of their
    claims. None: there are no conflicts.
    """
    left_out: NonNegativeInt = 0
    """Number of claims that were not compared, because there are too many."""


class Judged(Message):
    """The judge has answered about the conflicts. Conflicts that it did not settle or see stay
    disputed.
    """

    type: Literal["judged"] = "judged"
    result: BlobRef
    """The judge's HandoffResult; its output has a settlement for each conflict."""
    settled: tuple[ConflictId, ...] = ()
    problem: str | None = None
    """Reason why nothing is settled."""


class Arbitrated(Message):
    """The judge has ruled on a review that repeats an earlier revision request. Points that it
    did not settle stay disputed.
    """

    type: Literal["arbitrated"] = "arbitrated"
    result: BlobRef
    """The judge's HandoffResult; its output has a ruling for each disputed point."""
    writer: tuple[StepIdField, ...] = ()
    """Steps whose result is correct: the review is wrong."""
    assessor: tuple[StepIdField, ...] = ()
    """Steps about which the review is right."""
    problem: str | None = None
    """Reason why nothing is settled."""


class CheckVerdict(StrEnum):
    """Verdict of a fact-checker."""

    PASS = "PASS"  # noqa: S105 (not a password)
    """The fact-checker found no wrong statement."""
    VETO = "VETO"
    """The fact-checker found the statements in `wrong`."""
    CANNOT_SAY = "CANNOT_SAY"
    """There is no evidence to check the answer against."""


class WrongStatement(Message):
    """A statement of the answer, and the evidence against it."""

    statement: str
    why: str


class FactCheck(Message):
    """The output of a fact-checker's result."""

    verdict: CheckVerdict
    wrong: tuple[WrongStatement, ...] = ()
    why: str = ""
    """Summary of the comparison, for the reader of the answer."""


class FactsChecked(Message):
    """A fact-checker has checked the answer before the end of the job, or could not check it."""

    type: Literal["facts_checked"] = "facts_checked"
    result: BlobRef | None = None
    """The fact-checker's `HandoffResult`, with its objections as output; None: no fact-checker
    ran.
    """
    wrong: NonNegativeInt = 0
    """Number of statements that the fact-checker found to be wrong."""
    is_sent_back: bool = False
    """True if the answer is made again."""
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again if the answer is sent back; empty: only the synthesizer runs again."""
    problem: str | None = None
    """Reason why the answer was not checked."""


LAST = ""
"""Name of the fan-in of the plan's sinks. The other fan-ins have the names of steps."""


class CountedFanIn(Message):
    """A fan-in that counts usable results. It wakes the supervisor when the number is reached."""

    fan_in: str
    """The step that waits, or `LAST`."""
    wakes_from: PositiveInt
    """Number of usable results."""


class Child(Message):
    """The child job that does a handoff of its parent, and its part of the budget."""

    job_id: JobIdField
    limits: JobLimits


class HandoffIssued(Message):
    """The supervisor issued an attempt at a step to a specialist, a child job or a role."""

    type: Literal["handoff_issued"] = "handoff_issued"
    handoff_id: HandoffIdField
    step_id: StepIdField
    attempt: PositiveInt
    assigned_to: NameField
    handoff: BlobRef
    """The `AgentHandoff` as JSON, byte for byte as it is published."""
    specialist: Digest
    """Digest of the specialist's definition."""
    group: str | None = None
    """Chord of the handoff; None for a handoff of a role or a child job."""
    index: NonNegativeInt = 0
    """Position in the chord."""
    deadline: float | None = None
    """Time at which the handoff must end, in Unix seconds."""
    max_microusd: PositiveInt | None = None
    """The most that the handoff may cost; None: only the job's budget counts."""
    max_tokens: Annotated[PositiveInt | None, OmitNone] = None
    """Token budget of the handoff; None: unknown."""
    closes: bool = False
    """True if the handoff may use the reserve for the end of the job, although its role
    normally may not.
    """
    counts: tuple[CountedFanIn, ...] = ()
    """Fan-ins that count this handoff's result, and can continue before all their parts have
    ended.
    """
    child: Child | None = None
    """The child job that does the step; None: an agent or a task does it."""
    acts: Annotated[bool | None, OmitNone] = None
    """True if the specialist has a tool with effects."""

    @property
    def is_role_handoff(self) -> bool:
        """Return whether the handoff belongs to a role."""
        return self.group is None and self.child is None

    @property
    def is_fact_check(self) -> bool:
        """Return whether the handoff is a specialist's check of the answer."""
        return self.step_id == FACT_GATE


Passage = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
"""First digits of a hash of a document's digest and of the place of a quote in it."""
MAX_PASSAGES = 32
"""Passages of one result that its event names."""


MAX_RESTATED = 32
"""Steps of one result whose restated claims its event names."""


def compute_passage(citation: Citation) -> Passage:
    """Return the passage that a citation is about. Equal results of two tool calls are two
    passages, because each is about its own subject.
    """
    place = f"{citation.digest} {citation.start}"
    if find_tool(citation.source) is not None:
        place = f"{citation.source} {place}"
    return compute_digest(place)[:12]


class HandoffFinished(Message):
    """A handoff has ended with a result. A failure is also a result, and has its reason."""

    type: Literal["handoff_finished"] = "handoff_finished"
    handoff_id: HandoffIdField
    status: ResultStatus
    result: BlobRef
    usage: Usage
    turns: Figure
    stop_reason: StopReason
    confidence: float
    claims: Figure = 0
    comparable_claims: Figure = 0
    """Number of claims that code can compare with other claims."""
    passages: Annotated[tuple[Passage, ...] | None, OmitNone] = None
    """Places in documents that the result's own claims cite; None: none, or unknown."""
    restated: Annotated[tuple[StepIdField, ...] | None, OmitNone] = None
    """Other steps whose claims the result restates. None: the result has no claims, or the steps
    are unknown, because they are too many or an older version has written the event.
    """
    model: str | None = None
    """Name of the model that wrote the output."""
    replies_by_model: Annotated[dict[str, PositiveInt] | None, OmitNone] = None
    """Number of replies of each model; None: all replies are from one model."""
    worker: str = ""
    to_finish_microusd: Annotated[Figure | None, OmitNone] = None
    acted: Annotated[bool | None, OmitNone] = None
    """True if a tool with effects may have run."""
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of all that the handoff has seen; None: unknown."""
    shared: Annotated[SharedRun | None, OmitNone] = None
    """The run that made the result for an equal handoff; None: the handoff ran itself."""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the models that have replied, the writer of the output first."""
        first = (self.model,) if self.model else ()
        return tuple(dict.fromkeys((*first, *(self.replies_by_model or ()))))


class StepOutline(Message):
    """A step without its task, which only the payload of the plan has."""

    id: StepIdField
    specialist: NameField
    depends_on: tuple[StepIdField, ...] = ()
    given: tuple[StepIdField, ...] = ()
    """Inputs of the step that the job had from the beginning."""
    title: str = ""
    """The title that the plan gives the step, or the first words of its task."""
    is_titled: bool = False
    """True if the plan gives the title."""
    on_failure: OnFailure = OnFailure.DROP
    join: Join | None = None
    after: Annotated[Literal["review"] | None, OmitNone] = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: Annotated[bool | None, OmitNone] = None
    """True if a person must approve before the step begins."""
    acts: Annotated[bool | None, OmitNone] = None
    """True if the specialist had a tool with effects when the plan was made."""
    when: Annotated[bool | None, OmitNone] = None
    """True if the plan has a condition for the step."""
    helpers: tuple[StepIdField, ...] = ()
    """Dependencies that the planner added to answer the step's questions. The step waits for
    them, and begins without the failed ones.
    """
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of the task, if the planner has seen more than the request; None: the request."""

    @property
    def heading(self) -> str:
        """Return the heading of the step's result in a merged answer."""
        if self.is_titled:
            return self.title
        return self.id


class PlanMade(Message):
    """The job has a plan."""

    type: Literal["plan_made"] = "plan_made"
    plan: BlobRef
    steps: tuple[StepOutline, ...]
    synthesis: Synthesis = Synthesis.MERGE
    join: Join | None = None
    """Results of the plan's sinks that the answer needs."""
    is_reviewed: bool = True
    """True if an assessor judges the results."""
    degraded: BlobRef | None = None
    """The planner's `HandoffResult` if it has no plan. Then the plan has one step: the whole
    request, for the generalist.
    """
    noted: BlobRef | None = None
    """The planner's HandoffResult, if it has notes about changes to its plan."""


class PlanPatched(Message):
    """The replanner has read the results so far: it changed the plan or left it unchanged."""

    type: Literal["plan_patched"] = "plan_patched"
    result: BlobRef
    """The replanner's HandoffResult; its output is a change of the plan,
    with the reason.
    """
    plan: BlobRef | None = None
    """The whole changed plan; None: unchanged."""
    added: tuple[StepOutline, ...] = ()
    changed: tuple[StepOutline, ...] = ()
    dropped: tuple[StepIdField, ...] = ()
    too_late: tuple[StepIdField, ...] = ()
    """Steps that the patch wanted to change or drop, but that had begun."""
    repeats: tuple[Repeat, ...] = ()
    """Proposed steps that repeat earlier steps, and do not run."""
    is_final: bool = False
    """True if the replanner needs no more steps, and is not called again."""
    problem: str | None = None
    """Reason why the replanner's answer had no effect."""


class NeedsResolved(Message):
    """The planner has answered the questions of steps."""

    type: Literal["needs_resolved"] = "needs_resolved"
    result: BlobRef
    """The planner's HandoffResult; its output has a resolution for each question."""
    answered: tuple[StepIdField, ...] = ()
    """Steps that run again with an answer."""
    given_up: tuple[StepIdField, ...] = ()
    """Steps that are abandoned, because there is no answer."""
    repeats: tuple[StepIdField, ...] = ()
    """Abandoned steps that asked a question again, in other words, which the planner had
    answered.
    """
    added_to: BlobRef | None = None
    """The plan that the planner knew. The job may have another plan now, or a step of `changed` may
    have no question any more. Then no step is added, and the planner is called again.
    """
    plan: BlobRef | None = None
    """The whole plan with the added steps; None: no step is added."""
    added: tuple[StepOutline, ...] = ()
    """Added steps that answer the questions of other steps."""
    changed: tuple[StepOutline, ...] = ()
    """Steps with a question that wait for the added steps."""


class Reviewed(Message):
    """A round of results was judged, or could not be judged (`decision` None)."""

    type: Literal["reviewed"] = "reviewed"
    round: PositiveInt
    decision: Decision | None
    result: BlobRef | None = None
    """The assessor's `HandoffResult`, whose output is the verdict; None:
    no assessor ran.
    """
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again."""
    repeats: tuple[StepIdField, ...] = ()
    """Steps to run again for a fault that an earlier round named in other words."""
    open_points: NonNegativeInt = 0
    problem: str | None = None
    """Reason why there is no decision."""

    @property
    def repeats_earlier_revisions(self) -> bool:
        """Return whether there are revisions, and each repeats an earlier one. Then another
        round would not help.
        """
        return bool(self.steps) and {*self.steps} <= {*self.repeats}


class AbandonedStep(Message):
    """A step, and the failed HandoffResult that replaces its result for its dependents."""

    step: StepIdField
    result: BlobRef


class StepsAbandoned(Message):
    """The job no longer waits for these steps; their running handoffs are abandoned."""

    type: Literal["steps_abandoned"] = "steps_abandoned"
    steps: tuple[AbandonedStep, ...]
    why: str


class ConditionsChecked(Message):
    """The conditions of steps were evaluated with the results of their dependencies."""

    type: Literal["conditions_checked"] = "conditions_checked"
    met: tuple[StepIdField, ...] = ()
    skipped: tuple[AbandonedStep, ...] = ()
    """Steps that do not begin, because their condition is not met, or a step that they need
    was skipped.
    """
    undecided: tuple[AbandonedStep, ...] = ()
    """Steps that failed, because the results do not decide their condition."""


class StepRetry(Message):
    """A failed step, and the specialist that tries it next; None: the same specialist."""

    step: StepIdField
    specialist: NameField | None = None


class StepsTriedAgain(Message):
    """Failed steps get another attempt, which knows the reason of the failure."""

    type: Literal["steps_tried_again"] = "steps_tried_again"
    steps: tuple[StepRetry, ...]


class AnswerMethod(StrEnum):
    """Method by which results became the answer."""

    SINGLE_SINK = "single_sink"
    """The result of the plan's only sink is the answer."""
    MERGED = "merged"
    """Independent sections, one after the other, by code."""
    SYNTHESIZED = "synthesized"
    """A synthesizer call."""
    NONE = "none"
    """No step has a usable result."""

    @property
    def in_words(self) -> str:
        """Return the method as a user reads it."""
        match self:
            case AnswerMethod.SINGLE_SINK:
                return "taken from the last step"
            case AnswerMethod.MERGED:
                return "put together from the results of the steps"
            case AnswerMethod.SYNTHESIZED:
                return "written by the synthesizer"
            case AnswerMethod.NONE:
                return "none"


class Synthesized(Message):
    """The supervisor has the parts of the answer: a synthesizer's result, or results of steps."""

    type: Literal["synthesized"] = "synthesized"
    method: AnswerMethod
    result: BlobRef | None = None
    """The synthesizer's `HandoffResult`, if the synthesizer ran. With another method it has
    the reason why it was not used.
    """
    problem: str | None = None
    """Fault of the synthesis."""


class GatesChecked(Message):
    """Code has checked the answer by the gates."""

    type: Literal["gates_checked"] = "gates_checked"
    vetoes: NonNegativeInt = 0
    """Number of vetoes."""
    result: BlobRef | None = None
    """A failed `HandoffResult` whose error has one line for each veto; None: no vetoes."""
    is_sent_back: bool = False
    """True if the answer is made again."""
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again if the answer is sent back; empty: only the synthesizer runs again."""


StepEvent = (
    HandoffIssued
    | HandoffFinished
    | PlanMade
    | PlanPatched
    | NeedsResolved
    | ConflictsFound
    | Judged
    | Arbitrated
    | Reviewed
    | StepsAbandoned
    | ConditionsChecked
    | StepsTriedAgain
    | Synthesized
    | GatesChecked
    | FactsChecked
)
