"""Each variant of an evaluation is compared with the same variant of the run before."""

from __future__ import annotations

from handoff_queue.shared.store.golden_set_history import EvaluatedVariant, EvaluationRun
from handoff_queue.supervisor.evaluation.history import compare_runs


def variant(mode: str, passed: int, trials: int = 4, model: str | None = None) -> EvaluatedVariant:
    return EvaluatedVariant(
        mode=mode, model=model, trials=trials, passed=passed, score=None, tokens=0, microusd=None
    )


def run(name: str, *variants: EvaluatedVariant, golden: str = "golden.jsonl") -> EvaluationRun:
    return EvaluationRun(run=name, golden=golden, ended_at=1.0, variants=variants, microusd=None)


def test_a_change_is_against_the_newest_earlier_run_of_the_same_set_mode_and_model() -> None:
    runs = [
        run("fourth", variant("team", 4), variant("single", 2), variant("team", 1, model="other")),
        run("third", variant("team", 0), golden="other.jsonl"),
        run("second", variant("single", 3)),
        run("first", variant("team", 3), variant("single", 1)),
    ]

    by_set = compare_runs(runs)

    changes: dict[tuple[str, str, str | None], float | None] = {}
    for entry in by_set["golden.jsonl"]:
        for row in entry.variants:
            changes[entry.run.run, row.variant.mode, row.variant.model] = row.change
    assert changes == {
        ("fourth", "team", None): 0.25,
        ("fourth", "single", None): -0.25,
        ("fourth", "team", "other"): None,
        ("second", "single", None): 0.5,
        ("first", "team", None): None,
        ("first", "single", None): None,
    }
    assert [entry.run.run for entry in by_set["golden.jsonl"]] == ["fourth", "second", "first"]
    assert by_set["other.jsonl"][0].variants[0].change is None


def test_a_variant_that_was_not_measured_has_no_change() -> None:
    (newest, _) = compare_runs(
        [run("b", variant("team", 0, trials=0)), run("a", variant("team", 3))]
    )["golden.jsonl"]

    assert newest.variants[0].change is None
