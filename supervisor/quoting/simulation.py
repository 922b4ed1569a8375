"""A quote by simulation. Pure.

The simulation runs the plan many times with costs and durations of earlier handoffs. The plan alone
is not enough: handoffs of one job are alike (long documents make all handoffs expensive), and
reviews send work back. So the figures are scaled until they would have been right for nine of ten
of the latest quotes. This is conformal prediction (Vovk, Gammerman and Shafer, "Algorithmic
Learning in a Random World", 2005). It needs no assumption about the figures, except that new jobs
are like earlier jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.quote import Estimate, Quote

DRAWS = 300
MOST_DRAWN_STEPS = 60_000
"""Steps of all draws together: a plan of thousands is drawn less often (it needs less: sums of
many are steady).
"""
FEWEST_DRAWS = 12
LEVEL = 0.91
"""Part of the latest quotes for which `most` would have been right: a little more than nine of ten,
because few quotes are known.
"""
FEWEST_SCORES = 12
"""Least number of scores for this level (the minimum for LEVEL is 11)."""
COLD = 1.5
"""Factor of `most` until enough quotes are known."""


class CostSample(NamedTuple):
    """Cost and duration of one handoff."""

    microusd: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class QuoteScore:
    """Accuracy of a quote: the real figure as a multiple of the simulated one."""

    cost_likely: float | None
    cost_most: float | None
    time_likely: float
    time_most: float


@dataclass(frozen=True, slots=True)
class CostHistory:
    """Costs of an installation so far."""

    samples: Mapping[str, Sequence[CostSample]]
    """Samples by specialist or role, the newest first."""
    scores: Sequence[QuoteScore] = ()


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """The remaining work: a plan's steps, then roles one after the other."""

    steps: Mapping[StepId, tuple[str, tuple[StepId, ...]]]
    """Specialist and dependencies of each step; every step comes after its dependencies."""
    then: tuple[str, ...] = ()


def quote_of(
    work: RemainingWork, past: CostHistory, spent_microusd: int | None, spent_s: float, seed: str
) -> Quote:
    """Return a quote. The same `seed` gives the same quote.

    Args:
        spent_microusd: spending before the first step; None if unknown.
        spent_s: seconds before the first step.
    """
    everybody = [sample for samples in past.samples.values() for sample in samples]
    who = {name for name, _ in work.steps.values()} | {*work.then}
    samples = {name: past.samples.get(name) or everybody for name in who}
    known = sum(len(past.samples.get(name, ())) for name in who)
    if not everybody:
        return Quote()
    dice = Random(seed)  # noqa: S311 (no secret)
    times = max(FEWEST_DRAWS, min(DRAWS, MOST_DRAWN_STEPS // max(1, len(work.steps))))
    draws: list[tuple[float | None, float]] = []
    for _ in range(times):
        draws.append(_draw(work, samples, dice))
    costs = [cost for cost, _ in draws if cost is not None]
    has_prices = len(costs) == len(draws) and spent_microusd is not None
    cost_scores: list[tuple[float, float]] = []
    for score in past.scores:
        if score.cost_likely is not None and score.cost_most is not None:
            cost_scores.append((score.cost_likely, score.cost_most))
    time_scores: list[tuple[float, float]] = []
    for past_score in past.scores:
        time_scores.append((past_score.time_likely, past_score.time_most))
    return Quote(
        microusd=_estimate([(spent_microusd or 0) + cost for cost in costs], cost_scores)
        if has_prices
        else None,
        seconds=_estimate([spent_s + seconds for _, seconds in draws], time_scores),
        handoffs=known,
        jobs=len(past.scores),
    )


def score_of(quote: Quote, microusd: int | None, seconds: float) -> QuoteScore | None:
    """Return the accuracy of the quote; None if it had no figures."""
    if quote.seconds is None:
        return None
    cost = None
    if microusd is not None:
        cost = quote.microusd
    return QuoteScore(
        cost_likely=_ratio(microusd or 0, cost.drawn_likely) if cost else None,
        cost_most=_ratio(microusd or 0, cost.drawn_most) if cost else None,
        time_likely=_ratio(seconds, quote.seconds.drawn_likely),
        time_most=_ratio(seconds, quote.seconds.drawn_most),
    )


def _draw(
    work: RemainingWork, samples: Mapping[str, Sequence[CostSample]], dice: Random
) -> tuple[float | None, float]:
    """Simulate the work once: micro-dollars and seconds, with unlimited slots."""
    ends: dict[StepId, float] = {}
    cost: float | None = 0.0
    for step_id, (name, depends_on) in work.steps.items():
        drawn = dice.choice(samples[name])
        ends[step_id] = (
            max((ends[dependency] for dependency in depends_on), default=0.0) + drawn.seconds
        )
        if cost is None or drawn.microusd is None:
            cost = None
        else:
            cost = cost + drawn.microusd
    end = max(ends.values(), default=0.0)
    for name in work.then:
        drawn = dice.choice(samples[name])
        end += drawn.seconds
        if cost is None or drawn.microusd is None:
            cost = None
        else:
            cost = cost + drawn.microusd
    return cost, end


def _estimate(drawn: Sequence[float], scores: Sequence[tuple[float, float]]) -> Estimate:
    likely, most = _quantile(drawn, 0.5), _quantile(drawn, 0.9)
    if len(scores) < FEWEST_SCORES:
        return Estimate(likely=likely, most=COLD * most, drawn_likely=likely, drawn_most=most)
    told_likely = likely * _quantile([ratio for ratio, _ in scores], 0.5)
    told_most = most * _quantile([ratio for _, ratio in scores], LEVEL)
    return Estimate(
        likely=told_likely, most=max(told_likely, told_most), drawn_likely=likely, drawn_most=most
    )


def _quantile(values: Sequence[float], level: float) -> float:
    """Return the ceil((n + 1) * level)-th smallest value. A new value is at most that in at least
    `level` of all cases, for any distribution.
    """
    place = math.ceil((len(values) + 1) * level)
    return sorted(values)[min(place, len(values)) - 1]


def _ratio(real: float, drawn: float) -> float:
    """Return the ratio; 1 if both figures are zero."""
    if real == drawn == 0:
        return 1.0
    return real / max(drawn, 1e-9)
