"""Results of an evaluation, as Markdown tables for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.review import Score
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.cli.display.tables import format_table
from handoff_queue.supervisor.cli.display.terminal import (
    format_money,
    shorten,
)
from handoff_queue.supervisor.evaluation.confidence_intervals import IntervalEstimate
from handoff_queue.supervisor.evaluation.resource_use import ResourceUse, sum_usage
from handoff_queue.supervisor.evaluation.summary import (
    SummaryRow,
    advise_on_variants,
    build_row,
    group_by_kind,
)
from handoff_queue.supervisor.evaluation.trials import EvaluationPlan, Trial, TrialOutcome

NEW_RUN = "start a new run with a higher --max-usd"
"""The remedy. The jobs of an earlier run with the same name keep their limits."""


@dataclass(frozen=True)
class EvaluationReport:
    """An evaluation plan and its outcomes."""

    plan: EvaluationPlan
    outcomes: Sequence[TrialOutcome]
    not_run: Sequence[Trial] = ()
    not_graded: int = 0
    max_microusd: int | None = None

    @property
    def rows(self) -> tuple[SummaryRow, ...]:
        rows = [build_row(variant, self.outcomes) for variant in self.plan.variants]
        return tuple(rows)

    @property
    def grader_usage(self) -> ResourceUse:
        """Return the usage of the grader."""
        return sum_usage(outcome.grader_usage for outcome in self.outcomes)

    @property
    def usage(self) -> ResourceUse:
        """Return the usage of all jobs and of the grader."""
        return sum_usage([self.grader_usage, *(outcome.usage for outcome in self.outcomes)])


def format_outcome(outcome: TrialOutcome) -> str:
    """Return the line about an ended trial."""
    if outcome.is_cut:
        verdict = "not counted: its budget was spent"
    elif outcome.passed:
        verdict = "passed"
    else:
        verdict = f"failed: {shorten(outcome.faults[0], 100)}"
    score = ""
    if outcome.score is not None:
        score = f"  scored {outcome.score:.1f}"
    return (
        f"{outcome.trial.case.id}  {outcome.trial.variant.name}  {outcome.job_id}  {verdict}{score}"
    )


def format_report(report: EvaluationReport) -> str:
    """Return the Markdown tables of an evaluation: the variants, the kinds of cases, and the
    advice.
    """
    heading = [
        "Way",
        "Passed",
        "Pass rate (95 %)",
        "Score (95 %)",
        "Tokens each",
        "Cost each",
        "Wall s each",
        "Own s each",
    ]
    tables = [format_table([heading, *map(_build_cells, report.rows)])]
    kinds = group_by_kind(report.outcomes)
    if kinds:
        variants = report.plan.variants
        rows = [["Kind", *(variant.name for variant in variants)]]
        for kind, passed in kinds.items():
            cells = [_format_pass_count(passed.get(variant)) for variant in variants]
            rows.append([kind, *cells])
        tables.append(format_table(rows))
    advice = advise_on_variants(report.rows)
    if advice:
        tables.append(advice)
    return "\n\n".join(tables)


def build_accounts(report: EvaluationReport) -> list[str]:
    """Return a line about the cost, and a line about answers without a usable score, if any."""
    limit = ""
    if report.max_microusd is not None:
        limit = f" of at most {format_money(to_usd(report.max_microusd))}"
    total, grader = report.usage, report.grader_usage
    lines = [
        f"{report.plan.name}: {format_money(total.cost_usd)}{limit}, {total.tokens:,} tokens, of"
        f" these the grader {grader.tokens:,}"
    ]
    ungraded = sum(row.ungraded for row in report.rows)
    if ungraded:
        lines.append(f"the grader gave no usable score for {format_count(ungraded, 'answer')}")
    return lines


def describe_unmeasured_parts(report: EvaluationReport) -> list[str]:
    """Return a sentence for each part that the budget did not allow."""
    sentences: list[str] = []
    cut_count = sum(row.cut for row in report.rows)
    if cut_count:
        sentences.append(
            f"{format_count(cut_count, 'job')} ran out of budget and does not count: {NEW_RUN}"
        )
    if report.not_graded:
        answers = format_count(report.not_graded, "answer")
        sentences.append(f"the budget has no room to grade {answers}: {NEW_RUN}")
    if report.not_run:
        trial_names = ", ".join(
            f"{trial.case.id} ({trial.variant.name})" for trial in report.not_run[:5]
        )
        if len(report.not_run) > 5:
            trial_names += " ..."
        sentences.append(
            f"the budget has no room for {format_count(len(report.not_run), 'job')}: {trial_names}"
        )
    return sentences


def convert_report(report: EvaluationReport, golden: Path) -> dict[str, Any]:
    """Return the JSON of an evaluation, with the keys of docs/how-to/evaluation.md."""
    kinds: dict[str, Any] = {}
    for kind, passed_of in group_by_kind(report.outcomes).items():
        kinds[kind] = {}
        for variant, (passed, of) in passed_of.items():
            kinds[kind][variant.name] = {"passed": passed, "of": of}
    return {
        "run": report.plan.name,
        "golden": str(golden),
        "rows": [_convert_row(row) for row in report.rows],
        "kinds": kinds,
        "trials": [_convert_outcome(outcome) for outcome in report.outcomes],
        "not_run": [_convert_trial(trial) for trial in report.not_run],
        "not_graded": report.not_graded,
        "grader": asdict(report.grader_usage),
        "cost_usd": report.usage.cost_usd,
        "advice": advise_on_variants(report.rows),
    }


def _convert_row(row: SummaryRow) -> dict[str, Any]:
    return {
        **_convert_variant(row.variant.mode, row.variant.model),
        "trials": row.trials,
        "cut": row.cut,
        "passed": row.passed,
        "ungraded": row.ungraded,
        "pass_rate": _convert_estimate(row.passing),
        "score": _convert_estimate(row.score),
        "took": asdict(row.usage),
    }


def _convert_estimate(estimate: IntervalEstimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return asdict(estimate)


def _convert_outcome(outcome: TrialOutcome) -> dict[str, Any]:
    return {
        **_convert_trial(outcome.trial),
        "job_id": outcome.job_id,
        "status": outcome.status,
        "passed": None if outcome.is_cut else outcome.passed,
        "faults": list(outcome.faults),
        "scores": convert_scores(outcome.scores),
        "graded_by": outcome.graded_by,
        "took": asdict(outcome.usage),
    }


def convert_scores(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """Return the grader's scores of one answer, without the step that a review would name."""
    return [score.model_dump(mode="json", exclude={"step"}) for score in scores]


def _convert_trial(trial: Trial) -> dict[str, Any]:
    variant = trial.variant
    return {
        "case": trial.case.id,
        "kind": trial.case.kind,
        **_convert_variant(variant.mode, variant.model),
        "number": trial.number,
    }


def _convert_variant(mode: str, model: str | None) -> dict[str, Any]:
    return {"mode": str(mode), "model": model}


def _build_cells(row: SummaryRow) -> list[str]:
    """Return the cells of a variant, in the order of the heading."""
    trials = max(1, row.trials + row.cut)
    cost_usd_each = None
    if row.usage.cost_usd is not None:
        cost_usd_each = row.usage.cost_usd / trials
    return [
        row.variant.name,
        _format_pass_count((row.passed, row.trials)),
        _format_interval(row.passing, percent=True),
        _format_interval(row.score),
        f"{row.tokens:,.0f}",
        format_money(cost_usd_each),
        f"{row.usage.wall_s / trials:.1f}",
        f"{row.usage.own_s / trials:.1f}",
    ]


def _format_interval(estimate: IntervalEstimate | None, *, percent: bool = False) -> str:
    if estimate is None:
        return "-"
    form = ".0%" if percent else ".2f"
    low, high = format(estimate.low, form), format(estimate.high, form)
    return f"{estimate.value:{form}} ({low} to {high})"


def _format_pass_count(counts: tuple[int, int] | None) -> str:
    """Return the passed trials and all trials as `3 of 4`."""
    if counts is None:
        return "-"
    passed, trials = counts
    return f"{passed} of {trials}"
