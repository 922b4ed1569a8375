"""The state of a job's fact-checks."""

from __future__ import annotations

from handoff_queue.shared.types.events import FactsChecked
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.message import Message


class FactChecks(Message):
    """The latest fact-check of an answer and its outcome."""

    result: BlobRef | None = None
    """The fact-checker's HandoffResult; None: there is none, or it must be made again."""
    parts: tuple[BlobRef, ...] = ()
    """Parts of the checked answer. An answer of the same parts is not checked again."""
    outcome: FactsChecked | None = None
    """Outcome of the check for the current answer; None: no check was applied to this answer."""
