"""The state of a specialist's task in Flower matches the state of its handoff."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import declare_queues
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import create_job_id
from handoff_queue.shared.types.names import JOB, get_task
from tests.e2e.events import FlowerView, watched_events
from tests.e2e.fleet import ENVELOPE, SPECIALIST, Fleet
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

MODEL_TEXT = "the words of a model"


@pytest.fixture
def events(fleet: Fleet) -> Iterator[FlowerView]:
    with watched_events(fleet.admin._dispatcher._app) as view:
        yield view


def test_a_finished_handoff_has_succeeded_with_its_status(fleet: Fleet, events: FlowerView) -> None:
    fleet.model.envelopes["shown-done", "b"] = {**ENVELOPE, "status": "partial"}
    job_id = fleet.submit("shown-done", a="", b="")
    fleet.wait_for_end(job_id)

    assert events.wait_for_state(job_id, "a.1", "SUCCESS").result == "'ok'"
    assert events.wait_for_state(job_id, "b.1", "SUCCESS").result == "'partial'"


def test_a_failed_handoff_has_failed_without_the_models_text_and_its_chord_continues(
    fleet: Fleet, events: FlowerView
) -> None:
    """The body of the chord runs at once, and does not wait for the sweeper."""
    fleet.model.envelopes["shown-failed", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": MODEL_TEXT,
    }
    last = fleet.model.hold("shown-failed", "a")
    job_id = fleet.submit("shown-failed", a="", b="")
    assert last.arrived.wait(MAX_WAIT_S)
    failed = events.wait_for_state(job_id, "b.1", "FAILURE")
    last.release.set()
    fleet.wait_for_end(job_id)
    wait_until(lambda: failed.started, expected="the event `task-started`")

    assert failed.exception == "failed", "no event may come later and remove the reason"
    assert MODEL_TEXT not in str(failed.as_dict())
    group = next(event.group for event in fleet.issued(job_id) if event.step_id == "b")
    wait_until(lambda: events.states_of(job_id, f"{group}:fan-in"), expected="the chord's body")


def test_a_second_delivery_of_a_failed_handoff_leaves_the_reason(
    fleet: Fleet, events: FlowerView
) -> None:
    fleet.model.envelopes["shown-again", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": MODEL_TEXT,
    }
    _, calls = fleet.occupy("shown-again-busy")
    job_id = fleet.submit("shown-again", a="")
    (message,) = fleet.queued(job_id, steps=1)
    for call in calls:
        call.release.set()
    failed = events.wait_for_state(job_id, "a.1", "FAILURE")

    fleet.redis.lpush(SPECIALIST, message)
    wait_until(
        lambda: len(events.states_of(job_id, "a.1")) >= 5,
        expected="the events `task-received` and `task-started` of the second delivery",
    )

    assert failed.exception == "failed"
    assert events.states_of(job_id, "a.1")[-1] == "FAILURE"


def test_an_ended_job_is_shown_with_its_status(fleet: Fleet, events: FlowerView) -> None:
    fleet.model.envelopes["job-partial", "a"] = {**ENVELOPE, "status": "partial"}
    fleet.model.envelopes["job-failed", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": MODEL_TEXT,
    }
    held = fleet.model.hold("job-cancelled", "a")
    ok, partial, failed, cancelled = (
        fleet.submit(f"job-{name}", a="") for name in ("ok", "partial", "failed", "cancelled")
    )
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.jobs.cancel(cancelled)
    held.release.set()

    assert events.wait_for_state(ok, "end-1", "SUCCESS").result == "'ok'"
    assert events.wait_for_state(partial, "end-1", "SUCCESS").result == "'partial'"
    task = events.wait_for_state(failed, "end-1", "FAILURE")
    events.wait_for_state(cancelled, "end-1", "REVOKED")
    assert task.name == JOB
    assert task.exception == f"failed: see `handoff result {failed}`"
    assert MODEL_TEXT not in str(task.as_dict())
    assert task.hostname.startswith(("s1@", "s2@")), "the task belongs to a supervisor"


def test_a_job_that_fails_and_is_retried_is_shown_twice(fleet: Fleet, events: FlowerView) -> None:
    fleet.model.envelopes["job-retried", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": MODEL_TEXT,
    }
    job_id = fleet.submit("job-retried", a="")
    events.wait_for_state(job_id, "end-1", "FAILURE")
    fleet.model.envelopes.pop(("job-retried", "a"))
    fleet.jobs.retry(job_id)

    events.wait_for_state(job_id, "end-2", "SUCCESS")
    assert events.states_of(job_id, "end-1") == ["FAILURE"]


def test_a_cancelled_handoff_is_revoked_while_it_runs_or_waits(
    fleet: Fleet, events: FlowerView
) -> None:
    held = [fleet.model.hold("shown-cancelled", step) for step in "abc"]
    job_id = fleet.submit("shown-cancelled", a="", b="", c="", d="")
    for call in held:
        assert call.arrived.wait(MAX_WAIT_S)

    fleet.jobs.cancel(job_id)
    assert fleet.wait_for_end(job_id).status is JobStatus.CANCELLED
    for step in "abcd":
        events.wait_for_state(job_id, f"{step}.1", "REVOKED")
    for call in held:
        call.release.set()


def test_a_handoff_that_another_worker_finished_has_succeeded_once(
    fleet: Fleet, events: FlowerView
) -> None:
    held = fleet.model.hold("shown-lost", "a")
    job_id = fleet.submit("shown-lost", a="")
    assert held.arrived.wait(MAX_WAIT_S)
    pid = fleet.pid_of(job_id, "a.1")
    fleet.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: fleet.pid_of(job_id, "a.1") != pid, expected="another worker's claim")
    finally:
        fleet.kill(pid, signal.SIGCONT)
        held.release.set()
    fleet.wait_for_success(job_id)
    wait_until(
        lambda: fleet.has_logged("another delivery runs it", job_id),
        expected="the end of the first attempt",
    )

    events.wait_for_state(job_id, "a.1", "SUCCESS")


def test_a_released_handoff_waits_for_another_worker_and_then_succeeds(
    fleet: Fleet, events: FlowerView
) -> None:
    held = fleet.model.hold("shown-back", "a")
    busy = [fleet.model.hold("shown-busy", step) for step in "xy"]
    job_id = fleet.submit("shown-back", turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    others = fleet.submit("shown-busy", x="", y="")
    for call in busy:
        assert call.arrived.wait(MAX_WAIT_S)
    pid = fleet.pid_of(job_id, "a.1")
    fleet.kill(pid, signal.SIGTERM)
    wait_until(lambda: pid not in fleet.announced_workers(), expected="the shutdown")
    held.release.set()

    assert (
        events.wait_for_state(job_id, "a.1", "RETRY").exception
        == "handed back: its worker shuts down"
    )
    for call in busy:
        call.release.set()
    fleet.wait_for_success(job_id)
    fleet.wait_for_success(others)
    events.wait_for_state(job_id, "a.1", "SUCCESS")
    assert "REJECTED" not in events.states_of(job_id, "a.1")
    wait_until(
        lambda: pid not in fleet.system.processes.get_pids().values(),
        timeout_s=60,
        expected="the end of the stopped worker",
    )


def test_a_deferred_handoff_of_a_cancelled_job_was_revoked(
    fleet: Fleet, events: FlowerView
) -> None:
    """The handoff has no message left, so no worker can report it."""
    fleet.model.refusals["shown-revoked", "a", 1] = 8.0
    job_id = fleet.submit("shown-revoked", a="")
    events.wait_for_state(job_id, "a.1", "RETRY")
    fleet.jobs.cancel(job_id)

    task = events.wait_for_state(job_id, "a.1", "REVOKED")
    wait_until(
        lambda: task.name == get_task(SPECIALIST),
        expected="the task's name in an event of its worker",
    )
    assert events.states_of(job_id, "a.1")[-1] == "REVOKED"
    assert fleet.wait_for_end(job_id).status is JobStatus.CANCELLED


def test_a_deferred_handoff_waits_with_its_reason_and_then_succeeds(
    fleet: Fleet, events: FlowerView
) -> None:
    fleet.model.refusals["shown-deferred", "a", 1] = 8.0
    job_id = fleet.submit("shown-deferred", a="")

    assert events.wait_for_state(job_id, "a.1", "RETRY").exception.startswith("deferred: ")
    assert events.states_of(job_id, "a.1") == ["RECEIVED", "STARTED", "RETRY"], (
        "the state RETRY comes last, however soon the handoff was deferred"
    )
    fleet.wait_for_success(job_id, within_s=60)
    assert not events.wait_for_state(job_id, "a.1", "SUCCESS").exception


def test_a_handoff_of_a_paused_role_waits_and_then_succeeds(
    fleet: Fleet, events: FlowerView
) -> None:
    held = fleet.model.hold("shown-paused", "a")
    job_id = fleet.submit("shown-paused", turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.admin.pause(SPECIALIST)
    held.release.set()

    assert events.wait_for_state(job_id, "a.1", "RETRY").exception.startswith("paused: ")
    fleet.admin.unpause(SPECIALIST)
    fleet.wait_for_success(job_id)
    events.wait_for_state(job_id, "a.1", "SUCCESS")


def test_a_message_that_cannot_be_read_has_failed(fleet: Fleet, events: FlowerView) -> None:
    app, job_id = fleet.admin._dispatcher._app, create_job_id()
    declare_queues(app, [SPECIALIST])
    before = invalid_letters(fleet)
    app.send_task(get_task(SPECIALIST), args=("{",), queue=SPECIALIST, task_id=f"{job_id}:a.1")

    assert "dead letter" in events.wait_for_state(job_id, "a.1", "FAILURE").exception
    assert invalid_letters(fleet) == before + 1, "the message is kept as a dead letter"


def invalid_letters(fleet: Fleet) -> int:
    return sum(
        letter.queue == SPECIALIST and letter.body == "{"
        for letter in fleet.jobs.store.dead_letters.list_newest()
    )
