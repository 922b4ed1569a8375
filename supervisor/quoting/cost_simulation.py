"""A quote by simulation. Pure.

The simulation runs the plan many times with costs and durations of earlier handoffs. The plan
alone is not enough: handoffs of one job are alike (long documents make all handoffs
expensive), and reviews send work back. So the simulated figures are scaled until they would
have been right for nine of ten of the latest quotes. This is conformal prediction (Vovk,
Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005). It assumes only that new
jobs are like earlier jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import NamedTuple

from handoff_queue.shared.agent.prices import BATCH_SHARE
from handoff_queue.shared.types.cost_quote import Estimate, Quote
from handoff_queue.shared.types.ids import StepId

DRAWS = 300
"""Simulations of one plan, unless the plan is large."""
MAX_DRAWN_STEPS = 60_000
"""Most steps of all simulations together. A plan of thousands of steps needs fewer
simulations, because the sum of many figures varies less.
"""
MIN_DRAWS = 12
"""Least simulations of a plan."""
LEVEL = 0.91
"""Part of the latest quotes for which `most` would have been right: a little more than nine of
ten, because few quotes are known.
"""
MIN_SCORES = 12
"""Least number of scores with which figures are scaled. LEVEL needs at least 11."""
MAX_ERROR = 100
"""Largest factor by which a quote counts as wrong, in each direction. The scores scale the quotes
of all jobs, and a worker that was taken over may write any samples of its specialists.
"""
COLD = 1.5
"""Factor of the simulated `most` until there are `MIN_SCORES` scores."""


class HandoffCost(NamedTuple):
    """The cost of a handoff in micro-dollars."""

    half_price: float
    """The part that is for tokens of calls in batches."""
    full_price: float


class CostSample(NamedTuple):
    """Cost and duration of one handoff."""

    microusd: int | None
    """None: the price is not known."""
    seconds: float
    """Without waits for batches."""
    batch_saved_microusd: int = 0
    """Micro-dollars that its calls in batches would have cost more as live calls."""
    server_tools_microusd: int = 0
    """The part of `microusd` for tools of the provider, which cost the full price in batches."""

    def get_prices(self, *, is_batched: bool) -> HandoffCost | None:
        """Return the cost if all its calls are live, or all are in batches. None: the price is not
        known.
        """
        if self.microusd is None:
            return None
        live = float(self.microusd + self.batch_saved_microusd)
        if not is_batched:
            return HandoffCost(0.0, live)
        full_price = float(min(self.server_tools_microusd, live))
        return HandoffCost((live - full_price) * float(BATCH_SHARE), full_price)


@dataclass(frozen=True, slots=True)
class QuoteScore:
    """Accuracy of a quote: each real figure divided by a simulated figure. None: not known. The
    quote of a job with batches has no time.
    """

    cost_likely: float | None
    cost_most: float | None
    time_likely: float | None
    time_most: float | None


@dataclass(frozen=True, slots=True)
class CostHistory:
    """Earlier handoffs and quotes of an installation."""

    samples: Mapping[str, Sequence[CostSample]]
    """Samples by specialist or role, the newest first."""
    scores: Sequence[QuoteScore] = ()


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """The remaining work of a job: the steps of its plan, then some roles one after the other."""

    steps: Mapping[StepId, tuple[str, tuple[StepId, ...]]]
    """Specialist and dependencies of each step; every step comes after its dependencies."""
    then: tuple[str, ...] = ()
    """The roles, and perhaps the fact-checker, in order."""
    is_batched: bool = False
    """True if calls go through batches."""
    deadline_s: int | None = None
    """Of a job with batches: seconds from its submission to its end at the latest."""
    live: frozenset[str] = frozenset()
    """Specialists whose calls are live also in a job with batches."""

    @property
    def names(self) -> set[str]:
        """Return the names of all specialists and roles."""
        names = set(self.then)
        for specialist, _ in self.steps.values():
            names.add(specialist)
        return names


def compute_quote(
    work: RemainingWork, past: CostHistory, spent_microusd: int | None, spent_s: float, seed: str
) -> Quote:
    """Return a quote. The same `seed` gives the same quote.

    A specialist without samples gets the samples of all specialists and roles. The time of a batch
    is unknown. So a job with batches has its deadline and its time with live calls.

    Args:
        spent_microusd: spending before the first step; None if unknown.
        spent_s: seconds before the first step.
    """
    if not any(past.samples.values()):
        return Quote()
    draws = _simulate(work, past.samples, Random(seed))  # noqa: S311 (no secret)
    durations = [spent_s + draw.seconds for draw in draws]
    time_ratios: list[_Ratios] = []
    cost_ratios: list[_Ratios] = []
    for score in past.scores:
        if score.time_likely is not None and score.time_most is not None:
            time_ratios.append(_Ratios(score.time_likely, score.time_most))
        if score.cost_likely is not None and score.cost_most is not None:
            cost_ratios.append(_Ratios(score.cost_likely, score.cost_most))
    time = _estimate(durations, time_ratios)
    microusd = half_price = None
    draw_costs = [draw.cost for draw in draws if draw.cost is not None]
    if spent_microusd is not None and len(draw_costs) == len(draws):
        costs = [spent_microusd + cost for cost in draw_costs]
        microusd = _estimate(costs, cost_ratios)
        if work.is_batched:
            half_prices = [draw.half_price for draw in draws]
            half_price = microusd.likely * sum(half_prices) / (sum(costs) or 1.0)
    return Quote(
        microusd=microusd,
        half_price_microusd=half_price,
        seconds=None if work.is_batched else time,
        live_seconds=time if work.is_batched else None,
        deadline_s=work.deadline_s,
        handoffs=sum(len(past.samples.get(name, ())) for name in work.names),
        jobs=len(past.scores),
    )


def compute_score(quote: Quote, microusd: int | None, seconds: float) -> QuoteScore | None:
    """Return the accuracy of a quote, within `MAX_ERROR`; None if the quote had no figures.

    Args:
        microusd: real cost of the job; None if unknown.
        seconds: real working time of the job.
    """
    cost_likely = cost_most = time_likely = time_most = None
    if microusd is not None and quote.microusd:
        cost_likely = _compute_ratio(microusd, quote.microusd.drawn_likely)
        cost_most = _compute_ratio(microusd, quote.microusd.drawn_most)
    if quote.seconds is not None:
        time_likely = _compute_ratio(seconds, quote.seconds.drawn_likely)
        time_most = _compute_ratio(seconds, quote.seconds.drawn_most)
    score = QuoteScore(cost_likely, cost_most, time_likely, time_most)
    return None if score == QuoteScore(None, None, None, None) else score


class _Ratios(NamedTuple):
    """The real figure of an earlier job, divided by each simulated figure of its quote."""

    likely: float
    most: float


class _Draw(NamedTuple):
    """One simulation of the work."""

    cost: float | None
    """Micro-dollars; None: the price of a drawn sample is not known."""
    half_price: float
    """The part of the cost that is for tokens of calls in batches."""
    seconds: float


def _simulate(
    work: RemainingWork, samples: Mapping[str, Sequence[CostSample]], random: Random
) -> list[_Draw]:
    """Simulate the work many times. A specialist without samples gets all samples."""
    all_samples = [*chain.from_iterable(samples.values())]
    samples_by_name = {name: samples.get(name) or all_samples for name in work.names}
    count = max(MIN_DRAWS, min(DRAWS, MAX_DRAWN_STEPS // max(1, len(work.steps))))
    return [_draw_work(work, samples_by_name, random) for _ in range(count)]


def _draw_work(
    work: RemainingWork, samples: Mapping[str, Sequence[CostSample]], random: Random
) -> _Draw:
    """Simulate the work once with unlimited slots."""
    ends: dict[StepId, float] = {}
    prices: list[HandoffCost | None] = []

    def draw_seconds(name: str) -> float:
        """Draw a handoff, add its prices, and return its duration."""
        sample = random.choice(samples[name])
        prices.append(sample.get_prices(is_batched=work.is_batched and name not in work.live))
        return sample.seconds

    for step_id, (name, depends_on) in work.steps.items():
        begin = max((ends[dependency] for dependency in depends_on), default=0.0)
        ends[step_id] = begin + draw_seconds(name)
    end = max(ends.values(), default=0.0)
    for name in work.then:
        end += draw_seconds(name)
    half_price = full_price = 0.0
    for price in prices:
        if price is None:
            return _Draw(None, 0.0, end)
        half_price += price.half_price
        full_price += price.full_price
    return _Draw(half_price + full_price, half_price, end)


def _estimate(figures: Sequence[float], ratios: Sequence[_Ratios]) -> Estimate:
    """Return the estimate of a simulated figure.

    Args:
        ratios: one entry for each earlier quote.
    """
    drawn_likely, drawn_most = _compute_quantile(figures, 0.5), _compute_quantile(figures, 0.9)
    likely, most = drawn_likely, COLD * drawn_most
    if len(ratios) >= MIN_SCORES:
        likely = drawn_likely * _compute_quantile([ratio.likely for ratio in ratios], 0.5)
        most = max(likely, drawn_most * _compute_quantile([ratio.most for ratio in ratios], LEVEL))
    return Estimate(likely=likely, most=most, drawn_likely=drawn_likely, drawn_most=drawn_most)


def _compute_quantile(values: Sequence[float], level: float) -> float:
    """Return the ceil((n + 1) * level)-th smallest value, or the largest value.

    For any distribution, a new value is at most this value in at least `level` of all cases,
    if there are enough values.
    """
    place = math.ceil((len(values) + 1) * level)
    return sorted(values)[min(place, len(values)) - 1]


def _compute_ratio(real: float, drawn_figure: float) -> float:
    """Return `real / drawn_figure`, within `MAX_ERROR`; 1 if both figures are zero."""
    if real == drawn_figure == 0:
        return 1.0
    ratio = real / max(drawn_figure, 1e-9)
    return min(max(ratio, 1 / MAX_ERROR), MAX_ERROR)
