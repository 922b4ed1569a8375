"""What model calls used. Money is whole micro-dollars (1e-6 USD), rounded up: sums never drift
below the truth.
"""

from __future__ import annotations

from decimal import Decimal
from typing import overload

from pydantic import NonNegativeInt

from handoff_queue.shared.types.message import Message

MICROUSD = 1_000_000
"""In one US dollar."""


@overload
def microusd(usd: float) -> int: ...
@overload
def microusd(usd: float | None) -> int | None: ...
def microusd(usd: float | None) -> int | None:
    """A limit as a person writes it, never more than that. By its digits: 2.01 in binary is a
    little less. None: there is none.
    """
    return None if usd is None else int(Decimal(str(usd)) * MICROUSD)


@overload
def cost_usd(microusd: int) -> float: ...
@overload
def cost_usd(microusd: int | None) -> float | None: ...
def cost_usd(microusd: int | None) -> float | None:
    """For people, and for what leaves the system. None: it is not known."""
    return None if microusd is None else microusd / MICROUSD


class Usage(Message):
    """Tokens and money of one or more model calls."""

    input_tokens: NonNegativeInt = 0
    """All input tokens, cached ones included."""
    output_tokens: NonNegativeInt = 0
    cache_read_tokens: NonNegativeInt = 0
    """The part of input_tokens that was read from the provider's prompt cache."""
    cache_write_tokens: NonNegativeInt = 0
    """The part of input_tokens that was written to the provider's prompt cache."""
    cost_microusd: NonNegativeInt | None = 0
    """None: the price of the model is not known. Never zero for unknown."""
    cut_calls: NonNegativeInt = 0
    """Calls among these that ended without saying what they used, and are counted at the most
    that it can be: with any, all figures are upper bounds.
    """
    cut_tokens: NonNegativeInt = 0
    """The part of input_tokens and output_tokens that is theirs."""
    cut_microusd: NonNegativeInt = 0
    """The part of cost_microusd that is theirs, as far as prices are known."""

    def __add__(self, other: Usage) -> Usage:
        if self is NOTHING_USED:
            return other
        unknown = self.cost_microusd is None or other.cost_microusd is None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_microusd=None
            if unknown
            else (self.cost_microusd or 0) + (other.cost_microusd or 0),
            cut_calls=self.cut_calls + other.cut_calls,
            cut_tokens=self.cut_tokens + other.cut_tokens,
            cut_microusd=self.cut_microusd + other.cut_microusd,
        )

    def of_a_cut_call(self) -> Usage:
        """The same, known to be no more than an upper bound of what one call used."""
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
        return cost_usd(self.cost_microusd)


NOTHING_USED = Usage()
