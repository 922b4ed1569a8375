"""Events about steps, their handoffs, their reviews and the conflicts between their results."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import NonNegativeInt, PositiveInt

from handoff_queue.shared.types.handoff import BlobRef, ClaimId, ResultStatus, StopReason
from handoff_queue.shared.types.ids import (
    Digest,
    HandoffIdField,
    JobIdField,
    NameField,
    StepIdField,
)
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import Message, Unsaid
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.plan import Join, OnFailure, Repeat, Synthesis
from handoff_queue.shared.types.review import ConflictId, Decision
from handoff_queue.shared.types.usage import Usage


class ConflictsFound(Message):
    """Code has held the claims of all steps against each other."""

    type: Literal["conflicts_found"] = "conflicts_found"
    conflicts: tuple[tuple[ClaimId, ...], ...] = ()
    """The claims of each that can't all be right."""
    ledger: BlobRef | None = None
    """A `shared.types.review.Conflicts` as JSON: the same conflicts with the texts of their claims.
    None: there are no conflicts.
    """
    left_out: NonNegativeInt = 0
    """Claims that were not looked at, because there are too many."""


class Judged(Message):
    """The judge has answered about the conflicts. Conflicts that it did not settle, or did not see,
    stay disputed.
    """

    type: Literal["judged"] = "judged"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.types.review.Settlements`."""
    settled: tuple[ConflictId, ...] = ()
    problem: str | None = None
    """Reason why nothing is settled."""


class Arbitrated(Message):
    """The judge has ruled on a review that repeats an earlier revision request. Points that it did
    not settle stay disputed.
    """

    type: Literal["arbitrated"] = "arbitrated"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.types.review.Rulings`."""
    writer: tuple[StepIdField, ...] = ()
    """Steps whose result is as it should be."""
    reviewer: tuple[StepIdField, ...] = ()
    """Steps of which the review is right."""
    problem: str | None = None
    """Reason why nothing is settled."""


class CheckVerdict(StrEnum):
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
    """The comparison that the check made, for the reader of the answer."""


class FactsChecked(Message):
    """A fact-checker has looked at the answer before it leaves, or it leaves without that."""

    type: Literal["facts_checked"] = "facts_checked"
    result: BlobRef | None = None
    """The fact-checker's HandoffResult; its output is a FactCheck. None: there was no fact-checker.
    """
    wrong: NonNegativeInt = 0
    """Statements that it holds to be wrong."""
    is_sent_back: bool = False
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again if the check failed; empty: only the synthesizer runs again."""
    problem: str | None = None
    """Reason why the answer was not checked."""


LAST = ""
"""The fan-in of the plan's sinks, among the names of steps."""


class Counted(Message):
    """A fan-in that counts usable results. When the number is reached, the supervisor is woken at
    once.
    """

    fan_in: str
    """The step that waits, or LAST."""
    wakes_from: PositiveInt


class Child(Message):
    """The job that does a handoff which was given to a sub-supervisor, and its slice of the budget."""

    job_id: JobIdField
    limits: JobLimits


class HandoffIssued(Message):
    """An attempt at a step was given to a specialist, or to one of the supervisor's roles."""

    type: Literal["handoff_issued"] = "handoff_issued"
    handoff_id: HandoffIdField
    step_id: StepIdField
    attempt: PositiveInt
    assigned_to: NameField
    handoff: BlobRef
    """The published AgentHandoff as JSON, byte for byte."""
    specialist: Digest
    group: str | None = None
    """The chord that it is part of; None: a role, run by a supervisor, or a child job."""
    index: NonNegativeInt = 0
    """Position in the chord."""
    group_size: NonNegativeInt = 0
    """Number of handoffs in the chord; 0: the handoff is in no chord. Only supervisors of the
    previous version read it.
    """
    deadline: float | None = None
    max_microusd: PositiveInt | None = None
    """Most that the handoff may cost; None: as much as its job."""
    closes: bool = False
    """True if the handoff must bring the job to its end, so that it may use the reserve for the
    end, although its role normally may not.
    """
    counts: tuple[Counted, ...] = ()
    """The fan-ins that may go on before all of their parts have ended, and wait for this one
    among others.
    """
    child: Child | None = None
    """The child job that does the step; None: one agent does it."""
    acts: Annotated[bool | None, Unsaid] = None
    """True if the specialist has a tool with effects."""

    @property
    def is_of_a_role(self) -> bool:
        """Return whether a supervisor runs the handoff itself."""
        return self.group is None and self.child is None

    @property
    def is_fact_check(self) -> bool:
        """Return whether the handoff is a specialist's check of the answer."""
        return self.step_id == FACT_GATE


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
    comparable: NonNegativeInt = 0
    """Number of claims that code can compare with other claims."""
    model: str | None = None
    worker: str = ""
    to_finish_microusd: Annotated[NonNegativeInt | None, Unsaid] = None
    acted: Annotated[bool | None, Unsaid] = None
    """True if a tool with effects may have run."""


class StepOutline(Message):
    """A step without its text, which lies in the plan's blob."""

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
    after: Annotated[Literal["review"] | None, Unsaid] = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: Annotated[bool | None, Unsaid] = None
    """True if a person must approve before the step begins."""
    acts: Annotated[bool | None, Unsaid] = None
    """True if the specialist had a tool with effects when the plan was made."""
    when: Annotated[bool | None, Unsaid] = None
    """True if the plan has a condition for the step."""
    helpers: tuple[StepIdField, ...] = ()
    """Dependencies that the planner added to answer the step's questions. The step waits for them,
    and begins without the failed ones.
    """

    @property
    def heading(self) -> str:
        """The heading of the step's result in a merged answer."""
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
    """The planner's HandoffResult, if that is no plan: then there is one step, the whole
    request, for the generalist.
    """
    noted: BlobRef | None = None
    """The planner's HandoffResult, if it has notes about changes to its plan."""


class PlanPatched(Message):
    """The replanner has read the results so far: it changed the plan or left it unchanged."""

    type: Literal["plan_patched"] = "plan_patched"
    result: BlobRef
    """The replanner's HandoffResult; its output is a `shared.types.plan.Patch`, which says why."""
    plan: BlobRef | None = None
    """The whole changed plan; None: unchanged."""
    added: tuple[StepOutline, ...] = ()
    changed: tuple[StepOutline, ...] = ()
    dropped: tuple[StepIdField, ...] = ()
    too_late: tuple[StepIdField, ...] = ()
    """Steps that the patch wanted to change or drop, but that had begun."""
    repeats: tuple[Repeat, ...] = ()
    """Steps that were asked for again, and are not run."""
    nothing_new: tuple[StepIdField, ...] = ()
    """Steps of earlier patches whose results it was shown, and that say nothing which the job
    did not have before.
    """
    is_final: bool = False
    """The replanner wants nothing more: it is not asked again."""
    problem: str | None = None
    """Reason why the replanner's answer had no effect."""


class NeedsResolved(Message):
    """The planner has dealt with what steps needed."""

    type: Literal["needs_resolved"] = "needs_resolved"
    result: BlobRef
    """The planner's HandoffResult; its output is a `shared.types.plan.Resolutions`."""
    answered: tuple[StepIdField, ...] = ()
    given_up: tuple[StepIdField, ...] = ()
    repeats: tuple[StepIdField, ...] = ()
    """Abandoned steps that asked a question again, in other words, that the planner had answered.
    """
    added_to: BlobRef | None = None
    """The plan as the planner knew it. If the job has another by now, or one of `changed` is
    not in need any more, nothing is added, and it is asked again.
    """
    plan: BlobRef | None = None
    """The whole plan with the added steps; None: no step is added."""
    added: tuple[StepOutline, ...] = ()
    """Added steps that answer the questions of other steps."""
    changed: tuple[StepOutline, ...] = ()
    """Steps with a question that wait for the added steps."""


class Reviewed(Message):
    """A round of results was judged. `decision` None: it could not be; the answer says so."""

    type: Literal["reviewed"] = "reviewed"
    round: PositiveInt
    decision: Decision | None
    result: BlobRef | None = None
    """The assessor's HandoffResult; its output is the `shared.types.review.Verdict`. None: there
    was no assessor.
    """
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again."""
    repeats: tuple[StepIdField, ...] = ()
    """Steps that are sent back for a fault that an earlier round named in other words."""
    open_points: NonNegativeInt = 0
    problem: str | None = None
    """Reason why there is no decision."""

    @property
    def goes_in_circles(self) -> bool:
        """Return whether every revision repeats an earlier one, so that another round would not
        help.
        """
        return bool(self.steps) and {*self.steps} <= {*self.repeats}


class Abandoned(Message):
    """A step, and the failed HandoffResult that replaces its result for its dependents."""

    step: StepIdField
    result: BlobRef


class StepsAbandoned(Message):
    """The job no longer waits for these steps; their running handoffs are abandoned."""

    type: Literal["steps_abandoned"] = "steps_abandoned"
    steps: tuple[Abandoned, ...]
    why: str


class ConditionsChecked(Message):
    """The conditions of steps were held against the results that they depend on."""

    type: Literal["conditions_checked"] = "conditions_checked"
    met: tuple[StepIdField, ...] = ()
    skipped: tuple[Abandoned, ...] = ()
    """Steps that do not begin, because their condition is not met, or a step that they need was
    skipped.
    """
    undecided: tuple[Abandoned, ...] = ()
    """Steps that failed, for the results do not decide their condition."""


class SecondChance(Message):
    """A failed step, and the specialist that tries it next; None: the same specialist."""

    step: StepIdField
    specialist: NameField | None = None


class StepsTriedAgain(Message):
    """Failed steps that get another attempt with the reason."""

    type: Literal["steps_tried_again"] = "steps_tried_again"
    steps: tuple[SecondChance, ...]


class AnswerMethod(StrEnum):
    """Method by which results became the answer."""

    SINGLE_SINK = "single_sink"
    """The plan's one last step said it; taken as it is."""
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


class Synthesised(Message):
    """The supervisor has the parts of the answer: a synthesizer's result, or results of steps."""

    type: Literal["synthesised"] = "synthesised"
    method: AnswerMethod
    result: BlobRef | None = None
    """The synthesizer's HandoffResult, if there was a synthesizer. With another method it holds the
    reason why it was not used.
    """
    problem: str | None = None
    """Fault of the synthesis."""


class GatesChecked(Message):
    """Code has looked at the answer before it leaves."""

    type: Literal["gates_checked"] = "gates_checked"
    vetoes: NonNegativeInt = 0
    result: BlobRef | None = None
    """A failed HandoffResult whose error has the vetoes, a line each; None: there are none."""
    is_sent_back: bool = False
    steps: tuple[StepIdField, ...] = ()
    """Steps to run again if needed; empty: only the synthesizer runs again."""


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
    | Synthesised
    | GatesChecked
    | FactsChecked
)
