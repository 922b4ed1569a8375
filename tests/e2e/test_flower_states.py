"""The state of a specialist's task in Flower matches the state of its handoff."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import declare_queues
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import new_job_id
from handoff_queue.shared.types.names import JOB, task_of
from tests.e2e.events import Watched, watching
from tests.e2e.fleet import ENVELOPE, SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PROBLEM = "the words of a model"


@pytest.fixture
def events(fleet: Fleet) -> Iterator[Watched]:
    with watching(fleet.jobs._dispatcher._app) as watched:
        yield watched


def test_a_finished_handoff_has_succeeded_with_its_status(fleet: Fleet, events: Watched) -> None:
    fleet.model.envelopes["shown-done", "b"] = {**ENVELOPE, "status": "partial"}
    job_id = fleet.submit("shown-done", a="", b="")
    fleet.ends(job_id)

    assert events.becomes(job_id, "a.1", "SUCCESS").result == "'ok'"
    assert events.becomes(job_id, "b.1", "SUCCESS").result == "'partial'"


def test_a_failed_handoff_has_failed_without_the_models_text_and_its_chord_continues(
    fleet: Fleet, events: Watched
) -> None:
    """The chord's body runs at once, without the sweeper."""
    fleet.model.envelopes["shown-failed", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": PROBLEM,
    }
    last = fleet.model.hold("shown-failed", "a")
    job_id = fleet.submit("shown-failed", a="", b="")
    assert last.arrived.wait(30)
    failed = events.becomes(job_id, "b.1", "FAILURE")
    last.go.set()
    fleet.ends(job_id)
    wait_until(lambda: failed.started, what="the event `task-started`")

    assert failed.exception == "failed", "no event may come later and remove the reason"
    assert PROBLEM not in str(failed.as_dict())
    group = next(event.group for event in fleet.issued(job_id) if event.step_id == "b")
    wait_until(lambda: events.shown(job_id, f"{group}:fan-in"), what="the chord's body")


def test_a_job_is_shown_when_it_ends_as_it_has_ended(fleet: Fleet, events: Watched) -> None:
    fleet.model.envelopes["job-partial", "a"] = {**ENVELOPE, "status": "partial"}
    fleet.model.envelopes["job-failed", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": PROBLEM,
    }
    held = fleet.model.hold("job-cancelled", "a")
    ok, partial, failed, cancelled = (
        fleet.submit(f"job-{name}", a="") for name in ("ok", "partial", "failed", "cancelled")
    )
    assert held.arrived.wait(30)
    fleet.jobs.cancel(cancelled)
    held.go.set()

    assert events.becomes(ok, "end-1", "SUCCESS").result == "'ok'"
    assert events.becomes(partial, "end-1", "SUCCESS").result == "'partial'"
    shown = events.becomes(failed, "end-1", "FAILURE")
    events.becomes(cancelled, "end-1", "REVOKED")
    assert shown.name == JOB
    assert shown.exception == f"failed: see `handoff result {failed}`"
    assert PROBLEM not in str(shown.as_dict())
    assert shown.hostname.startswith(("s1@", "s2@")), "it counts for a supervisor"


def test_a_job_that_fails_and_is_retried_is_shown_twice(fleet: Fleet, events: Watched) -> None:
    fleet.model.envelopes["job-retried", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": PROBLEM,
    }
    job_id = fleet.submit("job-retried", a="")
    events.becomes(job_id, "end-1", "FAILURE")
    fleet.model.envelopes.pop(("job-retried", "a"))
    fleet.jobs.retry(job_id)

    events.becomes(job_id, "end-2", "SUCCESS")
    assert events.shown(job_id, "end-1") == ["FAILURE"]


def test_a_cancelled_handoff_is_revoked_while_it_runs_or_waits(
    fleet: Fleet, events: Watched
) -> None:
    held = [fleet.model.hold("shown-cancelled", step) for step in "abc"]
    job_id = fleet.submit("shown-cancelled", a="", b="", c="", d="")
    for one in held:
        assert one.arrived.wait(30)

    fleet.jobs.cancel(job_id)
    assert fleet.ends(job_id).status is JobStatus.CANCELLED
    for step in "abcd":
        events.becomes(job_id, f"{step}.1", "REVOKED")
    for one in held:
        one.go.set()


def test_a_handoff_that_another_worker_finished_has_succeeded_once(
    fleet: Fleet, events: Watched
) -> None:
    held = fleet.model.hold("shown-lost", "a")
    job_id = fleet.submit("shown-lost", a="")
    assert held.arrived.wait(30)
    pid = fleet.pid_of(job_id, "a.1")
    fleet.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: fleet.pid_of(job_id, "a.1") != pid, what="another worker's claim")
    finally:
        fleet.kill(pid, signal.SIGCONT)
        held.go.set()
    fleet.ends_well(job_id)
    wait_until(
        lambda: fleet.logged("left to another delivery", job_id), what="the end of the first one"
    )

    events.becomes(job_id, "a.1", "SUCCESS")


def test_a_released_handoff_waits_for_another_worker_and_then_succeeds(
    fleet: Fleet, events: Watched
) -> None:
    held = fleet.model.hold("shown-back", "a")
    busy = [fleet.model.hold("shown-busy", step) for step in "xy"]
    job_id = fleet.submit("shown-back", turns=2, a="")
    assert held.arrived.wait(30)
    others = fleet.submit("shown-busy", x="", y="")
    for one in busy:
        assert one.arrived.wait(30)
    pid = fleet.pid_of(job_id, "a.1")
    fleet.kill(pid, signal.SIGTERM)
    wait_until(lambda: pid not in fleet.announced(), what="the shutdown")
    held.go.set()

    assert events.becomes(job_id, "a.1", "RETRY").exception == "handed back: its worker shuts down"
    for one in busy:
        one.go.set()
    fleet.ends_well(job_id)
    fleet.ends_well(others)
    events.becomes(job_id, "a.1", "SUCCESS")
    assert "REJECTED" not in events.shown(job_id, "a.1")
    wait_until(
        lambda: pid not in fleet.system.processes.pids().values(),
        timeout_s=60,
        what="the end of the one that was told to",
    )


def test_a_parked_handoff_of_a_cancelled_job_was_revoked(fleet: Fleet, events: Watched) -> None:
    """The handoff has no message left, so no worker can report it."""
    fleet.model.refusals["shown-cancelled", "a", 1] = 8.0
    job_id = fleet.submit("shown-cancelled", a="")
    events.becomes(job_id, "a.1", "RETRY")
    fleet.jobs.cancel(job_id)

    shown = events.becomes(job_id, "a.1", "REVOKED")
    wait_until(lambda: shown.name == task_of(SPECIALIST), what="what its worker said of it before")
    assert events.shown(job_id, "a.1")[-1] == "REVOKED"
    assert fleet.ends(job_id).status is JobStatus.CANCELLED


def test_a_parked_handoff_waits_with_its_reason_and_then_succeeds(
    fleet: Fleet, events: Watched
) -> None:
    fleet.model.refusals["shown-parked", "a", 1] = 8.0
    job_id = fleet.submit("shown-parked", a="")

    assert events.becomes(job_id, "a.1", "RETRY").exception.startswith("throttled: ")
    assert events.shown(job_id, "a.1") == ["RECEIVED", "STARTED", "RETRY"], (
        "however soon after its start"
    )
    fleet.ends_well(job_id, within_s=60)
    assert not events.becomes(job_id, "a.1", "SUCCESS").exception


def test_a_handoff_of_a_paused_role_waits_and_then_succeeds(fleet: Fleet, events: Watched) -> None:
    held = fleet.model.hold("shown-held", "a")
    job_id = fleet.submit("shown-held", turns=2, a="")
    assert held.arrived.wait(30)
    fleet.jobs.pause(SPECIALIST)
    held.go.set()

    assert events.becomes(job_id, "a.1", "RETRY").exception.startswith("held: ")
    fleet.jobs.unpause(SPECIALIST)
    fleet.ends_well(job_id)
    events.becomes(job_id, "a.1", "SUCCESS")


def test_a_message_that_cannot_be_read_has_failed(fleet: Fleet, events: Watched) -> None:
    app, job_id = fleet.jobs._dispatcher._app, new_job_id()
    declare_queues(app, [SPECIALIST])
    before = letters(fleet)
    app.send_task(task_of(SPECIALIST), args=("{",), queue=SPECIALIST, task_id=f"{job_id}:a.1")

    assert "dead letter" in events.becomes(job_id, "a.1", "FAILURE").exception
    assert letters(fleet) == before + 1, "it is kept"


def letters(fleet: Fleet) -> int:
    return sum(
        letter.queue == SPECIALIST and letter.body == "{"
        for letter in fleet.jobs.store.dead_letters.newest()
    )
