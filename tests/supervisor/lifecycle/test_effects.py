"""A step with an effect begins after the review or the approval that covers it, and is not
done twice.
"""

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
from handoff_queue.shared.types.ids import JobId, StepId, handoff_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, OnTimeout
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.plan import AFTER_REVIEW, OnFailure, Plan, Step, problems_by_step
from handoff_queue.shared.types.review import Side
from handoff_queue.supervisor.lifecycle.handoffs import fact_check_handoff, step_handoff
from handoff_queue.supervisor.lifecycle.job_end import next_due
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.life import BEGIN, LEASE_S, Life, a_plan, done, planned
from tests.doubles.needs import a_helper
from tests.doubles.quarrels import insists, rules

DAY_S = 86_400.0
ACTING = frozenset({"mailer"})


def a_mail(*, write_first: bool = True, **marks: Any) -> Plan:
    """Return a plan: `write`, then `send` by a specialist with an effect. `marks`: fields of
    `send`.
    """
    plan = a_plan(write="", send="write" if write_first else "")
    marked = plan.by_id[StepId("send")].model_copy(
        update={"specialist": "mailer", "on_failure": OnFailure.RETRY, **marks}
    )
    return plan.model_copy(update={"steps": (plan.steps[0], marked)})


def job(plan: Plan | None = None, *, limits: JobLimits | None = None, **approvals: Any) -> Life:
    """Return a job with its first steps at work."""
    life = Life(limits or JobLimits(max_seconds=100), approvals=Approvals(**approvals))
    life.roles |= ACTING
    life.acting = ACTING
    life.goes_on()
    life.plans(plan or a_mail())
    life.goes_on()
    return life


def sent(life: Life, status: str = "ok", *, acted: bool = True, **changes: Any) -> None:
    """`send` ends. `acted`: its tool may have run."""
    ended = {"stop_reason": StopReason.FINISHED, "acted": acted or None}
    life.finishes("send", status, **(ended | changes))
    life.goes_on()


def attempts_at_send(life: Life) -> int:
    return sum(one.step_id == "send" for one in life.events(HandoffIssued))


# After the review


def test_a_step_after_the_review_begins_when_the_review_has_passed() -> None:
    life = job(a_mail(after=AFTER_REVIEW))
    done(life, "write")

    assert life.out == {"assessor"}
    life.judges()
    life.goes_on()
    assert life.out == {"send"}
    sent(life)
    assert life.state.status is JobStatus.OK


def test_it_waits_while_the_review_sends_work_back() -> None:
    life = job(a_mail(after=AFTER_REVIEW))
    done(life, "write")
    life.judges(write="Too long.")
    life.goes_on()

    assert life.out == {"write"}
    done(life, "write")
    life.judges()
    life.goes_on()
    assert life.out == {"send"}


def test_a_step_that_depends_on_it_waits_for_the_review_as_well() -> None:
    plan = a_plan(write="", send="", note="send")
    steps = [
        one.model_copy(update={"after": AFTER_REVIEW}) if one.id == "send" else one
        for one in plan.steps
    ]
    life = job(plan.model_copy(update={"steps": tuple(steps)}))
    done(life, "write")

    assert life.out == {"assessor"}
    life.judges()
    life.goes_on()
    done(life, "send")
    assert life.out == {"note"}


def test_a_review_that_does_not_pass_gives_it_up_and_says_why() -> None:
    life = job(a_mail(after=AFTER_REVIEW), limits=JobLimits(max_rounds=0))
    done(life, "write")
    life.judges(write="Wrong.")
    life.goes_on()

    assert (attempts_at_send(life), life.state.status) == (0, JobStatus.PARTIAL)
    assert life.why("send") == "it waits for a review that passes the results, and there was none"


def test_a_review_that_nobody_had_time_for_passes_nothing() -> None:
    life = job(a_mail(after=AFTER_REVIEW))
    life.now += 99
    done(life, "write")

    assert (attempts_at_send(life), life.state.status) == (0, JobStatus.PARTIAL)


def test_a_judge_who_settles_the_last_quarrel_for_the_writer_lets_it_begin() -> None:
    life = job(a_mail(after=AFTER_REVIEW), limits=JobLimits(max_rounds=1))
    done(life, "write")
    life.judges(write="Too long.")
    life.goes_on()
    done(life, "write")
    insists(life, "write", write="Too long.")
    life.goes_on()

    assert life.out == {"judge"}
    rules(life, write=Side.WRITER)
    life.goes_on()
    assert life.out == {"send"}


def test_a_judge_who_agrees_with_the_reviewer_does_not() -> None:
    life = job(a_mail(after=AFTER_REVIEW), limits=JobLimits(max_rounds=1))
    done(life, "write")
    life.judges(write="Too long.")
    life.goes_on()
    done(life, "write")
    insists(life, "write", write="Too long.")
    life.goes_on()
    rules(life, write=Side.REVIEWER)
    life.goes_on()

    assert (attempts_at_send(life), life.state.status) == (0, JobStatus.PARTIAL)


def test_steps_that_all_wait_for_the_review_leave_nothing_to_review() -> None:
    plan = a_mail(after=AFTER_REVIEW)
    (problem,) = problems_by_step(plan.steps[1:], [StepId("write")])

    assert problem.said == "step send waits for the review, and no step is reviewed before it"


# Approvals


def test_a_step_that_says_so_is_asked_about_and_the_others_go_on_meanwhile() -> None:
    life = job(a_mail(write_first=False, approve=True))

    assert life.state.question is not None
    assert (life.state.question.what, life.state.question.steps) == (ApprovalOf.STEP, ("send",))
    assert life.out == {"write"}
    life.approves()
    life.goes_on()
    assert life.out == {"write", "send"}


def test_a_step_with_an_effect_is_asked_about_where_the_answer_or_the_research_is_approved() -> (
    None
):
    for what in (ApprovalOf.ANSWER, ApprovalOf.RESEARCH):
        life = job(what=(what,))
        done(life, "write")

        assert life.state.asks_about_steps, what
        assert attempts_at_send(life) == 0


def test_a_plan_that_was_approved_covers_the_effects_of_its_steps() -> None:
    life = job(what=(ApprovalOf.PLAN,))
    life.approves()
    life.goes_on()
    done(life, "write")

    assert life.out == {"send"}


def test_a_rejected_step_is_a_gap_and_the_job_ends_without_it() -> None:
    life = job(a_mail(approve=True))
    done(life, "write")
    life.rejects()
    life.goes_on()
    life.judges()
    life.goes_on()

    assert (attempts_at_send(life), life.state.status) == (0, JobStatus.PARTIAL)
    assert life.why("send") == "a person rejected it before it began"


def test_single_steps_are_approved_or_rejected_and_the_rest_is_asked_about_again() -> None:
    plan = a_plan(a="", b="", c="")
    steps = tuple(one.model_copy(update={"approve": True}) for one in plan.steps)
    life = job(plan.model_copy(update={"steps": steps}))
    life.approves(steps=["a"])
    life.goes_on()

    assert life.state.question is not None
    assert (life.out, life.state.question.steps) == ({"a"}, ("b", "c"))
    life.rejects("No.", "b")
    life.goes_on()
    assert life.state.question.steps == ("c",)


def test_a_second_chance_of_a_step_that_did_not_act_needs_no_second_approval() -> None:
    life = job(a_mail(approve=True))
    done(life, "write")
    life.approves()
    life.goes_on()
    sent(life, "failed", acted=False)

    assert (life.out, life.state.question) == ({"send"}, None)


def test_a_step_that_is_done_again_with_other_inputs_is_asked_about_again() -> None:
    life = job(a_mail(approve=True), what=(ApprovalOf.ANSWER,))
    done(life, "write")
    life.approves()
    life.goes_on()
    sent(life, acted=False)
    life.judges(write="Wrong.")
    life.goes_on()
    done(life, "write")

    assert life.state.question is not None
    assert life.state.question.steps == ("send",)


# Time


@pytest.mark.parametrize("on_timeout", [OnTimeout.STOP, OnTimeout.GO_ON])
def test_a_step_that_nobody_approves_in_time_is_a_gap_and_its_effect_does_not_happen(
    on_timeout: OnTimeout,
) -> None:
    life = job(a_mail(approve=True), timeout_s=60, on_timeout=on_timeout)
    done(life, "write")
    life.now += 60
    life.goes_on()
    life.judges()
    life.goes_on()

    assert (attempts_at_send(life), life.state.status) == (0, JobStatus.PARTIAL)
    assert life.why("send") == "it was not approved within 60 s"
    assert life.events(Approved) == []


def test_the_jobs_time_stands_still_while_only_the_question_is_open() -> None:
    life = job(a_mail(approve=True))
    life.now += 10
    done(life, "write")
    life.now += 5 * DAY_S
    assert life.goes_on() == []
    life.approves()
    life.goes_on()

    assert (life.out, life.state.deadline) == ({"send"}, BEGIN + 5 * DAY_S + 100)


def test_the_jobs_time_runs_while_other_steps_work_beside_the_question() -> None:
    life = job(a_mail(write_first=False, approve=True))
    assert next_due(life.state, life.now, LEASE_S) == BEGIN + 100
    life.now += 100
    life.goes_on()

    assert life.state.status is JobStatus.FAILED
    assert (attempts_at_send(life), life.state.question) == (0, None)
    assert life.why("send") == "the job's 100 s are over"


def test_a_question_about_a_step_that_is_given_up_is_closed() -> None:
    life = job(a_mail(write_first=False, approve=True))
    asked = life.state.question
    assert asked is not None
    life.now += 100
    life.goes_on()
    life.happens(Approved(asked=asked.version))

    assert attempts_at_send(life) == 0


# Never twice


def test_a_step_that_may_have_acted_is_not_tried_again_when_it_fails() -> None:
    life = job()
    done(life, "write")
    sent(life, "failed")

    assert (attempts_at_send(life), "send" in life.out) == (1, False)
    life.judges()
    life.goes_on()
    assert life.state.status is JobStatus.PARTIAL


def test_a_step_that_failed_before_it_acted_is_tried_again() -> None:
    life = job()
    done(life, "write")
    sent(life, "failed", acted=False)

    assert life.out == {"send"}


def test_a_result_that_code_made_does_not_say_whether_the_step_acted_and_so_it_may_have() -> None:
    life = job()
    done(life, "write")
    sent(life, "failed", acted=False, stop_reason=StopReason.DEFECT)
    life.judges(send="It failed.")
    life.goes_on()

    assert attempts_at_send(life) == 1


def test_a_review_does_not_send_back_a_step_that_acted_nor_one_that_builds_on_what_it_sends_back() -> (
    None
):
    for named in ("send", "write"):
        life = job()
        done(life, "write")
        sent(life)
        life.judges(**{named: "Wrong."})
        life.goes_on()
        if named == "write":
            done(life, "write")
            life.judges()
            life.goes_on()

        assert (attempts_at_send(life), life.state.ended is not None) == (1, True), named


def test_a_step_in_need_that_acted_is_not_asked_again() -> None:
    life = job()
    done(life, "write")
    sent(life, "needs_input")

    assert attempts_at_send(life) == 1
    assert life.out == {"assessor"}


def test_a_person_who_is_asked_about_a_step_that_acted_names_it_to_have_it_done_again() -> None:
    life = job(a_mail(on_failure=OnFailure.ASK))
    done(life, "write")
    sent(life, "failed")

    (asked,) = life.events(ApprovalAsked)
    assert asked.what is ApprovalOf.FAILURE
    assert asked.why.endswith("send may have acted already: name the step to run it again")
    life.rejects("Try again.", "send")
    life.goes_on()
    assert attempts_at_send(life) == 2


def test_a_rejection_that_names_no_step_does_not_act_again() -> None:
    life = job(a_mail(on_failure=OnFailure.ASK))
    done(life, "write")
    sent(life, "failed")
    life.rejects("Try again.")
    life.goes_on()

    assert (attempts_at_send(life), life.out) == (1, {"assessor"})


def test_a_retried_job_does_not_act_again_unless_a_person_names_the_step() -> None:
    life = job()
    done(life, "write")
    sent(life, "failed")
    life.judges()
    life.goes_on()

    for from_step in (None, "write"):
        life.happens(RetryRequested(from_step=StepId(from_step) if from_step else None))
        life.goes_on()
        if from_step:
            done(life, "write")
        life.judges()
        life.goes_on()
        assert (attempts_at_send(life), life.state.ended is not None) == (1, True), from_step
    life.happens(RetryRequested(from_step=StepId("send")))
    life.goes_on()
    assert (attempts_at_send(life), life.out) == (2, {"send"})


def test_a_step_that_ran_when_its_job_was_cancelled_is_given_up_by_a_retry() -> None:
    life = job()
    done(life, "write")
    life.happens(CancelRequested())
    life.goes_on()
    life.happens(RetryRequested())
    life.goes_on()

    assert (attempts_at_send(life), life.why("send")) == (1, "the job ended while the step ran")
    assert life.out == {"assessor"}


def test_a_rejected_answer_is_made_again_without_the_steps_that_acted() -> None:
    life = job(what=(ApprovalOf.ANSWER,))
    done(life, "write")
    life.approves()
    life.goes_on()
    sent(life)
    life.judges()
    life.goes_on()
    life.rejects("Shorter.", "write")
    life.goes_on()

    assert life.out == {"write"}
    done(life, "write")
    assert attempts_at_send(life) == 1


# Without effects


def allowed(life: Life, step_id: str) -> tuple[str, ...] | None:
    """Return the tools with effects that an attempt at a step may use. None: all."""
    step = Step(id=StepId(step_id), specialist="mailer", task="Send it.")
    spec = a_spec("send_mail", name="mailer")
    handoff = step_handoff(life.state, step, spec, spec.content_digest, life.words, None)
    return handoff.acts_with


def test_a_step_of_a_child_job_gets_no_tool_with_effects() -> None:
    parent = Parent(job_id=JobId(JOB), handoff_id=handoff_id(StepId("team"), 1))
    life = Life(parent=parent)
    life.goes_on()
    life.plans(a="")

    assert allowed(life, "a") == ()


def test_a_helper_that_the_planner_adds_gets_no_tool_with_effects() -> None:
    life = planned(a="")
    life.finishes("a", "needs_input")
    life.goes_on()
    life.answers_needs(a=a_helper("find"))

    assert (allowed(life, "find"), allowed(life, "a")) == ((), None)


def test_a_stand_in_for_a_team_gets_no_tool_with_effects() -> None:
    plan = a_plan(a="")
    team = plan.steps[0].model_copy(update={"specialist": SUB_SUPERVISOR})
    life = Life()
    life.goes_on()
    life.plans(plan.model_copy(update={"steps": (team,)}))

    assert allowed(life, "a") == ()


def test_a_fact_checker_gets_no_tool_with_effects() -> None:
    life = planned(a="")
    life.finishes("a")
    spec = a_spec("send_mail", name="mailer")
    handoff = fact_check_handoff(
        life.state, spec, spec.content_digest, 1, task="Check it.", schema={"type": "object"}
    )

    assert handoff.acts_with == ()
