"""Handoffs, results, documents and manifests, and the results of earlier jobs.

Handoffs and results are the messages between the supervisor and a specialist's worker.

A stored result that cannot be read becomes a failed result, and does not stop its job.
"""

from __future__ import annotations

import json
import re
import string
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

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.ids import (
    Digest,
    HandoffIdField,
    JobIdField,
    NameField,
    StepId,
    StepIdField,
    build_handoff_id,
)
from handoff_queue.shared.types.json_values import StorableJson, has_more_values
from handoff_queue.shared.types.limits import MAX_DEPTH, HandoffLimits
from handoff_queue.shared.types.message import Message, OmitNone, compute_digest
from handoff_queue.shared.types.origins import Origins, get_origins
from handoff_queue.shared.types.usage import NOTHING_USED, Figure, Usage

LAST_TOOL_ERROR = "the last error of the tool"
"""Words between a reason and the error of a tool."""
DEFAULT_FALLBACK = "Name each gap, and give the results that you have."
"""The fallback of a step that states none."""
MAX_PATH_CHARS = 1_000
"""Most characters of the path of a document, or of a URL."""
MAX_TEXT_CHARS = 100_000
"""Most characters of a task, and of other texts of a handoff."""
MAX_ERROR_CHARS = 500
"""Most characters of the error of a result."""
MAX_PLAN_NOTE_CHARS = 10_000
"""Most characters of a user's note on a plan. Planners also see at most so many characters of the
earlier request, and of each task in the user's own plan.
"""


class Document(Message):
    """A document of a job. Its text is in the store under its digest."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=MAX_PATH_CHARS)]
    """Path relative to the given folder, with forward slashes. For a fetched page: its URL."""
    digest: Digest
    """SHA-256 of the extracted text. Files with the same text are stored, indexed and cited
    once.
    """
    media_type: str
    chars: NonNegativeInt
    """Length of the extracted text in characters. Citations also count characters."""
    own_passages: Annotated[tuple[str, ...] | None, OmitNone] = None
    """Of a result of a tool: its passages that the model had written into calls before. They prove
    nothing. None: there are none.
    """


class Manifest(Message):
    """The documents of one job, sorted by path."""

    documents: tuple[Document, ...] = ()

    def build_label(self, number: int) -> str:
        """Return the label of the document with this number, counted from 1. A role sees the
        label in place of the name.
        """
        return f"doc-{number}"

    def find_document_with_label(self, text: str) -> Document | None:
        """Return the document with this label, or None."""
        for number, document in enumerate(self.documents, start=1):
            if text.casefold() == self.build_label(number):
                return document
        return None


Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT_CHARS)]


class BlobRef(Message):
    """Reference to a payload of the job."""

    digest: Digest
    size: NonNegativeInt
    """Characters, before compression."""


def make_ref(text: str) -> BlobRef:
    """Return the reference to a payload."""
    return BlobRef(digest=compute_digest(text), size=len(text))


class ContextResult(Message):
    """The result of a step that the handoff's step depends on, by reference."""

    step_id: StepIdField
    result: BlobRef
    """A HandoffResult, as JSON. Failed results are included, so that the specialist knows the
    missing parts.
    """
    is_checked: Annotated[bool | None, OmitNone] = None
    """True if a supervisor or a client has made the result, so that all its claims are used."""


Author = Literal["assessor", "planner", "user", "supervisor", "gate"]
"""Author of a feedback."""


class Feedback(Message):
    """Remarks on the previous attempt, or the answer to its question."""

    author: Author
    text: Text
    previous: BlobRef | None = None
    """The HandoffResult that the feedback is about."""


class Artifact(Message):
    """Material for a handoff that is not the result of a step."""

    kind: Literal["documents"]
    name: str
    manifest: BlobRef
    """A Manifest as JSON."""
    count: NonNegativeInt


class AgentHandoff(Message):
    """An attempt at one step. The specialist sees nothing else of the job."""

    schema_version: Literal[1] = 1
    handoff_id: HandoffIdField
    job_id: JobIdField
    step_id: StepIdField
    attempt: PositiveInt
    from_agent: NameField = "supervisor"
    assigned_to: NameField
    specialist: Digest
    """Digest of the specialist's definition that the job started with."""
    task_description: Text
    depends_on: tuple[StepIdField, ...] = ()
    context: tuple[ContextResult, ...] = ()
    """The results of exactly the steps in depends_on."""
    claim_sources: Annotated[tuple[ContextResult, ...] | None, OmitNone] = None
    """More results, which state the claims that the context and the feedback restate. The agent
    reads only these claims. A step has a result for each attempt, the oldest first.
    """
    feedback: tuple[Feedback, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    expected_output_format: dict[str, Any] = Field(default_factory=lambda: {"type": "string"})
    """JSON Schema of HandoffResult.output."""
    fallback_instruction: str = DEFAULT_FALLBACK
    limits: HandoffLimits = HandoffLimits()
    compared: Annotated[bool | None, OmitNone] = None
    """False if no other claims are compared with its claims. Then they need no subject, attribute
    and value.
    """
    acts_with: Annotated[tuple[str, ...] | None, OmitNone] = None
    """The only tools with effects that may be called; None: all tools of the specialist."""
    call_approval_s: Annotated[PositiveInt | None, OmitNone] = None
    """Longest wait for a person's approval of one call, in seconds. None: no person is asked, and a
    call that needs an approval is not run.
    """
    model: str | None = None
    """Model of the job (`--model`), which replaces the specialist's own; None: no replacement."""
    return_to: str = "supervisor.advance"
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] = 0
    """Number of jobs above the handoff's job: 0 for a user's job, 1 or more for a child job."""
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of the task, the context and the feedback; None: unknown."""
    batch_until: Annotated[float | None, OmitNone] = None
    """Time until which its model calls may go through batches of the provider, in Unix seconds by
    Redis's clock. None: all calls are live.
    """
    request: Annotated[BlobRef | None, OmitNone] = None
    """The words of the user, for the policy of tools. The specialist does not see them. None: a
    model wrote the request.
    """
    notes_name: Annotated[str | None, OmitNone, StringConstraints(max_length=100)] = None
    """The secret name of the tenant's notes in Redis. Only workers with this handoff may know it.
    None: the handoff has no memory.
    """

    @model_validator(mode="after")
    def _validate_context(self) -> Self:
        if self.handoff_id != build_handoff_id(self.step_id, self.attempt):
            raise ValueError(f"handoff_id must be {build_handoff_id(self.step_id, self.attempt)}")
        steps = [item.step_id for item in self.context]
        if sorted(steps) != sorted(self.depends_on):
            raise ValueError(
                f"context has {sorted(steps)}, but the step depends on {sorted(self.depends_on)}"
            )
        if len(set(steps)) != len(steps):
            raise ValueError("context holds a step twice")
        return self

    def find_checked_steps(self) -> frozenset[StepId]:
        """Return the steps whose results a supervisor or a client has made."""
        items = (*self.context, *(self.claim_sources or ()))
        return frozenset(item.step_id for item in items if item.is_checked)


class ResultStatus(StrEnum):
    """Status of a result."""

    OK = "ok"
    """The output matches the expected format and the task is done."""
    PARTIAL = "partial"
    """A limit or a gap stopped the work. The output is the work so far."""
    FAILED = "failed"
    """The output is not usable. `error` has the reason."""
    NEEDS_INPUT = "needs_input"
    """The specialist needs the input in `needs`, which the planner provides."""
    SKIPPED = "skipped"
    """The condition of the step is false. `error` has the reason. No specialist returns this."""


class StopReason(StrEnum):
    """The reason for the end of the agent loop."""

    FINISHED = "finished"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    MAX_USD = "max_usd"
    DEADLINE = "deadline"
    JOB_BUDGET = "job_budget"
    DAY_BUDGET = "day_budget"
    """The daily budget of the tenant or of the installation."""
    PARENT_BUDGET = "parent_budget"
    """The budget of a parent job, at any depth."""
    REFUSED = "refused"
    INVALID_OUTPUT = "invalid_output"
    MODEL_ERROR = "model_error"
    TOO_MANY_CLAIMS = "too_many_claims"
    CANCELLED = "cancelled"
    INTERNAL_ERROR = "internal_error"
    """An exception in this project's code, or in a specialist's file or tool."""


BUDGETS = frozenset({StopReason.JOB_BUDGET, StopReason.DAY_BUDGET, StopReason.PARENT_BUDGET})
"""Reasons that end all handoffs of a job."""


class Citation(Message):
    """A place in a document. Code has checked that text[start:end] == quote."""

    source: str
    """The document's path in its set, or a URL."""
    digest: Digest
    """Digest of the document's text."""
    start: NonNegativeInt
    """Characters from the start of the document's extracted text."""
    end: PositiveInt
    quote: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


ClaimId = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_-]{0,47}\.)?c[0-9]{1,4}$")]
Fact = Annotated[str, StringConstraints(min_length=1, max_length=500)]
"""One part of a claim that states a value."""


class Claim(Message):
    """A statement of fact. The text of an output refers to the claim as `[id]`, and other
    steps as `[step.id]`.

    A claim with a value also states the parts of the value, so that code can compare claims.
    Each part is stored as the model wrote it.
    """

    id: ClaimId
    text: Text
    sources: tuple[Citation, ...] = ()
    """Citations that code has checked; empty: the claim has no checked source."""
    subject: Fact | None = None
    attribute: Fact | None = None
    value: Fact | None = None
    unit: Fact | None = None
    date: Fact | None = None
    """The date of the value."""

    @property
    def is_comparable(self) -> bool:
        """Return whether the claim states a value in parts, so that code can compare it."""
        return bool(self.subject and self.attribute and self.value)


class SharedRun(Message):
    """The run of an equal handoff whose result was copied."""

    job_id: JobIdField
    handoff_id: HandoffIdField
    saved_microusd: Figure | None = None
    """Cost of that run, which was paid there once. None: unknown."""


def describe_shared_run(shared: SharedRun | None) -> str:
    """Return the origin of a copied result in words; '' for a result of its own run."""
    if shared is None:
        return ""
    return f"shared with {shared.job_id} {shared.handoff_id}, paid there"


MAX_RESULT_VALUES = 600_000
"""Most JSON values of a result. A task of the host may return 1,000,000 characters."""


class HandoffResult(Message):
    """The result of one handoff. A failure is also a result."""

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
    turns: Figure = 0
    stop_reason: StopReason = StopReason.FINISHED
    error: str | None = None
    model: str | None = None
    """Name of the model in the server's last answer, which wrote the output."""
    replies_by_model: Annotated[dict[str, PositiveInt] | None, OmitNone] = None
    """Number of replies of each model; None: all replies are from one model."""
    notes: tuple[str, ...] = ()
    acted: Annotated[bool | None, OmitNone] = None
    """True if a tool with effects may have run."""
    to_finish_microusd: Annotated[Figure | None, OmitNone] = None
    """The likely cost to fill the gaps of a child job's answer; None: no gaps, or unknown."""
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of all that the handoff has seen, which its claims inherit; None: unknown."""
    shared: Annotated[SharedRun | None, OmitNone] = None
    """The run that made this result for an equal handoff; None: the handoff ran itself."""
    word: Annotated[str | None, OmitNone] = None
    """A random word of a process with keys. So no other worker can guess the digest of the result,
    and store another payload under it in advance. None: the process has no keys.
    """

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and validate a result. Raises as `Message.from_json`.

        A worker that was taken over can write values in wrong places. The error of each costs
        more than its JSON.
        """
        if has_more_values(text, MAX_RESULT_VALUES):
            raise MalformedMessage(f"{cls.__name__}: it has more than {MAX_RESULT_VALUES:,} values")
        return super().from_json(text)

    @property
    def failure(self) -> str:
        """Return the kind of the failure without the model's words: the stop reason, or
        `failed`. '' if the handoff did not fail.
        """
        if self.status is not ResultStatus.FAILED:
            return ""
        if self.stop_reason is StopReason.FINISHED:
            return self.status.value
        return self.stop_reason.value

    @model_validator(mode="after")
    def _validate_status(self) -> Self:
        match self.status:
            case ResultStatus.OK:
                if self.output is None:
                    raise ValueError("status ok needs an output")
                if only_announces_completion(self.output):
                    raise ValueError(
                        "'I completed the task' is not a result: the output must be the work itself"
                    )
                if self.needs or self.error:
                    raise ValueError("status ok needs nothing and has no error")
            case ResultStatus.NEEDS_INPUT:
                if not self.needs:
                    raise ValueError("status needs_input must name the needed information")
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
    r"^\W*+(i('ve| have)?|we('ve| have)?|the|this|your|my|all)?\s*+"
    r"(task|work|step|job|request|everything|research|analysis|report|it)?\s*+"
    r"(has been|have been|is now|is|are|was)?\s*+(now |successfully |fully )*"
    r"(done|complete[d]?|finished|accomplished|completed (the|this|my|your)"
    r" (task|work|step|job|request|research|analysis|report))"
    r"( successfully)?"
    r"(\s+(the|this|my|your)\s+(task|work|step|job|request|research|analysis|report))?"
    r"( successfully| as requested)?\W*$",
    re.IGNORECASE,
)
_MARKS = string.whitespace + "#*_-=>|`~"
"""Characters of a text without content: Markdown marks and white space."""
_MAX_EMPTY_PHRASE_CHARS = 120
"""Most characters of a text that only announces completion."""


def only_announces_completion(output: JsonValue) -> bool:
    """Return whether an output only announces completion, such as "I completed the task", or
    has only Markdown marks.
    """
    if isinstance(output, str):
        return not output.strip(_MARKS) or (
            len(output) <= _MAX_EMPTY_PHRASE_CHARS and _DONE.match(output.strip()) is not None
        )
    return False


def build_failed_result(
    handoff: AgentHandoff, error: str, stop_reason: StopReason = StopReason.INTERNAL_ERROR
) -> HandoffResult:
    """Return the result of a handoff that failed before its model could answer."""
    return build_result(
        handoff, status=ResultStatus.FAILED, error=error[:MAX_ERROR_CHARS], stop_reason=stop_reason
    )


def build_result(handoff: AgentHandoff, **values: Any) -> HandoffResult:
    """Return a result of this handoff. Without other `origins`, it has those of the handoff.

    Args:
        values: fields of `HandoffResult` except its ids.

    Raises:
        ValidationError: the values are invalid.
    """
    fields = {"origins": get_origins(handoff.origins), **values}
    return HandoffResult(
        handoff_id=handoff.handoff_id,
        job_id=handoff.job_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        **fields,
    )


def collect_claims(
    results: Sequence[tuple[StepId, HandoffResult]],
    sources: Sequence[tuple[StepId, HandoffResult]] = (),
    checked_steps: Collection[StepId] = (),
) -> dict[str, Claim]:
    """Return the claims of results by id, in the order in which an id comes first.

    A result repeats the claims of other steps that it uses. A worker that was taken over may add
    others. So a claim is used only as a result of the step with its name states it. Results of
    `results` decide first. Then a claim counts that any result of `sources` states in the same
    form, and then the last result of `sources`. A claim that no such result states is left out.

    Args:
        results: each with its step, as the supervisor knows it.
        sources: more results that state claims, the oldest first. Their other claims are not
            returned.
        checked_steps: steps whose results a supervisor or a client has made. All their claims are
            used.
    """
    own_claims: dict[str, Claim] = {}
    stated: dict[str, list[Claim]] = {}
    for place, (step, result) in enumerate((*sources, *results)):
        for claim in result.claims:
            is_own = claim.id.startswith(f"{step}.")
            if is_own or step in checked_steps:
                stated.setdefault(claim.id, []).append(claim)
            if is_own and place >= len(sources):
                own_claims[claim.id] = claim
    claims: dict[str, Claim] = {}
    for _, result in results:
        for claim in result.claims:
            if claim.id in own_claims:
                claims[claim.id] = own_claims[claim.id]
            elif claim in stated.get(claim.id, ()):
                claims[claim.id] = claim
            elif claim.id in stated:
                claims[claim.id] = stated[claim.id][-1]
    return claims


class GivenResult(Message):
    """A result of an earlier job, copied into the payloads of this job."""

    step: StepIdField
    """The step of the earlier job. No step of this job has this id."""
    specialist: NameField
    title: str = ""
    result: BlobRef
    """A HandoffResult, as JSON."""
    is_answer: bool = False
    """True if the result is the answer of the earlier job."""
    origins: Annotated[Origins | None, OmitNone] = None
    """Origins of the result; None: unknown."""


class EarlierJob(Message):
    """The earlier job that this job continues."""

    job_id: JobIdField
    request: BlobRef
    """The request of the earlier job."""


def find_answers(given_results: Sequence[GivenResult]) -> tuple[StepId, ...]:
    """Return the steps of the given results that are answers of earlier jobs. A step that no
    planner made receives them.
    """
    answers: list[StepId] = []
    for result in given_results:
        if result.is_answer:
            answers.append(result.step)
    return tuple(answers)


def list_own_dependencies(
    depends_on: Sequence[StepId], given_steps: Collection[StepId]
) -> tuple[StepId, ...]:
    """Return the dependencies that are steps of this job, and not given results."""
    steps: list[StepId] = []
    for step in depends_on:
        if step not in given_steps:
            steps.append(step)
    return tuple(steps)


UNREADABLE = "its stored result cannot be read"
"""Error of the failed result that replaces an unreadable text."""
_FAILED = {
    "status": ResultStatus.FAILED,
    "stop_reason": StopReason.INTERNAL_ERROR,
    "error": UNREADABLE,
}
_NOWHERE = {
    "handoff_id": "unreadable.1",
    "job_id": "j-000000000000",
    "step_id": "unreadable",
    "attempt": 1,
}
"""Ids of such a failed result if the text does not contain the ids."""


def parse_result(text: str) -> HandoffResult:
    """Return the result in a stored text, or a failed result if the text cannot be read."""
    try:
        return HandoffResult.from_json(text)
    except MalformedMessage:
        return build_unreadable_result(text)


def parse_result_values(text: str) -> dict[str, Any]:
    """Return the fields of `parse_result(text)` as JSON values."""
    return parse_result(text).model_dump(mode="json")


def build_unreadable_result(text: str) -> HandoffResult:
    """Return the failed result that replaces a text which cannot be read, with the ids of the
    text if possible.
    """
    try:
        values = json.loads(text)
        names: dict[str, Any] = {}
        for name in _NOWHERE:
            names[name] = values[name]
        return HandoffResult.model_validate({**names, **_FAILED})
    except (ValueError, LookupError, TypeError, RecursionError):
        return HandoffResult.model_validate({**_NOWHERE, **_FAILED})
