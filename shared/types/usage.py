"""Usage of model calls. Money is in whole micro-dollars (1e-6 USD): costs are rounded up, and
limits down.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, overload

from pydantic import AfterValidator, NonNegativeInt

from handoff_queue.shared.types.message import Message, OmitZero

MICROUSD = 1_000_000
"""Micro-dollars in one US dollar."""


@overload
def to_microusd(usd: float) -> int: ...
@overload
def to_microusd(usd: float | None) -> int | None: ...
def to_microusd(usd: float | None) -> int | None:
    """Return an amount of dollars in whole micro-dollars, rounded down, so that a limit is
    never more than the user wrote.

    The conversion uses the decimal digits, because 2.01 as a double is a little less.
    """
    if usd is None:
        return None
    return int(Decimal(str(usd)) * MICROUSD)


@overload
def to_usd(microusd: int) -> float: ...
@overload
def to_usd(microusd: int | None) -> float | None: ...
def to_usd(microusd: int | None) -> float | None:
    """Return an amount of micro-dollars in dollars. None: the cost is unknown."""
    if microusd is None:
        return None
    return microusd / MICROUSD


def format_dollars(microusd: int) -> str:
    """Return an amount with all its digits and no exponent, such as `$0.00002` or `$1234567.5`."""
    return f"${(Decimal(microusd) / MICROUSD).normalize():f}"


MAX_FIGURE = 10**15
"""Largest figure of a result, as `limits.MAX_TOKENS`."""


def _clamp(figure: int) -> int:
    return min(figure, MAX_FIGURE)


Figure = Annotated[NonNegativeInt, AfterValidator(_clamp)]
"""A number in a result. A larger number counts as `MAX_FIGURE`: a worker that was taken over may
write any number, and no float holds a number of 400 digits.
"""


class Usage(Message):
    """Tokens and money of one or more model calls."""

    input_tokens: Figure = 0
    """All input tokens, including tokens of the prompt cache."""
    output_tokens: Figure = 0
    cache_read_tokens: Figure = 0
    """The part of input_tokens that was read from the provider's prompt cache."""
    cache_write_tokens: Figure = 0
    """The part of input_tokens that was written to the provider's prompt cache."""
    cache_write_1h_tokens: Annotated[Figure, OmitZero] = 0
    """The part of cache_write_tokens that the cache keeps for one hour, and not for 5 minutes."""
    cache_saved_microusd: Annotated[Figure, OmitZero] = 0
    """What the tokens from the cache would have cost more without it."""
    cache_surcharge_microusd: Annotated[Figure, OmitZero] = 0
    """What the tokens that were written to the cache cost more than other input."""
    batch_calls: Annotated[Figure, OmitZero] = 0
    """Calls whose reply came from a batch of the provider, at half price."""
    batch_saved_microusd: Annotated[Figure, OmitZero] = 0
    """What these calls would have cost more as live calls."""
    server_tools_microusd: Annotated[Figure, OmitZero] = 0
    """The part of cost_microusd that is for searches and containers of the provider. It is the same
    in a batch.
    """
    cost_microusd: Figure | None = 0
    """None if the price of the model is unknown. An unknown cost is never zero."""
    cut_calls: Figure = 0
    """Calls that ended without a report of their usage. They count at their upper bound, so
    any such call makes all figures upper bounds.
    """
    cut_tokens: Figure = 0
    """Tokens of these calls."""
    cut_microusd: Figure = 0
    """Cost of these calls, if prices are known."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of each figure. A sum with an unknown figure is unknown."""
        if self is NOTHING_USED:
            return other
        sums: dict[str, Any] = {}
        for name in _FIGURES:
            own_figure = getattr(self, name)
            other_figure = getattr(other, name)
            is_known = own_figure is not None and other_figure is not None
            sums[name] = own_figure + other_figure if is_known else None
        return Usage(**sums)

    def as_cut_call(self) -> Usage:
        """Return this usage as the usage of one call that was cut off. All figures are upper
        bounds.
        """
        return self.model_copy(
            update={
                "cut_calls": 1,
                "cut_tokens": self.total_tokens,
                "cut_microusd": self.cost_microusd or 0,
            }
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> float | None:
        return to_usd(self.cost_microusd)


_FIGURES = tuple(Usage.model_fields)
NOTHING_USED = Usage()
