"""What can be said of a rate or a mean from so few trials. Pure.

Rates: the score interval of Wilson (1927), https://doi.org/10.1080/01621459.1927.10502953, which keeps within 0 and 1 and is honest at
0 of n and n of n. Means: the percentile bootstrap of Efron (1979), https://doi.org/10.1214/aos/1176344552, that draws whole groups,
since answers to the same request resemble each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

Z95 = 1.959963984540054
"""The normal distribution's 97.5 % point: two-sided 95 %."""
DRAWS = 2_000
"""Of the bootstrap: an end of the interval then moves by about a hundredth of its width from seed to seed."""
_SEED = 20_261_122
"""The same figures twice give the same interval twice."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def overlaps(self, other: Estimate) -> bool:
        return self.low <= other.high and other.low <= self.high


def rate(good: int, n: int) -> Estimate | None:
    """The share of n trials that went well; None: there were none.

    Raises:
        ValueError: more went well than there were, or less than none.
    """
    if not 0 <= good <= n:
        raise ValueError(f"{good} of {n}")
    if not n:
        return None
    share, z2 = good / n, Z95 * Z95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def mean(groups: Sequence[Sequence[float]]) -> Estimate | None:
    """The mean of all values. `groups`: those of one request together. None: there are none. Of one group nothing is known but itself: its
    interval is a point.
    """
    filled = [group for group in groups if group]
    if not filled:
        return None
    sums = [(sum(group), len(group)) for group in filled]
    dice = random.Random(_SEED)  # noqa: S311 (statistics, no secret)
    drawn = sorted(_mean_of(dice.choices(sums, k=len(sums))) for _ in range(DRAWS))
    value = _mean_of(sums)
    low, high = drawn[round(0.025 * (DRAWS - 1))], drawn[round(0.975 * (DRAWS - 1))]
    return Estimate(value, min(value, low), max(value, high))


def _mean_of(sums: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in sums) / sum(count for _, count in sums)
