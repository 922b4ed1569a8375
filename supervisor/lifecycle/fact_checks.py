"""The state of a job's fact-checks."""

from __future__ import annotations

from handoff_queue.shared.types.events import FactsChecked
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.message import Message


class FactChecks(Message):
    """The latest check and its outcome."""

    result: BlobRef | None = None
    """The fact-checker's HandoffResult; None: there is no valid one."""
    parts: tuple[BlobRef, ...] = ()
    """Parts of the checked answer. The same answer is not checked twice."""
    said: FactsChecked | None = None
    """Effect on the current answer; None: there is no check of this answer."""
