"""A job with an approval policy asks, waits, and applies the answer or the timeout."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import (
    ApprovalReminded,
    Approved,
    CancelRequested,
    JobEnded,
    JobStatus,
    Rejected,
    RetryRequested,
)
from handoff_queue.shared.types.job_options import (
    MAX_WAIT_S,
    ApprovalOf,
    Approvals,
    Mode,
    OnTimeout,
)
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.commands import (
    ApproveOnTimeout,
    AskApproval,
    EndJob,
    RemindUser,
)
from handoff_queue.supervisor.lifecycle.job_end import compute_next_due
from handoff_queue.supervisor.lifecycle.result_texts import BRING_UP_TO_DATE
from tests.doubles.simulated_job import BEGIN, LEASE_S, SimulatedJob, a_plan, finish_steps

DAY_S = 86_400.0
PLAN, RESEARCH, ANSWER, COST = (
    ApprovalOf.PLAN,
    ApprovalOf.RESEARCH,
    ApprovalOf.ANSWER,
    ApprovalOf.COST,
)


def make_job(
    *questions: ApprovalOf, limits: JobLimits | None = None, mode: Mode = Mode.TEAM, **policy: Any
) -> SimulatedJob:
    job = SimulatedJob(
        limits or JobLimits(max_seconds=100),
        approvals=Approvals(what=questions, **policy),
        mode=mode,
    )
    job.advance()
    return job


def asked_about(job: SimulatedJob) -> ApprovalOf | None:
    return job.state.question.what if job.state.question else None


def job_asking_about_plan(**policy: Any) -> SimulatedJob:
    job = make_job(PLAN, **policy)
    job.make_plan(a="", b="", c="a b")
    job.advance()
    return job


def job_asking_about(question: ApprovalOf, **policy: Any) -> SimulatedJob:
    """Return a job with the steps a and b that asks for approval of the research or of the
    answer.
    """
    job = make_job(question, **policy)
    job.make_plan(a="", b="a")
    job.advance()
    finish_steps(job, "a")
    finish_steps(job, "b")
    if question is ANSWER:
        job.review()
        job.advance()
    return job


def test_a_plan_needs_approval_before_its_first_step_is_issued() -> None:
    job = job_asking_about_plan()

    assert (asked_about(job), job.open_names) == (PLAN, set())
    job.approve()
    job.advance()
    assert job.open_names == {"a", "b"}


def test_research_needs_approval_after_all_steps_are_settled_and_before_the_review() -> None:
    job = job_asking_about(RESEARCH)

    assert (asked_about(job), job.open_names) == (RESEARCH, set())
    job.approve()
    job.advance()
    assert job.open_names == {"assessor"}


def test_an_answer_is_approved_before_the_job_ends() -> None:
    job = job_asking_about(ANSWER)

    assert (asked_about(job), job.state.ended) == (ANSWER, None)
    job.approve()
    assert job.advance() == [EndJob(JobStatus.OK)]


def test_an_unwanted_approval_is_not_asked() -> None:
    job = make_job()
    job.make_plan(a="")
    job.advance()
    finish_steps(job, "a")
    job.review()

    assert job.advance()[-1] == EndJob(JobStatus.OK)


def test_a_job_that_waits_has_nothing_due_but_the_end_of_the_wait() -> None:
    job = job_asking_about_plan(timeout_s=3 * 24 * 3_600)

    assert job.next_commands() == ()
    assert compute_next_due(job.state, job.now, LEASE_S) == BEGIN + 3 * DAY_S


def test_the_time_that_a_person_takes_is_not_part_of_the_jobs() -> None:
    job = job_asking_about_plan()
    job.now += 5 * DAY_S
    job.approve()
    job.advance()

    assert (job.open_names, job.state.deadline) == ({"a", "b"}, BEGIN + 5 * DAY_S + 100)
    assert job.handoffs["a.1"].limits.deadline == job.state.working_deadline


def test_a_rejected_plan_is_planned_again_with_the_note_and_asked_about_again() -> None:
    job = job_asking_about_plan()
    before = job.state.plan
    note = job.reject("Ask the lawyers, too.")
    job.advance()

    assert (job.open_names, job.state.plan) == ({"planner"}, None)
    assert before is not None
    assert [
        (rejected_plan.plan, rejected_plan.note) for rejected_plan in job.state.rejected_plans
    ] == [(before.plan, note)]
    job.make_plan(d="")
    job.advance()
    assert (asked_about(job), list(job.state.steps)) == (PLAN, ["d"])


def test_one_more_rejected_plan_than_rounds_ends_the_job() -> None:
    job = job_asking_about_plan(limits=JobLimits(max_rounds=1))
    job.reject()
    job.advance()
    job.make_plan(a="")
    job.advance()
    job.reject()

    assert job.advance() == [
        EndJob(JobStatus.FAILED, "the plan was rejected, and it cannot be made again")
    ]


def test_a_plan_that_code_has_made_cannot_be_made_again() -> None:
    job = make_job(PLAN, mode=Mode.SINGLE)
    job.reject()

    assert job.advance() == [
        EndJob(JobStatus.FAILED, "the plan was rejected, and it cannot be made again")
    ]


def test_an_edited_plan_takes_the_place_of_the_planners() -> None:
    job = job_asking_about_plan()
    job.approve(a_plan(x="", y="x"))
    job.advance()

    assert (job.open_names, list(job.state.steps)) == ({"x"}, ["x", "y"])


def test_a_rejected_answer_is_done_again_by_the_steps_that_make_it_with_the_note_as_feedback() -> (
    None
):
    job = job_asking_about(ANSWER)
    job.reject("Shorter.")
    job.advance()

    assert job.open_names == {"b"}
    (feedback,) = job.handoffs["b.2"].feedback
    assert (feedback.author, feedback.text, feedback.previous) == (
        "user",
        "Shorter.",
        job.result_of("b.1"),
    )
    finish_steps(job, "b")
    job.review()
    job.advance()
    assert asked_about(job) is ANSWER


def test_steps_that_a_person_names_run_again_with_their_dependents() -> None:
    job = job_asking_about(RESEARCH)
    job.reject("Look at 2025.", "a")
    job.advance()
    assert job.open_names == {"a"}
    finish_steps(job, "a")

    assert (job.open_names, job.handoffs["a.2"].feedback[0].text) == ({"b"}, "Look at 2025.")
    assert job.handoffs["b.2"].feedback[0].text == BRING_UP_TO_DATE


@pytest.mark.parametrize("question", [RESEARCH, ANSWER])
def test_a_rejection_counts_as_a_round(question: ApprovalOf) -> None:
    job = job_asking_about(question, limits=JobLimits(max_rounds=0))
    job.reject()

    assert job.advance() == [
        EndJob(JobStatus.FAILED, f"the {question} was rejected, and it cannot be made again")
    ]


def test_a_review_cannot_send_back_in_the_round_that_a_person_has_used() -> None:
    job = job_asking_about(RESEARCH, limits=JobLimits(max_rounds=1))
    job.reject()
    job.advance()
    finish_steps(job, "b")
    job.approve()
    job.advance()
    job.review(b="Still wrong.")
    job.advance()

    assert job.state.status is JobStatus.PARTIAL


def test_a_job_without_an_answer_continues_if_its_user_chose_that() -> None:
    job = job_asking_about_plan(timeout_s=60, on_timeout=OnTimeout.GO_ON)
    job.now += 60
    assert job.state.question is not None

    assert job.advance()[0] == ApproveOnTimeout(job.events(Approved)[0].asked)
    assert (job.events(Approved)[0].by, job.open_names) == ("timeout", {"a", "b"})
    assert job.state.deadline == BEGIN + 60 + 100


def test_a_job_without_an_approval_stops_and_withholds_unapproved_parts() -> None:
    job = job_asking_about(ANSWER, timeout_s=60)
    job.now += 60

    assert job.advance() == [EndJob(JobStatus.CANCELLED, "the answer was not approved within 60 s")]
    assert job.state.is_withheld


def test_a_job_without_an_answer_reminds_its_user_after_doubling_delays_and_keeps_waiting() -> None:
    job = job_asking_about_plan(timeout_s=60, on_timeout=OnTimeout.REMIND)
    reminded = []
    while job.state.ended is None:
        job.now = compute_next_due(job.state, job.now, LEASE_S) or 0
        reminded += [
            job.now - BEGIN for command in job.advance() if isinstance(command, RemindUser)
        ]

    assert reminded[:4] == [60, 180, 420, 900]
    assert len(job.events(ApprovalReminded)) == len(reminded) < 20
    assert job.events(JobEnded)[0].reason == f"the plan was not approved within {MAX_WAIT_S} s"


def test_an_expensive_job_asks_when_its_cost_passes_the_threshold() -> None:
    job = make_job(above_microusd=1_000)
    job.make_plan(a="", b="a")
    job.advance()
    job.finish("a", usage=Usage(input_tokens=10, output_tokens=1, cost_microusd=1_001))

    assert job.advance() == [AskApproval(COST, "it has cost $0.001001, more than $0.001")]
    job.approve()
    job.advance()
    assert job.open_names == {"b"}
    job.finish("b", usage=Usage(input_tokens=10, output_tokens=1, cost_microusd=5_000))
    job.advance()
    assert job.open_names == {"assessor"}, "once is enough"


def test_a_rejected_cost_ends_the_job_with_its_results_so_far() -> None:
    job = make_job(above_microusd=1_000)
    job.make_plan(a="", b="a")
    job.advance()
    job.finish("a", usage=Usage(input_tokens=10, output_tokens=1, cost_microusd=1_001))
    job.advance()
    job.reject()
    job.advance()

    assert (job.state.status, job.failure_reason("b")) == (
        JobStatus.PARTIAL,
        "its cost was not approved",
    )


@pytest.mark.parametrize(
    "late", [lambda asked: Approved(asked=asked), lambda asked: Rejected(asked=asked)]
)
def test_an_answer_to_a_closed_question_changes_nothing(late: Any) -> None:
    job = job_asking_about_plan()
    assert job.state.question is not None
    question = job.state.question.version
    job.approve()
    before = job.state
    job.append(late(question))

    assert job.state.model_copy(update={"version": before.version}) == before


def test_a_job_that_waits_can_be_cancelled() -> None:
    job = job_asking_about_plan()
    job.append(CancelRequested())
    job.advance()

    assert (job.state.status, job.state.question) == (JobStatus.CANCELLED, None)


def test_an_answer_cut_short_by_time_or_budget_still_needs_approval() -> None:
    job = make_job(ANSWER)
    job.make_plan(a="", b="")
    job.advance()
    finish_steps(job, "a")
    job.now += 100
    job.advance()

    assert asked_about(job) is ANSWER
    job.reject()
    assert job.advance() == [
        EndJob(JobStatus.FAILED, "the answer was rejected, and it cannot be made again")
    ]


def test_a_retried_job_asks_again_about_new_parts_and_keeps_its_plan() -> None:
    job = job_asking_about(ANSWER, limits=JobLimits(max_rounds=0, on_limit=OnLimit.STOP))
    job.reject()
    job.advance()
    job.append(RetryRequested())
    job.advance()

    assert (job.state.rejected, job.open_names) == (None, {"assessor"})
    job.review()
    job.advance()
    assert asked_about(job) is ANSWER
