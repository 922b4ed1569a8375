"""A step with an effect starts after its review or approval, and never acts twice."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    CancelRequested,
    HandoffIssued,
    JobStatus,
    Parent,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import JobId, StepId, build_handoff_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.plan_validation import find_problems_by_step
from handoff_queue.shared.types.review import Side
from handoff_queue.shared.types.step import AFTER_REVIEW, OnFailure, Step
from handoff_queue.supervisor.lifecycle.handoffs import build_fact_check_handoff, build_step_handoff
from handoff_queue.supervisor.lifecycle.job_end import compute_next_due
from tests.doubles.disputed_reviews import rule_on_disputes, send_back
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.input_resolutions import an_input_step
from tests.doubles.simulated_job import BEGIN, LEASE_S, SimulatedJob, a_plan, finish_steps, planned

DAY_S = 86_400.0
ACTING = frozenset({"mailer"})


def mail_plan(*, write_first: bool = True, **marks: Any) -> Plan:
    """Return a plan of `write` and `send`. The specialist of `send` has an effect.

    `marks` holds extra fields of `send`.
    """
    plan = a_plan(write="", send="write" if write_first else "")
    marked = plan.by_id[StepId("send")].model_copy(
        update={"specialist": "mailer", "on_failure": OnFailure.RETRY, **marks}
    )
    return plan.model_copy(update={"steps": (plan.steps[0], marked)})


def make_job(
    plan: Plan | None = None, *, limits: JobLimits | None = None, **approvals: Any
) -> SimulatedJob:
    """Return a job whose first steps are issued."""
    job = SimulatedJob(limits or JobLimits(max_seconds=100), approvals=Approvals(**approvals))
    job.specialists |= ACTING
    job.acting = ACTING
    job.advance()
    job.make_plan(plan or mail_plan())
    job.advance()
    return job


def finish_send(
    job: SimulatedJob, status: str = "ok", *, acted: bool = True, **changes: Any
) -> None:
    """Finish the step `send`. `acted`: its tool may have run."""
    ended = {"stop_reason": StopReason.FINISHED, "acted": acted or None}
    job.finish("send", status, **(ended | changes))
    job.advance()


def attempts_at_send(job: SimulatedJob) -> int:
    return sum(issued.step_id == "send" for issued in job.events(HandoffIssued))


# After the review


def test_a_step_after_the_review_begins_when_the_review_has_passed() -> None:
    job = make_job(mail_plan(after=AFTER_REVIEW))
    finish_steps(job, "write")

    assert job.open_names == {"assessor"}
    job.review()
    job.advance()
    assert job.open_names == {"send"}
    finish_send(job)
    assert job.state.status is JobStatus.OK


def test_the_step_waits_while_the_review_sends_work_back() -> None:
    job = make_job(mail_plan(after=AFTER_REVIEW))
    finish_steps(job, "write")
    job.review(write="Too long.")
    job.advance()

    assert job.open_names == {"write"}
    finish_steps(job, "write")
    job.review()
    job.advance()
    assert job.open_names == {"send"}


def test_a_step_that_depends_on_an_effect_waits_for_the_review() -> None:
    plan = a_plan(write="", send="", note="send")
    steps = [
        step.model_copy(update={"after": AFTER_REVIEW}) if step.id == "send" else step
        for step in plan.steps
    ]
    job = make_job(plan.model_copy(update={"steps": tuple(steps)}))
    finish_steps(job, "write")

    assert job.open_names == {"assessor"}
    job.review()
    job.advance()
    finish_steps(job, "send")
    assert job.open_names == {"note"}


def test_a_failed_review_gives_up_the_step_with_an_effect_and_states_the_reason() -> None:
    job = make_job(mail_plan(after=AFTER_REVIEW), limits=JobLimits(max_rounds=0))
    finish_steps(job, "write")
    job.review(write="Wrong.")
    job.advance()

    assert (attempts_at_send(job), job.state.status) == (0, JobStatus.PARTIAL)
    assert (
        job.failure_reason("send")
        == "it waits for a review that passes the results, and there was none"
    )


def test_a_review_without_time_passes_nothing() -> None:
    job = make_job(mail_plan(after=AFTER_REVIEW))
    job.now += 99
    finish_steps(job, "write")

    assert (attempts_at_send(job), job.state.status) == (0, JobStatus.PARTIAL)


def test_a_judge_that_settles_the_last_dispute_for_the_writer_lets_the_step_begin() -> None:
    job = make_job(mail_plan(after=AFTER_REVIEW), limits=JobLimits(max_rounds=1))
    finish_steps(job, "write")
    job.review(write="Too long.")
    job.advance()
    finish_steps(job, "write")
    send_back(job, "write", write="Too long.")
    job.advance()

    assert job.open_names == {"judge"}
    rule_on_disputes(job, write=Side.WRITER)
    job.advance()
    assert job.open_names == {"send"}


def test_a_judge_that_agrees_with_the_assessor_does_not_let_the_step_begin() -> None:
    job = make_job(mail_plan(after=AFTER_REVIEW), limits=JobLimits(max_rounds=1))
    finish_steps(job, "write")
    job.review(write="Too long.")
    job.advance()
    finish_steps(job, "write")
    send_back(job, "write", write="Too long.")
    job.advance()
    rule_on_disputes(job, write=Side.ASSESSOR)
    job.advance()

    assert (attempts_at_send(job), job.state.status) == (0, JobStatus.PARTIAL)


def test_steps_that_all_wait_for_the_review_leave_nothing_to_review() -> None:
    plan = mail_plan(after=AFTER_REVIEW)
    (problem,) = find_problems_by_step(plan.steps[1:], [StepId("write")])

    assert problem.text == "step send waits for the review, and no step is reviewed before it"


# Approvals


def test_a_step_that_requires_approval_is_asked_about_while_the_others_go_on() -> None:
    job = make_job(mail_plan(write_first=False, approve=True))

    assert job.state.question is not None
    assert (job.state.question.what, job.state.question.steps) == (ApprovalOf.STEP, ("send",))
    assert job.open_names == {"write"}
    job.approve()
    job.advance()
    assert job.open_names == {"write", "send"}


def test_a_step_with_an_effect_is_asked_about_where_the_answer_or_the_research_is_approved() -> (
    None
):
    for question in (ApprovalOf.ANSWER, ApprovalOf.RESEARCH):
        job = make_job(what=(question,))
        finish_steps(job, "write")

        assert job.state.asks_about_steps, question
        assert attempts_at_send(job) == 0


def test_a_plan_that_was_approved_covers_the_effects_of_its_steps() -> None:
    job = make_job(what=(ApprovalOf.PLAN,))
    job.approve()
    job.advance()
    finish_steps(job, "write")

    assert job.open_names == {"send"}


def test_a_rejected_step_is_a_gap_and_the_job_ends_without_it() -> None:
    job = make_job(mail_plan(approve=True))
    finish_steps(job, "write")
    job.reject()
    job.advance()
    job.review()
    job.advance()

    assert (attempts_at_send(job), job.state.status) == (0, JobStatus.PARTIAL)
    assert job.failure_reason("send") == "a person rejected it before it began"


def test_single_steps_are_approved_or_rejected_and_the_rest_is_asked_about_again() -> None:
    plan = a_plan(a="", b="", c="")
    steps = tuple(step.model_copy(update={"approve": True}) for step in plan.steps)
    job = make_job(plan.model_copy(update={"steps": steps}))
    job.approve(steps=["a"])
    job.advance()

    assert job.state.question is not None
    assert (job.open_names, job.state.question.steps) == ({"a"}, ("b", "c"))
    job.reject("No.", "b")
    job.advance()
    assert job.state.question.steps == ("c",)


def test_a_repeated_attempt_of_a_step_that_did_not_act_needs_no_second_approval() -> None:
    job = make_job(mail_plan(approve=True))
    finish_steps(job, "write")
    job.approve()
    job.advance()
    finish_send(job, "failed", acted=False)

    assert (job.open_names, job.state.question) == ({"send"}, None)


def test_a_step_that_is_done_again_with_other_inputs_is_asked_about_again() -> None:
    job = make_job(mail_plan(approve=True), what=(ApprovalOf.ANSWER,))
    finish_steps(job, "write")
    job.approve()
    job.advance()
    finish_send(job, acted=False)
    job.review(write="Wrong.")
    job.advance()
    finish_steps(job, "write")

    assert job.state.question is not None
    assert job.state.question.steps == ("send",)


# Time


@pytest.mark.parametrize("on_timeout", [OnTimeout.STOP, OnTimeout.GO_ON])
def test_a_step_without_approval_in_time_is_a_gap_and_its_effect_does_not_happen(
    on_timeout: OnTimeout,
) -> None:
    job = make_job(mail_plan(approve=True), timeout_s=60, on_timeout=on_timeout)
    finish_steps(job, "write")
    job.now += 60
    job.advance()
    job.review()
    job.advance()

    assert (attempts_at_send(job), job.state.status) == (0, JobStatus.PARTIAL)
    assert job.failure_reason("send") == "it was not approved within 60 s"
    assert job.events(Approved) == []


def test_the_jobs_time_stops_while_only_the_question_is_open() -> None:
    job = make_job(mail_plan(approve=True))
    job.now += 10
    finish_steps(job, "write")
    job.now += 5 * DAY_S
    assert job.advance() == []
    job.approve()
    job.advance()

    assert (job.open_names, job.state.deadline) == ({"send"}, BEGIN + 5 * DAY_S + 100)


def test_the_jobs_time_runs_while_other_steps_work_during_the_question() -> None:
    job = make_job(mail_plan(write_first=False, approve=True))
    assert compute_next_due(job.state, job.now, LEASE_S) == BEGIN + 100
    job.now += 100
    job.advance()

    assert job.state.status is JobStatus.FAILED
    assert (attempts_at_send(job), job.state.question) == (0, None)
    assert job.failure_reason("send") == "the job's 100 s are over"


def test_a_question_about_a_step_that_is_given_up_is_closed() -> None:
    job = make_job(mail_plan(write_first=False, approve=True))
    question = job.state.question
    assert question is not None
    job.now += 100
    job.advance()
    job.append(Approved(asked=question.version))

    assert attempts_at_send(job) == 0


# Never twice


def test_a_step_that_may_have_acted_is_not_tried_again_when_it_fails() -> None:
    job = make_job()
    finish_steps(job, "write")
    finish_send(job, "failed")

    assert (attempts_at_send(job), "send" in job.open_names) == (1, False)
    job.review()
    job.advance()
    assert job.state.status is JobStatus.PARTIAL


def test_a_step_that_failed_before_it_acted_is_tried_again() -> None:
    job = make_job()
    finish_steps(job, "write")
    finish_send(job, "failed", acted=False)

    assert job.open_names == {"send"}


def test_a_step_with_a_result_made_by_code_may_have_acted() -> None:
    job = make_job()
    finish_steps(job, "write")
    finish_send(job, "failed", acted=False, stop_reason=StopReason.INTERNAL_ERROR)
    job.review(send="It failed.")
    job.advance()

    assert attempts_at_send(job) == 1


def test_a_review_sends_back_no_step_that_acted_and_no_dependent_of_a_revised_step() -> None:
    for named in ("send", "write"):
        job = make_job()
        finish_steps(job, "write")
        finish_send(job)
        job.review(**{named: "Wrong."})
        job.advance()
        if named == "write":
            finish_steps(job, "write")
            job.review()
            job.advance()

        assert (attempts_at_send(job), job.state.ended is not None) == (1, True), named


def test_a_step_in_need_that_acted_is_not_asked_again() -> None:
    job = make_job()
    finish_steps(job, "write")
    finish_send(job, "needs_input")

    assert attempts_at_send(job) == 1
    assert job.open_names == {"assessor"}


def test_a_person_names_a_step_that_acted_to_have_it_repeated() -> None:
    job = make_job(mail_plan(on_failure=OnFailure.ASK))
    finish_steps(job, "write")
    finish_send(job, "failed")

    (question,) = job.events(ApprovalAsked)
    assert question.what is ApprovalOf.FAILURE
    assert question.why.endswith("send may have acted already: name the step to run it again")
    job.reject("Try again.", "send")
    job.advance()
    assert attempts_at_send(job) == 2


def test_a_rejection_that_names_no_step_does_not_act_again() -> None:
    job = make_job(mail_plan(on_failure=OnFailure.ASK))
    finish_steps(job, "write")
    finish_send(job, "failed")
    job.reject("Try again.")
    job.advance()

    assert (attempts_at_send(job), job.open_names) == (1, {"assessor"})


def test_a_retried_job_does_not_act_again_unless_a_person_names_the_step() -> None:
    job = make_job()
    finish_steps(job, "write")
    finish_send(job, "failed")
    job.review()
    job.advance()

    for from_step in (None, "write"):
        job.append(RetryRequested(from_step=StepId(from_step) if from_step else None))
        job.advance()
        if from_step:
            finish_steps(job, "write")
        job.review()
        job.advance()
        assert (attempts_at_send(job), job.state.ended is not None) == (1, True), from_step
    job.append(RetryRequested(from_step=StepId("send")))
    job.advance()
    assert (attempts_at_send(job), job.open_names) == (2, {"send"})


def test_a_step_that_ran_when_its_job_was_cancelled_is_given_up_by_a_retry() -> None:
    job = make_job()
    finish_steps(job, "write")
    job.append(CancelRequested())
    job.advance()
    job.append(RetryRequested())
    job.advance()

    assert (attempts_at_send(job), job.failure_reason("send")) == (
        1,
        "the job ended while the step ran",
    )
    assert job.open_names == {"assessor"}


def test_a_rejected_answer_is_made_again_without_the_steps_that_acted() -> None:
    job = make_job(what=(ApprovalOf.ANSWER,))
    finish_steps(job, "write")
    job.approve()
    job.advance()
    finish_send(job)
    job.review()
    job.advance()
    job.reject("Shorter.", "write")
    job.advance()

    assert job.open_names == {"write"}
    finish_steps(job, "write")
    assert attempts_at_send(job) == 1


# Without effects


def allowed_tools(job: SimulatedJob, step_id: str) -> tuple[str, ...] | None:
    """Return the tools with effects that an attempt at a step may use, or None for all tools."""
    step = Step(id=StepId(step_id), specialist="mailer", task="Send it.")
    spec = a_spec("send_mail", name="mailer")
    handoff = build_step_handoff(job.state, step, spec, spec.content_digest, job.texts, None)
    return handoff.acts_with


def test_a_step_of_a_child_job_gets_no_tool_with_effects() -> None:
    parent = Parent(job_id=JobId(JOB), handoff_id=build_handoff_id(StepId("team"), 1))
    job = SimulatedJob(parent=parent)
    job.advance()
    job.make_plan(a="")

    assert allowed_tools(job, "a") == ()


def test_an_input_step_gets_no_tool_with_effects() -> None:
    job = planned(a="")
    job.finish("a", "needs_input")
    job.advance()
    job.resolve_needs(a=an_input_step("find"))

    assert (allowed_tools(job, "find"), allowed_tools(job, "a")) == ((), None)


def test_a_substitute_for_a_team_gets_no_tool_with_effects() -> None:
    plan = a_plan(a="")
    team = plan.steps[0].model_copy(update={"specialist": CHILD_JOB_SPECIALIST})
    job = SimulatedJob()
    job.advance()
    job.make_plan(plan.model_copy(update={"steps": (team,)}))

    assert allowed_tools(job, "a") == ()


def test_a_fact_checker_gets_no_tool_with_effects() -> None:
    job = planned(a="")
    job.finish("a")
    spec = a_spec("send_mail", name="mailer")
    handoff = build_fact_check_handoff(
        job.state, spec, spec.content_digest, 1, task="Check it.", schema={"type": "object"}
    )

    assert handoff.acts_with == ()
