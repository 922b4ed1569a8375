"""Feedback on earlier attempts at a step, as references to its texts."""

from __future__ import annotations

from pydantic import NonNegativeInt

from handoff_queue.shared.types.handoff import Author, BlobRef
from handoff_queue.shared.types.ids import JobId, StepId
from handoff_queue.shared.types.message import Message


class AttemptFeedback(Message):
    """Reason for another attempt. `ResultTexts.feedback` makes the specialist's Feedback from it."""

    author: Author
    result: BlobRef | None = None
    """The HandoffResult of the role that gave the feedback, or the user's text; None: the text
    is fixed.
    """
    previous: BlobRef | None = None
    """The HandoffResult of the earlier attempt."""
    ruling: BlobRef | None = None
    """The judge's HandoffResult that confirms the feedback; None: the judge was not asked."""
    follows: bool = False
    """True if the step runs again only because a dependency does."""
    helper: StepId | None = None
    """The step that was added to answer this step's question."""

    @property
    def asks_for_the_rest(self) -> bool:
        """Return whether the result was right but incomplete, and the user wants the rest."""
        return self.author == "user" and self.result is None and not self.follows


class PreviousTeam(Message):
    """The child job that last did a step, and its inputs."""

    job_id: JobId
    knows: tuple[BlobRef, ...] = ()
    """Usable results of the steps that this one depends on."""
    remarks_received: NonNegativeInt = 0
    """Number of remarks on the step that it received."""
