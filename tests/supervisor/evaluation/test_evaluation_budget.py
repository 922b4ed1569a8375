"""The jobs of an evaluation never cost more than its budget, for all costs within their limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.evaluation.job_runner import EvaluationBudget


@given(
    st.integers(1, 10_000),
    st.integers(1, 8),
    st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=60),
)
def test_spent_and_reserved_amounts_never_exceed_the_budget(
    total: int, slots: int, moves: list[tuple[bool, float]]
) -> None:
    purse, reserved = EvaluationBudget(total, slots), list[tuple[str, int]]()
    for number, (begins, share) in enumerate(moves):
        if begins and len(reserved) < slots and (limit := purse.next_limit):
            purse = purse.began(f"j{number}", limit)
            reserved.append((f"j{number}", limit))
        elif reserved:
            name, limit = reserved.pop(0)
            purse = purse.ended(name, int(limit * share))
        assert purse.spent + sum(limit for _, limit in reserved) <= total
        assert (purse.next_limit or 0) <= total - purse.spent - sum(limit for _, limit in reserved)


@given(st.integers(1, 10_000), st.integers(1, 8))
def test_cheap_jobs_never_exhaust_the_budget(total: int, slots: int) -> None:
    purse = EvaluationBudget(total, slots)
    for number in range(100):
        limit = purse.next_limit
        assert limit == total // slots
        if limit:
            purse = purse.began(f"j{number}", limit).ended(f"j{number}", 0)


def test_an_unknown_cost_counts_as_the_whole_limit() -> None:
    assert EvaluationBudget(100, 1).began("j", 100).ended("j", None).spent == 100


def test_without_a_bound_every_job_runs_without_a_limit() -> None:
    purse = EvaluationBudget(None, 2).began("j", None)
    assert purse.next_limit is None
    assert purse.ended("j", 7).spent == 7


def test_earlier_spending_over_the_bound_leaves_nothing() -> None:
    assert EvaluationBudget(100, 2, spent=250).next_limit == 0
