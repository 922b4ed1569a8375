"""What a job knows of its questions to a person. The types; `approving` says when one is asked, `approved` what the answer makes true."""

from __future__ import annotations

from pydantic import NonNegativeInt

from handoff_queue.shared.types.approval import ApprovalOf
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.message import Message


class Question(Message):
    """What the job waits for an approval of."""

    what: ApprovalOf
    version: NonNegativeInt
    """Of its `approval_asked`: an answer names it."""
    at: float
    until: float
    """Unix times in seconds."""
    steps: tuple[StepId, ...] = ()
    """Which ones, of a failure."""
    reminders: NonNegativeInt = 0


class RejectedPlan(Message):
    """A plan that a person did not want, and what was said of it."""

    plan: BlobRef
    note: BlobRef | None = None
    own_plan: BlobRef | None = None
    """The plan that the person would make."""
