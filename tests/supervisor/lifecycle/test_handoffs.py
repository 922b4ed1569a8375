"""The time until which the calls of a step go through batches."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.lifecycle.handoffs import LIVE_STEP_S, role_handoff
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


def role_kept_s(job: SimulatedJob, role: str) -> float | None:
    """Return the seconds that are kept for live calls when this role gets a handoff. None: all its
    calls are live.
    """
    spec = a_spec(name=role)
    handoff = role_handoff(
        job.state,
        spec,
        spec.content_digest,
        1,
        task="Put it together.",
        about=(),
        schema={"type": "string"},
    )
    if handoff.batch_until is None:
        return None
    return job.state.working_deadline - handoff.batch_until


@pytest.mark.parametrize("role", ["router", "planner", "replanner", "judge"])
def test_calls_of_roles_that_steps_wait_for_are_live(role: str) -> None:
    assert role_kept_s(batched(a=""), role) is None


@pytest.mark.parametrize("role", ["assessor", "synthesizer"])
def test_calls_of_closing_roles_of_a_job_without_a_deadline_are_live(role: str) -> None:
    assert role_kept_s(planned(a=""), role) is None


def test_the_synthesizer_keeps_time_for_its_live_call_and_for_the_end_of_the_job() -> None:
    assert role_kept_s(batched(a="", b="a"), "synthesizer") == 2 * LIVE_STEP_S


def test_the_assessor_keeps_time_to_repeat_the_longest_chain_and_the_review() -> None:
    job = batched(a="", b="a", c="b", e="")
    assert role_kept_s(job, "assessor") == (2 + 3 + 1) * LIVE_STEP_S


def test_the_assessor_of_the_last_round_keeps_no_time_for_steps() -> None:
    job = SimulatedJob(JobLimits(max_seconds=HOURS_6, max_rounds=0), is_batched=True)
    assert role_kept_s(job, "assessor") == 2 * LIVE_STEP_S
