"""What the next attempt at a step has of those before it. The types."""

from __future__ import annotations

from pydantic import NonNegativeInt

from handoff_queue.shared.types.handoff import Author, BlobRef
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.message import Message


class AttemptFeedback(Message):
    """Why a step is done again. `supervisor.lifecycle.result_texts` makes a Feedback of it."""

    author: Author
    result: BlobRef | None = None
    """The HandoffResult of the role that says it, or what the user wrote; None: it is said in
    words of our own.
    """
    previous: BlobRef | None = None
    """The HandoffResult that it speaks of."""
    ruling: BlobRef | None = None
    """The judge's HandoffResult that says the same."""
    follows: bool = False
    """It is done again only because a step that it depends on is."""
    helper: StepId | None = None
    """The step that was added to find out what it needs."""

    @property
    def asks_for_the_rest(self) -> bool:
        """Nothing was wrong with what there is: its user wants what is missing."""
        return self.author == "user" and self.result is None and not self.follows


class PreviousTeam(Message):
    """The child job that did a step the last time, and what it had for that."""

    job_id: JobId
    knows: tuple[BlobRef, ...] = ()
    """Usable results of the steps that this one depends on."""
    told: NonNegativeInt = 0
    """How many remarks."""
