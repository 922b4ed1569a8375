"""What a specialist says of an answer's facts before it leaves, and what the journal keeps of that."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import NonNegativeInt

from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message


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
