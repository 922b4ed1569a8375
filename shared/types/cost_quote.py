"""A quote: the likely cost and time of a job before its first step."""

from __future__ import annotations

from pydantic import NonNegativeFloat, NonNegativeInt

from handoff_queue.shared.types.message import Message


class Estimate(Message):
    """Estimate of a figure. Half of all such jobs stay below `likely`, and nine of ten below
    `most`.
    """

    likely: NonNegativeFloat
    most: NonNegativeFloat
    drawn_likely: NonNegativeFloat
    """`likely` before it was scaled by the accuracy of earlier quotes."""
    drawn_most: NonNegativeFloat
    """`most` before it was scaled by the accuracy of earlier quotes."""


class Quote(Message):
    """Quote of a whole job, including its spending before the quote."""

    microusd: Estimate | None = None
    """None if there is no earlier handoff, or a price is unknown."""
    seconds: Estimate | None = None
    handoffs: NonNegativeInt = 0
    """Number of earlier handoffs of this installation that the quote is based on."""
    jobs: NonNegativeInt = 0
    """Number of earlier jobs whose quotes give the accuracy."""
