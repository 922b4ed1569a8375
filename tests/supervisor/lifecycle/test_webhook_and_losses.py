"""A job retries its webhook, and recovers from lost messages and lost processes."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import WebhookTried
from handoff_queue.supervisor.lifecycle.commands import (
    DeliverWebhook,
)
from handoff_queue.supervisor.lifecycle.job_end import (
    WEBHOOK_BACKOFF_S,
    WEBHOOK_GIVEN_UP_AFTER_S,
    compute_next_due,
)
from handoff_queue.supervisor.lifecycle.observations import ObservedHandoff
from tests.doubles.lifecycle_commands import again, run
from tests.doubles.simulated_job import BEGIN, LEASE_S, SimulatedJob, finish_steps, planned

# Webhook


def job_with_webhook() -> SimulatedJob:
    job = SimulatedJob(webhook_url="https://example.org/hook")
    job.advance()
    job.make_plan(a="")
    job.advance()
    return job


def test_the_webhook_gets_the_end_at_once_and_once() -> None:
    job = job_with_webhook()
    finish_steps(job, "a")
    job.review()

    assert job.advance()[-1] == DeliverWebhook(1)
    assert job.next_commands() == ()
    job.append(WebhookTried(attempt=1, delivered=True, end=job.state.ended_version))
    assert job.next_commands() == ()
    assert compute_next_due(job.state, job.now, LEASE_S) is None


def test_a_webhook_that_fails_is_tried_again_with_growing_pauses_and_then_left() -> None:
    job = job_with_webhook()
    finish_steps(job, "a")
    job.review()
    job.advance()
    for attempt, pause_s in enumerate(WEBHOOK_BACKOFF_S[1:], start=1):
        job.append(WebhookTried(attempt=attempt, delivered=False, end=job.state.ended_version))
        assert compute_next_due(job.state, job.now, LEASE_S) == job.now + pause_s
        job.now += pause_s - 0.1
        assert job.next_commands() == ()
        job.now += 0.1
        assert job.advance() == [DeliverWebhook(attempt + 1)]
    job.append(
        WebhookTried(attempt=len(WEBHOOK_BACKOFF_S), delivered=False, end=job.state.ended_version)
    )

    assert compute_next_due(job.state, job.now, LEASE_S) is None


def test_a_webhook_attempt_of_a_dead_supervisor_is_repeated() -> None:
    job = job_with_webhook()
    finish_steps(job, "a")
    job.review()
    job.advance()
    job.now += WEBHOOK_GIVEN_UP_AFTER_S

    assert job.advance() == [DeliverWebhook(2)]


# Lost messages and processes


def test_a_lost_message_and_a_message_of_a_dead_worker_are_published_again() -> None:
    job = planned(a="", b="", c="")
    observations = job.observations(
        a_1=ObservedHandoff("issued", lost=True),
        b_1=ObservedHandoff("running", lease_until=job.now - 1),
        c_1=ObservedHandoff("issued"),
    )

    assert job.next_commands(observations) == (again("a.1", "b.1"),)


def test_running_waiting_and_ended_handoffs_are_left_alone() -> None:
    job = planned(a="", b="")
    observations = job.observations(
        a_1=ObservedHandoff("running", lease_until=job.now + 5),
        b_1=ObservedHandoff("issued"),
        z_1=ObservedHandoff("running"),
    )

    assert job.next_commands(observations) == ()


def test_a_queued_role_is_left_alone_until_it_is_lost() -> None:
    job = SimulatedJob()
    job.advance()

    assert (
        job.next_commands(job.observations(planner_1=ObservedHandoff("issued", queued=True))) == ()
    )
    assert job.next_commands(
        job.observations(planner_1=ObservedHandoff("issued", queued=True, lost=True))
    ) == (run("planner.1"),)


@pytest.mark.parametrize(
    "info", [ObservedHandoff("issued"), ObservedHandoff("running", lease_until=BEGIN - 1)]
)
def test_a_role_without_a_process_is_run(info: ObservedHandoff) -> None:
    job = SimulatedJob()
    job.advance()

    assert job.next_commands(job.observations(planner_1=info)) == (run("planner.1"),)


def test_messages_are_published_before_a_role_runs() -> None:
    job = planned(a="", b="")
    job.finish("a", "needs_input")
    job.advance()
    observations = job.observations(
        planner_2=ObservedHandoff("issued"), b_1=ObservedHandoff("issued", lost=True)
    )

    assert job.next_commands(observations) == (again("b.1"), run("planner.2"))


def test_a_job_is_evaluated_again_by_its_deadline_and_sooner_while_a_role_runs() -> None:
    job = SimulatedJob()
    job.specialists = frozenset()
    assert compute_next_due(job.state, job.now, LEASE_S) == job.now + 2
    assert compute_next_due(job.state, job.now + 40, LEASE_S) == job.now + 50
    assert compute_next_due(job.state, job.now + 300, LEASE_S) == job.now + 330
    job = SimulatedJob()
    job.advance()
    assert compute_next_due(job.state, job.now, LEASE_S) == job.now + LEASE_S
    job.make_plan(a="")
    job.advance()
    assert compute_next_due(job.state, job.now, LEASE_S) == job.state.deadline
