"""Answer formats: a schema to send, and a parser that accepts a final text or names the faults.
`LenientAnswer` accepts small deviations from a schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.handoff import Claim, ResultStatus
from handoff_queue.shared.types.model import Block

_CAMEL = re.compile(r"([a-z])([A-Z])")
_AROUND_A_WORD = " \t\r\n.!,:;*_`'\""
"""Punctuation, quotes and Markdown that models put around the word of an enumeration."""


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of an answer."""

    fault: str
    """The fault in words for every reader."""
    remedy: str = ""
    """What the model can do about the fault. Users never read this."""

    @property
    def for_model(self) -> str:
        """Return the fault and its remedy."""
        return "; ".join(filter(None, (self.fault, self.remedy)))


class InvalidAnswer(HandoffError):
    """The final answer is not a valid result. The model reads the faults with their remedies, and
    may fix the answer, see `shared.agent.loop.MAX_REPAIRS`. After its last try the message, which
    has the faults alone, becomes the result's error.
    """

    def __init__(self, *defects: Defect | str) -> None:
        """Describe the defects of the answer. A text is a fault without a remedy."""
        faults: list[str] = []
        for_model: list[str] = []
        for item in defects:
            defect = Defect(item) if isinstance(item, str) else item
            faults.append(defect.fault)
            for_model.append(defect.for_model)
        super().__init__("; ".join(faults))
        self.for_model = "; ".join(for_model)
        """The faults with their remedies."""


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """A final text that was accepted."""

    status: ResultStatus
    output: JsonValue
    claims: tuple[Claim, ...] = ()
    confidence: float = 1.0
    needs: str | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()


class AnswerFormat(Protocol):
    """A format of final answers: the answer envelope of specialists, or a role's own schema."""

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the final text. None: the text is Markdown."""
        ...

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Parse a final text. On `last_try` a part with a defect is dropped with a note if the rest
        is usable. An example is a source that could not be checked.

        Raises:
            InvalidAnswer: the message names the defect that the model must fix.
        """
        ...


class PartialAnswerFormat(Protocol):
    """An answer format that can also use a text that was cut off or never became valid."""

    def salvage(self, text: str) -> AcceptedAnswer | None:
        """Return the usable part of the text with status `partial`, or None if there is none."""
        ...


class OpenAnswerFormat(Protocol):
    """An answer format that may also read a text that was cut off as a whole answer."""

    def is_whole(self, text: str) -> bool:
        """Return whether the end of the text shows that the answer was not cut off."""
        ...


class ShortenedAnswerFormat(Protocol):
    """An answer format that knows how a model can make an answer shorter."""

    shortening_advice: str
    """A sentence for the model."""


class SlowAnswerFormat(Protocol):
    """An answer format whose `read` may take seconds, because it searches quotes in documents."""

    def checks_quotes(self, text: str) -> bool:
        """Return whether `read` would search quotes of this text. Without quotes, `read` takes
        1 to 2 ms.
        """
        ...


class ToolCallFormat(Protocol):
    """An answer format that also takes calls of its own tools as the answer. The loop does not
    run these calls: they are the decision.
    """

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools that are offered in addition to the tools that run."""
        ...

    def is_answer(self, calls: Sequence[Block]) -> bool:
        """Return whether all calls are calls of this format's tools."""
        ...

    def read_calls(self, calls: Sequence[Block], *, last_try: bool) -> AcceptedAnswer:
        """Parse all calls of one reply as one answer. See `AnswerFormat.read`.

        Raises:
            InvalidAnswer: the message names the defect that the model must fix.
        """
        ...


# The functions below look for one attribute of a protocol. `isinstance` with a protocol would take
# longer than reading an answer.


def salvage(answer_format: AnswerFormat, text: str) -> AcceptedAnswer | None:
    """Return the usable part of a text that was cut off or never became valid, or None."""
    if not hasattr(answer_format, "salvage"):
        return None
    return cast(PartialAnswerFormat, answer_format).salvage(text)


def get_tool_call_format(answer_format: AnswerFormat) -> ToolCallFormat | None:
    """Return the format as a `ToolCallFormat` if it is one, else None."""
    if hasattr(answer_format, "read_calls"):
        return cast(ToolCallFormat, answer_format)
    return None


def looks_cut(answer_format: AnswerFormat, text: str) -> bool:
    """Return whether a text that may have been cut off does not show its end, although `read`
    could accept it.
    """
    if not hasattr(answer_format, "is_whole"):
        return False
    return not cast(OpenAnswerFormat, answer_format).is_whole(text)


def get_shortening_advice(answer_format: AnswerFormat) -> str:
    """Return a sentence for the model about a shorter answer, or ''."""
    if hasattr(answer_format, "shortening_advice"):
        return cast(ShortenedAnswerFormat, answer_format).shortening_advice
    return ""


def is_slow_to_read(answer_format: AnswerFormat, text: str) -> bool:
    """Return whether `read` may take seconds for this text."""
    if not hasattr(answer_format, "checks_quotes"):
        return False
    return cast(SlowAnswerFormat, answer_format).checks_quotes(text)


class LenientAnswer(BaseModel):
    """Base class of answers that accepts small deviations from their schema.

    Unknown fields are ignored. A number may stand for a string, and a string for a number.
    `null` in an optional field means that the model did not give the field. The words of an
    enumeration may differ in case, spaces and hyphens.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, values: Any) -> Any:
        """Drop nulls from optional fields, and correct the words of enumerations."""
        if not isinstance(values, dict):
            return values
        normalized_values: dict[Any, Any] = {}
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if field is None:
                normalized_values[name] = value
            elif value is not None or field.is_required():
                normalized_values[name] = _find_word(value, field.annotation)
        return normalized_values


def _find_word(value: Any, kind: Any) -> Any:
    """Return the word of the enumeration `kind` that equals the value after
    `normalize_status`. If there is none, or `kind` is not an enumeration, return the value.
    """
    if not isinstance(value, str) or not isinstance(kind, type) or not issubclass(kind, StrEnum):
        return value
    if value in list(kind):
        return value
    words: dict[str, str] = {}
    for word in kind:
        words[normalize_status(word.value)] = word.value
    return words.get(normalize_status(value), value)


def normalize_status(word: str) -> str:
    """Return `needs_input` for `Needs input.`, `needsInput` and `**needs-input**`."""
    words = _CAMEL.sub(r"\1_\2", word.strip(_AROUND_A_WORD))
    return re.sub(r"[\s_-]+", "_", words.lower())
