"""A job that its budget ended continues only with a larger budget."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import HandoffIssued, RetryRequested
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, derive_child_id
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.job_budget import list_limits_to_raise
from handoff_queue.supervisor.lifecycle.job_retry import build_retry
from tests.doubles.handoffs import JOB
from tests.doubles.simulated_job import SimulatedJob, planned

USAGE = {"max_turns": 12, "max_tokens": 1_000, "max_microusd": 80_000}


def ended_job(*stops: StopReason, on_limit: OnLimit = OnLimit.WRAP_UP) -> SimulatedJob:
    """Return an ended job with one partial step for each stop reason."""
    limits = JobLimits(max_turns=12, max_microusd=100_000, on_limit=on_limit)
    job = planned(limits=limits, **{f"s{n}": "" for n, _ in enumerate(stops)})
    for n, reason in enumerate(stops):
        job.finish(f"s{n}", "partial", stop_reason=reason)
    job.advance()
    if job.open_names == {"assessor"}:
        job.review()
        job.advance()
    assert job.state.ended
    return job


@pytest.mark.parametrize(
    "new", [NewLimits(max_microusd=900_000), NewLimits(max_tokens=2_000), NewLimits(max_turns=300)]
)
def test_a_retry_that_does_not_raise_the_spent_limit_is_refused(new: NewLimits) -> None:
    limits = JobLimits(on_limit=OnLimit.ASK, max_turns=200, max_tokens=3_000)
    job = planned(limits=limits, a="")
    job.finish("a", "failed", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    usage = {"max_turns": 1, "max_tokens": 1_000, "max_microusd": 0}

    with pytest.raises(UserError, match=r"1000 tokens of 3000 tokens\): raise max_tokens$"):
        build_retry(job.state, usage, None, new)
    assert list_limits_to_raise(job.state) == ["max_tokens"]
    assert build_retry(job.state, usage, None, NewLimits(max_tokens=3_001)).max_tokens == 3_001


def test_a_retry_without_a_larger_budget_is_refused_with_the_spent_amount() -> None:
    with pytest.raises(
        UserError,
        match=r"12 turns of 12 turns, \$0.08 of \$0.1\): raise max_turns",
    ):
        build_retry(ended_job(StopReason.JOB_BUDGET).state, USAGE, None, NewLimits())


def test_without_a_larger_budget_a_retry_is_refused_even_if_the_days_budget_ended_it() -> None:
    with pytest.raises(UserError, match="raise max_turns"):
        build_retry(
            ended_job(StopReason.DAY_BUDGET, StopReason.JOB_BUDGET).state, USAGE, None, NewLimits()
        )


def test_a_limit_that_is_spent_already_is_refused() -> None:
    with pytest.raises(UserError, match="has used 12 turns already"):
        build_retry(ended_job(StopReason.JOB_BUDGET).state, USAGE, None, NewLimits(max_turns=12))


def test_with_a_larger_budget_the_job_has_the_new_limit_and_keeps_the_others() -> None:
    job = ended_job(StopReason.JOB_BUDGET)
    job.append(build_retry(job.state, USAGE, None, NewLimits(max_turns=24)))

    assert (job.state.submitted.limits.max_turns, job.state.submitted.limits.max_microusd) == (
        24,
        100_000,
    )


def test_a_second_retry_names_the_limits_of_the_first() -> None:
    job = ended_job(StopReason.JOB_BUDGET)
    job.append(RetryRequested(max_turns=24))
    job.advance()
    job.finish("s0", "partial", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    job.review()
    job.advance()

    with pytest.raises(UserError, match=r"24 turns of 24 turns"):
        build_retry(job.state, USAGE | {"max_turns": 24}, None, NewLimits())


@pytest.mark.parametrize("reason", [StopReason.DAY_BUDGET, StopReason.MAX_TURNS])
def test_a_job_that_ended_for_another_reason_is_retried_with_its_limits(reason: StopReason) -> None:
    assert build_retry(ended_job(reason).state, USAGE, None, NewLimits()) == RetryRequested(
        fills_gaps=True, keeps_results=True
    )


def test_a_job_that_ended_for_another_reason_needs_no_larger_budget() -> None:
    job = ended_job(StopReason.JOB_BUDGET)
    job.append(RetryRequested(max_turns=24))
    job.advance()
    job.finish("s0", "partial", stop_reason=StopReason.MAX_TURNS)
    job.advance()
    job.review()
    job.advance()

    assert job.state.ended
    assert build_retry(job.state, USAGE, None, NewLimits()) == RetryRequested(
        fills_gaps=True, keeps_results=True
    )


def job_with_cut_team(status: str = "failed") -> SimulatedJob:
    """Return an ended job whose team exceeded its share. No other specialist could take its
    step.
    """
    step, other = (
        Step(id=StepId(name), specialist=specialist, task="Look.")
        for name, specialist in (("t", "supervisor"), ("a", "researcher"))
    )
    job = planned(Plan(steps=(step, other)))
    job.children[derive_child_id(JobId(JOB), HandoffId("t.1"))] = planned(a="").journal
    job.finish("t", status, stop_reason=StopReason.MAX_USD)
    job.finish("a", "failed")
    job.advance()
    if job.open_names == {"assessor"}:
        job.review()
        job.advance()
    assert job.state.ended
    return job


@pytest.mark.parametrize(
    ("status", "from_step"), [("failed", None), ("failed", "t"), ("partial", "t")]
)
def test_a_team_stopped_by_its_share_is_not_retried_with_the_same_share(
    status: str, from_step: str | None
) -> None:
    state = job_with_cut_team(status).state

    with pytest.raises(
        UserError,
        match=r"leaves a child job of t too small a share: raise max_turns or",
    ):
        build_retry(state, USAGE, from_step, NewLimits())
    assert (
        build_retry(state, USAGE, from_step, NewLimits(max_microusd=900_000)).max_microusd
        == 900_000
    )
    assert build_retry(state, USAGE, "a", NewLimits()).from_step == "a"


def test_a_team_that_exceeded_its_share_may_fill_its_gaps_with_a_larger_share() -> None:
    job = job_with_cut_team("partial")
    job.append(build_retry(job.state, USAGE, None, NewLimits()))
    job.advance()

    first, second = (event.child for event in job.events(HandoffIssued) if event.child)
    assert first.job_id == second.job_id
    assert second.limits.max_turns == first.limits.max_turns


def test_a_successful_job_is_retried_only_for_a_named_step() -> None:
    job = planned(a="", b="a")
    for step in ("a", "b"):
        job.finish(step)
        job.advance()
    job.review()
    job.advance()

    for limits in (NewLimits(), NewLimits(max_turns=24)):
        with pytest.raises(
            UserError,
            match=(r"is complete: from_step runs a part again \(its steps are a, b\)"),
        ):
            build_retry(job.state, USAGE, None, limits)
    assert build_retry(job.state, USAGE, "b", NewLimits()).from_step == StepId("b")


def test_a_running_job_cannot_be_retried() -> None:
    with pytest.raises(UserError, match=r"has not ended yet: wait for its end, or cancel it"):
        build_retry(planned(a="").state, USAGE, None, NewLimits())


def test_an_unknown_step_is_refused_with_the_list_of_known_steps() -> None:
    job = ended_job(StopReason.FINISHED, StopReason.FINISHED)

    with pytest.raises(UserError, match="has no step nowhere: its steps are s0, s1"):
        build_retry(job.state, USAGE, "nowhere", NewLimits())
    assert build_retry(job.state, USAGE, "s1", NewLimits()).from_step == StepId("s1")
