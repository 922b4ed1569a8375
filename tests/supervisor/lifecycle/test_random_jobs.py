"""Every random job ends once and keeps its invariants, despite losses, duplicates and kills."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.types.events import (
    Approved,
    CancelRequested,
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    JobSubmitted,
    Rejected,
    RetryRequested,
    StepsTriedAgain,
    WebhookTried,
)
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.lifecycle.reduce import begin, evolve, fold
from handoff_queue.supervisor.lifecycle.state import JobState, Phase
from tests.doubles.handoffs import JOB
from tests.doubles.random_job import RandomJob
from tests.doubles.results import a_result_of
from tests.doubles.simulated_job import SimulatedJob
from tests.property_settings import draws


@draws(150)
@given(st.integers(0, 10**9))
def test_every_job_ends_once_and_keeps_its_invariants(seed: int) -> None:
    job = RandomJob(Random(seed))
    job.run()
    job.check_end()


@draws(80)
@given(st.integers(0, 10**9))
def test_a_step_that_was_ever_usable_never_ends_with_nothing(seed: int) -> None:
    job = RandomJob(Random(seed))
    job.run()
    if job.state.status is JobStatus.CANCELLED:  # cancelled during a revision
        return
    once_usable = {
        issued.step_id
        for issued in job.events(HandoffIssued)
        if issued.handoff_id in usable_handoffs(job)
    }
    ended = [job.state.steps[step] for step in once_usable if step in job.state.steps]
    assert all(step.is_usable or step.is_skipped for step in ended)


def usable_handoffs(job: RandomJob) -> set[HandoffId]:
    ends = job.events(HandoffFinished)
    return {end.handoff_id for end in ends if end.status in (ResultStatus.OK, ResultStatus.PARTIAL)}


@pytest.mark.slow
@draws(80)
@given(st.integers(0, 10**9))
def test_every_retry_of_a_random_job_ends_once(seed: int) -> None:
    job = RandomJob(Random(seed))
    for _ in range(3):
        job.run()
        job.check_end()
        from_step = job.dice.choice([None, *sorted(job.state.steps)])
        job.redo_steps |= {from_step} if from_step else set()
        job.append(
            RetryRequested(
                from_step=from_step,
                fills_gaps=job.dice.random() < 0.3,
                keeps_results=job.dice.random() < 0.7,
            )
        )
        job.runs += 1


@pytest.mark.slow
@draws(150)
@given(st.integers(0, 10**9))
def test_an_event_that_sends_back_an_ended_step_opens_the_review_and_the_answer(
    seed: int,
) -> None:
    """A retry of a failed step or of the job sends nothing back. A person may replace the plan of a
    job that works, or reject a step after the review.
    """
    job = RandomJob(Random(seed))
    job.run()
    state = begin(JobId(JOB), job.journal[0])
    for recorded in job.journal[1:]:
        before, state = state, evolve(state, recorded)
        if isinstance(recorded.event, StepsTriedAgain | RetryRequested):
            continue
        if runs_ended_step_again(before, state):
            assert (state.phase, state.synthesized) == (Phase.WORKING, None), recorded.event
            if not isinstance(recorded.event, Approved | Rejected):
                assert (state.review_over, state.sent_back_at) == (False, recorded.at)


def runs_ended_step_again(before: JobState, after: JobState) -> bool:
    ended = {step_id for step_id, step in before.steps.items() if step.is_settled}
    return any(not after.steps[step_id].is_settled for step_id in ended & after.steps.keys())


@draws(50)
@given(st.integers(0, 10**9))
def test_an_ended_job_ignores_late_events(seed: int) -> None:
    job = RandomJob(Random(seed))
    job.run()
    status, steps = job.state.status, job.state.steps
    late = [
        build_handoff_finished_event(a_result_of(HandoffId(f"{step}.9"), ResultStatus.OK), "")
        for step in sorted(steps)
    ]

    job.append(
        CancelRequested(),
        *late,
        WebhookTried(attempt=1, delivered=True, end=job.state.ended_version),
    )

    assert (job.state.status, job.state.steps) == (status, steps)
    assert job.next_commands() == ()


def test_a_journal_begins_with_its_submission() -> None:
    job = SimulatedJob()

    assert isinstance(job.journal[0].event, JobSubmitted)
    assert fold(JobId(JOB), None, []) is None
