"""The handoff and its reply: the messages between the supervisor and a specialist's worker."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    model_validator,
)

from handoff_queue.shared.types.ids import (
    Digest,
    HandoffIdField,
    JobIdField,
    NameField,
    StepId,
    StepIdField,
    handoff_id,
)
from handoff_queue.shared.types.json_values import StorableJson
from handoff_queue.shared.types.limits import MOST_DEPTH, HandoffLimits
from handoff_queue.shared.types.message import Message, Unsaid, digest_of
from handoff_queue.shared.types.usage import NOTHING_USED, Usage


class Document(Message):
    """One document. Its text lies in the store under its digest."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
    """Relative to the folder that was given, with forward slashes; for a fetched page its URL."""
    digest: Digest
    """SHA-256 of the extracted text: the same text is stored, indexed and cited once, whatever
    its file.
    """
    media_type: str
    chars: NonNegativeInt
    """Length of the extracted text; citations count in these."""


class Manifest(Message):
    """The documents of one job, sorted by path."""

    documents: tuple[Document, ...] = ()


Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]


class BlobRef(Message):
    """A payload in the job's blobs."""

    digest: Digest
    size: NonNegativeInt
    """Characters, before compression."""


def ref(text: str) -> BlobRef:
    """Return the reference to a payload."""
    return BlobRef(digest=digest_of(text), size=len(text))


class ContextResult(Message):
    """The result of one step that this one depends on, by reference."""

    step_id: StepIdField
    result: BlobRef
    """A HandoffResult, as JSON. Failed results are included, so that the specialist knows the
    missing parts.
    """


Author = Literal["assessor", "planner", "user", "supervisor", "gate"]
"""The author of a feedback."""


class Feedback(Message):
    """Remarks on the previous attempt, or the answer to its question."""

    author: Author
    text: Text
    previous: BlobRef | None = None
    """The HandoffResult that it speaks of."""


class Artifact(Message):
    """Something to work from that is not a step's result."""

    kind: Literal["documents"]
    name: str
    manifest: BlobRef
    """A `shared.types.handoff.Manifest`, as JSON."""
    count: NonNegativeInt


class AgentHandoff(Message):
    """One attempt at one step. It is all that the specialist gets to see."""

    schema_version: Literal[1] = 1
    handoff_id: HandoffIdField
    job_id: JobIdField
    step_id: StepIdField
    attempt: PositiveInt
    from_agent: NameField = "supervisor"
    assigned_to: NameField
    specialist: Digest
    """The SpecialistSpec that the job started with."""
    task_description: Text
    depends_on: tuple[StepIdField, ...] = ()
    context: tuple[ContextResult, ...] = ()
    """The results of exactly the steps in depends_on."""
    feedback: tuple[Feedback, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    expected_output_format: dict[str, Any] = Field(default_factory=lambda: {"type": "string"})
    """JSON Schema of HandoffResult.output."""
    fallback_instruction: str = "Say exactly what is missing, and give what you have."
    limits: HandoffLimits = HandoffLimits()
    acts_with: Annotated[tuple[str, ...] | None, Unsaid] = None
    """The only tools with effects that may be called. None: all those of the specialist."""
    model: str | None = None
    """Overrides the specialist's model for this job (`--model`)."""
    return_to: str = "supervisor.advance"
    depth: Annotated[int, Field(ge=0, le=MOST_DEPTH)] = 0
    """0: given by the job's own supervisor; more: by a sub-supervisor."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.handoff_id != handoff_id(self.step_id, self.attempt):
            raise ValueError(f"handoff_id must be {handoff_id(self.step_id, self.attempt)}")
        given = [item.step_id for item in self.context]
        if sorted(given) != sorted(self.depends_on):
            raise ValueError(
                f"context has {sorted(given)}, but the step depends on {sorted(self.depends_on)}"
            )
        if len(set(given)) != len(given):
            raise ValueError("context holds a step twice")
        return self


class ResultStatus(StrEnum):
    OK = "ok"
    """The output matches the expected format and the task is done."""
    PARTIAL = "partial"
    """A limit or a gap stopped it; output is the work so far."""
    FAILED = "failed"
    """Nothing usable; `error` says why."""
    NEEDS_INPUT = "needs_input"
    """Cannot go on without `needs`, which goes to the planner."""
    SKIPPED = "skipped"
    """The condition of the step was not met; `error` says how. No specialist answers this."""


class StopReason(StrEnum):
    """The reason for the end of the agent loop."""

    FINISHED = "finished"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    MAX_USD = "max_usd"
    DEADLINE = "deadline"
    JOB_BUDGET = "job_budget"
    DAY_BUDGET = "day_budget"
    """The cap a day of the tenant or of the installation."""
    PARENT_BUDGET = "parent_budget"
    """The budget of a parent job, at any depth."""
    REFUSED = "refused"
    INVALID_OUTPUT = "invalid_output"
    MODEL_ERROR = "model_error"
    TOO_MANY_CLAIMS = "too_many_claims"
    CANCELLED = "cancelled"
    DEFECT = "defect"
    """An exception in our own code, or in a specialist's file or tool."""


BUDGETS = frozenset({StopReason.JOB_BUDGET, StopReason.DAY_BUDGET, StopReason.PARENT_BUDGET})
"""Reasons that end all handoffs of a job."""


class Citation(Message):
    """A place in a document. Code has checked that text[start:end] == quote."""

    source: str
    """The document's path in its set, or a URL."""
    digest: Digest
    """The document."""
    start: NonNegativeInt
    """Characters from the start of the document's extracted text."""
    end: PositiveInt
    quote: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


ClaimId = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_-]{0,47}\.)?c[0-9]{1,4}$")]
Fact = Annotated[str, StringConstraints(min_length=1, max_length=500)]
"""One part of a claim that states a value."""


class Claim(Message):
    """One statement of fact. The text of an output points to it as `[id]`, from other steps as
    `[step.id]`.

    One that gives something a value says so in parts as well, so that code can hold it against
    others; each is as the model wrote it.
    """

    id: ClaimId
    text: Text
    sources: tuple[Citation, ...] = ()
    """Empty: nothing that could be checked stands behind it."""
    subject: Fact | None = None
    attribute: Fact | None = None
    value: Fact | None = None
    unit: Fact | None = None
    date: Fact | None = None
    """The date of the value."""

    @property
    def is_comparable(self) -> bool:
        """Whether it says what of what is how much: a claim that code can hold against others."""
        return bool(self.subject and self.attribute and self.value)


class HandoffResult(Message):
    """The result of one handoff. A failure is a result too."""

    schema_version: Literal[1] = 1
    handoff_id: HandoffIdField
    job_id: JobIdField
    step_id: StepIdField
    attempt: PositiveInt
    status: ResultStatus
    output: StorableJson = None
    claims: tuple[Claim, ...] = ()
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    needs: str | None = None
    usage: Usage = NOTHING_USED
    turns: NonNegativeInt = 0
    stop_reason: StopReason = StopReason.FINISHED
    error: str | None = None
    model: str | None = None
    """The model's name as the server gives it."""
    notes: tuple[str, ...] = ()
    acted: Annotated[bool | None, Unsaid] = None
    """Whether a tool with effects may have run."""
    to_finish_microusd: Annotated[NonNegativeInt | None, Unsaid] = None
    """The likely cost to fill a team's gaps. None: no gaps, or not known."""

    @property
    def failure(self) -> str:
        """The kind of its failure, without a model's words: what ended it, or `failed_result` where
        its own answer says so; '': none.
        """
        if self.status is not ResultStatus.FAILED:
            return ""
        return (
            self.status.value if self.stop_reason is StopReason.FINISHED else self.stop_reason.value
        )

    @model_validator(mode="after")
    def _says_what_it_must(self) -> Self:
        match self.status:
            case ResultStatus.OK:
                if self.output is None:
                    raise ValueError("status ok needs an output")
                if says_only_that_it_is_done(self.output):
                    raise ValueError(
                        "'I completed the task' is not a result: the output must be the work itself"
                    )
                if self.needs or self.error:
                    raise ValueError("status ok needs nothing and has no error")
            case ResultStatus.NEEDS_INPUT:
                if not self.needs:
                    raise ValueError("status needs_input must say what is needed")
            case ResultStatus.FAILED | ResultStatus.SKIPPED:
                if not self.error:
                    raise ValueError(f"status {self.status} must say why")
            case ResultStatus.PARTIAL:
                if self.output is None:
                    raise ValueError(
                        "status partial needs the work so far; without any it is failed"
                    )
        return self


_DONE = re.compile(
    r"^\W*(i('ve| have)?|we('ve| have)?|the|this|your|my|all)?\s*(task|work|step|job|request|everything|research|analysis|report|it)?\s*"
    r"(has been|have been|is now|is|are|was)?\s*(now |successfully |fully )*"
    r"(done|complete[d]?|finished|accomplished|completed (the|this|my|your) (task|work|step|job|request|research|analysis|report))"
    r"( successfully)?(\s+(the|this|my|your)\s+(task|work|step|job|request|research|analysis|report))?( successfully| as requested)?\W*$",
    re.IGNORECASE,
)
_LONGEST_EMPTY_PHRASE = 120
"""Characters; a longer text says more than that it is done."""


def says_only_that_it_is_done(output: JsonValue) -> bool:
    """Whether an output merely announces completion ("I completed the task") instead of being
    the work.
    """
    if isinstance(output, str):
        return not output.strip() or (
            len(output) <= _LONGEST_EMPTY_PHRASE and _DONE.match(output.strip()) is not None
        )
    return False


def failed_result(
    handoff: AgentHandoff, error: str, stop_reason: StopReason = StopReason.DEFECT
) -> HandoffResult:
    """The result of a handoff that never got to say anything itself."""
    return result_of(
        handoff, status=ResultStatus.FAILED, error=error[:500], stop_reason=stop_reason
    )


def result_of(handoff: AgentHandoff, **values: Any) -> HandoffResult:
    """Return a result of this handoff. `values`: the other fields of `HandoffResult`.

    Raises:
        ValidationError: no result can have these values.
    """
    return HandoffResult(
        handoff_id=handoff.handoff_id,
        job_id=handoff.job_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        **values,
    )


class Given(Message):
    """One result, copied into the job's own payloads."""

    step: StepIdField
    """The step that made it, there; no step of the job has this id."""
    specialist: NameField
    title: str = ""
    result: BlobRef
    """A HandoffResult, as JSON."""
    is_answer: bool = False
    """It is what the others ended with: who gets the whole request gets this with it."""


class Earlier(Message):
    """The job that this one follows on."""

    job_id: JobIdField
    request: BlobRef
    """What was asked there."""


def answers_in(given: Sequence[Given]) -> tuple[StepId, ...]:
    """What a step without a planner is given."""
    return tuple(one.step for one in given if one.is_answer)


def own(depends_on: Sequence[StepId], given: Collection[StepId]) -> tuple[StepId, ...]:
    """Without those that are there from the beginning."""
    return tuple(step for step in depends_on if step not in given)
