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


class InvalidAnswer(HandoffError):
    """The final text is not a valid result. The model reads the message and has one turn to fix the
    text. If it fails again, the message is the reason of the failure.
    """


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
    """A format of final texts: the answer envelope of specialists, or a role's own schema."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of the final text."""
        ...

    def read(self, text: str, *, last_try: bool) -> AcceptedAnswer:
        """Accept a final text. On `last_try` a defect that can be dropped, such as an unproven
        source, is dropped with a note.

        Raises:
            InvalidAnswer: names the defect that the model must fix.
        """
        ...


@runtime_checkable
class PartialAnswerFormat(Protocol):
    """An answer format that can also use a text that was cut off or never became valid."""

    def salvage(self, text: str) -> AcceptedAnswer | None:
        """Return the usable part of the text with status `partial`, or None if there is none."""
        ...


class SlowAnswerFormat(Protocol):
    """A reading that holds a text against others, which may take seconds."""

    def looks_up(self, text: str) -> bool:
        """Return whether reading this text looks up quotes. Without quotes it takes a millisecond
        or two.
        """
        ...


class ToolCallFormat(Protocol):
    """An answer format whose answer may also be calls of its own tools. These calls are not run:
    they are the decision.
    """

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools that are offered in addition to the tools that run."""
        ...

    def is_answer(self, calls: Sequence[Block]) -> bool:
        """Return whether all calls are calls of this format's tools."""
        ...

    def read_calls(self, calls: Sequence[Block], *, last_try: bool) -> AcceptedAnswer:
        """Accept the calls of one reply, all together; as `AnswerFormat.read`.

        Raises:
            NotAcceptable: with what to mend.
        """
        ...


def decider(reading: AnswerFormat) -> ToolCallFormat | None:
    """Return the format if its answer may be calls, else None. A check of the whole protocol takes
    longer than reading an answer.
    """
    if hasattr(reading, "read_calls"):
        return cast(ToolCallFormat, reading)
    return None


def takes_time(reading: AnswerFormat, text: str) -> bool:
    """Return whether reading this text may take longer than parsing it."""
    return hasattr(reading, "looks_up") and cast(SlowAnswerFormat, reading).looks_up(text)
