"""Comparison of two variants for one request: the quality and cost of each answer, and one
sentence of advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.review import Rubric, Score
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.evaluation.answer_faults import find_faults, format_answer, is_cut
from handoff_queue.supervisor.evaluation.answer_grader import (
    AnswerGrader,
    PairwiseGrade,
    Preference,
    compute_mean,
    parse_duel,
    settle,
)
from handoff_queue.supervisor.evaluation.job_runner import EvaluationJob, JobRunner
from handoff_queue.supervisor.evaluation.resource_use import (
    ResourceUse,
    format_times,
    get_usage,
    sum_usage,
)
from handoff_queue.supervisor.evaluation.trials import Variant


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """One of the two compared answers."""

    name: str
    status: str
    faults: tuple[str, ...]
    """Reasons why it does not pass its gates, or the reason why there is no answer."""
    took: ResourceUse
    score: float | None = None
    """Mean of the grader's scores in both orders, 1 to 5. None: it was not graded."""
    job_id: str = ""
    is_cut: bool = False
    """True if its job ran out of budget."""
    is_unanswered: bool = False
    """True if there is no answer."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers to one request, and the grader's preference."""

    first: ComparedAnswer
    second: ComparedAnswer
    better: Preference | None = None
    """The grader's preference in both orders. Neither: the two orders disagree, or it was a
    draw. None: it was not graded.
    """
    duels: tuple[PairwiseGrade | None, ...] = ()
    """The grader's statements, first for the order (first, second) and then for the other
    order. None: the grader failed.
    """
    grader_usage: ResourceUse = field(default_factory=ResourceUse)
    """Resources of the grader's jobs."""
    graded_by: tuple[str, ...] = ()
    """Ids of the grader's jobs."""

    @property
    def advice(self) -> str:
        return advise_on_answers(self.first, self.second, self.better)


def advise_on_answers(
    first: ComparedAnswer, second: ComparedAnswer, better: Preference | None
) -> str:
    """Return the answer to take, with the reason.

    A passing answer wins over a failing answer. Then the grader's preference in both orders
    decides, then the cost.
    """
    if first.is_cut or second.is_cut:
        names = " and ".join(side.name for side in (first, second) if side.is_cut)
        return f"Nothing can be said: {names} ran out of budget."
    if bool(first.faults) != bool(second.faults):
        good, bad = (second, first) if first.faults else (first, second)
        return (
            f"Take {good.name}: its answer passes, and the answer of {bad.name} does"
            f" not{_describe_price(good, bad)}."
        )
    if first.faults:
        return (
            f"Take neither as it is: {first.name} does not pass ({first.faults[0].rstrip('.')}),"
            f" nor does {second.name}."
        )
    if better in (Preference.FIRST, Preference.SECOND):
        good, bad = (first, second) if better is Preference.FIRST else (second, first)
        price = _describe_price(good, bad)
        return f"Take {good.name}: its answer was found better in both orders{price}."
    reason = "both pass, and more was not graded"
    if better:
        reason = "no difference was found that holds in both orders"
    prices = _choose_prices(first, second)
    if prices.first == prices.second:
        return f"Take either: {reason}, at the same price."
    cheap, dear = (first, second) if prices.first < prices.second else (second, first)
    return f"Take {cheap.name}: {reason}{_describe_price(cheap, dear)}."


def _describe_price(good: ComparedAnswer, bad: ComparedAnswer) -> str:
    """Return the price of the better answer, compared with the other answer, in words."""
    prices = _choose_prices(good, bad)
    if prices.first == prices.second:
        return ""
    if prices.first > prices.second:
        return f", at {format_times(prices.first, prices.second)} the {prices.measure}"
    return (
        f", and {bad.name} takes {format_times(prices.second, prices.first)} the {prices.measure}"
    )


class _Prices(NamedTuple):
    """The prices of two answers in one measure."""

    measure: str
    first: float
    second: float


def _choose_prices(first: ComparedAnswer, second: ComparedAnswer) -> _Prices:
    """Return the prices of both in money, or in tokens if a price is unknown or zero."""
    if first.took.cost_usd and second.took.cost_usd:
        return _Prices("money", first.took.cost_usd, second.took.cost_usd)
    return _Prices("tokens", first.took.tokens, second.took.tokens)


@dataclass(slots=True)
class ComparisonRun:
    """A run of the two jobs of a comparison, and then of the grader's two jobs."""

    runner: JobRunner
    jobs: Sequence[tuple[Variant, EvaluationJob]]
    """The two variants, each with its job."""
    request: str
    gates: Gates | None
    rubric: Rubric
    grader: AnswerGrader | None
    """None: no grader."""
    _results: dict[str, JobResult] = field(default_factory=dict)

    def run(self) -> Comparison:
        """Run both jobs and the grader.

        Raises:
            UserError: as `JobRunner.run`, or the budget does not suffice for both jobs.
            StoreUnavailable: as `JobRunner.run`.
        """
        (first_variant, first_job), (second_variant, second_job) = self.jobs
        self.runner.add([first_job, second_job])
        self._collect()
        if self.runner.waiting:
            raise UserError("the budget has no room for the second answer: raise --max-usd")
        first_result, second_result = self._results[first_job.key], self._results[second_job.key]
        first = self._build_side(first_variant, first_result)
        second = self._build_side(second_variant, second_result)
        has_both = not first.is_unanswered and not second.is_unanswered
        if self.grader is None or not has_both or first.is_cut or second.is_cut:
            return Comparison(first, second)
        in_order = EvaluationJob(
            f"{first_job.key} graded",
            self.grader.build_duel_request(self.request, self.rubric, first_result, second_result),
        )
        in_swapped_order = EvaluationJob(
            f"{second_job.key} graded",
            self.grader.build_duel_request(self.request, self.rubric, second_result, first_result),
        )
        self.runner.add([in_order, in_swapped_order])
        self._collect()
        grader_results: list[JobResult] = []
        for job in (in_order, in_swapped_order):
            if job.key in self._results:
                grader_results.append(self._results[job.key])
        return _make_comparison(first, second, grader_results, self.rubric)

    def _collect(self) -> None:
        """Run the added jobs, and keep their results."""
        for job, result in self.runner.run():
            self._results[job.key] = result

    def _build_side(self, variant: Variant, result: JobResult) -> ComparedAnswer:
        """Return one of the compared answers."""
        faults = find_faults(result, self.gates)
        return ComparedAnswer(
            variant.name,
            result.status.value,
            faults,
            get_usage(result),
            job_id=result.job_id,
            is_cut=is_cut(result),
            is_unanswered=not format_answer(result),
        )


def _make_comparison(
    first: ComparedAnswer,
    second: ComparedAnswer,
    grader_results: Sequence[JobResult],
    rubric: Rubric,
) -> Comparison:
    """Return the comparison with its grades.

    Args:
        grader_results: results of the grader's jobs, first for this order and then for the swapped
            order. Without two results, the answers count as not graded.
    """
    duels = [parse_duel(result, rubric) for result in grader_results]
    in_order = in_swapped_order = None
    if len(duels) == 2:
        in_order, in_swapped_order = duels
    first_scores: list[Score] = []
    second_scores: list[Score] = []
    if in_order:
        first_scores += in_order.first
        second_scores += in_order.second
    if in_swapped_order:
        first_scores += in_swapped_order.second
        second_scores += in_swapped_order.first
    grader_usage = sum_usage(get_usage(result) for result in grader_results)
    return Comparison(
        first=replace(first, score=compute_mean(first_scores)),
        second=replace(second, score=compute_mean(second_scores)),
        better=settle(in_order, in_swapped_order),
        duels=tuple(duels),
        grader_usage=grader_usage,
        graded_by=tuple(result.job_id for result in grader_results),
    )
