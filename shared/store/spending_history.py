"""Spending of past days, by tenant, specialist or role, model and mode. Reads only: the script that
settles a call counts it, see `parts/budgets.lua`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.metrics import read_count_hashes
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import parse_figure, parse_name

DAY_S = 86_400
MAX_DAYS = 90
"""Days that are kept, as `PAST_KEPT_MS` in `parts/retention.lua`."""
_SEPARATOR = "\t"
_LABELS = 4
"""Number of labels of a series."""


@dataclass(slots=True)
class Amounts:
    """Sums over model calls."""

    calls: int = 0
    usd: int = 0
    """Micro-dollars."""
    input: int = 0
    """Input tokens. Tokens from a provider's cache count, too."""
    output: int = 0
    cached: int = 0
    """Input tokens that a provider read from its cache."""
    unpriced: int = 0
    """Calls of models without a known price."""
    saved: int = 0
    """Micro-dollars that the tokens from a cache would have cost more without it."""
    surcharge: int = 0
    """Micro-dollars that the tokens written to a cache cost more than other input."""
    copies: int = 0
    """Handoffs that copied the result of an equal handoff."""
    spared: int = 0
    """Micro-dollars that the runs of the copied results cost."""
    batched: int = 0
    """Calls whose reply came from a batch of the provider."""
    batch_saved: int = 0
    """Micro-dollars that these calls would have cost more as live calls."""

    def add(self, other: Amounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def tokens(self) -> int:
        return self.input + self.output

    @property
    def net_saved(self) -> int:
        """Return the micro-dollars that the cache saved, less the price of writing to it. It is
        negative if the cache cost more than it saved.
        """
        return self.saved - self.surcharge

    @property
    def cached_share(self) -> float | None:
        """Return the share of the input tokens that came from a cache. None: there are none."""
        if not self.input:
            return None
        return self.cached / self.input


@dataclass(frozen=True, slots=True)
class LabelledSpending:
    """The model calls of one day with the same labels. A label is `metrics.OTHER` for all values
    beyond the first ones.
    """

    day: int
    """Days since 1970 in UTC."""
    tenant: str
    agent: str
    """A specialist, or a role of the supervisor."""
    model: str
    mode: str
    """The mode of the request. '': unknown."""
    amounts: Amounts


class SpendingHistory:
    """The spending of the newest days."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read_days(self, numbers: Iterable[int]) -> list[LabelledSpending]:
        """Return the spending of these days, in two round trips. A field that cannot be read is
        skipped.

        Args:
            numbers: days since 1970 in UTC.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        day_numbers = list(numbers)
        hashes = read_count_hashes(self._connection, list(map(keys.spending, day_numbers)))
        spending: list[LabelledSpending] = []
        for number, fields in zip(day_numbers, hashes, strict=True):
            spending += _parse_day(number, fields)
        return spending


def _parse_day(number: int, fields: Mapping[bytes, bytes]) -> list[LabelledSpending]:
    amounts_by_labels: dict[tuple[str, ...], Amounts] = {}
    for field, value in fields.items():
        name, *labels = parse_name(field).split(_SEPARATOR)
        amount = parse_figure(value)
        is_known = len(labels) == _LABELS and name in Amounts.__slots__
        if not is_known or amount is None or amount < 0:
            continue
        amounts = amounts_by_labels.setdefault(tuple(labels), Amounts())
        setattr(amounts, name, amount)
    spending: list[LabelledSpending] = []
    for (tenant, agent, model, mode), amounts in amounts_by_labels.items():
        spending.append(LabelledSpending(number, tenant, agent, model, mode, amounts))
    return spending
