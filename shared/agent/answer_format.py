"""Answer formats: a schema to send, and a parser that accepts a final text or names the faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from pydantic import JsonValue

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.handoff import Claim, ResultStatus
from handoff_queue.shared.types.model import Block


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


@runtime_checkable
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


def get_tool_call_format(answer_format: AnswerFormat) -> ToolCallFormat | None:
    """Return the format as a `ToolCallFormat` if it is one, else None.

    This checks one method. `isinstance` with a protocol would take longer than reading an
    answer.
    """
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
