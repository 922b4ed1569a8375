"""A job at its deadline or its limits ends with its results, and a retry continues it."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import (
    AnswerMethod,
    CancelRequested,
    JobStatus,
    RetryRequested,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.commands import (
    ChooseAnswer,
    EndJob,
    IssueGroup,
    IssueRole,
    SkipReview,
)
from handoff_queue.supervisor.lifecycle.decide import MAX_FRUITLESS
from handoff_queue.supervisor.lifecycle.handoffs import build_role_handoff
from handoff_queue.supervisor.lifecycle.state import LAST_CHANCE_S
from tests.doubles.handoffs import a_spec
from tests.doubles.lifecycle_commands import given_up
from tests.doubles.simulated_job import BEGIN, SimulatedJob, a_plan, finish_steps, planned

# Time


def test_a_job_without_a_plan_at_its_deadline_has_failed() -> None:
    job = SimulatedJob(JobLimits(max_seconds=100))
    job.advance()
    job.now = BEGIN + 100

    (end,) = job.advance()
    assert isinstance(end, EndJob)
    assert end.status is JobStatus.FAILED


def test_at_the_deadline_the_job_ends_with_its_results_so_far() -> None:
    job = planned(limits=JobLimits(max_seconds=100), a="", b="", c="a b")
    finish_steps(job, "a")
    job.now = BEGIN + 100

    why = "the job's 100 s are over"
    assert job.advance() == [
        given_up(why, "b", "c"),
        SkipReview(why),
        ChooseAnswer(AnswerMethod.MERGED),
        EndJob(JobStatus.PARTIAL),
    ]
    assert job.failure_reason("b") == why


def test_a_review_that_is_not_over_at_the_deadline_is_done_without() -> None:
    job = planned(limits=JobLimits(max_seconds=100), a="")
    finish_steps(job, "a")
    job.now = BEGIN + 100

    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL)


def test_a_synthesis_that_is_not_over_at_the_deadline_is_done_by_code() -> None:
    job = planned(a_plan(Synthesis.RECONCILE, a="", b=""), limits=JobLimits(max_seconds=100))
    finish_steps(job, "a", "b")
    job.review()
    job.advance()
    job.now = BEGIN + 100

    assert job.advance()[0] == ChooseAnswer(AnswerMethod.MERGED)


def test_in_the_last_moments_no_review_and_no_synthesis_begins() -> None:
    job = planned(a_plan(Synthesis.RECONCILE, a="", b=""))
    job.now = job.state.working_deadline + 1
    job.finish("a")
    job.finish("b")

    assert job.advance()[:2] == [
        SkipReview("no time was left for a review"),
        ChooseAnswer(AnswerMethod.MERGED),
    ]


@pytest.mark.parametrize(("seconds", "last_chance_s"), [(100, 5.0), (3_600, LAST_CHANCE_S)])
def test_handoffs_end_early_enough_for_an_answer(seconds: int, last_chance_s: float) -> None:
    job = planned(limits=JobLimits(max_seconds=seconds), a="")

    assert job.handoffs["a.1"].limits.deadline == BEGIN + seconds - last_chance_s


@pytest.mark.parametrize(("seconds", "before_s"), [(100, 1.0), (3_600, 6.0)])
def test_a_role_ends_early_enough_to_hand_in_the_draft_that_it_was_cut_at(
    seconds: int, before_s: float
) -> None:
    state, spec = planned(limits=JobLimits(max_seconds=seconds), a="").state, a_spec()
    handoff = build_role_handoff(
        state,
        spec,
        spec.content_digest,
        1,
        task="Put it together.",
        about=(),
        schema={"type": "string"},
    )

    assert handoff.limits.deadline == pytest.approx(state.deadline - before_s)
    assert state.working_deadline < state.role_deadline


# Limits


def test_more_handoffs_than_the_job_may_have_are_not_issued() -> None:
    job = planned(limits=JobLimits(max_handoffs=3), a="", b="", c="a b")
    finish_steps(job, "a", "b")

    assert job.failure_reason("c") == "the job's limit of 3 handoffs is reached"
    assert job.open_names == {"assessor"}


def test_of_several_ready_steps_as_many_run_as_the_handoff_limit_allows() -> None:
    job = planned(limits=JobLimits(max_handoffs=3), a="", b="", c="", d="")

    assert job.open_names == {"a", "b"}
    assert {job.failure_reason(name) for name in "cd"} == {
        "the job's limit of 3 handoffs is reached"
    }


def test_the_users_cap_on_turns_holds_for_every_specialist() -> None:
    job = planned(limits=JobLimits(max_turns_per_handoff=2), a="")

    assert job.handoffs["a.1"].limits.max_turns == 2


def test_a_job_ends_if_nothing_follows_from_its_roles_answers() -> None:
    """Each failed role costs a call, so their number is limited."""
    job = planned(a="")
    finish_steps(job, "a")
    for _ in range(MAX_FRUITLESS):
        assert job.open_names == {"assessor"}
        job.finish("assessor", "failed")
        job.advance()

    assert job.state.status is JobStatus.FAILED
    assert job.state.ended is not None
    assert "an internal error" in (job.state.ended.reason or "")


def test_results_with_consequences_do_not_count_against_later_ones() -> None:
    job = planned(a="")
    for _ in range(MAX_FRUITLESS - 1):
        finish_steps(job, "a")
        job.finish("assessor", "failed")
        job.advance()
        job.review(a="wrong")
        job.advance()

    assert job.open_names == {"a"}


# Retry


def run_to_end(job: SimulatedJob) -> SimulatedJob:
    while not job.state.ended:
        for name in sorted(job.open_names - {"planner", "assessor"}):
            job.finish(name, "failed" if name == "b" else "ok")
        job.advance()
        if "assessor" in job.open_names:
            job.review()
            job.advance()
    return job


def test_a_retry_repeats_failed_steps_and_their_dependents() -> None:
    job = run_to_end(planned(a="", b="", c="a", d="b c"))
    job.append(RetryRequested())

    assert job.state.status is JobStatus.RUNNING
    assert [command.steps for command in job.advance() if isinstance(command, IssueGroup)] == [
        ("b",)
    ]
    finish_steps(job, "b")
    assert job.open_names == {"d"}


def test_a_retry_from_a_step_repeats_it_and_its_dependents() -> None:
    job = run_to_end(planned(a="", c="a", d="c"))
    job.append(RetryRequested(from_step=StepId("c")))
    job.advance()

    assert job.open_names == {"c"}
    assert job.handoffs["c.2"].feedback[-1].author == "user"


def test_a_retry_after_a_cancel_continues_the_handoffs_that_were_running() -> None:
    job = planned(a="", b="a", c="")
    finish_steps(job, "a")
    job.append(CancelRequested())
    job.advance()
    job.append(RetryRequested(from_step=StepId("c")))
    job.advance()

    assert job.open_names == {"b", "c"}
    assert job.state.cancelled_by is None


def test_a_retry_of_a_job_that_was_never_planned_plans_it() -> None:
    job = SimulatedJob()
    job.advance()
    job.append(CancelRequested())
    job.advance()
    job.append(RetryRequested())

    assert job.advance() == [IssueRole(Role.PLANNER, 2)]


def test_a_retry_has_the_jobs_full_time_and_rounds_again() -> None:
    job = planned(limits=JobLimits(max_seconds=100, max_rounds=1), a="")
    for _ in range(2):
        finish_steps(job, "a")
        job.review(a="wrong")
        job.advance()
    assert job.state.status is JobStatus.PARTIAL
    job.now += 1_000
    job.append(RetryRequested(from_step=StepId("a")))
    job.advance()
    finish_steps(job, "a")
    job.review(a="still wrong")
    job.advance()

    assert job.open_names == {"a"}
    assert job.state.deadline == job.now + 100


def test_a_retry_of_a_running_job_changes_nothing() -> None:
    job = planned(a="")
    job.append(RetryRequested())

    assert job.next_commands() == ()
    assert job.open_names == {"a"}


def test_a_cancel_of_an_ended_job_changes_nothing() -> None:
    job = run_to_end(planned(a=""))
    job.append(CancelRequested())

    assert (job.state.status, job.next_commands()) == (JobStatus.OK, ())
