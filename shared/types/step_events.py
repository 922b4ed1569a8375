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
    """A `shared.types.review.Conflicts`, as JSON: the same, with what they say. None: there
    are none.
    """
    left_out: NonNegativeInt = 0
    """Claims that were not looked at, because there are too many."""


class Judged(Message):
    """The judge has looked at the conflicts. Those that it named neither way, or was not
    shown, stay disputed.
    """

    type: Literal["judged"] = "judged"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.types.review.Settlements`."""
    settled: tuple[ConflictId, ...] = ()
    problem: str | None = None
    """Why nothing is settled."""


class Arbitrated(Message):
    """The judge has looked at what a review asks of steps that were sent back for it before.
    What it settled neither way is disputed.
    """

    type: Literal["arbitrated"] = "arbitrated"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.types.review.Rulings`."""
    writer: tuple[StepIdField, ...] = ()
    """Steps whose result is as it should be."""
    reviewer: tuple[StepIdField, ...] = ()
    """Steps of which the review is right."""
    problem: str | None = None
    """Why nothing is settled."""


class CheckVerdict(StrEnum):
    PASS = "PASS"  # noqa: S105 (not a password)
    """No statement of it was found wrong."""
    VETO = "VETO"
    """Those in `wrong` are."""
    CANNOT_SAY = "CANNOT_SAY"
    """There is nothing to check it against."""


class WrongStatement(Message):
    """What the answer says, and what speaks against it."""

    statement: str
    why: str


class FactCheck(Message):
    """The output of a fact-checker's result."""

    verdict: CheckVerdict
    wrong: tuple[WrongStatement, ...] = ()
    why: str = ""
    """What was held against what, for the reader of the answer."""


class FactsChecked(Message):
    """A fact-checker has looked at the answer before it leaves, or it leaves without that."""

    type: Literal["facts_checked"] = "facts_checked"
    result: BlobRef | None = None
    """The fact-checker's HandoffResult; its output is a FactCheck. None: nobody was asked."""
    wrong: NonNegativeInt = 0
    """Statements that it holds to be wrong."""
    is_sent_back: bool = False
    steps: tuple[StepIdField, ...] = ()
    """To do again, if it is; none: the synthesizer is."""
    problem: str | None = None
    """Why the answer was not checked."""


LAST = ""
"""The fan-in of the plan's sinks, among the names of steps."""


class Counted(Message):
    """A usable result that is counted for a fan-in; with so many of them the supervisor is
    woken at once.
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
    """The AgentHandoff, as JSON: what was published, to the byte."""
    specialist: Digest
    group: str | None = None
    """The chord that it is part of; None: a role, run by a supervisor, or a child job."""
    index: NonNegativeInt = 0
    """Its place in the chord."""
    group_size: NonNegativeInt = 0
    """How many the chord has; 0: it is in none. The journal says so itself: nothing reads it
    but supervisors of the version before.
    """
    deadline: float | None = None
    max_microusd: PositiveInt | None = None
    """What it may cost; None: as much as its job."""
    closes: bool = False
    """It is asked to bring the job to its end, though its role is not one that always does:
    what is kept for that is there for it.
    """
    counts: tuple[Counted, ...] = ()
    """The fan-ins that may go on before all of their parts have ended, and wait for this one
    among others.
    """
    child: Child | None = None
    """None: one agent does it."""
    acts: Annotated[bool | None, Unsaid] = None
    """Whether the specialist has a tool with effects."""

    @property
    def is_of_a_role(self) -> bool:
        """Whether a supervisor runs it itself."""
        return self.group is None and self.child is None

    @property
    def is_fact_check(self) -> bool:
        """Whether a specialist looks at the answer before it leaves."""
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
    """Those among them that code can hold against others."""
    model: str | None = None
    worker: str = ""
    to_finish_microusd: Annotated[NonNegativeInt | None, Unsaid] = None
    acted: Annotated[bool | None, Unsaid] = None
    """Whether a tool with effects may have run."""


class StepOutline(Message):
    """A step without its text, which lies in the plan's blob."""

    id: StepIdField
    specialist: NameField
    depends_on: tuple[StepIdField, ...] = ()
    given: tuple[StepIdField, ...] = ()
    """What it has, of what the job knew from the beginning."""
    title: str = ""
    """The title that the plan gives the step, or the first words of its task."""
    is_titled: bool = False
    """Whether the plan gives the title."""
    on_failure: OnFailure = OnFailure.DROP
    join: Join | None = None
    after: Annotated[Literal["review"] | None, Unsaid] = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: Annotated[bool | None, Unsaid] = None
    """Whether a person must approve before the step begins."""
    acts: Annotated[bool | None, Unsaid] = None
    """Whether the specialist had a tool with effects when the plan was made."""
    when: Annotated[bool | None, Unsaid] = None
    """Whether the plan has a condition for the step."""
    helpers: tuple[StepIdField, ...] = ()
    """Those of `depends_on` that the planner has added to find out what it needs: it waits for
    them, and goes on without what fails.
    """

    @property
    def heading(self) -> str:
        """The heading of the step's result in a merged answer."""
        return self.title if self.is_titled else self.id


class PlanMade(Message):
    """The job has a plan."""

    type: Literal["plan_made"] = "plan_made"
    plan: BlobRef
    steps: tuple[StepOutline, ...]
    synthesis: Synthesis = Synthesis.MERGE
    join: Join | None = None
    """What the answer needs of the plan's sinks."""
    is_reviewed: bool = True
    """Whether an assessor judges the results."""
    degraded: BlobRef | None = None
    """The planner's HandoffResult, if that is no plan: then there is one step, the whole
    request, for the generalist.
    """
    noted: BlobRef | None = None
    """The planner's HandoffResult, if it has notes: what was made of its answer."""


class PlanPatched(Message):
    """The replanner has looked at what was found: the plan was changed, or stands as it was."""

    type: Literal["plan_patched"] = "plan_patched"
    result: BlobRef
    """The replanner's HandoffResult; its output is a `shared.types.plan.Patch`, which says why."""
    plan: BlobRef | None = None
    """All of the plan as it is now; None: unchanged."""
    added: tuple[StepOutline, ...] = ()
    changed: tuple[StepOutline, ...] = ()
    dropped: tuple[StepIdField, ...] = ()
    too_late: tuple[StepIdField, ...] = ()
    """These were to be changed or dropped, and had begun by then."""
    repeats: tuple[Repeat, ...] = ()
    """Steps that were asked for again, and are not run."""
    nothing_new: tuple[StepIdField, ...] = ()
    """Steps of earlier patches whose results it was shown, and that say nothing which the job
    did not have before.
    """
    is_final: bool = False
    """The replanner wants nothing more: it is not asked again."""
    problem: str | None = None
    """Why nothing came of it."""


class NeedsResolved(Message):
    """The planner has dealt with what steps needed."""

    type: Literal["needs_resolved"] = "needs_resolved"
    result: BlobRef
    """The planner's HandoffResult; its output is a `shared.types.plan.Resolutions`."""
    answered: tuple[StepIdField, ...] = ()
    given_up: tuple[StepIdField, ...] = ()
    repeats: tuple[StepIdField, ...] = ()
    """Those among the given up that asked again, in other words, for what the planner had
    answered them before.
    """
    added_to: BlobRef | None = None
    """The plan as the planner knew it. If the job has another by now, or one of `changed` is
    not in need any more, nothing is added, and it is asked again.
    """
    plan: BlobRef | None = None
    """All of it with them; None: none are added."""
    added: tuple[StepOutline, ...] = ()
    """They find out what others need."""
    changed: tuple[StepOutline, ...] = ()
    """Those in need that wait for them."""


class Reviewed(Message):
    """A round of results was judged. `decision` None: it could not be; the answer says so."""

    type: Literal["reviewed"] = "reviewed"
    round: PositiveInt
    decision: Decision | None
    result: BlobRef | None = None
    """The assessor's HandoffResult; its output is the `shared.types.review.Verdict`. None:
    nobody was asked.
    """
    steps: tuple[StepIdField, ...] = ()
    """To do again."""
    repeats: tuple[StepIdField, ...] = ()
    """Those among them that are sent back for what an earlier round has asked of them already,
    in other words.
    """
    open_points: NonNegativeInt = 0
    problem: str | None = None
    """Why there is no decision."""

    @property
    def goes_in_circles(self) -> bool:
        """All that it sends back was sent back before for the same: another round would not help."""
        return bool(self.steps) and {*self.steps} <= {*self.repeats}


class Abandoned(Message):
    """A step, and the failed HandoffResult that stands in for its own: whoever depends on it
    is told.
    """

    step: StepIdField
    result: BlobRef


class StepsAbandoned(Message):
    """These will not be waited for any longer, and neither will what is running of them."""

    type: Literal["steps_abandoned"] = "steps_abandoned"
    steps: tuple[Abandoned, ...]
    why: str


class ConditionsChecked(Message):
    """The conditions of steps were held against the results that they depend on."""

    type: Literal["conditions_checked"] = "conditions_checked"
    met: tuple[StepIdField, ...] = ()
    skipped: tuple[Abandoned, ...] = ()
    """Steps that do not begin, for their condition is not met, or for what they build on was
    skipped.
    """
    undecided: tuple[Abandoned, ...] = ()
    """Steps that failed, for the results do not decide their condition."""


class SecondChance(Message):
    """A step that failed, and who tries it next; None: the same specialist."""

    step: StepIdField
    specialist: NameField | None = None


class StepsTriedAgain(Message):
    """These failed, and get another attempt that is told why."""

    type: Literal["steps_tried_again"] = "steps_tried_again"
    steps: tuple[SecondChance, ...]


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
    """The supervisor knows what the answer is made of: a synthesizer's result, or those of steps."""

    type: Literal["synthesised"] = "synthesised"
    method: AnswerMethod
    result: BlobRef | None = None
    """The synthesizer's HandoffResult, if one was asked: what the answer is made of, or, with
    another method, why it is not.
    """
    problem: str | None = None
    """What is not as it should be with the synthesis."""


class GatesChecked(Message):
    """Code has looked at the answer before it leaves."""

    type: Literal["gates_checked"] = "gates_checked"
    vetoes: NonNegativeInt = 0
    result: BlobRef | None = None
    """A failed HandoffResult whose error has the vetoes, a line each; None: there are none."""
    is_sent_back: bool = False
    steps: tuple[StepIdField, ...] = ()
    """To do again, if it is; none: the synthesizer is."""


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
