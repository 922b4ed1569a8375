"""Patches to a running plan, and their steps that repeat earlier steps.

A step repeats an earlier step of the same specialist if both tasks have the same word stems in
the same order, apart from articles and politeness. A reworded repeat is not found; the limit
on rounds stops it. `docs/decisions/0023-measured-mechanisms.md` has the figures of stricter and
looser measures.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, NonNegativeInt

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan import Repeat, Step
from handoff_queue.supervisor.text.task_similarity import task_words


def repeats_in(new: Sequence[Step], earlier: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the new steps that repeat an earlier step of the same specialist, with the first
    such step.
    """
    first: dict[tuple[str, tuple[str, ...]], StepId] = {}
    for step in earlier:
        first.setdefault((step.specialist, task_words(step.task)), step.id)
    repeats: list[Repeat] = []
    for step in new:
        earlier_id = first.get((step.specialist, task_words(step.task)))
        if earlier_id is not None:
            repeats.append(Repeat(step=step.id, earlier=earlier_id))
    return tuple(repeats)


def twice_in(steps: Sequence[Step]) -> tuple[Repeat, ...]:
    """Return the steps that repeat an earlier step of the same plan, with the same specialist
    and inputs.
    """
    first: dict[tuple[str, frozenset[StepId], tuple[str, ...]], StepId] = {}
    repeats: list[Repeat] = []
    for step in steps:
        key = (step.specialist, frozenset(step.depends_on), task_words(step.task))
        earlier_id = first.setdefault(key, step.id)
        if earlier_id != step.id:
            repeats.append(Repeat(step=step.id, earlier=earlier_id))
    return tuple(repeats)


REPLANNER = "replanner"


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
        total = 0
        for patch in self.made_now:
            total += patch.plan is not None
        return total

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
