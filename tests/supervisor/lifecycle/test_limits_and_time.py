"""Deadlines, caps, retries, webhooks, lost messages and lost processes."""

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
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.commands import (
    ChooseAnswer,
    EndJob,
    IssueGroup,
    IssueRole,
    SkipReview,
)
from handoff_queue.supervisor.lifecycle.decide import MOST_FRUITLESS
from handoff_queue.supervisor.lifecycle.handoffs import role_handoff
from handoff_queue.supervisor.lifecycle.state import LAST_CHANCE_S
from tests.doubles.handoffs import a_spec
from tests.doubles.life import BEGIN, Life, a_plan, done, planned
from tests.doubles.orders import given_up

# Time


def test_a_job_without_a_plan_at_its_deadline_has_failed() -> None:
    life = Life(JobLimits(max_seconds=100))
    life.goes_on()
    life.now = BEGIN + 100

    (end,) = life.goes_on()
    assert isinstance(end, EndJob)
    assert end.status is JobStatus.FAILED


def test_at_the_deadline_the_job_ends_with_what_it_has() -> None:
    life = planned(limits=JobLimits(max_seconds=100), a="", b="", c="a b")
    done(life, "a")
    life.now = BEGIN + 100

    why = "the job's 100 s are over"
    assert life.goes_on() == [
        given_up(why, "b", "c"),
        SkipReview(why),
        ChooseAnswer(AnswerMethod.MERGED),
        EndJob(JobStatus.PARTIAL),
    ]
    assert life.why("b") == why


def test_a_review_that_is_not_over_at_the_deadline_is_done_without() -> None:
    life = planned(limits=JobLimits(max_seconds=100), a="")
    done(life, "a")
    life.now = BEGIN + 100

    assert life.goes_on()[-1] == EndJob(JobStatus.PARTIAL)


def test_a_synthesis_that_is_not_over_at_the_deadline_is_done_by_code() -> None:
    life = planned(a_plan(Synthesis.RECONCILE, a="", b=""), limits=JobLimits(max_seconds=100))
    done(life, "a", "b")
    life.judges()
    life.goes_on()
    life.now = BEGIN + 100

    assert life.goes_on()[0] == ChooseAnswer(AnswerMethod.MERGED)


def test_in_the_last_moments_no_review_and_no_synthesis_is_begun() -> None:
    life = planned(a_plan(Synthesis.RECONCILE, a="", b=""))
    life.now = life.state.working_deadline + 1
    life.finishes("a")
    life.finishes("b")

    assert life.goes_on()[:2] == [
        SkipReview("no time was left for a review"),
        ChooseAnswer(AnswerMethod.MERGED),
    ]


@pytest.mark.parametrize(("seconds", "last_chance_s"), [(100, 5.0), (3_600, LAST_CHANCE_S)])
def test_handoffs_end_early_enough_for_an_answer(seconds: int, last_chance_s: float) -> None:
    life = planned(limits=JobLimits(max_seconds=seconds), a="")

    assert life.handoffs["a.1"].limits.deadline == BEGIN + seconds - last_chance_s


@pytest.mark.parametrize(("seconds", "before_s"), [(100, 1.0), (3_600, 6.0)])
def test_a_role_ends_early_enough_to_hand_in_the_draft_that_it_was_cut_at(
    seconds: int, before_s: float
) -> None:
    state, spec = planned(limits=JobLimits(max_seconds=seconds), a="").state, a_spec()
    handoff = role_handoff(
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


# Caps


def test_more_handoffs_than_the_job_may_have_are_not_issued() -> None:
    life = planned(limits=JobLimits(max_handoffs=3), a="", b="", c="a b")
    done(life, "a", "b")

    assert life.why("c") == "the job's limit of 3 handoffs is reached"
    assert life.out == {"assessor"}


def test_of_several_ready_steps_as_many_run_as_the_limit_of_handoffs_allows() -> None:
    life = planned(limits=JobLimits(max_handoffs=3), a="", b="", c="", d="")

    assert life.out == {"a", "b"}
    assert {life.why(name) for name in "cd"} == {"the job's limit of 3 handoffs is reached"}


def test_the_users_cap_on_turns_holds_for_every_specialist() -> None:
    life = planned(limits=JobLimits(max_turns_per_handoff=2), a="")

    assert life.handoffs["a.1"].limits.max_turns == 2


def test_a_job_ends_when_nothing_follows_from_what_its_roles_say() -> None:
    """Each of their results is paid for."""
    life = planned(a="")
    done(life, "a")
    for _ in range(MOST_FRUITLESS):
        assert life.out == {"assessor"}
        life.finishes("assessor", "failed")
        life.goes_on()

    assert life.state.status is JobStatus.FAILED
    assert life.state.ended is not None
    assert "an internal error" in (life.state.ended.reason or "")


def test_results_that_something_followed_from_do_not_count_against_those_that_come() -> None:
    life = planned(a="")
    for _ in range(MOST_FRUITLESS - 1):
        done(life, "a")
        life.finishes("assessor", "failed")
        life.goes_on()
        life.judges(a="wrong")
        life.goes_on()

    assert life.out == {"a"}


# Retry


def ended(life: Life) -> Life:
    while not life.state.ended:
        for name in sorted(life.out - {"planner", "assessor"}):
            life.finishes(name, "failed" if name == "b" else "ok")
        life.goes_on()
        if "assessor" in life.out:
            life.judges()
            life.goes_on()
    return life


def test_a_retry_does_again_what_did_not_succeed_and_what_builds_on_it() -> None:
    life = ended(planned(a="", b="", c="a", d="b c"))
    life.happens(RetryRequested())

    assert life.state.status is JobStatus.RUNNING
    assert [command.steps for command in life.goes_on() if isinstance(command, IssueGroup)] == [
        ("b",)
    ]
    done(life, "b")
    assert life.out == {"d"}


def test_a_retry_from_a_step_does_it_and_what_builds_on_it_again() -> None:
    life = ended(planned(a="", c="a", d="c"))
    life.happens(RetryRequested(from_step=StepId("c")))
    life.goes_on()

    assert life.out == {"c"}
    assert life.handoffs["c.2"].feedback[-1].author == "user"


def test_a_retry_after_a_cancel_goes_on_with_what_was_running_then() -> None:
    life = planned(a="", b="a", c="")
    done(life, "a")
    life.happens(CancelRequested())
    life.goes_on()
    life.happens(RetryRequested(from_step=StepId("c")))
    life.goes_on()

    assert life.out == {"b", "c"}
    assert life.state.cancelled_by is None


def test_a_retry_of_a_job_that_was_never_planned_plans_it() -> None:
    life = Life()
    life.goes_on()
    life.happens(CancelRequested())
    life.goes_on()
    life.happens(RetryRequested())

    assert life.goes_on() == [IssueRole("planner", 2)]


def test_a_retry_has_the_jobs_whole_time_and_rounds_again() -> None:
    life = planned(limits=JobLimits(max_seconds=100, max_rounds=1), a="")
    for _ in range(2):
        done(life, "a")
        life.judges(a="wrong")
        life.goes_on()
    assert life.state.status is JobStatus.PARTIAL
    life.now += 1_000
    life.happens(RetryRequested(from_step=StepId("a")))
    life.goes_on()
    done(life, "a")
    life.judges(a="still wrong")
    life.goes_on()

    assert life.out == {"a"}
    assert life.state.deadline == life.now + 100


def test_a_retry_of_a_running_job_changes_nothing() -> None:
    life = planned(a="")
    life.happens(RetryRequested())

    assert life.decides() == ()
    assert life.out == {"a"}


def test_a_cancel_of_an_ended_job_changes_nothing() -> None:
    life = ended(planned(a=""))
    life.happens(CancelRequested())

    assert (life.state.status, life.decides()) == (JobStatus.OK, ())
