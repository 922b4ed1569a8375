"""The measures of the budgets: each is a use of model calls that a limit can bound.

The two tables are the only list of measures. The Lua scripts get both tables
(`shared/store/redis/script.py`), and the code for jobs, child jobs and commands iterates over
`MEASURES`. A new measure is a new row. `tests/shared/types/test_budget_measures.py` names each
place that has no room for it.

`SpentAmounts` has the amounts that the model calls of a handoff or a job have used, as the hashes
of the store have them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import BudgetLimits
from handoff_queue.shared.types.usage import Usage, format_dollars

UNKNOWN = -1
"""Amount of money in the arguments of the scripts if the price of the model is unknown."""


class Spent(Protocol):
    """A job, a child job or a handoff, with everything that its model calls have used."""

    @property
    def turns(self) -> int: ...
    @property
    def usage(self) -> Usage: ...


@dataclass(frozen=True, slots=True)
class OneCall:
    """Usage of one model call."""

    usage: Usage
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount that each model call uses. Every budget account has its sum."""

    name: str
    """Name in the arguments of the scripts."""
    total: str
    """Field of an account that holds the sum of the used amounts."""
    reserved: str
    """Field of a handoff that holds the reserved amount of its call."""
    worst: Callable[[WorstCase], int | None]
    """Returns the upper bound of one call; None: unknown."""
    used: Callable[[Spent], int | None]
    """Returns the used amount; None: unknown."""


TURNS = Amount(
    name="turns",
    total="turns",
    reserved="r_turns",
    worst=lambda _: 1,
    used=lambda spent: spent.turns,
)
INPUT = Amount(
    name="input",
    total="input_tokens",
    reserved="r_in",
    worst=lambda call: call.input_tokens,
    used=lambda spent: spent.usage.input_tokens,
)
OUTPUT = Amount(
    name="output",
    total="output_tokens",
    reserved="r_out",
    worst=lambda call: call.output_tokens,
    used=lambda spent: spent.usage.output_tokens,
)
MONEY = Amount(
    name="usd",
    total="usd",
    reserved="r_usd",
    worst=lambda call: call.microusd,
    used=lambda spent: spent.usage.cost_microusd,
)
AMOUNTS = (TURNS, INPUT, OUTPUT, MONEY)
"""All amounts. The turns are the first, because every call has a turn."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A sum of amounts that a limit bounds: at a handoff, a job, its parents, and a day."""

    limit: str
    """Field of `BudgetLimits`."""
    name: str
    """End of the names in Redis. The beginnings are `max_` (the limit), `keep_` (the reserve for
    the end of a job), `reserved_` (the reserved sum), and `day_` and `tenant_day_` (the caps).
    """
    amounts: tuple[Amount, ...]
    option: str
    """Option of the commands that sets or raises the limit of a job."""
    stop_reason: StopReason
    """Stop reason of a handoff, or of a team, that has reached the limit."""
    text: Callable[[int], str]
    """Returns an amount in words: `12 turns`, `$0.5`."""

    @property
    def option_with_value(self) -> str:
        """Return the option as a user writes it: `--max-turns N`, `--max-usd X`."""
        value = "X" if self.amounts == (MONEY,) else "N"
        return f"{self.option} {value}"

    @property
    def counts_calls(self) -> bool:
        """True if the measure counts model calls, so that the worst case of each call is 1."""
        return self.amounts == (TURNS,)

    @property
    def stored_limit(self) -> str:
        """Field of a job's hash, and of a handoff's hash, with the limit."""
        return f"max_{self.name}"

    @property
    def kept(self) -> str:
        """Field of a job's hash with the reserve for the roles that end the job."""
        return f"keep_{self.name}"

    @property
    def reserved(self) -> str:
        """Field of an account with the reserved sum."""
        return f"reserved_{self.name}"

    def get_limit(self, limits: BudgetLimits) -> int | None:
        """Return the limit; None: there is no limit."""
        limit: int | None = getattr(limits, self.limit)
        return limit

    def get_worst(self, call: WorstCase) -> int:
        """Return the upper bound of a call. An unknown amount counts as 0."""
        return sum(amount.worst(call) or 0 for amount in self.amounts)

    def get_used_amount(self, spent: Spent) -> int:
        """Return the used amount. An unknown amount counts as 0."""
        return sum(amount.used(spent) or 0 for amount in self.amounts)


MEASURES = (
    Measure(
        limit="max_turns",
        name="turns",
        amounts=(TURNS,),
        option="--max-turns",
        stop_reason=StopReason.MAX_TURNS,
        text=lambda turns: f"{turns} turns",
    ),
    Measure(
        limit="max_tokens",
        name="tokens",
        amounts=(INPUT, OUTPUT),
        option="--max-tokens",
        stop_reason=StopReason.MAX_TOKENS,
        text=lambda tokens: f"{tokens} tokens",
    ),
    Measure(
        limit="max_microusd",
        name="usd",
        amounts=(MONEY,),
        option="--max-usd",
        stop_reason=StopReason.MAX_USD,
        text=format_dollars,
    ),
)
"""All measures, in the order in which a call is checked."""


SPENT_FIELDS = (
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


def build_spent_fields(number: Callable[[bytes], int], *, is_priced: bool) -> dict[str, Any]:
    """Return the fields of `SpentAmounts`. A negative number counts as 0: a worker may write the
    counters.

    Args:
        number: returns the number in a field of Redis.
    """

    def read_amount(name: bytes) -> int:
        return max(0, number(name))

    return {
        "turns": read_amount(b"turns"),
        "input_tokens": read_amount(b"input_tokens"),
        "output_tokens": read_amount(b"output_tokens"),
        "cost_microusd": read_amount(b"usd") if is_priced else None,
        "cut_calls": read_amount(b"cut_calls"),
        "cut_tokens": read_amount(b"cut_tokens"),
        "cut_microusd": read_amount(b"cut_usd"),
    }
