"""A job that its budget has ended continues only with a larger budget."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import HandoffIssued, RetryRequested
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, child_id_for
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.shared.types.plan import Plan, Step
from handoff_queue.supervisor.lifecycle.retry_rules import retry_of
from tests.doubles.handoffs import JOB
from tests.doubles.simulated_job import SimulatedJob, planned

USED = {"max_turns": 12, "max_tokens": 1_000, "max_microusd": 80_000}


def ended(*stops: StopReason, on_limit: OnLimit = OnLimit.WRAP_UP) -> SimulatedJob:
    """One step for each reason to stop, then the end."""
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


def test_a_retry_without_a_larger_budget_is_refused_with_the_spent_amount() -> None:
    with pytest.raises(
        UserError,
        match=r"12 turns of 12 turns, \$0.08 of \$0.1\): raise it with --max-job-turns N or --max-usd X",
    ):
        retry_of(ended(StopReason.JOB_BUDGET).state, USED, None, NewLimits())


def test_without_a_larger_budget_a_retry_is_refused_even_if_the_days_budget_ended_it() -> None:
    with pytest.raises(UserError, match="raise it with"):
        retry_of(ended(StopReason.DAY_BUDGET, StopReason.JOB_BUDGET).state, USED, None, NewLimits())


def test_a_limit_that_is_spent_already_is_refused() -> None:
    with pytest.raises(UserError, match="has used 12 turns already"):
        retry_of(ended(StopReason.JOB_BUDGET).state, USED, None, NewLimits(max_turns=12))


def test_with_a_larger_budget_the_job_has_the_new_limit_and_keeps_the_others() -> None:
    job = ended(StopReason.JOB_BUDGET)
    job.append(retry_of(job.state, USED, None, NewLimits(max_turns=24)))

    assert (job.state.submitted.limits.max_turns, job.state.submitted.limits.max_microusd) == (
        24,
        100_000,
    )


def test_a_second_retry_names_the_limits_of_the_first() -> None:
    job = ended(StopReason.JOB_BUDGET)
    job.append(RetryRequested(max_turns=24))
    job.advance()
    job.finish("s0", "partial", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    job.review()
    job.advance()

    with pytest.raises(UserError, match=r"24 turns of 24 turns"):
        retry_of(job.state, USED | {"max_turns": 24}, None, NewLimits())


@pytest.mark.parametrize("reason", [StopReason.DAY_BUDGET, StopReason.MAX_TURNS])
def test_a_job_that_ended_for_another_reason_needs_no_more(reason: StopReason) -> None:
    assert retry_of(ended(reason).state, USED, None, NewLimits()) == RetryRequested(
        whole=True, holds=True
    )


def test_a_job_that_ended_for_another_reason_needs_no_larger_budget() -> None:
    job = ended(StopReason.JOB_BUDGET)
    job.append(RetryRequested(max_turns=24))
    job.advance()
    job.finish("s0", "partial", stop_reason=StopReason.MAX_TURNS)
    job.advance()
    job.review()
    job.advance()

    assert job.state.ended
    assert retry_of(job.state, USED, None, NewLimits()) == RetryRequested(whole=True, holds=True)


def a_team_cut_short(status: str = "failed") -> SimulatedJob:
    """Return a job whose team ran out of its share. No other specialist could do the step."""
    step, other = (
        Step(id=StepId(name), specialist=who, task="Look.")
        for name, who in (("t", "supervisor"), ("a", "researcher"))
    )
    job = planned(Plan(steps=(step, other)))
    job.children[child_id_for(JobId(JOB), HandoffId("t.1"))] = planned(a="").journal
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
def test_a_team_that_its_slice_has_cut_short_is_not_paid_for_again_with_the_same_slice(
    status: str, from_step: str | None
) -> None:
    state = a_team_cut_short(status).state

    with pytest.raises(
        UserError,
        match="too small a share for the team of t: raise it with --max-job-turns N or --max-usd X",
    ):
        retry_of(state, USED, from_step, NewLimits())
    assert retry_of(state, USED, from_step, NewLimits(max_microusd=900_000)).max_microusd == 900_000
    assert retry_of(state, USED, "a", NewLimits()).from_step == "a"


def test_a_team_that_exceeded_its_share_may_fill_its_gaps_with_a_larger_share() -> None:
    job = a_team_cut_short("partial")
    job.append(retry_of(job.state, USED, None, NewLimits()))
    job.advance()

    first, second = (event.child for event in job.events(HandoffIssued) if event.child)
    assert first.job_id == second.job_id
    assert second.limits.max_turns == first.limits.max_turns


def test_a_job_that_is_ok_is_not_paid_for_again_but_for_a_part_that_is_named() -> None:
    job = planned(a="", b="a")
    for step in ("a", "b"):
        job.finish(step)
        job.advance()
    job.review()
    job.advance()

    for limits in (NewLimits(), NewLimits(max_turns=24)):
        with pytest.raises(
            UserError,
            match=r"is complete: --from STEP runs a part again \(its steps are a, b\)",
        ):
            retry_of(job.state, USED, None, limits)
    assert retry_of(job.state, USED, "b", NewLimits()).from_step == StepId("b")


def test_a_job_that_works_is_no_job_to_retry() -> None:
    with pytest.raises(UserError, match="has not ended yet: cancel it first, or wait"):
        retry_of(planned(a="").state, USED, None, NewLimits())


def test_an_unknown_step_is_refused_with_the_list_of_known_steps() -> None:
    job = ended(StopReason.FINISHED, StopReason.FINISHED)

    with pytest.raises(UserError, match="has no step nowhere: its steps are s0, s1"):
        retry_of(job.state, USED, "nowhere", NewLimits())
    assert retry_of(job.state, USED, "s1", NewLimits()).from_step == StepId("s1")
