"""Patches to a running plan."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.message import Message


class PatchHistory(Message):
    """Results that arrived, results that the replanner saw, and its patches."""

    news: dict[HandoffId, str] = Field(default_factory=dict)
    """Handoffs with results that no patch was based on yet, and their chords; '': no chord."""
    shown: tuple[HandoffId, ...] = ()
    """Handoffs whose results the replanner reads now."""
    proposal: BlobRef | None = None
    """The replanner's result, before its patch is applied."""
    made: tuple[PlanPatched, ...] = ()
    made_before: NonNegativeInt = 0
    """Number of patches before the latest retry."""

    @property
    def made_now(self) -> tuple[PlanPatched, ...]:
        """Return the patches since the submission or the latest retry."""
        return self.made[self.made_before :]

    @property
    def changes(self) -> int:
        """Return the number of changes of the plan since the submission or the latest retry."""
        return sum(patch.plan is not None for patch in self.made_now)

    @property
    def loop(self) -> PlanPatched | None:
        """Return the patch that only repeated earlier requests, or None."""
        for patch in self.made_now:
            if patch.repeats and patch.plan is None:
                return patch
        return None

    @property
    def is_final(self) -> bool:
        """Return whether the replanner is not asked again, because it said so or went in
        circles.
        """
        is_finished = any(patch.is_final for patch in self.made_now)
        return is_finished or self.loop is not None
