"""The store keeps a bounded history of evaluations, with one summary for each run."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.golden_set_history import (
    KEEP_S,
    MAX_RUNS,
    EvaluatedVariant,
    EvaluationRun,
)
from handoff_queue.shared.store.store import Store


def a_run(name: str, **changes: Any) -> EvaluationRun:
    variant = EvaluatedVariant(
        mode="team", model=None, trials=4, passed=3, score=4.5, tokens=900, microusd=70
    )
    run = EvaluationRun(
        run=name, golden="golden.jsonl", ended_at=1.5, variants=(variant,), microusd=90
    )
    return run.model_copy(update=changes)


def test_the_newest_run_comes_first_and_a_continued_run_replaces_its_summary(store: Store) -> None:
    for run in (a_run("a"), a_run("b"), a_run("a", ended_at=2.5), a_run("a", golden="other.jsonl")):
        store.evaluations.add(run)

    runs = [(run.run, run.golden, run.ended_at) for run in store.evaluations.list_newest()]
    assert runs == [
        ("a", "other.jsonl", 1.5),
        ("a", "golden.jsonl", 2.5),
        ("b", "golden.jsonl", 1.5),
    ]
    assert store.evaluations.list_newest(1) == [a_run("a", golden="other.jsonl")]


def test_the_history_is_bounded_and_expires(store: Store) -> None:
    redis = store.connection.redis
    redis.rpush(keys.EVALUATIONS, *(a_run(f"r{n}").to_json() for n in range(MAX_RUNS)))

    store.evaluations.add(a_run("new"))

    names = [run.run for run in store.evaluations.list_newest()]
    assert (len(names), names[0], names[-1]) == (MAX_RUNS, "new", f"r{MAX_RUNS - 2}")
    assert 0 < redis.ttl(keys.EVALUATIONS) <= KEEP_S


def test_a_summary_that_cannot_be_read_is_skipped(store: Store) -> None:
    store.evaluations.add(a_run("a"))
    store.connection.redis.lpush(keys.EVALUATIONS, "{}")

    assert store.evaluations.list_newest() == [a_run("a")]


def test_a_variant_without_a_trial_has_no_share() -> None:
    (variant,) = a_run("a").variants

    assert variant.passing == 0.75
    assert variant.model_copy(update={"trials": 0, "passed": 0}).passing is None
