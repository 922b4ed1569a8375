"""Figures of an evaluation: rates and means with their confidence intervals, and the resources
of jobs.

A rate has the score interval of Wilson (1927), https://doi.org/10.1080/01621459.1927.10502953.
It stays within 0 and 1, and is also valid for 0 of n and n of n. A mean has the interval of
the percentile bootstrap of Efron (1979), https://doi.org/10.1214/aos/1176344552. The bootstrap
draws whole groups, because answers to the same request resemble each other.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.lifecycle.gates import vetoes_of


def times(more: float, less: float) -> str:
    """Return the quotient in words: `5.2 times`, or `many times` if `less` is zero."""
    if less:
        return f"{more / less:.1f} times"
    return "many times"


Z95 = 1.959963984540054
"""The 97.5 % point of the standard normal distribution, for a two-sided interval of 95 %."""
DRAWS = 2_000
"""Draws of the bootstrap. An end of the interval then moves by about a hundredth of its width
between seeds.
"""
_SEED = 20_261_122
"""A fixed seed, so that the same figures give the same interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def overlaps(self, other: Estimate) -> bool:
        """Return whether the two intervals overlap."""
        return self.low <= other.high and other.low <= self.high


def rate(good: int, n: int) -> Estimate | None:
    """Return the share of good trials among `n`; None without trials.

    Raises:
        ValueError: `good` is negative or larger than `n`.
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
    drawn = sorted(_mean_of(dice.choices(sums, k=len(sums))) for _ in range(DRAWS))
    value = _mean_of(sums)
    low, high = drawn[round(0.025 * (DRAWS - 1))], drawn[round(0.975 * (DRAWS - 1))]
    return Estimate(value, min(value, low), max(value, high))


def _mean_of(sums: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in sums) / sum(count for _, count in sums)


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources of one job, or of several jobs together."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None if a price is unknown."""
    wall_s: float = 0.0
    """Seconds from submission to the end."""
    own_s: float = 0.0
    """Sum of the durations of all handoffs in seconds: the time without any parallel work."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: ResourceUse) -> ResourceUse:
        is_known = self.cost_usd is not None and other.cost_usd is not None
        return ResourceUse(
            turns=self.turns + other.turns,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if is_known else None,
            wall_s=self.wall_s + other.wall_s,
            own_s=self.own_s + other.own_s,
        )


def usage_of(result: JobResult) -> ResourceUse:
    """Return the resources of a job."""
    usage = result.usage
    own_s = 0
    for handoff in result.handoffs:
        start, end = handoff.get("started_at"), handoff.get("finished_at")
        if start and end:
            own_s += end - start
    return ResourceUse(
        usage["turns"],
        usage["input_tokens"],
        usage["output_tokens"],
        usage["cost_usd"],
        result.wall_s,
        round(own_s, 3),
    )


def total_usage(parts: Iterable[ResourceUse]) -> ResourceUse:
    """Return the sum of the resources."""
    return sum(parts, start=ResourceUse())


def text_of(result: JobResult) -> str:
    """Return the answer as text, with a JSON value in its JSON form; '' if there is no answer."""
    if result.answer is None:
        return ""
    if isinstance(result.answer, str):
        return result.answer
    return json.dumps(result.answer, ensure_ascii=False)


def faults_of(result: JobResult, gates: Gates | None) -> tuple[str, ...]:
    """Return the reasons why the answer does not pass, one sentence each.

    The whole text is checked, with the conflicts, gaps and open points that the supervisor
    adds.
    """
    text = text_of(result)
    if not text:
        reason = result.status.value
        if result.notes:
            reason = result.notes[-1]
        return (f"There is no answer: {reason}",)
    if gates:
        is_form = not isinstance(result.answer, str)
        return vetoes_of(gates, text, len(result.citations), is_form=is_form)
    return ()


def is_cut(result: JobResult) -> bool:
    """Return whether the budget of the job or of the day stopped one of its handoffs. Such a
    job says nothing about the quality of its variant.
    """
    budgets = (StopReason.JOB_BUDGET, StopReason.DAY_BUDGET)
    return any(part["stop_reason"] in budgets for part in result.results)
