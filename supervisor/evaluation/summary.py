"""Summary of outcomes: a row for each variant, the rates of each kind of request, and one sentence
of advice. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handoff_queue.supervisor.evaluation.figures import (
    Estimate,
    ResourceUse,
    mean,
    rate,
    times,
    took_together,
)
from handoff_queue.supervisor.evaluation.trials import TrialOutcome, Variant

CONCLUSIVE = "beyond chance (95 %)"


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """Results of one variant over all requests that were not cut short."""

    variant: Variant
    trials: int
    cut: int
    """Trials that were cut short, in addition. Their money was spent."""
    passed: int
    passing: Estimate | None
    """Share of passing trials; None without trials."""
    score: Estimate | None
    """The judge's score, 1 to 5. None: nothing was judged."""
    unjudged: int
    """Answers whose judge failed."""
    took: ResourceUse
    """Resources of all its trials, including trials that were cut short, without the judge."""

    @property
    def tokens(self) -> float:
        """Return the tokens of one trial."""
        return self.took.tokens / max(1, self.trials + self.cut)


def row_of(variant: Variant, outcomes: Sequence[TrialOutcome]) -> SummaryRow:
    mine: list[TrialOutcome] = []
    for outcome in outcomes:
        if outcome.trial.variant == variant:
            mine.append(outcome)
    whole = [trial for trial in mine if not trial.is_cut]
    by_case: dict[str, list[float]] = {}
    for trial in whole:
        if trial.score is not None:
            by_case.setdefault(trial.trial.case.id, []).append(trial.score)
    passed = sum(trial.passed for trial in whole)
    return SummaryRow(
        variant=variant,
        trials=len(whole),
        cut=len(mine) - len(whole),
        passed=passed,
        passing=rate(passed, len(whole)),
        score=mean([by_case[case] for case in sorted(by_case)]),
        unjudged=sum(trial.judged_by is not None and trial.score is None for trial in whole),
        took=took_together(trial.took for trial in mine),
    )


def by_kind(outcomes: Sequence[TrialOutcome]) -> Mapping[str, Mapping[Variant, tuple[int, int]]]:
    """Return (passed, total) by kind of request and variant. Requests without a kind are left out."""
    rates: dict[str, dict[Variant, tuple[int, int]]] = {}
    for outcome in outcomes:
        if (kind := outcome.trial.case.kind) and not outcome.is_cut:
            passed, of = rates.setdefault(kind, {}).get(outcome.trial.variant, (0, 0))
            rates[kind][outcome.trial.variant] = (passed + outcome.passed, of + 1)
    return rates


def advice_on(rows: Sequence[SummaryRow]) -> str | None:
    """Return the advice: the variant with the fewest tokens among the variants that are as good as
    the best within chance. None: there is only one variant.
    """
    measured = [(row, row.passing) for row in rows if row.passing is not None]
    if len(measured) < 2:
        return None
    best, best_rate = max(measured, key=lambda one: (one[1].value, -one[0].tokens))
    if not best.passed:
        return "Take none as it is: no way passes a single request."
    as_good = [row for row, passing in measured if passing.overlaps(best_rate)]
    chosen = min(as_good, key=lambda row: row.tokens)
    name, others = chosen.variant.name, [row for row in as_good if row is not chosen]
    if not others:
        return (
            f"Take {name}: it passes {best_rate.value:.0%}, more than every other way {CONCLUSIVE}."
        )
    if chosen is not best:
        more = times(best.tokens, chosen.tokens)
        return (
            f"Take {name}: {best.variant.name} passes more, but not {CONCLUSIVE}, "
            f"and takes {more} the tokens."
        )
    dearest, why = max(others, key=lambda row: row.tokens), "no other way passes more"
    if dearest.tokens <= chosen.tokens:
        return f"Take {name}: {why}."
    return f"Take {name}: {why}, and {dearest.variant.name} takes {times(dearest.tokens, chosen.tokens)} the tokens."


def shortfalls(
    rows: Sequence[SummaryRow], min_pass_rate: float | None, min_score: float | None
) -> list[str]:
    """Return a sentence for each row below a threshold. A row without a measurement is below it."""
    sentences = []
    for row in rows:
        if min_pass_rate is not None and (row.passing is None or row.passing.value < min_pass_rate):
            passes = "was not measured"
            if row.passing:
                passes = f"passes {row.passing.value:.1%}"
            sentences.append(f"{row.variant.name} {passes}, at least {min_pass_rate:.1%} is wanted")
        if min_score is not None and (row.score is None or row.score.value < min_score):
            scored = "was not scored"
            if row.score:
                scored = f"is scored {row.score.value:.2f}"
            sentences.append(f"{row.variant.name} {scored}, at least {min_score:.2f} is wanted")
    return sentences
