"""A failed step runs again with the reason, then with another specialist. Then the job continues
without it.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import AbandonedStep, JobStatus, StepsAbandoned
from handoff_queue.shared.types.handoff import UNREADABLE, ResultStatus, StopReason, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import OnFailure
from handoff_queue.supervisor.lifecycle.commands import EndJob, IssueGroup, TryAgain
from handoff_queue.supervisor.lifecycle.job_retry import build_retry
from handoff_queue.supervisor.lifecycle.step_failure import MAX_RETRIES
from tests.doubles.simulated_job import SimulatedJob, a_plan

EVERYBODY = frozenset({"generalist", "researcher"})


def job_with_policy(
    policy: OnFailure = OnFailure.RETRY,
    specialists: frozenset[str] = EVERYBODY,
    limits: JobLimits | None = None,
) -> SimulatedJob:
    """Return a job with the steps a, b and c. c depends on a."""
    job = SimulatedJob(limits)
    job.specialists = specialists
    job.advance()
    plan = a_plan(a="", b="", c="a")
    job.make_plan(
        Plan(steps=tuple(step.model_copy(update={"on_failure": policy}) for step in plan.steps))
    )
    job.advance()
    return job


def fail_step_a(job: SimulatedJob, stop_reason: str = "finished") -> None:
    job.finish("a", "failed", error="it broke", stop_reason=StopReason(stop_reason))
    job.advance()


def test_a_failed_step_is_tried_again_with_the_reason() -> None:
    job = job_with_policy()
    job.finish("a", "failed", error="the search was empty")

    assert [type(command) for command in job.advance()] == [TryAgain, IssueGroup]
    (feedback,) = job.handoffs["a.2"].feedback
    assert feedback.author == "supervisor"
    assert "the search was empty" in feedback.text


def test_no_step_builds_on_a_failure_that_is_tried_again() -> None:
    job = job_with_policy()
    fail_step_a(job)

    assert job.open_names == {"a", "b"}


def test_after_its_retries_a_step_goes_to_the_generalist_once_and_then_it_is_dropped() -> None:
    job = job_with_policy()
    for _ in range(1 + MAX_RETRIES):
        assert job.step("a").specialist == "researcher"
        fail_step_a(job)
    assert job.step("a").specialist == "generalist"
    fail_step_a(job)
    job.finish("b")
    job.advance()
    job.review()
    job.advance()

    assert job.step("a").attempt == MAX_RETRIES + 2
    assert job.state.status is JobStatus.PARTIAL


def test_the_reason_of_a_failed_job_names_every_specialist_that_failed_at_the_step() -> None:
    job = job_with_policy()
    for _ in range(2 + MAX_RETRIES):
        fail_step_a(job)
    job.finish("b", "failed", error="it broke", stop_reason=StopReason.MAX_TURNS)
    commands = job.advance()

    end = commands[-1]
    assert isinstance(end, EndJob)
    assert end.reason == "no step has a usable result (a by researcher and generalist: failed)"


@pytest.mark.parametrize("from_step", [None, "a"])
def test_a_retry_of_the_job_gives_a_step_to_its_planned_specialist_again(
    from_step: str | None,
) -> None:
    job = job_with_policy()
    for _ in range(2 + MAX_RETRIES):
        fail_step_a(job)
    job.finish("b")
    job.advance()
    job.review()
    job.advance()
    job.append(build_retry(job.state, {}, from_step, NewLimits()))
    job.advance()

    assert job.open_names == {"a"}
    assert job.step("a").specialist == "researcher"


def test_without_a_generalist_a_step_is_dropped_after_its_retries() -> None:
    job = job_with_policy(specialists=frozenset({"researcher"}))
    for _ in range(1 + MAX_RETRIES):
        fail_step_a(job)

    assert job.open_names == {"b"}


def test_a_successful_retry_counts_as_a_full_result() -> None:
    job = job_with_policy()
    fail_step_a(job)
    job.finish("a")
    job.advance()

    assert job.open_names == {"b", "c"}


def test_a_refused_step_goes_to_another_specialist_at_once() -> None:
    job = job_with_policy()
    fail_step_a(job, "refused")

    assert (job.step("a").specialist, job.step("a").attempt) == ("generalist", 2)


@pytest.mark.parametrize(
    "reason",
    ["too_many_claims", "max_turns", "max_usd", "deadline", "internal_error", "model_error"],
)
def test_a_permanent_failure_is_not_tried_again(reason: str) -> None:
    job = job_with_policy()
    fail_step_a(job, reason)

    assert job.step("a").attempt == 1


def test_a_plan_may_say_that_a_step_is_dropped_at_once() -> None:
    job = job_with_policy(OnFailure.DROP)
    fail_step_a(job)

    assert job.step("a").attempt == 1


def test_a_job_with_a_spent_budget_tries_nothing_again() -> None:
    job = job_with_policy()
    job.finish("b", "failed", error="no", stop_reason=StopReason.JOB_BUDGET)
    fail_step_a(job)

    assert job.step("a").attempt == 1


def test_retries_count_against_the_jobs_limit_of_handoffs() -> None:
    job = job_with_policy(limits=JobLimits(max_handoffs=4))  # the planner, a, b, and one retry
    fail_step_a(job)
    fail_step_a(job)

    assert job.step("a").attempt == 2
    assert not job.state.open.keys() & {"a.2", "a.3"}


def test_a_result_that_comes_before_the_end_of_its_step_by_code_counts() -> None:
    """A decision may be committed after results that it has not read."""
    job = job_with_policy()
    job.finish("a", "ok")
    late = AbandonedStep(step=StepId("a"), result=make_ref("it is late"))

    job.append(StepsAbandoned(steps=(late,), why="late"))

    assert job.state.steps[StepId("a")].result_status is ResultStatus.OK


def test_a_result_that_cannot_be_read_is_replaced_by_a_failure() -> None:
    job = job_with_policy()
    job.finish("a", "ok")
    unreadable = AbandonedStep(step=StepId("a"), result=make_ref("it cannot be read"))

    job.append(StepsAbandoned(steps=(unreadable,), why=UNREADABLE))

    assert job.state.steps[StepId("a")].result_status is ResultStatus.FAILED
