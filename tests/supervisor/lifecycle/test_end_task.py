"""The host's task is sent at a job's end, again after a failed delivery, and after each retry."""

from __future__ import annotations

from handoff_queue.shared.types.events import EndTaskTried, RetryRequested
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.commands import DeliverWebhook, SendEndTask
from handoff_queue.supervisor.lifecycle.job_end import (
    WEBHOOK_BACKOFF_S,
    WEBHOOK_GIVEN_UP_AFTER_S,
    compute_next_due,
)
from tests.doubles.simulated_job import LEASE_S, SimulatedJob, finish_steps

URL = "https://example.org/hook"


def ended_job(webhook_url: str | None = None) -> SimulatedJob:
    """Return a job that has ended, with a task to send."""
    job = SimulatedJob(on_end=make_ref("a task"), webhook_url=webhook_url)
    job.advance()
    job.make_plan(a="")
    job.advance()
    finish_steps(job, "a")
    job.review()
    job.advance()
    return job


def record_attempt(job: SimulatedJob, attempt: int, *, delivered: bool) -> None:
    job.append(EndTaskTried(attempt=attempt, delivered=delivered, end=job.state.ended_version))


def test_the_task_is_sent_at_once_and_once() -> None:
    job = ended_job()

    assert job.effects == [SendEndTask(1)]
    assert job.next_commands() == ()
    record_attempt(job, 1, delivered=True)
    assert job.next_commands() == ()
    assert compute_next_due(job.state, job.now, LEASE_S) is None


def test_a_task_that_could_not_be_sent_is_tried_again_with_growing_pauses_and_then_left() -> None:
    job = ended_job()
    for attempt, pause_s in enumerate(WEBHOOK_BACKOFF_S[1:], start=1):
        record_attempt(job, attempt, delivered=False)
        assert compute_next_due(job.state, job.now, LEASE_S) == job.now + pause_s
        job.now += pause_s
        assert job.advance() == [SendEndTask(attempt + 1)]
    record_attempt(job, len(WEBHOOK_BACKOFF_S), delivered=False)

    assert compute_next_due(job.state, job.now, LEASE_S) is None


def test_an_attempt_of_a_dead_supervisor_is_repeated() -> None:
    job = ended_job()
    job.now += WEBHOOK_GIVEN_UP_AFTER_S

    assert job.advance() == [SendEndTask(2)]


def test_the_last_attempt_is_repeated_if_its_supervisor_died() -> None:
    job = ended_job()
    for attempt, pause_s in enumerate(WEBHOOK_BACKOFF_S[1:], start=1):
        record_attempt(job, attempt, delivered=False)
        job.now += pause_s
        job.advance()
    job.now += WEBHOOK_GIVEN_UP_AFTER_S

    assert job.advance() == [SendEndTask(len(WEBHOOK_BACKOFF_S) + 1)]


def test_a_webhook_and_a_task_do_not_wait_for_each_other() -> None:
    job = ended_job(URL)

    assert job.effects == [SendEndTask(1), DeliverWebhook(1)]
    record_attempt(job, 1, delivered=True)
    assert compute_next_due(job.state, job.now, LEASE_S) == job.now + WEBHOOK_GIVEN_UP_AFTER_S


def test_the_end_of_a_retry_is_sent_again_and_an_old_attempt_does_not_count() -> None:
    job = ended_job()
    before = job.state.ended_version
    job.append(RetryRequested(from_step=StepId("a")))
    job.append(EndTaskTried(attempt=1, delivered=True, end=before))
    job.advance()
    finish_steps(job, "a")
    job.review()
    job.advance()

    assert job.effects == [SendEndTask(1), SendEndTask(1)]
    assert job.state.ended_version != before
