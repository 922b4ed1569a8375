"""The answer envelope: how specialists and the synthesizer answer, read into a result whose
citations have been checked by code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from pydantic import Field as PydanticField
from pydantic import JsonValue, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import AcceptedAnswer, InvalidAnswer
from handoff_queue.shared.agent.json_answers import (
    LenientAnswer,
    is_empty_form,
    json_object_in,
    normalize_status,
    partial_object_in,
    what_came,
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
"""Problems that the model is told at once."""
UNSTATED_CONFIDENCE = 0.5
_NOTHING = frozenset({"", "-", "none", "null", "nothing", "n/a"})
MOST_TEXT_CHARS = 100_000
"""Limit of `shared.types.handoff.Text`."""

_PARTS = ("subject", "attribute", "value", "unit", "date")
"""Fields of a claim that states a value."""
LONGEST_PART = 500
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
    def _what_is_no_part_is_none(cls, value: Any) -> str | None:
        """Return None for a part that is invalid. Parts help code to compare claims, and are no
        reason to refuse a claim.
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


ANSWERS = tuple(one.value for one in ResultStatus if one is not ResultStatus.SKIPPED)
"""Statuses that a specialist can give its result."""
_SYNONYMS = {
    word: status
    for status, words in (
        (
            ResultStatus.OK,
            "answered complete completed done final finished okay pass passed ready resolved solved "
            "succeed succeeded success successful",
        ),
        (
            ResultStatus.PARTIAL,
            "incomplete in_progress partial_success partially_complete partially_completed partly",
        ),
        (
            ResultStatus.NEEDS_INPUT,
            "blocked clarification_needed input_needed input_required need_input needs_clarification "
            "needs_information needs_more_information",
        ),
        (ResultStatus.FAILED, "error errored fail failure unsuccessful"),
    )
    for word in words.split()
}
"""Words that models use for a status when their server does not enforce the schema."""


class _Envelope(LenientAnswer):
    status: ResultStatus = ResultStatus.OK
    output: Any = None
    claims: list[_Claim] = PydanticField(default_factory=list)
    confidence: float = UNSTATED_CONFIDENCE
    needs: str | None = None
    problem: str | None = None

    @field_validator("confidence", mode="before")
    @classmethod
    def _in_words_is_not_stated(cls, value: Any) -> Any:
        """Return None for a confidence in words ("high"), which is no reason to refuse an answer."""
        try:
            confidence = float(value)
        except (TypeError, ValueError, OverflowError):
            return UNSTATED_CONFIDENCE
        if isfinite(confidence):
            return confidence
        return UNSTATED_CONFIDENCE

    @field_validator("status", mode="before")
    @classmethod
    def _of_a_synonym(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _SYNONYMS.get(normalize_status(value), value)
        return value

    @field_validator("status")
    @classmethod
    def _is_an_answer(cls, value: ResultStatus) -> ResultStatus:
        if value.value not in ANSWERS:
            raise ValueError(f"must be one of {', '.join(ANSWERS)}")
        return value

    @field_validator("needs", "problem")
    @classmethod
    def _nothing_in_words_is_nothing(cls, value: str | None) -> str | None:
        if (value or "").strip().lower().strip(".") in _NOTHING:
            return None
        return value


@dataclass(frozen=True, slots=True)
class EnvelopeFormat:
    """The `Reading` of specialists."""

    step_id: StepId
    output_schema: Mapping[str, Any]
    """The handoff's expected_output_format."""
    sources: Sources
    known_claims: Mapping[str, Claim] = field(default_factory=dict)
    """Claims in the results of other steps (`Loaded.known_claims()`), by qualified id. A claim that
    the answer refers to or restates is copied.
    """

    @property
    def schema(self) -> Mapping[str, Any]:
        output = dict(self.output_schema)
        definitions: dict[str, Any] = {
            key: output.pop(key) for key in ("$defs", "definitions") if key in output
        }
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
                f'{what_came(text)} came where one JSON object with "status", "output" and "claims" was expected'
            )
        if "output" not in value and "status" not in value:
            if not last_try:
                raise InvalidAnswer(
                    'a JSON object without "output" came where one with "status", "output" and "claims" was expected'
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

    def looks_up(self, text: str) -> bool:
        """See `shared.agent.answer_format.SlowAnswerFormat`: quotes, in whole documents."""
        return '"quote"' in text

    def salvage(self, text: str) -> AcceptedAnswer | None:
        """See `shared.agent.answer_format.PartialAnswerFormat`: the output and the proven claims of a
        text that is cut off or was not accepted.
        """
        value = json_object_in(text) or partial_object_in(text)
        if value is None or "output" not in value:
            is_prose = bool(text.strip()) and not text.lstrip().startswith("{")
            if is_prose and self._wants_text:
                return AcceptedAnswer(ResultStatus.PARTIAL, text.strip(), confidence=0.0)
            return None
        claims: list[Any] = []
        for claim in _listed(value.get("claims")):
            if _is_claim(claim):
                claims.append(claim)
        envelope = _Envelope(
            status=ResultStatus.PARTIAL,
            output=value["output"],
            claims=[_Claim.model_validate(c) for c in claims],
        )
        if envelope.output in (None, "", [], {}) or says_only_that_it_is_done(envelope.output):
            return None
        return self._read(envelope, last_try=True)

    @property
    def _wants_text(self) -> bool:
        kind = self.output_schema.get("type", "string")
        return "string" in ([kind] if isinstance(kind, str) else kind)

    def _check(self, envelope: _Envelope, *, last_try: bool) -> None:
        """Raise NotAcceptable if the envelope says nothing that can be used."""
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
                        "status partial must give the work so far as the output; where there is none, the status is failed"
                    )
                if not last_try and not (envelope.problem or envelope.needs):
                    raise InvalidAnswer(
                        'status partial must name the missing part and the reason in "problem"'
                    )

    def _read(self, envelope: _Envelope, *, last_try: bool) -> AcceptedAnswer:
        claims, problems = self._own_claims(envelope)
        known = {**self.known_claims, **claims}
        dangling: list[str] = []
        output, used = qualify_markers(envelope.output, self.step_id, known, dangling)
        problems += [f"[{name}] in the output points to no claim" for name in dangling]
        carried = {name: known[name] for name in used if name not in claims}
        kept = (*claims.values(), *carried.values())
        doubts = self._doubts(
            envelope, is_unproven=bool(problems) and not any(claim.sources for claim in kept)
        )
        if (problems or doubts) and not last_try:
            raise InvalidAnswer("; ".join([*doubts, *problems][:MOST_PROBLEMS]))
        return AcceptedAnswer(
            status=ResultStatus.PARTIAL if doubts else envelope.status,
            output=output,
            claims=kept,
            confidence=_clamped(envelope.confidence),
            needs=envelope.needs,
            error="; ".join(doubts) or envelope.problem,
            notes=tuple(f"dropped: {problem}" for problem in problems),
        )

    def _doubts(self, envelope: _Envelope, *, is_unproven: bool) -> list[str]:
        """Return the defects that code can see in a result with status ok."""
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
        claims: dict[str, Claim] = {}
        problems: list[str] = []
        for given in envelope.claims:
            name = qualify_claim_id(given.id, self.step_id)
            if name is None or name in claims:
                problems.append(
                    f'claim id "{given.id[:60]}" is '
                    + ("taken twice" if name else "not of the form c1, c2, ...")
                )
                continue
            if name in self.known_claims and not name.startswith(f"{self.step_id}."):
                claims[name] = self.known_claims[
                    name
                ]  # restated from another step: that step's own claim, with its checked sources
                continue
            if not given.text.strip() or len(given.text) > MOST_TEXT_CHARS:
                problems.append(
                    f"{given.id}: its text "
                    + (
                        f"is longer than {MOST_TEXT_CHARS} characters"
                        if given.text.strip()
                        else "is empty"
                    )
                )
                continue
            sources: list[Citation | str] = []
            for source in given.sources:
                sources.append(self.sources.citation(source.source, source.quote))
            problems += [f"{given.id}: {item}" for item in sources if isinstance(item, str)]
            kept = tuple(item for item in sources if isinstance(item, Citation))
            claims[name] = Claim(id=name, text=given.text, sources=kept, **given.parts)
        return claims, problems


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


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def _is_claim(value: Any) -> bool:
    try:
        _Claim.model_validate(value)
    except ValidationError:
        return False
    return True
