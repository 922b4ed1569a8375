"""What a job remembers of its fact-checker."""

from __future__ import annotations

from handoff_queue.shared.types.events import FactsChecked
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.message import Message


class FactChecks(Message):
    """The latest check, and what came of it."""

    result: BlobRef | None = None
    """The fact-checker's HandoffResult; None: there is none that counts."""
    parts: tuple[BlobRef, ...] = ()
    """What the answer was made of that it speaks of: the same answer is not checked twice."""
    said: FactsChecked | None = None
    """What that means for the answer that there would be; None: nothing has been said of this one.
    """
