"""The answer envelope: the JSON object with which specialists and the synthesizer answer. Code
checks its citations. An answer in Markdown is read as the same envelope.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from typing import Any

from pydantic import Field as PydanticField
from pydantic import JsonValue, ValidationError, field_validator

from handoff_queue.shared.agent.answer_format import (
    AcceptedAnswer,
    Defect,
    InvalidAnswer,
    LenientAnswer,
    normalize_status,
)
from handoff_queue.shared.agent.claim_markers import find_sentences_by_claim, place_markers
from handoff_queue.shared.agent.empty_outputs import is_empty_form
from handoff_queue.shared.agent.json_repair import (
    describe_text,
    find_json_object,
    parse_first_object,
    parse_partial_object,
    parse_whole_object,
    without_nulls,
)
from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, find_problem
from handoff_queue.shared.agent.markdown_answer import PARTS, read_noted_answer, without_notes
from handoff_queue.shared.agent.quote_verification import Sources
from handoff_queue.shared.agent.system_prompt import AnswerForm
from handoff_queue.shared.text.unicode_text import to_nfc
from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.citation_markers import (
    qualify_claim_id,
    qualify_markers,
    rename_markers,
)
from handoff_queue.shared.types.handoff import (
    Citation,
    Claim,
    ResultStatus,
    only_announces_completion,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import describe_problems

MAX_PROBLEMS = 5
"""Most problems that one message to the model names."""
UNSTATED_CONFIDENCE = 0.5
_NOTHING = frozenset({"", "-", "none", "null", "nothing", "n/a"})
"""Words that models write for a field without a value."""
MAX_TEXT_CHARS = 100_000
"""Limit of `shared.types.handoff.Text`."""

MAX_PART_CHARS = 500
"""Characters of one field of `PARTS`."""
MAX_ANNOUNCEMENT_CHARS = 200
"""Characters of the longest answer that is checked for `_ANNOUNCES`."""
_ANNOUNCES = re.compile(
    r"\W*+(?:okay|ok|sure|first|now)?\W*+(?:i(?:'ll| will|'m going to| am going to)|let me|let's)"
    r" (?:now |first )*(?:search|look|check|find|read|start|begin|open|see|examine|review)\b",
    re.IGNORECASE,
)
"""The beginning of a text that only says what the model does next, such as "Let me search"."""
_BEGINS_ENVELOPE = re.compile(r'\s*+(?:```[a-zA-Z]*+\s*+)?\{\s*+"(?:status|output)"')
_TEXT: dict[str, Any] = {"type": "string"}
_SOURCES_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"source": _TEXT, "quote": _TEXT},
        "required": ["source", "quote"],
        "additionalProperties": False,
    },
}


def _build_claims_schema(parts: Iterable[str]) -> dict[str, Any]:
    """Return the JSON Schema of a list of claims, which may have these parts."""
    claim = {
        "type": "object",
        "properties": {
            "id": _TEXT,
            "text": _TEXT,
            **dict.fromkeys(parts, _TEXT),
            "sources": _SOURCES_SCHEMA,
        },
        "required": ["id", "sources"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": claim}


class _Source(LenientAnswer):
    source: str
    quote: str


class _Claim(LenientAnswer):
    id: str
    text: str = ""
    sources: list[_Source] = PydanticField(default_factory=list)
    subject: str | None = None
    attribute: str | None = None
    value: str | None = None
    unit: str | None = None
    date: str | None = None

    @field_validator(*PARTS, mode="before")
    @classmethod
    def _normalize_part(cls, value: Any) -> str | None:
        """Return the part as text: a boolean as "yes" or "no", a blank or invalid part as
        None.

        Parts help code to compare claims. An invalid part is not a reason to refuse a claim.
        """
        if isinstance(value, bool):
            if value:
                return "yes"
            return "no"
        text = ""
        if isinstance(value, str | int | float):
            text = to_nfc(str(value).strip())
        if text.lower() in _NOTHING or len(text) > MAX_PART_CHARS:
            return None
        return text

    @property
    def parts(self) -> dict[str, str | None]:
        parts: dict[str, str | None] = {}
        for part in PARTS:
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
        Such a confidence is not a reason to refuse an answer.
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


_FIELDS = frozenset(_Envelope.model_fields)


def _is_envelope(names: Set[str]) -> bool:
    """Return whether an object with these fields is an envelope, and not work that is JSON."""
    if {"status", "output"} <= names:
        return True
    return names <= _FIELDS and not names.isdisjoint({"output", "needs", "problem"})


@dataclass(frozen=True, slots=True)
class _MarkedOutput:
    """An output with the markers of its claims."""

    output: JsonValue
    claims: tuple[Claim, ...]
    """The claims of the answer, and the claims of other steps that the output points to."""
    dangling_ids: Sequence[str]
    """Markers in the output that point to no claim."""
    unplaced_ids: Sequence[str]
    """Claims with sources that have no place in the output."""


@dataclass(frozen=True, slots=True)
class EnvelopeFormat:
    """The `AnswerFormat` of specialists and of the synthesizer."""

    step_id: StepId
    output_schema: Mapping[str, Any]
    """The handoff's `expected_output_format`."""
    sources: Sources
    known_claims: Mapping[str, Claim] = field(default_factory=dict)
    """Claims of other results (`LoadedPayloads.collect_claims`) by qualified id. The result of
    this answer includes each of these claims that the answer refers to or restates.
    """
    has_claims: bool = True
    """False for a specialist whose answer has no new claims."""
    are_compared: bool = True
    """False if claims need no parts (`PARTS`), because no code compares them."""
    form: AnswerForm = AnswerForm.ENVELOPE
    """`MARKDOWN`: the answer is Markdown with notes. An envelope is accepted, too."""

    @property
    def schema(self) -> Mapping[str, Any] | None:
        if self.form is AnswerForm.MARKDOWN:
            return None
        output = dict(self.output_schema)
        definitions: dict[str, Any] = {}
        for key in ("$defs", "definitions"):
            if key in output:
                definitions[key] = output.pop(key)
        properties = {"status": {"type": "string", "enum": list(ANSWERS)}, "output": output}
        if self.has_claims:
            properties["claims"] = _build_claims_schema(PARTS if self.are_compared else ())
        properties["confidence"] = {"type": "number"}
        required = list(properties)
        properties["needs"] = properties["problem"] = _TEXT
        return {
            **definitions,
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """See `shared.agent.answer_format.AnswerFormat`."""
        if self._is_markdown(text):
            return self._read_markdown(text, last_try=last_try)
        value = find_json_object(text)
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
        envelope = self._without_nulls(_parse_envelope(value))
        self._check(envelope, last_try=last_try)
        return self._read(envelope, last_try=last_try)

    def _read_markdown(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Parse an answer in Markdown. Raises as `read`."""
        answer = read_noted_answer(text)
        envelope = _parse_envelope(
            {**answer.fields, "output": answer.text or None, "claims": answer.claims}
        )
        self._check(envelope, last_try=last_try)
        if len(answer.text) <= MAX_ANNOUNCEMENT_CHARS and _ANNOUNCES.match(answer.text):
            raise InvalidAnswer(
                Defect("the answer only announces work", "call a tool, or give the work itself")
            )
        problems: list[Defect] = []
        for line in answer.unreadable:
            problems.append(
                Defect(
                    f'the notes have a line that cannot be read: "{line[:60]}"',
                    'write each note as [c1] source: "quote"',
                )
            )
        return self._read(envelope, problems, last_try=last_try)

    def is_whole(self, text: str) -> bool:
        """See `shared.agent.answer_format.OpenAnswerFormat`."""
        return not self._is_markdown(text) or read_noted_answer(text).is_closed

    def _is_markdown(self, text: str) -> bool:
        """Return whether a text is Markdown. An envelope that was cut off is not Markdown."""
        if self.form is not AnswerForm.MARKDOWN:
            return False
        if not _BEGINS_ENVELOPE.match(text):
            return True
        value = parse_whole_object(text) or parse_first_object(text)
        return value is not None and not _is_envelope(value.keys())

    def _without_nulls(self, envelope: _Envelope) -> _Envelope:
        """Drop `null` from optional properties of the output if the output matches its schema
        only without them.
        """
        if not isinstance(envelope.output, dict | list):
            return envelope
        if _find_mismatch(envelope.output, self.output_schema) is None:
            return envelope
        output = without_nulls(envelope.output, self.output_schema, self.output_schema)
        if _find_mismatch(output, self.output_schema) is not None:
            return envelope
        return envelope.model_copy(update={"output": output})

    def checks_quotes(self, text: str) -> bool:
        """See `shared.agent.answer_format.SlowAnswerFormat`."""
        return '"quote"' in text or "<notes>" in text

    def salvage(self, text: str) -> AcceptedAnswer | None:
        """Return the output and the checked claims of a text that was cut off or not accepted.

        A prose text is the output if the output may be a string. A block of notes that cannot be
        read is left out. See `shared.agent.answer_format.PartialAnswerFormat`.
        """
        value: dict[str, Any] | None
        if self._is_markdown(text):
            answer = read_noted_answer(text)
            value = {"output": answer.text, "claims": answer.claims}
        else:
            value = find_json_object(text) or parse_partial_object(text)
        if value is None or "output" not in value:
            prose = without_notes(text).strip()
            if prose and not prose.startswith("{") and self._may_be_text:
                return AcceptedAnswer(ResultStatus.PARTIAL, prose, confidence=0.0)
            return None
        output = value["output"]
        if isinstance(output, str):
            output = without_notes(output)
        envelope = _Envelope(
            status=ResultStatus.PARTIAL,
            output=output,
            claims=_parse_claims(value.get("claims")),
        )
        if envelope.output in (None, "", [], {}) or only_announces_completion(envelope.output):
            return None
        return self._read(envelope, last_try=True)

    @property
    def _may_be_text(self) -> bool:
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
                if envelope.output is None or only_announces_completion(envelope.output):
                    raise InvalidAnswer(_NO_WORK)
                problem = _find_mismatch(envelope.output, self.output_schema)
                if problem:
                    raise InvalidAnswer(f"the output does not match its format: {problem}")
            case ResultStatus.NEEDS_INPUT:
                if not (envelope.needs or "").strip():
                    raise InvalidAnswer(
                        Defect(
                            "its status is needs_input, and it does not name the missing"
                            " information",
                            'name it in "needs"',
                        )
                    )
            case ResultStatus.FAILED:
                if not (envelope.problem or "").strip():
                    raise InvalidAnswer(
                        Defect(
                            "its status is failed, and it does not say why", 'say why in "problem"'
                        )
                    )
            case ResultStatus.PARTIAL:
                if envelope.output is None or only_announces_completion(envelope.output):
                    raise InvalidAnswer(
                        Defect(
                            "its status is partial, and it gives no work",
                            "give the work so far as the output; where there is none, the status"
                            " is failed",
                        )
                    )
                if not last_try and not (envelope.problem or envelope.needs):
                    raise InvalidAnswer(
                        Defect(
                            "its status is partial, and it does not name the missing part",
                            'name it and the reason in "problem"',
                        )
                    )

    def _read(
        self, envelope: _Envelope, unreadable: Sequence[Defect] = (), *, last_try: bool
    ) -> AcceptedAnswer:
        """Return the answer with its checked claims. Each claim without a marker gets one where its
        text is in the output. On `last_try` defects become notes, and doubts change the status
        from `ok` to `partial`.

        Args:
            unreadable: defects of the notes of the answer.

        Raises:
            InvalidAnswer: there are defects or doubts, or claims with sources have no place in the
                output, and this is not the last try.
        """
        envelope = self._with_own_ids(envelope)
        faulty_ids: set[str] = set()
        if not self.has_claims:
            envelope, faulty_ids = self._without_faulty_claims(envelope)
            unreadable = ()
        own_claims, problems = self._collect_own_claims(envelope)
        problems += unreadable
        marked = self._mark_output(envelope.output, own_claims)
        for name in marked.dangling_ids:
            if name not in faulty_ids:
                fault = f"[{name}] in the output points to no claim"
                problems.append(Defect(fault, self._remedy_of_mark))
        has_source = any(claim.sources for claim in marked.claims)
        doubts = self._find_doubts(envelope, is_unproven=bool(problems) and not has_source)
        unplaced = self._without_place(marked.unplaced_ids)
        defects: list[Defect | str] = [*doubts, *problems, *unplaced]
        if defects and not last_try:
            raise InvalidAnswer(*defects[:MAX_PROBLEMS])
        status, problem_text = envelope.status, envelope.problem
        if doubts and status is ResultStatus.OK:
            status, problem_text = ResultStatus.PARTIAL, None
        return AcceptedAnswer(
            status=status,
            output=marked.output,
            claims=marked.claims,
            confidence=min(max(envelope.confidence, 0.0), 1.0),
            needs=envelope.needs,
            error="; ".join(filter(None, (*doubts, problem_text))) or None,
            notes=tuple(f"dropped: {problem.fault}" for problem in problems),
        )

    def _mark_output(self, output: JsonValue, own_claims: Mapping[str, Claim]) -> _MarkedOutput:
        """Return the output with qualified markers, also for own claims whose text is in it.

        Args:
            own_claims: claims of the answer by qualified id.
        """
        known_claims = {**self.known_claims, **own_claims}
        dangling_ids: list[str] = []
        output, marked_ids = qualify_markers(output, self.step_id, known_claims, dangling_ids)
        output, unplaced_ids = _with_markers(output, own_claims, marked_ids)
        claims = dict(own_claims)
        for name in marked_ids:
            claims[name] = known_claims[name]
        return _MarkedOutput(output, tuple(claims.values()), dangling_ids, unplaced_ids)

    @property
    def _remedy_of_mark(self) -> str:
        """Return the remedy for a mark without a claim, for the model; '' without a special one."""
        if self.form is AnswerForm.MARKDOWN:
            return "give its note in one block <notes>, with no text after the block"
        return ""

    def _find_doubts(self, envelope: _Envelope, *, is_unproven: bool) -> list[str]:
        """Return the reasons why a result with status `ok` or `partial` is less than it says.

        Args:
            is_unproven: True if claims had defects and no claim has a checked source.
        """
        if envelope.status not in (ResultStatus.OK, ResultStatus.PARTIAL):
            return []
        doubts = []
        fault = envelope.problem or envelope.needs
        if fault and envelope.status is ResultStatus.OK:
            doubts.append(f"its status is ok, but it also names a fault or a gap: {fault}")
        if is_empty_form(envelope.output, self.output_schema):
            doubts.append("the output only fills its form, and says nothing")
        if is_unproven:
            doubts.append("nothing in it has a source that could be checked")
        return doubts

    def _without_place(self, claims: Sequence[str]) -> list[Defect]:
        """Return the defect of claims that have no place in the output; empty if there are none."""
        if not claims:
            return []
        own_prefix = f"{self.step_id}."
        names = ", ".join(f"[{name.removeprefix(own_prefix)}]" for name in claims[:MAX_PROBLEMS])
        return [
            Defect(
                f"the output does not say where it uses {format_count(len(claims), 'claim')}",
                f"write {names} after the statements that they prove, or leave these claims out",
            )
        ]

    def _with_own_ids(self, envelope: _Envelope) -> _Envelope:
        """Return the envelope with new ids for claims of other steps that these steps have not
        made. Such a claim is the agent's own, and its readers would drop it.
        """
        own_ids: set[str | None] = set()
        strange: dict[str, None] = {}
        for claim in envelope.claims:
            name = qualify_claim_id(claim.id, self.step_id)
            own_ids.add(name)
            is_own = name is None or name.startswith(f"{self.step_id}.")
            if name is not None and not is_own and name not in self.known_claims:
                strange[name] = None
        if not strange:
            return envelope
        free_ids = (f"c{n}" for n in count(1) if f"{self.step_id}.c{n}" not in own_ids)
        new_ids = dict(zip(strange, free_ids, strict=False))
        claims: list[_Claim] = []
        for claim in envelope.claims:
            name = qualify_claim_id(claim.id, self.step_id)
            new_id = new_ids.get(name or "", claim.id)
            claims.append(claim.model_copy(update={"id": new_id}))
        output = rename_markers(envelope.output, new_ids)
        return envelope.model_copy(update={"claims": claims, "output": output})

    def _without_faulty_claims(self, envelope: _Envelope) -> tuple[_Envelope, set[str]]:
        """Leave out the claims with a quote that is not in its source. Return the envelope and the
        ids of these claims. The instructions asked for no claims, so a faulty claim costs no turn.
        """
        sentences = _find_sentences(envelope.output)
        kept_claims: list[_Claim] = []
        faulty_ids: set[str] = set()
        for claim in envelope.claims:
            is_known = qualify_claim_id(claim.id, self.step_id) in self.known_claims
            faults: list[Defect] = []
            if not is_known:
                self._check_citations(_with_text(claim, sentences), sentences, faults)
            if faults:
                faulty_ids.add(claim.id)
            else:
                kept_claims.append(claim)
        return envelope.model_copy(update={"claims": kept_claims}), faulty_ids

    def _collect_own_claims(self, envelope: _Envelope) -> tuple[dict[str, Claim], list[Defect]]:
        """Return the usable claims of the envelope by qualified id, and the problems of its
        claims.
        """
        claims: dict[str, Claim] = {}
        problems: list[Defect] = []
        sentences = _find_sentences(envelope.output)
        for raw in envelope.claims:
            claim = _with_text(raw, sentences)
            name = qualify_claim_id(claim.id, self.step_id)
            if name is None:
                fault = f'claim id "{claim.id[:60]}" is not of the form c1, c2, ...'
                problems.append(Defect(fault))
            elif name in claims:
                problems.append(Defect(f'claim id "{claim.id[:60]}" is taken twice'))
            elif name in self.known_claims and not name.startswith(f"{self.step_id}."):
                # The answer restates the claim of another step, whose sources have been checked.
                claims[name] = self.known_claims[name]
            elif fault := _find_text_fault(claim.text):
                problems.append(Defect(f"{claim.id}: {fault}"))
            else:
                citations = self._check_citations(claim, sentences, problems)
                claims[name] = _build_claim(name, claim, citations)
        return claims, problems

    def _check_citations(
        self, claim: _Claim, sentences: Mapping[str, str], problems: list[Defect]
    ) -> list[Citation]:
        """Return the checked sources of a claim. Add the defect of each other source to
        `problems`.

        Args:
            sentences: the marked sentences of the output, which the sources must prove.
        """
        statement = sentences.get(claim.id) or claim.text
        citations: list[Citation] = []
        for source in claim.sources:
            citation = self.sources.build_citation(
                source.source, source.quote, may_be_abridged=True
            )
            if isinstance(citation, Citation) and self.sources.repeats_own_words(
                citation, statement
            ):
                citation = Defect(
                    f'this quote from "{citation.source}" repeats words of the agent\'s own call:'
                    f' "{" ".join(source.quote.split())[:120]}"',
                    "quote words that the source adds, or leave this source out",
                )
            if isinstance(citation, Citation):
                citations.append(citation)
            else:
                problems.append(Defect(f"{claim.id}: {citation.fault}", citation.remedy))
        return citations


def _parse_envelope(value: Any) -> _Envelope:
    """Return the envelope of a JSON value.

    Raises:
        InvalidAnswer: the value is not an envelope.
    """
    try:
        return _Envelope.model_validate(value)
    except ValidationError as error:
        raise InvalidAnswer(f"the answer envelope is wrong: {describe_problems(error)}") from error


def _find_sentences(output: Any) -> dict[str, str]:
    """Return the marked sentences of an output by claim. A form has none."""
    if isinstance(output, str):
        return find_sentences_by_claim(output)
    return {}


def _build_claim(name: str, claim: _Claim, citations: Sequence[Citation]) -> Claim:
    """Return a claim of this step with its checked sources."""
    text = claim.text
    if citations and text == claim.sources[0].quote:  # the agent may have abridged it
        text = " ".join(citations[0].quote.split())
    return Claim(id=name, text=text, sources=tuple(citations), **claim.parts)


def _with_text(claim: _Claim, sentences: Mapping[str, str]) -> _Claim:
    """Return the claim with a text: its own, the sentence of the output with its marker, or else
    its first quote.

    Args:
        sentences: the marked sentences of the output, see `find_sentences_by_claim`.
    """
    if claim.text.strip():
        return claim
    text = sentences.get(claim.id, "")
    if not text and claim.sources:
        text = claim.sources[0].quote
    return claim.model_copy(update={"text": text})


def _find_text_fault(text: str) -> str:
    """Return the fault of the text of a claim, or ""."""
    if not text.strip():
        return "its text is empty"
    if len(text) > MAX_TEXT_CHARS:
        return f"its text is longer than {MAX_TEXT_CHARS} characters"
    return ""


def _with_markers(
    output: JsonValue, claims: Mapping[str, Claim], marked_ids: Collection[str]
) -> tuple[JsonValue, list[str]]:
    """Return the output with the markers that code can place, and the claims with sources that
    have no place. A form stays as it is: a marker could break its schema.

    Args:
        claims: claims by qualified id.
        marked_ids: ids of claims with a marker in the output.
    """
    if not isinstance(output, str):
        return output, []
    unmarked_claims: list[Claim] = []
    for name, claim in claims.items():
        if claim.sources and name not in marked_ids:
            unmarked_claims.append(claim)
    if not unmarked_claims:
        return output, []
    text, placed_ids = place_markers(output, unmarked_claims)
    return text, [claim.id for claim in unmarked_claims if claim.id not in placed_ids]


_NO_WORK = Defect(
    "the output only reports that the work is done", "give the work itself as the output"
)


def _find_mismatch(output: JsonValue, schema: Mapping[str, Any]) -> str | None:
    """Return the defect of an output, or None. A broken schema is not the model's fault, so it
    passes.
    """
    try:
        return find_problem(output, schema)
    except BrokenSchema:
        return None


def _parse_claims(value: Any) -> list[_Claim]:
    """Return the items of a list that parse as claims. Without a list, return none."""
    claims: list[_Claim] = []
    if isinstance(value, list):
        for item in value:
            with suppress(ValidationError):
                claims.append(_Claim.model_validate(item))
    return claims
