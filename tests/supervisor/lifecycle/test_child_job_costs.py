"""The cost of a plan with child jobs is known before it runs. A share that is too small is
reported.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.lifecycle.child_jobs import (
    build_bill,
    describe_child_job_shortage,
    format_bill,
)
from tests.supervisor.lifecycle.test_child_job_budgets import plan_with_teams, planned_job


@pytest.mark.parametrize(
    ("limits", "lacks"),
    [
        (JobLimits(max_turns=200, max_tokens=100_000, max_microusd=2_000_000), ""),
        (JobLimits(max_turns=8), "3 turns where a child job needs room for 4 turns"),
        (JobLimits(max_handoffs=5), "2 handoffs where a child job needs room for 4 handoffs"),
        (JobLimits(max_tokens=20_000), "7111 tokens where a child job needs room for 9000 tokens"),
        (JobLimits(max_microusd=1_000_000), "$0.355555 where a child job needs room for $0.4"),
    ],
)
def test_a_share_too_small_for_a_team_to_begin_is_reported_before_it_runs(
    limits: JobLimits, lacks: str
) -> None:
    state = planned_job(plan_with_teams(), limits).state

    assert describe_child_job_shortage(state, WorstCase(4_000, 5_000, 400_000)) == (
        lacks and f"too little: {lacks}; the generalist tries the parts that a child job cannot do"
    )


def test_a_plan_without_teams_lacks_nothing() -> None:
    assert (
        describe_child_job_shortage(
            planned_job(plan_with_teams(children=0), JobLimits(max_turns=1)).state,
            WorstCase(1, 1, 1),
        )
        == ""
    )


def test_the_bill_is_breadth_by_depth() -> None:
    life = planned_job(
        plan_with_teams(agents=1, children=2), JobLimits(max_turns=200, max_microusd=9_000_000)
    )

    assert [(line.depth, line.at_most) for line in build_bill(life.state)] == [(1, 2), (2, 40)]
    assert (
        format_bill(build_bill(life.state))
        == "2 child jobs of at most 88 turns and $3.2 each; below them, at depth 2, 40 child jobs"
        " at most, out of what those above them may use"
    )
    assert build_bill(planned_job(plan_with_teams(children=0)).state) == ()
