"""What a job will likely cost and take, said before its first step."""

from __future__ import annotations

from pydantic import NonNegativeFloat, NonNegativeInt

from handoff_queue.shared.types.message import Message


class Estimate(Message):
    """A figure that is not known yet: half of all such jobs stay below `likely`, nine of ten
    below `most`.
    """

    likely: NonNegativeFloat
    most: NonNegativeFloat
    drawn_likely: NonNegativeFloat
    drawn_most: NonNegativeFloat
    """As they were drawn from the plan, before they were held against how earlier quotes
    turned out.
    """


class Quote(Message):
    """Of a whole job, what it has spent before the quote included."""

    microusd: Estimate | None = None
    """None: nothing is known to go by, or a price is not."""
    seconds: Estimate | None = None
    handoffs: NonNegativeInt = 0
    """Of this installation, that it was drawn from."""
    jobs: NonNegativeInt = 0
    """Whose quotes it was held against."""
