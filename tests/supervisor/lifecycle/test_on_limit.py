"""A job whose budget is spent stops, wraps up or asks, as its policy says."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import (
    AnswerMethod,
    HandoffFinished,
    JobStatus,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import NOTHING_USED
from handoff_queue.supervisor.lifecycle.commands import AskUser, ChooseAnswer, EndJob, SkipReview
from handoff_queue.supervisor.lifecycle.job_budget import (
    explain_budget_decision,
    explain_spent_budget,
    find_spent_limits,
    list_closing_roles,
    reserve_for_closing_roles,
)
from tests.doubles.lifecycle_commands import given_up
from tests.doubles.simulated_job import BEGIN, SimulatedJob, a_plan, finish_steps, planned

SPENT_NOTE = "the job's budget is spent"
MAX_USD = 1_000_000


def job_with_spent_budget(
    on_limit: OnLimit, reason: StopReason = StopReason.JOB_BUDGET
) -> SimulatedJob:
    """Return a job whose step a was cut by its budget. b runs, and c waits for both."""
    job = planned(
        limits=JobLimits(on_limit=on_limit, max_turns=10, max_seconds=100), a="", b="", c="a b"
    )
    job.finish("a", "partial", stop_reason=reason)
    return job


def test_stop_ends_the_job_at_once_with_its_results_and_asks_no_role() -> None:
    job = job_with_spent_budget(OnLimit.STOP)

    assert job.advance() == [
        given_up(SPENT_NOTE, "b", "c"),
        SkipReview(SPENT_NOTE),
        ChooseAnswer(AnswerMethod.MERGED),
        EndJob(JobStatus.PARTIAL, SPENT_NOTE),
    ]
    assert job.open_names == set()


def test_wrap_up_begins_nothing_new_and_lets_running_handoffs_finish() -> None:
    job = job_with_spent_budget(OnLimit.WRAP_UP)

    assert job.advance() == [given_up(SPENT_NOTE, "c")]
    assert job.open_names == {"b"}
    finish_steps(job, "b")
    assert job.open_names == {"assessor"}
    job.review()
    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL, SPENT_NOTE)
    assert (job.failure_reason("c"), job.step("a").is_usable) == (SPENT_NOTE, True)


def test_wrap_up_does_not_repeat_steps_that_the_review_sends_back() -> None:
    job = job_with_spent_budget(OnLimit.WRAP_UP)
    job.advance()
    finish_steps(job, "b")
    job.review(a="Not enough.")

    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL, SPENT_NOTE)


def test_a_day_that_is_spent_ends_the_job_with_that_reason() -> None:
    job = job_with_spent_budget(OnLimit.STOP, StopReason.DAY_BUDGET)

    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL, "the budget of the day is spent")


@pytest.mark.parametrize("on_limit", [OnLimit.STOP, OnLimit.WRAP_UP])
def test_a_job_that_has_nothing_when_its_budget_is_spent_has_failed_with_that_reason(
    on_limit: OnLimit,
) -> None:
    job = planned(limits=JobLimits(on_limit=on_limit), a="", b="a")
    job.finish("a", "failed", stop_reason=StopReason.JOB_BUDGET)

    assert job.advance()[-1] == EndJob(
        JobStatus.FAILED, f"{SPENT_NOTE}, and no step has a usable result"
    )


def test_a_budget_that_no_call_has_used_is_too_small_and_not_spent() -> None:
    job = job_with_spent_budget(OnLimit.STOP)
    unused = job.state.model_copy(update={"usage": NOTHING_USED})

    assert explain_spent_budget(unused) == (
        "the job's budget (10 turns) is too small for its first call: raise it"
    )


@pytest.mark.parametrize(
    ("turns", "on_limit", "names"),
    [
        (0, OnLimit.ASK, "max_tokens"),
        (10, OnLimit.ASK, "max_turns max_tokens"),
        (5, OnLimit.WRAP_UP, "max_tokens"),
        (6, OnLimit.WRAP_UP, "max_turns max_tokens"),
    ],
)
def test_a_limit_is_spent_if_it_can_have_refused_the_call(
    turns: int, on_limit: OnLimit, names: str
) -> None:
    """A job that wraps up keeps at most four of its ten turns for the roles that end it."""
    limits = JobLimits(on_limit=on_limit, max_turns=10, max_tokens=3_000)
    used = {"max_turns": turns, "max_tokens": 0, "max_microusd": 0}

    spent = find_spent_limits(limits, used)

    assert " ".join(measure.limit for measure in spent) == names


def test_ask_waits_for_a_decision_and_reports_the_wait_once() -> None:
    job = job_with_spent_budget(OnLimit.ASK)

    assert job.advance() == [AskUser(SPENT_NOTE)]
    assert explain_budget_decision(job.state) == SPENT_NOTE
    finish_steps(job, "b")
    assert job.open_names == set()
    assert job.next_commands() == ()


def test_a_larger_budget_continues_the_job_from_its_state() -> None:
    job = job_with_spent_budget(OnLimit.ASK)
    job.advance()
    before = job.result_of("a.1")
    job.append(RetryRequested(max_turns=20))
    job.advance()

    assert (job.open_names, job.state.submitted.limits.max_turns) == ({"a", "b"}, 20)
    assert job.handoffs["a.2"].feedback[0].previous == before, "its work so far is not lost"
    assert explain_budget_decision(job.state) == ""
    finish_steps(job, "a", "b")
    assert job.open_names == {"c"}


def test_a_role_whose_call_did_not_fit_is_asked_again_with_more_budget() -> None:
    job = planned(limits=JobLimits(on_limit=OnLimit.ASK), a="")
    finish_steps(job, "a")
    job.finish("assessor", "failed", stop_reason=StopReason.JOB_BUDGET)
    assert job.advance() == [AskUser(SPENT_NOTE)]

    job.append(RetryRequested(max_turns=20))
    job.advance()

    assert job.open_names == {"assessor"}


def test_a_user_who_does_not_answer_gets_the_results_at_the_deadline() -> None:
    job = job_with_spent_budget(OnLimit.ASK)
    job.advance()
    job.now = BEGIN + 100

    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL, SPENT_NOTE)


@pytest.mark.parametrize(
    ("synthesis", "limits", "kept"),
    [
        (Synthesis.MERGE, JobLimits(max_turns=10), {"keep_turns": 1}),
        (Synthesis.RECONCILE, JobLimits(max_turns=10), {"keep_turns": 2}),
        (
            Synthesis.RECONCILE,
            JobLimits(max_turns=3, max_microusd=MAX_USD),
            {"keep_turns": 1, "keep_usd": MAX_USD // 5},
        ),
        (Synthesis.MERGE, JobLimits(max_turns=2), {}),
        (Synthesis.MERGE, JobLimits(max_turns=10, on_limit=OnLimit.STOP), {}),
    ],
)
def test_the_reserve_covers_the_closing_roles(
    synthesis: Synthesis, limits: JobLimits, kept: dict[str, int]
) -> None:
    assert (
        reserve_for_closing_roles(planned(a_plan(synthesis, a="", b=""), limits=limits).state, ())
        == kept
    )


@pytest.mark.parametrize(
    ("foreseen", "kept"),
    [
        ([WorstCase(1_000, 100, 10_000)], {"keep_tokens": 20_000, "keep_usd": MAX_USD // 5}),
        ([WorstCase(20_000, 8_000, 250_000)], {"keep_tokens": 28_000, "keep_usd": 250_000}),
        (
            [WorstCase(20_000, 8_000, 250_000), WorstCase(9_000, 8_000, 150_000)],
            {"keep_tokens": 45_000, "keep_usd": 400_000},
        ),
        ([WorstCase(90_000, 8_000, 700_000)], {"keep_tokens": 50_000, "keep_usd": MAX_USD // 2}),
        ([WorstCase(20_000, 8_000, None)], {"keep_tokens": 28_000, "keep_usd": MAX_USD // 5}),
    ],
)
def test_the_reserve_is_a_fifth_or_the_cost_of_the_closing_calls_and_at_most_half(
    foreseen: list[WorstCase], kept: dict[str, int]
) -> None:
    job = planned(
        limits=JobLimits(max_turns=None, max_tokens=100_000, max_microusd=MAX_USD), a="", b=""
    )

    assert reserve_for_closing_roles(job.state, foreseen) == kept


def test_a_job_without_closing_roles_keeps_no_reserve() -> None:
    state = planned(limits=JobLimits(max_microusd=MAX_USD), a="").state
    assert list_closing_roles(state) == ("assessor",)
    alone = state.model_copy(
        update={"plan": state.plan and state.plan.model_copy(update={"is_reviewed": False})}
    )

    assert (list_closing_roles(alone), reserve_for_closing_roles(alone, ())) == ((), {})


def test_results_that_ended_for_another_reason_do_not_count_as_spent_budget() -> None:
    job = planned(limits=JobLimits(on_limit=OnLimit.STOP), a="", b="")
    job.finish("a", "partial", stop_reason=StopReason.MAX_TURNS)
    job.advance()

    assert job.open_names == {"b"}
    assert [event.status for event in job.events(HandoffFinished)][-1] is ResultStatus.PARTIAL
