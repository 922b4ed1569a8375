"""Rates and means with their 95 % confidence intervals.

A rate has the score interval of Wilson (1927), https://doi.org/10.1080/01621459.1927.10502953.
It stays within 0 and 1, and is also valid for 0 of n and n of n. A mean has the interval of
the percentile bootstrap of Efron (1979), https://doi.org/10.1214/aos/1176344552. The bootstrap
draws whole groups, because answers to the same request resemble each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

Z95 = 1.959963984540054
"""The 97.5 % point of the standard normal distribution, for a two-sided interval of 95 %."""
DRAWS = 2_000
"""Draws of the bootstrap. An end of the interval then moves by about a hundredth of its width
between seeds.
"""
_SEED = 20_261_122
"""A fixed seed, so that the same figures give the same interval."""


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def overlaps(self, other: IntervalEstimate) -> bool:
        """Return whether the two intervals overlap."""
        return self.low <= other.high and other.low <= self.high


def estimate_rate(good: int, n: int) -> IntervalEstimate | None:
    """Return the share of good trials among `n`; None without trials.

    Raises:
        ValueError: `good` is negative or larger than `n`.
    """
    if not 0 <= good <= n:
        raise ValueError(f"{good} of {n}")
    if not n:
        return None
    share = good / n
    z_squared = Z95 * Z95
    scale = 1 + z_squared / n
    middle = (share + z_squared / (2 * n)) / scale
    half = Z95 * sqrt(share * (1 - share) / n + z_squared / (4 * n * n)) / scale
    low = max(0.0, min(share, middle - half))
    high = min(1.0, max(share, middle + half))
    return IntervalEstimate(share, low, high)


def estimate_mean(groups: Sequence[Sequence[float]]) -> IntervalEstimate | None:
    """Return the mean of all values, or None without values. The interval of a single group is
    a point.

    Args:
        groups: the values of each request.
    """
    sums: list[tuple[float, int]] = []
    for group in groups:
        if group:
            sums.append((sum(group), len(group)))
    if not sums:
        return None
    dice = random.Random(_SEED)  # noqa: S311 (statistics, no secret)
    means: list[float] = []
    for _ in range(DRAWS):
        drawn_groups = dice.choices(sums, k=len(sums))
        means.append(_compute_mean(drawn_groups))
    means.sort()
    value = _compute_mean(sums)
    low = means[round(0.025 * (DRAWS - 1))]
    high = means[round(0.975 * (DRAWS - 1))]
    return IntervalEstimate(value, min(value, low), max(value, high))


def _compute_mean(sums: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in sums) / sum(count for _, count in sums)
