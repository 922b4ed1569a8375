"""What can happen to a job's plan, its steps and their handoffs. `shared.wire.events` has all events, and what they have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from shared.wire.conflicts import ConflictId
from shared.wire.handoff import BlobRef, ClaimId, ResultStatus, StopReason
from shared.wire.ids import Digest, HandoffIdField, NameField, StepIdField
from shared.wire.message import Message
from shared.wire.plan import OnFailure, Synthesis
from shared.wire.usage import Usage
from shared.wire.verdict import Decision


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
    comparable: NonNegativeInt = 0
    """Those among them that code can hold against others."""
    model: str | None = None
    worker: str = ""


class StepOutline(Message):
    """A step without its text, which lies in the plan's blob."""

    id: StepIdField
    specialist: NameField
    depends_on: tuple[StepIdField, ...] = ()
    title: str = ""
    """The first words of its task."""
    on_failure: OnFailure = OnFailure.DROP


class PlanMade(Message):
    """The job has a plan."""

    type: Literal["plan_made"] = "plan_made"
    plan: BlobRef
    steps: tuple[StepOutline, ...]
    synthesis: Synthesis = Synthesis.MERGE
    is_reviewed: bool = True
    """Whether an assessor judges the results."""
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

    @property
    def goes_in_circles(self) -> bool:
        """All that it sends back was sent back before for the same: another round would not help."""
        return bool(self.steps) and {*self.steps} <= {*self.repeats}


class ConflictsFound(Message):
    """Code has held the claims of all steps against each other."""

    type: Literal["conflicts_found"] = "conflicts_found"
    conflicts: tuple[tuple[ClaimId, ...], ...] = ()
    """The claims of each that can't all be right."""
    ledger: BlobRef | None = None
    """A `shared.wire.conflicts.Conflicts`, as JSON: the same, with what they say. None: there are none."""
    left_out: NonNegativeInt = 0
    """Claims that were not looked at, because there are too many."""


class Judged(Message):
    """The judge has looked at the conflicts. Those that it named neither way, or was not shown, stay disputed."""

    type: Literal["judged"] = "judged"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.wire.conflicts.Settlements`."""
    settled: tuple[ConflictId, ...] = ()
    problem: str | None = None
    """Why nothing is settled."""


class Abandoned(Message):
    """A step, and the failed HandoffResult that stands in for its own: whoever depends on it is told."""

    step: StepIdField
    result: BlobRef


class StepsAbandoned(Message):
    """These will not be waited for any longer, and neither will what is running of them."""

    type: Literal["steps_abandoned"] = "steps_abandoned"
    steps: tuple[Abandoned, ...]
    why: str


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


class Synthesised(Message):
    """The supervisor knows what the answer is made of: a synthesizer's result, or those of steps."""

    type: Literal["synthesised"] = "synthesised"
    method: AnswerMethod
    result: BlobRef | None = None
    """The synthesizer's HandoffResult, if one was asked: what the answer is made of, or, with another method, why it is not."""
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
    | NeedsResolved
    | ConflictsFound
    | Judged
    | Reviewed
    | StepsAbandoned
    | StepsTriedAgain
    | Synthesised
    | GatesChecked
)
