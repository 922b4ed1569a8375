"""The answer envelope: the JSON object with which specialists and the synthesizer answer. Code
checks its citations.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from pydantic import Field as PydanticField
from pydantic import JsonValue, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import (
    LenientAnswer,
    describe_text,
    is_empty_form,
    json_object_in,
    normalize_status,
    partial_object_in,
    without_nulls,
)
from handoff_queue.shared.agent.schemas import BrokenSchema, problem_with
from handoff_queue.shared.agent.sources import Sources
from handoff_queue.shared.types.characters import to_nfc
from handoff_queue.shared.types.citation_markers import qualify_claim_id, qualify_markers
from handoff_queue.shared.types.handoff import (
    Citation,
    Claim,
    ResultStatus,
    says_only_that_it_is_done,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import problems_of

MOST_PROBLEMS = 5
"""Most problems that one message to the model names."""
UNSTATED_CONFIDENCE = 0.5
_NOTHING = frozenset({"", "-", "none", "null", "nothing", "n/a"})
"""Words that models write for a field without a value."""
MOST_TEXT_CHARS = 100_000
"""Limit of `shared.types.handoff.Text`."""

_PARTS = ("subject", "attribute", "value", "unit", "date")
"""Fields of a claim that states a value."""
LONGEST_PART = 500
"""Characters of one field of `_PARTS`."""
_PART: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_CLAIMS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "c1, c2, ..."},
            "text": {"type": "string"},
            **dict.fromkeys(_PARTS, _PART),
            "sources": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"source": {"type": "string"}, "quote": {"type": "string"}},
                    "required": ["source", "quote"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["id", "text", *_PARTS, "sources"],
        "additionalProperties": False,
    },
}


class _Source(LenientAnswer):
    source: str
    quote: str


class _Claim(LenientAnswer):
    id: str
    text: str
    sources: list[_Source] = PydanticField(default_factory=list)
    subject: str | None = None
    attribute: str | None = None
    value: str | None = None
    unit: str | None = None
    date: str | None = None

    @field_validator(*_PARTS, mode="before")
    @classmethod
    def _normalize_part(cls, value: Any) -> str | None:
        """Return the part as text: a boolean as "yes" or "no", a blank or invalid part as
        None.

        Parts help code to compare claims. An invalid part is no reason to refuse a claim.
        """
        if isinstance(value, bool):
            if value:
                return "yes"
            return "no"
        text = ""
        if isinstance(value, str | int | float):
            text = to_nfc(str(value).strip())
        if text.lower() in _NOTHING or len(text) > LONGEST_PART:
            return None
        return text

    @property
    def parts(self) -> dict[str, str | None]:
        parts: dict[str, str | None] = {}
        for part in _PARTS:
            parts[part] = getattr(self, part)
        return parts


ANSWERS = tuple(status.value for status in ResultStatus if status is not ResultStatus.SKIPPED)
"""Statuses that a specialist can give its result."""
_SYNONYMS = {
    **dict.fromkeys(
        "answered complete completed done final finished okay pass passed ready resolved solved "
        "succeed succeeded success successful".split(),
        ResultStatus.OK,
    ),
    **dict.fromkeys(
        "incomplete in_progress partial_success partially_complete partially_completed "
        "partly".split(),
        ResultStatus.PARTIAL,
    ),
    **dict.fromkeys(
        "blocked clarification_needed input_needed input_required need_input needs_clarification "
        "needs_information needs_more_information".split(),
        ResultStatus.NEEDS_INPUT,
    ),
    **dict.fromkeys("error errored fail failure unsuccessful".split(), ResultStatus.FAILED),
}
"""Status by the word that models use for it when their server does not enforce the schema."""


class _Envelope(LenientAnswer):
    status: ResultStatus = ResultStatus.OK
    output: Any = None
    claims: list[_Claim] = PydanticField(default_factory=list)
    confidence: float = UNSTATED_CONFIDENCE
    needs: str | None = None
    problem: str | None = None

    @field_validator("confidence", mode="before")
    @classmethod
    def _parse_confidence(cls, value: Any) -> float:
        """Return `UNSTATED_CONFIDENCE` for a confidence that is not a number, such as "high".
        Such a confidence is no reason to refuse an answer.
        """
        try:
            confidence = float(value)
        except (TypeError, ValueError, OverflowError):
            return UNSTATED_CONFIDENCE
        if isfinite(confidence):
            return confidence
        return UNSTATED_CONFIDENCE

    @field_validator("status", mode="before")
    @classmethod
    def _resolve_synonym(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _SYNONYMS.get(normalize_status(value), value)
        return value

    @field_validator("status")
    @classmethod
    def _check_status(cls, value: ResultStatus) -> ResultStatus:
        if value.value not in ANSWERS:
            raise ValueError(f"must be one of {', '.join(ANSWERS)}")
        return value

    @field_validator("needs", "problem")
    @classmethod
    def _drop_blank(cls, value: str | None) -> str | None:
        if (value or "").strip().lower().strip(".") in _NOTHING:
            return None
        return value


@dataclass(frozen=True, slots=True)
class EnvelopeFormat:
    """The `AnswerFormat` of specialists and of the synthesizer."""

    step_id: StepId
    output_schema: Mapping[str, Any]
    """The handoff's `expected_output_format`."""
    sources: Sources
    known_claims: Mapping[str, Claim] = field(default_factory=dict)
    """Claims of other results (`LoadedPayloads.known_claims`) by qualified id. The result of
    this answer includes each of these claims that the answer refers to or restates.
    """

    @property
    def schema(self) -> Mapping[str, Any]:
        output = dict(self.output_schema)
        definitions: dict[str, Any] = {}
        for key in ("$defs", "definitions"):
            if key in output:
                definitions[key] = output.pop(key)
        nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
        properties = {
            "status": {"type": "string", "enum": list(ANSWERS)},
            "output": output,
            "claims": _CLAIMS_SCHEMA,
            "confidence": {"type": "number", "description": "0.0 to 1.0"},
            "needs": nullable,
            "problem": nullable,
        }
        return {
            **definitions,
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """See `shared.agent.answer_format.AnswerFormat`."""
        value = json_object_in(text)
        if value is None:
            raise InvalidAnswer(
                f'{describe_text(text)} came where one JSON object with "status", "output" and'
                ' "claims" was expected'
            )
        if "output" not in value and "status" not in value:
            if not last_try:
                raise InvalidAnswer(
                    'a JSON object without "output" came where one with "status", "output" and'
                    ' "claims" was expected'
                )
            value = {"output": value}
        try:
            envelope = _Envelope.model_validate(value)
        except ValidationError as error:
            raise InvalidAnswer(f"the answer envelope is wrong: {problems_of(error)}") from error
        envelope = self._without_nulls(envelope)
        self._check(envelope, last_try=last_try)
        return self._read(envelope, last_try=last_try)

    def _without_nulls(self, envelope: _Envelope) -> _Envelope:
        """Drop `null` from optional properties of the output if the output matches its schema
        only without them.
        """
        if _mismatch(envelope.output, self.output_schema) is None:
            return envelope
        output = without_nulls(envelope.output, self.output_schema, self.output_schema)
        if _mismatch(output, self.output_schema) is not None:
            return envelope
        return envelope.model_copy(update={"output": output})

    def checks_quotes(self, text: str) -> bool:
        """See `shared.agent.answer_format.SlowAnswerFormat`."""
        return '"quote"' in text

    def salvage(self, text: str) -> AcceptedAnswer | None:
        """Return the output and the checked claims of a text that was cut off or not accepted.

        A prose text is the output if the output may be a string. See
        `shared.agent.answer_format.PartialAnswerFormat`.
        """
        value = json_object_in(text) or partial_object_in(text)
        if value is None or "output" not in value:
            is_prose = bool(text.strip()) and not text.lstrip().startswith("{")
            if is_prose and self._wants_text:
                return AcceptedAnswer(ResultStatus.PARTIAL, text.strip(), confidence=0.0)
            return None
        envelope = _Envelope(
            status=ResultStatus.PARTIAL,
            output=value["output"],
            claims=_valid_claims(value.get("claims")),
        )
        if envelope.output in (None, "", [], {}) or says_only_that_it_is_done(envelope.output):
            return None
        return self._read(envelope, last_try=True)

    @property
    def _wants_text(self) -> bool:
        """True if the output may be a string."""
        types = self.output_schema.get("type", "string")
        if isinstance(types, str):
            return types == "string"
        return "string" in types

    def _check(self, envelope: _Envelope, *, last_try: bool) -> None:
        """Check that the envelope has what its status requires, such as an output for "ok".

        Raises:
            InvalidAnswer: a required part is missing or wrong.
        """
        match envelope.status:
            case ResultStatus.OK:
                if envelope.output is None or says_only_that_it_is_done(envelope.output):
                    raise InvalidAnswer(
                        "the output must be the work itself, not a report that it is done"
                    )
                problem = _mismatch(envelope.output, self.output_schema)
                if problem:
                    raise InvalidAnswer(f"the output does not match its format: {problem}")
            case ResultStatus.NEEDS_INPUT:
                if not (envelope.needs or "").strip():
                    raise InvalidAnswer(
                        'status needs_input must name the missing information in "needs"'
                    )
            case ResultStatus.FAILED:
                if not (envelope.problem or "").strip():
                    raise InvalidAnswer('status failed must say why in "problem"')
            case ResultStatus.PARTIAL:
                if envelope.output is None or says_only_that_it_is_done(envelope.output):
                    raise InvalidAnswer(
                        "status partial must give the work so far as the output; where there is"
                        " none, the status is failed"
                    )
                if not last_try and not (envelope.problem or envelope.needs):
                    raise InvalidAnswer(
                        'status partial must name the missing part and the reason in "problem"'
                    )

    def _read(self, envelope: _Envelope, *, last_try: bool) -> AcceptedAnswer:
        """Return the answer with its checked claims. On `last_try` defects become notes, and
        doubts change the status from `ok` to `partial`.

        Raises:
            InvalidAnswer: there are defects or doubts, and this is not the last try.
        """
        own_claims, problems = self._own_claims(envelope)
        known_claims = {**self.known_claims, **own_claims}
        dangling: list[str] = []
        output, used = qualify_markers(envelope.output, self.step_id, known_claims, dangling)
        for name in dangling:
            problems.append(f"[{name}] in the output points to no claim")
        claims = dict(own_claims)
        for name in used:
            claims[name] = known_claims[name]
        has_source = any(claim.sources for claim in claims.values())
        doubts = self._doubts(envelope, is_unproven=bool(problems) and not has_source)
        if (problems or doubts) and not last_try:
            raise InvalidAnswer("; ".join([*doubts, *problems][:MOST_PROBLEMS]))
        status = envelope.status
        if doubts:
            status = ResultStatus.PARTIAL
        return AcceptedAnswer(
            status=status,
            output=output,
            claims=tuple(claims.values()),
            confidence=_clamped(envelope.confidence),
            needs=envelope.needs,
            error="; ".join(doubts) or envelope.problem,
            notes=tuple(f"dropped: {problem}" for problem in problems),
        )

    def _doubts(self, envelope: _Envelope, *, is_unproven: bool) -> list[str]:
        """Return the reasons why a result with status `ok` is not complete.

        Args:
            is_unproven: True if claims had defects and no claim has a checked source.
        """
        if envelope.status is not ResultStatus.OK:
            return []
        doubts = []
        if fault := envelope.problem or envelope.needs:
            doubts.append(f"its status is ok, but it also names a fault or a gap: {fault}")
        if is_empty_form(envelope.output, self.output_schema):
            doubts.append("the output only fills its form, and says nothing")
        if is_unproven:
            doubts.append("nothing in it has a source that could be checked")
        return doubts

    def _own_claims(self, envelope: _Envelope) -> tuple[dict[str, Claim], list[str]]:
        """Return the usable claims of the envelope by qualified id, and the problems of its
        claims.
        """
        claims: dict[str, Claim] = {}
        problems: list[str] = []
        for claim in envelope.claims:
            name = qualify_claim_id(claim.id, self.step_id)
            if name is None:
                problems.append(f'claim id "{claim.id[:60]}" is not of the form c1, c2, ...')
            elif name in claims:
                problems.append(f'claim id "{claim.id[:60]}" is taken twice')
            elif name in self.known_claims and not name.startswith(f"{self.step_id}."):
                # The answer restates the claim of another step, whose sources have been checked.
                claims[name] = self.known_claims[name]
            elif not claim.text.strip():
                problems.append(f"{claim.id}: its text is empty")
            elif len(claim.text) > MOST_TEXT_CHARS:
                problems.append(f"{claim.id}: its text is longer than {MOST_TEXT_CHARS} characters")
            else:
                citations = tuple(self._citations(claim, problems))
                claims[name] = Claim(id=name, text=claim.text, sources=citations, **claim.parts)
        return claims, problems

    def _citations(self, claim: _Claim, problems: list[str]) -> list[Citation]:
        """Return the checked sources of a claim. Add the defect of each other source to
        `problems`.
        """
        citations: list[Citation] = []
        for source in claim.sources:
            citation = self.sources.citation(source.source, source.quote)
            if isinstance(citation, Citation):
                citations.append(citation)
            else:
                problems.append(f"{claim.id}: {citation}")
        return citations


def _mismatch(output: JsonValue, schema: Mapping[str, Any]) -> str | None:
    """Return the defect of an output, or None. A broken schema is not the model's fault, so it
    passes.
    """
    try:
        return problem_with(output, schema)
    except BrokenSchema:
        return None


def _clamped(confidence: float) -> float:
    return min(max(confidence, 0.0), 1.0)


def _valid_claims(value: Any) -> list[_Claim]:
    """Return the items of a list that parse as claims. The list is empty if `value` is no list."""
    claims: list[_Claim] = []
    if isinstance(value, list):
        for item in value:
            with suppress(ValidationError):
                claims.append(_Claim.model_validate(item))
    return claims
