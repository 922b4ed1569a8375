"""A quote: the likely cost and time of a job before its first step."""

from __future__ import annotations

from typing import Annotated

from pydantic import NonNegativeFloat, NonNegativeInt

from handoff_queue.shared.types.message import Message, OmitNone


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
    half_price_microusd: Annotated[NonNegativeFloat | None, OmitNone] = None
    """The part of the likely cost that is for tokens of calls in batches, at half price. None: all
    calls are live, or a price is unknown.
    """
    seconds: Estimate | None = None
    """None if there is no earlier handoff, or calls wait for batches."""
    live_seconds: Annotated[Estimate | None, OmitNone] = None
    """Of a job whose calls wait for batches: the time without these waits."""
    deadline_s: Annotated[NonNegativeInt | None, OmitNone] = None
    """Of such a job: seconds from its submission, or its latest retry, to its end at the latest. It
    has the waits for a person before the quote, but not those after it.
    """
    handoffs: NonNegativeInt = 0
    """Number of earlier handoffs of this installation that the quote is based on."""
    jobs: NonNegativeInt = 0
    """Number of earlier jobs whose quotes give the accuracy."""
