"""Messages are lost, doubled, garbled, and chords break: the store knows what should be there."""

from __future__ import annotations

import time

import pytest

from handoff_queue.shared.store.finish_request import CHORD_SILENCE_S
from handoff_queue.shared.store.jobs import LOST_AFTER_S
from handoff_queue.shared.types.events import CancelRequested, HandoffIssued, JobStatus
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.supervisor.client.dispatch import Dispatcher, OutgoingHandoff
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FAN_IN_S = 8.0
"""The sweeper repairs a chord after three seconds of silence."""


def test_several_jobs_at_once_share_the_fleet(fleet: Fleet) -> None:
    job_ids = [fleet.submit(f"many-{n}", a="", b="", c="a b") for n in range(6)]

    for n, job_id in enumerate(job_ids):
        fleet.ends_well(job_id)
        assert [
            fleet.model.calls[f"many-{n}", step, 1]
            for step in ("planner", "a", "b", "c", "assessor")
        ] == [1] * 5


def test_a_chord_wakes_the_supervisor_when_its_last_part_is_done(fleet: Fleet) -> None:
    """And not the sweeper, some seconds later."""
    job_id = fleet.submit("fan-in", a="", b="", c="a b")

    assert fleet.ends_well(job_id).wall_s < CHORD_SILENCE_S


def test_a_lost_message_is_published_again(fleet: Fleet) -> None:
    busy, held = fleet.occupy("busy-lost")
    job_id = fleet.submit("lost", a="")
    (message,) = fleet.queued(job_id, 1)
    assert fleet.redis.lrem(SPECIALIST, 1, message) == 1
    for one in held:
        one.go.set()
    lost_at = time.monotonic()

    fleet.ends_well(job_id)

    assert time.monotonic() - lost_at < LOST_AFTER_S + 4
    assert fleet.model.calls["lost", "a", 1] == 1
    fleet.ends_well(busy)


def test_half_a_chord_is_completed_and_its_silent_body_is_not_waited_for(fleet: Fleet) -> None:
    """As if the supervisor had died while publishing: one message is missing."""
    busy, held = fleet.occupy("busy-half")
    job_id = fleet.submit("half", a="", b="", c="a b")
    messages = fleet.queued(job_id, 2)
    fleet.redis.lrem(SPECIALIST, 1, messages[0])
    for one in held:
        one.go.set()

    fleet.ends_well(job_id)

    assert [fleet.model.calls["half", step, 1] for step in ("a", "b", "c")] == [1, 1, 1]
    fleet.ends_well(busy)


def test_a_chord_has_no_counters_that_could_be_lost(fleet: Fleet) -> None:
    held = [fleet.model.hold("chordless", step) for step in ("a", "b")]
    job_id = fleet.submit("chordless", a="", b="")
    for one in held:
        assert one.arrived.wait(30)
    assert not fleet.redis.keys(f"celery-taskset-meta-{job_id}*")
    for one in held:
        one.go.set()
    done_at = time.monotonic()

    fleet.ends_well(job_id)

    assert time.monotonic() - done_at < FAN_IN_S


def test_a_message_that_arrives_twice_runs_once(fleet: Fleet) -> None:
    held = fleet.model.hold("twice", "a")
    job_id = fleet.submit("twice", a="", b="a")
    assert held.arrived.wait(30)
    issued = [
        recorded.event
        for recorded in fleet.jobs.events(job_id, follow=False)
        if isinstance(recorded.event, HandoffIssued)
    ]
    (event,) = [one for one in issued if one.step_id == "a"]
    text = fleet.jobs.store.payloads.get(job_id, [event.handoff.digest])[event.handoff.digest]
    again = OutgoingHandoff(AgentHandoff.from_json(text), text, event.group or "", event.index)
    dispatcher: Dispatcher = fleet.jobs._dispatcher
    for _ in range(3):
        dispatcher.publish_again(job_id, [again])
    wait_until(lambda: fleet.redis.llen(SPECIALIST) == 0, what="an empty queue")
    held.go.set()
    fleet.ends_well(job_id)
    dispatcher.publish_again(job_id, [again])
    wait_until(lambda: fleet.redis.llen(SPECIALIST) == 0, what="an empty queue")

    assert [fleet.model.calls["twice", step, 1] for step in ("a", "b", "assessor")] == [1, 1, 1]
    fleet.ends_well(job_id)


def test_a_malformed_message_goes_to_the_dead_letters_with_its_reason_and_nothing_stops(
    fleet: Fleet,
) -> None:
    app = fleet.jobs._dispatcher._app
    from handoff_queue.shared.broker.celery_app import declare_queues

    declare_queues(app, [SPECIALIST])
    for text in ("{", '{"schema_version": 7, "job_id": "j-000000000000"}', 42):
        app.send_task(f"specialist.{SPECIALIST}", args=(text,), queue=SPECIALIST)

    dead = fleet.jobs.store.dead_letters
    bodies = {"{", '{"schema_version": 7, "job_id": "j-000000000000"}', "42"}
    wait_until(
        lambda: {letter.body for letter in dead.newest()} == bodies,
        what="a dead letter for each message",
    )

    assert all(letter.queue == SPECIALIST and letter.reason for letter in dead.newest())
    fleet.ends_well(fleet.submit("after-garbage", a=""))


def test_after_a_cancel_no_turn_is_begun_anywhere_and_queued_steps_never_start(
    fleet: Fleet,
) -> None:
    held = [fleet.model.hold("cancel", step) for step in ("a", "b", "c")]
    job_id = fleet.submit("cancel", turns=2, a="", b="", c="", d="")
    for one in held:
        assert one.arrived.wait(30)

    assert fleet.jobs.cancel(job_id)
    result = fleet.ends(job_id, within_s=5)
    for one in held:
        one.go.set()
    fleet.ends_well(fleet.submit("after-cancel", x="", y="", z=""))

    assert result.status is JobStatus.CANCELLED
    assert any(
        isinstance(recorded.event, CancelRequested)
        for recorded in fleet.jobs.events(job_id, follow=False)
    )
    assert sum(fleet.model.calls["cancel", step, 2] for step in ("a", "b", "c", "d")) == 0
    assert fleet.model.calls["cancel", "d", 1] == 0


def test_a_cancel_frees_the_slots_of_streams_that_are_silent(fleet: Fleet) -> None:
    job_id, held = fleet.occupy("silent")
    fleet.jobs.cancel(job_id)
    fleet.ends(job_id)
    try:
        fleet.ends_well(fleet.submit("after-silence", a=""), within_s=5)
    finally:
        for one in held:
            one.go.set()


def test_a_job_that_ended_is_taken_up_again_where_it_failed(fleet: Fleet) -> None:
    held = fleet.model.hold("retry", "b")
    job_id = fleet.submit("retry", a="", b="a")
    assert held.arrived.wait(30)
    fleet.jobs.cancel(job_id)
    fleet.ends(job_id)
    held.go.set()
    fleet.jobs.retry(job_id)

    result = fleet.jobs.result(job_id, wait_s=30)

    assert result.status is JobStatus.OK
    assert [fleet.model.calls["retry", step, 1] for step in ("planner", "a", "b")] == [1, 1, 2]
