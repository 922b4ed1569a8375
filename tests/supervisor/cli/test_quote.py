"""The command line states why a job has no quote."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.cost_quotes import explain_missing_plan
from handoff_queue.supervisor.roles.role_events import make_plan_event
from tests.doubles.simulated_job import SimulatedJob, a_plan


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_budget_that_cannot_pay_the_planner_is_too_low_for_a_plan(is_replaced: bool) -> None:
    job = SimulatedJob(JobLimits(max_microusd=1_000))
    job.advance()
    result = job.finish("planner", "failed", stop_reason=StopReason.JOB_BUDGET)
    if is_replaced:  # a plan with one specialist, which the budget cannot pay for either
        job.append(make_plan_event(a_plan(answer=""), result)[0])
    job.advance()

    assert (
        explain_missing_plan(job.state)
        == "its limits are too low for a plan (the job's budget is spent): raise or"
        " remove a limit"
    )


def test_a_spent_daily_budget_names_no_higher_limit_of_the_job() -> None:
    job = SimulatedJob()
    job.advance()
    job.finish("planner", "failed", stop_reason=StopReason.DAY_BUDGET)
    job.advance()

    assert "raise" not in explain_missing_plan(job.state)
