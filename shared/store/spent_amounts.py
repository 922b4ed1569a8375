"""The spent amounts of a handoff or a job, as the hashes of the store have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from handoff_queue.shared.types.budget_measures import AMOUNTS
from handoff_queue.shared.types.usage import Usage

SPENT = (
    *(amount.total for amount in AMOUNTS),
    "unpriced",
    "cut_calls",
    "cut_tokens",
    "cut_usd",
)
"""Fields with the spent amounts of a handoff or a job."""


class SpentAmounts(Protocol):
    """The spent amounts of a handoff or a job, as its budget account counts them."""

    __slots__ = ()

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cost_microusd(self) -> int | None: ...
    @property
    def cut_calls(self) -> int: ...
    @property
    def cut_tokens(self) -> int: ...
    @property
    def cut_microusd(self) -> int: ...

    @property
    def usage(self) -> Usage:
        """Return the usage of all model calls."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_microusd=self.cost_microusd,
            cut_calls=self.cut_calls,
            cut_tokens=self.cut_tokens,
            cut_microusd=self.cut_microusd,
        )


def spent_fields(number: Callable[[bytes], int], *, is_priced: bool) -> dict[str, Any]:
    """Return the fields of `SpentAmounts`.

    Args:
        number: returns the number in a field of Redis.
    """
    return {
        "turns": number(b"turns"),
        "input_tokens": number(b"input_tokens"),
        "output_tokens": number(b"output_tokens"),
        "cost_microusd": number(b"usd") if is_priced else None,
        "cut_calls": number(b"cut_calls"),
        "cut_tokens": number(b"cut_tokens"),
        "cut_microusd": number(b"cut_usd"),
    }
