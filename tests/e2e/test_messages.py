"""Jobs complete although messages are lost, duplicated or malformed, and chords break."""

from __future__ import annotations

import time

import pytest

from handoff_queue.shared.store.claim import CHORD_SILENCE_S
from handoff_queue.shared.store.due_work import LOST_AFTER_S
from handoff_queue.shared.types.events import CancelRequested, HandoffIssued, JobStatus
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher, OutgoingHandoff
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow


def test_several_jobs_at_once_share_the_fleet(fleet: Fleet) -> None:
    job_ids = [fleet.submit(f"many-{n}", a="", b="", c="a b") for n in range(6)]

    for n, job_id in enumerate(job_ids):
        fleet.wait_for_success(job_id)
        assert [
            fleet.model.calls[f"many-{n}", step, 1]
            for step in ("planner", "a", "b", "c", "assessor")
        ] == [1] * 5


def test_a_chord_wakes_the_supervisor_when_its_last_part_is_done(fleet: Fleet) -> None:
    """The chord's body wakes the supervisor sooner than the sweeper would."""
    chain = fleet.wait_for_success(fleet.submit("no-fan-in", a="", b="a", c="b"))
    job_id = fleet.submit("fan-in", a="", b="", c="a b")

    assert fleet.wait_for_success(job_id).wall_s < chain.wall_s + CHORD_SILENCE_S


def test_a_lost_message_is_published_again(fleet: Fleet) -> None:
    usual_s = fleet.usual_s()
    busy, held = fleet.occupy("busy-lost")
    job_id = fleet.submit("lost", a="")
    (message,) = fleet.queued(job_id, 1)
    assert fleet.redis.lrem(SPECIALIST, 1, message) == 1
    for call in held:
        call.release.set()
    lost_at = time.monotonic()

    fleet.wait_for_success(job_id)

    assert time.monotonic() - lost_at < LOST_AFTER_S + 4 + usual_s
    assert fleet.model.calls["lost", "a", 1] == 1
    fleet.wait_for_success(busy)


def test_a_chord_with_a_lost_message_is_completed_and_does_not_wait_for_its_body(
    fleet: Fleet,
) -> None:
    """One message is missing, as after a death of the supervisor while it published the chord."""
    busy, held = fleet.occupy("busy-half")
    job_id = fleet.submit("half", a="", b="", c="a b")
    messages = fleet.queued(job_id, 2)
    fleet.redis.lrem(SPECIALIST, 1, messages[0])
    for call in held:
        call.release.set()

    fleet.wait_for_success(job_id)

    assert [fleet.model.calls["half", step, 1] for step in ("a", "b", "c")] == [1, 1, 1]
    fleet.wait_for_success(busy)


def test_a_chord_keeps_no_counter_in_celerys_result_backend(fleet: Fleet) -> None:
    held = [fleet.model.hold("chordless", step) for step in ("a", "b")]
    job_id = fleet.submit("chordless", a="", b="")
    for call in held:
        assert call.arrived.wait(MAX_WAIT_S)
    assert not fleet.redis.keys(f"celery-taskset-meta-{job_id}*")
    for call in held:
        call.release.set()

    fleet.wait_for_success(job_id)


def test_a_message_that_arrives_twice_runs_once(fleet: Fleet) -> None:
    held = fleet.model.hold("twice", "a")
    job_id = fleet.submit("twice", a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    issued = [
        recorded.event
        for recorded in fleet.jobs.events(job_id, follow=False)
        if isinstance(recorded.event, HandoffIssued)
    ]
    (event,) = [event for event in issued if event.step_id == "a"]
    text = fleet.jobs.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
    duplicate = OutgoingHandoff(AgentHandoff.from_json(text), text, event.group or "", event.index)
    dispatcher: Dispatcher = fleet.admin._dispatcher
    for _ in range(3):
        dispatcher.publish_again(job_id, [duplicate])
    wait_until(lambda: fleet.redis.llen(SPECIALIST) == 0, expected="an empty queue")
    held.release.set()
    fleet.wait_for_success(job_id)
    dispatcher.publish_again(job_id, [duplicate])
    wait_until(lambda: fleet.redis.llen(SPECIALIST) == 0, expected="an empty queue")

    assert [fleet.model.calls["twice", step, 1] for step in ("a", "b", "assessor")] == [1, 1, 1]
    fleet.wait_for_success(job_id)


def test_a_malformed_message_becomes_a_dead_letter_with_its_reason_and_no_process_stops(
    fleet: Fleet,
) -> None:
    app = fleet.admin._dispatcher._app
    from handoff_queue.shared.broker.celery_app import declare_queues

    declare_queues(app, [SPECIALIST])
    for text in ("{", '{"schema_version": 7, "job_id": "j-000000000000"}', 42):
        app.send_task(f"specialist.{SPECIALIST}", args=(text,), queue=SPECIALIST)

    letters = fleet.jobs.store.dead_letters
    bodies = {"{", '{"schema_version": 7, "job_id": "j-000000000000"}', "42"}
    wait_until(
        lambda: {letter.body for letter in letters.list_newest()} == bodies,
        expected="a dead letter for each message",
    )

    assert all(letter.queue == SPECIALIST and letter.reason for letter in letters.list_newest())
    fleet.wait_for_success(fleet.submit("after-garbage", a=""))


def test_after_a_cancel_no_worker_starts_a_turn_or_a_queued_step(
    fleet: Fleet,
) -> None:
    held = [fleet.model.hold("cancel", step) for step in ("a", "b", "c")]
    job_id = fleet.submit("cancel", turns=2, a="", b="", c="", d="")
    for call in held:
        assert call.arrived.wait(MAX_WAIT_S)

    assert fleet.jobs.cancel(job_id)
    result = fleet.wait_for_end(job_id, within_s=5)
    for call in held:
        call.release.set()
    fleet.wait_for_success(fleet.submit("after-cancel", x="", y="", z=""))

    assert result.status is JobStatus.CANCELLED
    assert any(
        isinstance(recorded.event, CancelRequested)
        for recorded in fleet.jobs.events(job_id, follow=False)
    )
    assert sum(fleet.model.calls["cancel", step, 2] for step in ("a", "b", "c", "d")) == 0
    assert fleet.model.calls["cancel", "d", 1] == 0


def test_a_cancel_frees_the_slots_of_silent_streams(fleet: Fleet) -> None:
    job_id, held = fleet.occupy("silent")
    fleet.jobs.cancel(job_id)
    fleet.wait_for_end(job_id)
    try:
        fleet.wait_for_success(fleet.submit("after-silence", a=""), within_s=5)
    finally:
        for call in held:
            call.release.set()


def test_a_retried_job_continues_at_its_unfinished_step(fleet: Fleet) -> None:
    held = fleet.model.hold("retry", "b")
    job_id = fleet.submit("retry", a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.jobs.cancel(job_id)
    fleet.wait_for_end(job_id)
    held.release.set()
    fleet.jobs.retry(job_id)

    result = fleet.jobs.result(job_id, wait_s=30)

    assert result.status is JobStatus.OK
    assert [fleet.model.calls["retry", step, 1] for step in ("planner", "a", "b")] == [1, 1, 2]
