"""Summary of outcomes: a row for each variant, the rates of each kind of request, and one
sentence of advice. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from handoff_queue.supervisor.evaluation.confidence_intervals import (
    IntervalEstimate,
    estimate_mean,
    estimate_rate,
)
from handoff_queue.supervisor.evaluation.resource_use import ResourceUse, format_times
from handoff_queue.supervisor.evaluation.trials import TrialOutcome, Variant

CONCLUSIVE = "beyond chance (95 %)"


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """Figures of all trials of one variant."""

    variant: Variant
    trials: int
    """Trials that were not cut short."""
    cut: int
    """Trials that were cut short, in addition to `trials`."""
    passed: int
    passing: IntervalEstimate | None
    """Share of passing trials; None without trials."""
    score: IntervalEstimate | None
    """Mean of the grader's scores, 1 to 5. None: nothing was graded."""
    ungraded: int
    """Answers whose grader failed."""
    usage: ResourceUse
    """Resources of all trials, including trials that were cut short, without the grader."""

    @property
    def tokens(self) -> float:
        """Return the mean number of tokens of a trial."""
        return self.usage.tokens / max(1, self.trials + self.cut)


def build_row(variant: Variant, outcomes: Sequence[TrialOutcome]) -> SummaryRow:
    """Return the row of a variant. `outcomes` may hold outcomes of other variants, too."""
    trials = cut = passed = ungraded = 0
    usage = ResourceUse()
    scores_by_case: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.trial.variant != variant:
            continue
        usage += outcome.usage
        if outcome.is_cut:
            cut += 1
            continue
        trials += 1
        passed += outcome.passed
        if outcome.score is not None:
            scores_by_case.setdefault(outcome.trial.case.id, []).append(outcome.score)
        elif outcome.graded_by is not None:
            ungraded += 1
    scores = [scores for _, scores in sorted(scores_by_case.items())]
    return SummaryRow(
        variant=variant,
        trials=trials,
        cut=cut,
        passed=passed,
        passing=estimate_rate(passed, trials),
        score=estimate_mean(scores),
        ungraded=ungraded,
        usage=usage,
    )


def group_by_kind(
    outcomes: Sequence[TrialOutcome],
) -> Mapping[str, Mapping[Variant, tuple[int, int]]]:
    """Return (passed, total) by kind of request and variant. Trials that were cut short, and
    requests without a kind, are left out.
    """
    counts: dict[str, dict[Variant, tuple[int, int]]] = {}
    for outcome in outcomes:
        kind = outcome.trial.case.kind
        variant = outcome.trial.variant
        if kind and not outcome.is_cut:
            by_variant = counts.setdefault(kind, {})
            passed, total = by_variant.get(variant, (0, 0))
            by_variant[variant] = (passed + outcome.passed, total + 1)
    return counts


def advise_on_variants(rows: Sequence[SummaryRow]) -> str | None:
    """Return the advice to take one variant. None: fewer than two variants were measured.

    The advice is the variant with the fewest tokens among the best variant and those whose
    interval overlaps its interval.
    """
    rows_with_rate: list[tuple[SummaryRow, IntervalEstimate]] = []
    for row in rows:
        if row.passing is not None:
            rows_with_rate.append((row, row.passing))
    if len(rows_with_rate) < 2:
        return None
    best, best_rate = max(rows_with_rate, key=_rank_by_rate_and_thrift)
    if not best.passed:
        return "Take no mode: each mode fails every request."
    as_good = [row for row, passing in rows_with_rate if passing.overlaps(best_rate)]
    chosen_row = min(as_good, key=_tokens)
    name = chosen_row.variant.name
    if len(as_good) == 1:
        return (
            f"Take {name}: it passes {best_rate.value:.0%}, more than every other mode"
            f" {CONCLUSIVE}."
        )
    if chosen_row is not best:
        more = format_times(best.tokens, chosen_row.tokens)
        return (
            f"Take {name}: {best.variant.name} passes more, but not {CONCLUSIVE}, "
            f"and takes {more} the tokens."
        )
    dearest = max(as_good, key=_tokens)
    why = "no other mode passes more"
    if dearest.tokens <= chosen_row.tokens:
        return f"Take {name}: {why}."
    return (
        f"Take {name}: {why}, and {dearest.variant.name} takes"
        f" {format_times(dearest.tokens, chosen_row.tokens)} the tokens."
    )


_tokens = attrgetter("tokens")


def _rank_by_rate_and_thrift(
    row_and_rate: tuple[SummaryRow, IntervalEstimate],
) -> tuple[float, float]:
    """Return the key of the best variant: the highest rate, and then the fewest tokens."""
    row, passing = row_and_rate
    return passing.value, -row.tokens


def find_shortfalls(
    rows: Sequence[SummaryRow], min_pass_rate: float | None, min_score: float | None
) -> list[str]:
    """Return a sentence for each row below a threshold. A row without a measurement counts as
    below it.

    Args:
        min_pass_rate: lowest share of passing trials, 0 to 1.
        min_score: lowest mean score, 1 to 5.
    """
    sentences = []
    for row in rows:
        if min_pass_rate is not None and (row.passing is None or row.passing.value < min_pass_rate):
            passes = "was not measured"
            if row.passing:
                passes = f"passes {row.passing.value:.1%}"
            sentences.append(f"{row.variant.name} {passes}, at least {min_pass_rate:.1%} is wanted")
        if min_score is not None and (row.score is None or row.score.value < min_score):
            score_text = "was not scored"
            if row.score:
                score_text = f"is scored {row.score.value:.2f}"
            sentences.append(f"{row.variant.name} {score_text}, at least {min_score:.2f} is wanted")
    return sentences
