"""The time until which the calls of a step or a role go through batches."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import FACT_GATE, PLANNING_ROLES, ROLES
from handoff_queue.supervisor.lifecycle.handoffs import (
    LIVE_STEP_S,
    build_role_handoff,
    compute_role_batch_end,
)
from tests.doubles.handoffs import a_spec
from tests.doubles.simulated_job import SimulatedJob, planned

HOURS_6 = 6 * 3_600


def batched(seconds: int = HOURS_6, **steps: str) -> SimulatedJob:
    job = SimulatedJob(JobLimits(max_seconds=seconds), is_batched=True)
    job.advance()
    job.make_plan(None, **steps)
    job.advance()
    return job


def kept_s(job: SimulatedJob, handoff_id: str) -> float:
    """Return the seconds that are kept for live calls when this handoff is issued."""
    until = job.handoffs[handoff_id].batch_until
    assert until is not None
    return job.state.working_deadline - until


def test_calls_of_a_job_without_a_deadline_are_live() -> None:
    assert planned(a="").handoffs["a.1"].batch_until is None


def test_a_step_keeps_time_for_its_live_calls_and_for_the_end_of_the_job() -> None:
    assert kept_s(batched(a=""), "a.1") == 2 * LIVE_STEP_S


def test_a_step_keeps_time_for_the_longest_chain_of_steps_after_it() -> None:
    job = batched(a="", b="a", c="b", d="a", e="")
    assert kept_s(job, "a.1") == (2 + 2) * LIVE_STEP_S
    assert kept_s(job, "e.1") == 2 * LIVE_STEP_S


@pytest.mark.parametrize("seconds", [60, 900])
def test_batches_have_at_least_half_of_a_short_time(seconds: int) -> None:
    assert kept_s(batched(seconds, a="", b="a"), "a.1") == seconds / 2


def role_kept_s(job: SimulatedJob, role: str) -> float:
    """Return the seconds that are kept for live calls when this role gets a handoff."""
    spec = a_spec(name=role)
    handoff = build_role_handoff(
        job.state,
        spec,
        spec.content_digest,
        1,
        task="Put it together.",
        about=(),
        schema={"type": "string"},
    )
    assert handoff.batch_until is not None
    return job.state.working_deadline - handoff.batch_until


@pytest.mark.parametrize("role", [*ROLES, FACT_GATE])
def test_calls_of_roles_of_a_job_without_a_deadline_are_live(role: str) -> None:
    assert compute_role_batch_end(planned(a="").state, role) is None


@pytest.mark.parametrize("role", PLANNING_ROLES)
def test_planning_roles_leave_most_of_the_slack_to_the_steps(role: str) -> None:
    state = batched(a="", b="a").state
    slack_s = state.working_deadline - (2 + 1 + 2) * LIVE_STEP_S - state.as_of
    assert compute_role_batch_end(state, role) == state.as_of + slack_s / 4


def test_a_planning_role_has_no_batches_after_the_slack() -> None:
    job = batched(600, a="")
    job.now += 400
    job.finish("a")
    until = compute_role_batch_end(job.state, "replanner")
    assert until is not None
    assert until < job.now


@pytest.mark.parametrize("role", ["judge", FACT_GATE])
def test_the_judge_and_the_fact_checker_keep_time_to_repeat_steps_and_their_review(
    role: str,
) -> None:
    state = batched(a="", b="a").state
    until = compute_role_batch_end(state, role)
    assert until is not None
    assert state.working_deadline - until == (2 + 1 + 2) * LIVE_STEP_S


def test_the_synthesizer_keeps_time_for_its_live_call_and_for_the_end_of_the_job() -> None:
    assert role_kept_s(batched(a="", b="a"), "synthesizer") == 2 * LIVE_STEP_S


def test_the_assessor_keeps_time_to_repeat_the_longest_chain_and_the_review() -> None:
    job = batched(a="", b="a", c="b", e="")
    assert role_kept_s(job, "assessor") == (2 + 3 + 1) * LIVE_STEP_S


def test_the_assessor_of_the_last_round_keeps_no_time_for_steps() -> None:
    job = SimulatedJob(JobLimits(max_seconds=HOURS_6, max_rounds=0), is_batched=True)
    assert role_kept_s(job, "assessor") == 2 * LIVE_STEP_S
