"""Each job of an evaluation is a sample: its handoffs copy no result. The jobs never cost more than
the budget of the evaluation, for all costs within their limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.store import keys
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.evaluation.job_runner import (
    EvaluationBudget,
    EvaluationJob,
    JobRunner,
)


class Stopped(Exception):
    """The test has seen enough."""


@dataclass(slots=True)
class StopAtSecondPoll:
    """Check of a runner that stops it after the jobs have started."""

    polls: list[None] = field(default_factory=list)

    def __call__(self) -> None:
        if self.polls:
            raise Stopped
        self.polls.append(None)


def test_the_jobs_of_an_evaluation_share_no_runs(jobs: Client) -> None:
    trials = [EvaluationJob(f"trial {number}", Request("Compare things.")) for number in (1, 2)]
    runner = JobRunner(jobs, EvaluationBudget(None, 2), StopAtSecondPoll())
    runner.add(trials)

    with pytest.raises(Stopped):
        list(runner.run())

    redis = jobs.store.connection.redis
    assert [redis.hget(keys.job(job_id), "alone") for job_id in runner.running] == [b"1", b"1"]


def test_other_jobs_share_runs_if_their_specialists_do(jobs: Client) -> None:
    job_id = jobs.submit(Request("Compare things."))

    assert jobs.store.connection.redis.hget(keys.job(job_id), "alone") is None


@given(
    st.integers(1, 10_000),
    st.integers(1, 8),
    st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=60),
)
def test_spent_and_reserved_amounts_never_exceed_the_budget(
    total: int, slots: int, moves: list[tuple[bool, float]]
) -> None:
    budget, reserved = EvaluationBudget(total, slots), list[tuple[str, int]]()
    for number, (begins, share) in enumerate(moves):
        if begins and len(reserved) < slots and (limit := budget.next_limit):
            budget = budget.with_reserved_job(f"j{number}", limit)
            reserved.append((f"j{number}", limit))
        elif reserved:
            name, limit = reserved.pop(0)
            budget = budget.with_ended_job(name, int(limit * share))
        assert budget.spent + sum(limit for _, limit in reserved) <= total
        assert (budget.next_limit or 0) <= total - budget.spent - sum(
            limit for _, limit in reserved
        )


@given(st.integers(1, 10_000), st.integers(1, 8))
def test_cheap_jobs_never_exhaust_the_budget(total: int, slots: int) -> None:
    budget = EvaluationBudget(total, slots)
    for number in range(100):
        limit = budget.next_limit
        assert limit == total // slots
        if limit:
            budget = budget.with_reserved_job(f"j{number}", limit).with_ended_job(f"j{number}", 0)


def test_an_unknown_cost_counts_as_the_whole_limit() -> None:
    assert (
        EvaluationBudget(100, 1).with_reserved_job("j", 100).with_ended_job("j", None).spent == 100
    )


def test_without_a_bound_every_job_runs_without_a_limit() -> None:
    budget = EvaluationBudget(None, 2).with_reserved_job("j", None)
    assert budget.next_limit is None
    assert budget.with_ended_job("j", 7).spent == 7


def test_earlier_spending_over_the_bound_leaves_nothing() -> None:
    assert EvaluationBudget(100, 2, spent=250).next_limit == 0
