"""Approvals: the questions and their time, the effect of an answer, and a job without an answer."""

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
    MOST_WAIT_S,
    ApprovalOf,
    Approvals,
    Mode,
    OnTimeout,
)
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.commands import (
    ApproveBySilence,
    AskApproval,
    EndJob,
    RemindUser,
)
from handoff_queue.supervisor.lifecycle.job_end import next_due
from handoff_queue.supervisor.lifecycle.result_texts import BRING_UP_TO_DATE
from tests.doubles.life import BEGIN, LEASE_S, Life, a_plan, done

DAY_S = 86_400.0
PLAN, RESEARCH, ANSWER, COST = (
    ApprovalOf.PLAN,
    ApprovalOf.RESEARCH,
    ApprovalOf.ANSWER,
    ApprovalOf.COST,
)


def job(
    *what: ApprovalOf, limits: JobLimits | None = None, mode: Mode = Mode.TEAM, **policy: Any
) -> Life:
    life = Life(
        limits or JobLimits(max_seconds=100), approvals=Approvals(what=what, **policy), mode=mode
    )
    life.goes_on()
    return life


def asked(life: Life) -> ApprovalOf | None:
    return life.state.question.what if life.state.question else None


def at_plan(**policy: Any) -> Life:
    life = job(PLAN, **policy)
    life.plans(a="", b="", c="a b")
    life.goes_on()
    return life


def at(what: ApprovalOf, **policy: Any) -> Life:
    """Return a job with the steps a and b that asks for approval of the research or of the answer."""
    life = job(what, **policy)
    life.plans(a="", b="a")
    life.goes_on()
    done(life, "a")
    done(life, "b")
    if what is ANSWER:
        life.judges()
        life.goes_on()
    return life


def test_a_plan_is_asked_about_before_its_first_step_is_handed_over() -> None:
    life = at_plan()

    assert (asked(life), life.out) == (PLAN, set())
    life.approves()
    life.goes_on()
    assert life.out == {"a", "b"}


def test_research_is_asked_about_when_all_steps_are_settled_and_before_anybody_reviews_it() -> None:
    life = at(RESEARCH)

    assert (asked(life), life.out) == (RESEARCH, set())
    life.approves()
    life.goes_on()
    assert life.out == {"assessor"}


def test_an_answer_is_asked_about_before_it_leaves() -> None:
    life = at(ANSWER)

    assert (asked(life), life.state.ended) == (ANSWER, None)
    life.approves()
    assert life.goes_on() == [EndJob(JobStatus.OK)]


def test_what_nobody_wanted_to_approve_of_is_not_asked_about() -> None:
    life = job()
    life.plans(a="")
    life.goes_on()
    done(life, "a")
    life.judges()

    assert life.goes_on()[-1] == EndJob(JobStatus.OK)


def test_a_job_that_waits_has_nothing_due_but_the_end_of_the_wait() -> None:
    life = at_plan(timeout_s=3 * 24 * 3_600)

    assert life.decides() == ()
    assert next_due(life.state, life.now, LEASE_S) == BEGIN + 3 * DAY_S


def test_the_time_that_a_person_takes_is_no_part_of_the_jobs() -> None:
    life = at_plan()
    life.now += 5 * DAY_S
    life.approves()
    life.goes_on()

    assert (life.out, life.state.deadline) == ({"a", "b"}, BEGIN + 5 * DAY_S + 100)
    assert life.handoffs["a.1"].limits.deadline == life.state.working_deadline


def test_a_rejected_plan_is_planned_again_with_the_note_and_asked_about_again() -> None:
    life = at_plan()
    before = life.state.plan
    note = life.rejects("Ask the lawyers, too.")
    life.goes_on()

    assert (life.out, life.state.plan) == ({"planner"}, None)
    assert before is not None
    assert [(one.plan, one.note) for one in life.state.rejected_plans] == [(before.plan, note)]
    life.plans(d="")
    life.goes_on()
    assert (asked(life), list(life.state.steps)) == (PLAN, ["d"])


def test_a_plan_that_is_rejected_once_more_than_there_are_rounds_ends_the_job() -> None:
    life = at_plan(limits=JobLimits(max_rounds=1))
    life.rejects()
    life.goes_on()
    life.plans(a="")
    life.goes_on()
    life.rejects()

    assert life.goes_on() == [
        EndJob(JobStatus.FAILED, "the plan was rejected, and it cannot be made again")
    ]


def test_a_plan_that_code_has_made_cannot_be_made_again() -> None:
    life = job(PLAN, mode=Mode.SINGLE)
    life.rejects()

    assert life.goes_on() == [
        EndJob(JobStatus.FAILED, "the plan was rejected, and it cannot be made again")
    ]


def test_an_edited_plan_takes_the_place_of_the_planners() -> None:
    life = at_plan()
    life.approves(a_plan(x="", y="x"))
    life.goes_on()

    assert (life.out, list(life.state.steps)) == ({"x"}, ["x", "y"])


def test_a_rejected_answer_is_done_again_by_the_steps_that_make_it_with_the_note_as_feedback() -> (
    None
):
    life = at(ANSWER)
    life.rejects("Shorter.")
    life.goes_on()

    assert life.out == {"b"}
    (feedback,) = life.handoffs["b.2"].feedback
    assert (feedback.author, feedback.text, feedback.previous) == (
        "user",
        "Shorter.",
        life.result_of("b.1"),
    )
    done(life, "b")
    life.judges()
    life.goes_on()
    assert asked(life) is ANSWER


def test_steps_that_a_person_names_are_done_again_and_what_builds_on_them_is_brought_up_to_date() -> (
    None
):
    life = at(RESEARCH)
    life.rejects("Look at 2025.", "a")
    life.goes_on()
    assert life.out == {"a"}
    done(life, "a")

    assert (life.out, life.handoffs["a.2"].feedback[0].text) == ({"b"}, "Look at 2025.")
    assert life.handoffs["b.2"].feedback[0].text == BRING_UP_TO_DATE


@pytest.mark.parametrize("what", [RESEARCH, ANSWER])
def test_a_rejection_counts_as_a_round(what: ApprovalOf) -> None:
    life = at(what, limits=JobLimits(max_rounds=0))
    life.rejects()

    assert life.goes_on() == [
        EndJob(JobStatus.FAILED, f"the {what} was rejected, and it cannot be made again")
    ]


def test_a_review_cannot_send_back_in_the_round_that_a_person_has_used() -> None:
    life = at(RESEARCH, limits=JobLimits(max_rounds=1))
    life.rejects()
    life.goes_on()
    done(life, "b")
    life.approves()
    life.goes_on()
    life.judges(b="Still wrong.")
    life.goes_on()

    assert life.state.status is JobStatus.PARTIAL


def test_a_job_that_nobody_answers_goes_on_if_its_user_said_so() -> None:
    life = at_plan(timeout_s=60, on_timeout=OnTimeout.GO_ON)
    life.now += 60
    assert life.state.question is not None

    assert life.goes_on()[0] == ApproveBySilence(life.events(Approved)[0].asked)
    assert (life.events(Approved)[0].by, life.out) == ("timeout", {"a", "b"})
    assert life.state.deadline == BEGIN + 60 + 100


def test_or_stops_and_what_was_not_approved_does_not_leave() -> None:
    life = at(ANSWER, timeout_s=60)
    life.now += 60

    assert life.goes_on() == [
        EndJob(JobStatus.CANCELLED, "the answer was not approved within 60 s")
    ]
    assert life.state.is_withheld


def test_or_its_user_is_reminded_each_time_after_twice_as_long_and_it_waits_on() -> None:
    life = at_plan(timeout_s=60, on_timeout=OnTimeout.REMIND)
    reminded = []
    while life.state.ended is None:
        life.now = next_due(life.state, life.now, LEASE_S) or 0
        reminded += [
            life.now - BEGIN for command in life.goes_on() if isinstance(command, RemindUser)
        ]

    assert reminded[:4] == [60, 180, 420, 900]
    assert len(life.events(ApprovalReminded)) == len(reminded) < 20
    assert life.events(JobEnded)[0].reason == f"the plan was not approved within {MOST_WAIT_S} s"


def test_who_is_dear_is_asked_about_when_the_cost_has_passed_what_was_said() -> None:
    life = job(above_microusd=1_000)
    life.plans(a="", b="a")
    life.goes_on()
    life.finishes("a", usage=Usage(input_tokens=10, output_tokens=1, cost_microusd=1_001))

    assert life.goes_on() == [AskApproval(COST, "it has cost $0.001001, more than $0.001")]
    life.approves()
    life.goes_on()
    assert life.out == {"b"}
    life.finishes("b", usage=Usage(input_tokens=10, output_tokens=1, cost_microusd=5_000))
    life.goes_on()
    assert life.out == {"assessor"}, "once is enough"


def test_a_cost_that_is_not_approved_ends_the_job_with_what_it_has() -> None:
    life = job(above_microusd=1_000)
    life.plans(a="", b="a")
    life.goes_on()
    life.finishes("a", usage=Usage(input_tokens=10, output_tokens=1, cost_microusd=1_001))
    life.goes_on()
    life.rejects()
    life.goes_on()

    assert (life.state.status, life.why("b")) == (JobStatus.PARTIAL, "its cost was not approved")


@pytest.mark.parametrize(
    "late", [lambda asked: Approved(asked=asked), lambda asked: Rejected(asked=asked)]
)
def test_an_answer_to_a_question_that_does_not_stand_any_more_changes_nothing(late: Any) -> None:
    life = at_plan()
    assert life.state.question is not None
    question = life.state.question.version
    life.approves()
    before = life.state
    life.happens(late(question))

    assert life.state.model_copy(update={"version": before.version}) == before


def test_a_job_that_waits_can_be_cancelled() -> None:
    life = at_plan()
    life.happens(CancelRequested())
    life.goes_on()

    assert (life.state.status, life.state.question) == (JobStatus.CANCELLED, None)


def test_an_answer_that_the_time_or_the_budget_has_cut_short_is_asked_about_too() -> None:
    life = job(ANSWER)
    life.plans(a="", b="")
    life.goes_on()
    done(life, "a")
    life.now += 100
    life.goes_on()

    assert asked(life) is ANSWER
    life.rejects()
    assert life.goes_on() == [
        EndJob(JobStatus.FAILED, "the answer was rejected, and it cannot be made again")
    ]


def test_a_retried_job_asks_again_about_what_is_made_anew_and_keeps_its_plan() -> None:
    life = at(ANSWER, limits=JobLimits(max_rounds=0, on_limit=OnLimit.STOP))
    life.rejects()
    life.goes_on()
    life.happens(RetryRequested())
    life.goes_on()

    assert (life.state.rejected, life.out) == (None, {"assessor"})
    life.judges()
    life.goes_on()
    assert asked(life) is ANSWER
