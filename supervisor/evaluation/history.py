"""The summary of an evaluation for the store, and its comparison with earlier runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.store.golden_set_history import (
    MAX_NAME_CHARS,
    MAX_VARIANTS,
    EvaluatedVariant,
    EvaluationRun,
)
from handoff_queue.supervisor.evaluation.summary import SummaryRow


@dataclass(frozen=True, slots=True)
class ComparedVariant:
    """One variant of a run, with the same variant of the run before."""

    variant: EvaluatedVariant
    earlier: EvaluatedVariant | None
    """None: no stored run of the set before this run has the variant."""

    @property
    def change(self) -> float | None:
        """Return the change of the share of passing trials, from -1 to 1. None: not known."""
        now = self.variant.passing
        before = self.earlier.passing if self.earlier else None
        if now is None or before is None:
            return None
        return now - before


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run, with a comparison of each variant."""

    run: EvaluationRun
    variants: tuple[ComparedVariant, ...]


def build_summary(
    run: str,
    golden: str,
    rows: Sequence[SummaryRow],
    cost_usd: float | None,
    not_run: int,
    ended_at: float,
) -> EvaluationRun:
    """Return the summary of an ended evaluation.

    Args:
        golden: name of the file with the requests.
        cost_usd: cost of all jobs and of the grader; None if a price is unknown.
    """
    variants: list[EvaluatedVariant] = []
    for row in rows[:MAX_VARIANTS]:
        variants.append(
            EvaluatedVariant(
                mode=str(row.variant.mode)[:MAX_NAME_CHARS],
                model=_cut_name(row.variant.model),
                trials=row.trials,
                passed=row.passed,
                score=row.score.value if row.score else None,
                tokens=row.usage.tokens,
                microusd=_to_microusd(row.usage.cost_usd),
            )
        )
    return EvaluationRun(
        run=run[:MAX_NAME_CHARS],
        golden=golden[:MAX_NAME_CHARS],
        ended_at=ended_at,
        variants=tuple(variants),
        not_run=not_run,
        microusd=_to_microusd(cost_usd),
    )


def compare_runs(runs: Sequence[EvaluationRun]) -> dict[str, list[ComparedRun]]:
    """Return the runs by their set, in the given order, each with the comparisons.

    Args:
        runs: the newest first.
    """
    earlier: dict[tuple[str, str, str | None], EvaluatedVariant] = {}
    by_set: dict[str, list[ComparedRun]] = {}
    for run in reversed(runs):
        variants: list[ComparedVariant] = []
        for variant in run.variants:
            key = (run.golden, variant.mode, variant.model)
            variants.append(ComparedVariant(variant, earlier.get(key)))
            earlier[key] = variant
        by_set.setdefault(run.golden, []).insert(0, ComparedRun(run, tuple(variants)))
    return by_set


def _cut_name(name: str | None) -> str | None:
    return name[:MAX_NAME_CHARS] if name else None


def _to_microusd(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1e6)
