"""What an adaptive job knows of the changes to its plan. The types; `supervisor.lifecycle.replanning` says what follows from them."""

from __future__ import annotations

from itertools import takewhile

from pydantic import Field, NonNegativeInt

from handoff_queue.shared.types.events import PlanPatched
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.message import Message

REPLANNER = "replanner"
FRUITLESS_ROUNDS = 2
"""Rounds of added steps in a row that brought nothing new, from which it goes in circles. One may be a search that was worth it."""


class Patches(Message):
    """What came in, what the replanner has seen of it, and what it made of that."""

    news: dict[HandoffId, str] = Field(default_factory=dict)
    """Results of steps that no patch speaks of yet, and the chords that they came with; '': none."""
    shown: tuple[HandoffId, ...] = ()
    """Those among them that the replanner thinks about."""
    proposal: BlobRef | None = None
    """The replanner's result, before anything is made of it."""
    made: tuple[PlanPatched, ...] = ()
    made_before: NonNegativeInt = 0
    """Of these: before the latest retry."""

    @property
    def made_now(self) -> tuple[PlanPatched, ...]:
        return self.made[self.made_before :]

    @property
    def changes(self) -> int:
        """How often the plan was changed since the submission or the latest retry."""
        return sum(one.plan is not None for one in self.made_now)

    @property
    def loop(self) -> PlanPatched | None:
        """The one that asked for nothing but what was asked for already."""
        return next((one for one in self.made_now if one.repeats and one.plan is None), None)

    @property
    def fruitless(self) -> tuple[StepId, ...]:
        """The steps that it has added in the latest rounds in a row which brought nothing new."""
        known = {step_id for one in self.made_now for step_id in one.nothing_new}
        rounds = [{step.id for step in one.added} for one in self.made_now if one.added]
        latest = list(takewhile(lambda added: added <= known, reversed(rounds)))
        return tuple(sorted(set().union(*latest))) if len(latest) >= FRUITLESS_ROUNDS else ()

    @property
    def is_final(self) -> bool:
        """The replanner is not asked again, because it said so or went in circles."""
        return (
            self.loop is not None
            or bool(self.fruitless)
            or any(one.is_final for one in self.made_now)
        )
