"""Celery's transport keeps the fair order for unacknowledged, restored, lost and unordered
messages.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from redis.exceptions import ConnectionError  # noqa: A004

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.message_publisher import TaskMessage, publish_each
from handoff_queue.shared.broker.transport import MAX_AT_ONCE
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.due_work import LOST_AFTER_S
from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import HandoffId, create_job_id
from handoff_queue.shared.types.job_options import Priority
from tests.doubles.jobs import a_job, granted_claim
from tests.doubles.queue_access import queue_consumer, send, step_of
from tests.doubles.sweep_states import QUEUE, age_everything, age_issued


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", redis_url, Settings(), [QUEUE])
    yield app
    app.close()


def test_a_taken_message_counts_as_delivered_until_it_is_claimed(app: Celery, store: Store) -> None:
    send(app, store, job_id := a_job(store), "a.1", "b.1")
    with queue_consumer(app) as queue:
        for _ in range(2):
            queue.get(timeout=5).ack()
    client = store.connection.redis

    assert client.zrange(keys.OUT + QUEUE, 0, -1) == [
        f"{job_id}/a.1".encode(),
        f"{job_id}/b.1".encode(),
    ]
    granted_claim(store, job_id, "b.1")
    assert client.zrange(keys.OUT + QUEUE, 0, -1) == [f"{job_id}/a.1".encode()]


def test_a_message_among_others_costs_one_more_round_trip(app: Celery, store: Store) -> None:
    job_id, client = a_job(store), store.connection.redis
    with queue_consumer(app) as queue:
        for steps, scripts in ((["a.1"], 0), (["b.1", "c.1"], 2), (["d.1"], 0)):
            send(app, store, job_id, *steps)
            client.config_resetstat()
            messages = [queue.get(timeout=5) for _ in steps]
            assert (
                client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] == scripts
            )
            assert [step_of(message) for message in messages] == steps
            for message in messages:
                message.ack()


def test_a_message_that_waits_alone_for_hours_is_lost_only_after_it_was_taken(
    app: Celery, store: Store
) -> None:
    send(app, store, job_id := a_job(store), "a.1")
    age_issued(store, job_id, 7_200, "a.1")
    assert store.due_work.sweep().due == {}
    with queue_consumer(app) as queue:
        message = queue.get(timeout=5)

        assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}
        message.ack()


def test_an_unacknowledged_message_is_taken_next_in_its_class(app: Celery, store: Store) -> None:
    send(app, store, a_job(store), "a.1", "b.1", "c.1")
    with queue_consumer(app) as queue:
        assert step_of(queue.get(timeout=5)) == "a.1"
    assert (
        store.connection.redis.llen(QUEUE) == store.connection.redis.zcard(keys.FAIR + QUEUE) == 3
    )

    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(3)]
        assert [step_of(message) for message in messages] == ["a.1", "b.1", "c.1"]
        assert [bool(message.headers.get("redelivered")) for message in messages] == [
            True,
            False,
            False,
        ]
        for message in messages:
            message.ack()


def test_a_released_message_is_last_in_its_queue(app: Celery, store: Store) -> None:
    send(app, store, a_job(store), "a.1", "b.1")
    with queue_consumer(app) as queue:
        queue.get(timeout=5).reject(requeue=True)
        messages = [queue.get(timeout=5) for _ in range(2)]

        assert [step_of(message) for message in messages] == ["b.1", "a.1"]
        for message in messages:
            message.ack()


def test_an_element_that_died_with_its_worker_costs_its_message_one_sweep(
    app: Celery, store: Store
) -> None:
    """Between BRPOP and the take, the message keeps its place in the order."""
    send(app, store, a_job(store), "a.1", "b.1")
    store.connection.redis.rpop(QUEUE)

    assert store.due_work.sweep().due == {}
    assert store.connection.redis.llen(QUEUE) == 2
    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(2)]
        assert [step_of(message) for message in messages] == ["a.1", "b.1"]
        for message in messages:
            message.ack()


def test_the_message_of_a_dead_worker_counts_as_lost_while_others_wait(
    app: Celery, store: Store
) -> None:
    send(app, store, job_id := a_job(store), "a.1", "b.1")
    with queue_consumer(app) as queue:
        queue.get(timeout=5)
        age_everything(store, LOST_AFTER_S + 1)

        assert store.due_work.sweep().due == {job_id: [HandoffId("a.1")]}


def test_a_message_that_waits_in_its_place_for_hours_is_not_lost(app: Celery, store: Store) -> None:
    batch, other = a_job(store), a_job(store)
    store.connection.redis.hset(keys.job(batch), "priority", Priority.BATCH.value)
    send(app, store, batch, *(names := [f"s{n}.1" for n in range(100)]))
    age_issued(store, batch, 7_200, *names)
    send(app, store, other, "a.1")
    with queue_consumer(app) as queue:
        message = queue.get(timeout=5)
        granted_claim(store, other, step_of(message))
        message.ack()

    assert store.due_work.sweep().due == {}


def test_messages_without_a_job_are_delivered_in_list_order(app: Celery, store: Store) -> None:
    """These messages have no place in the order, so each element is taken as it is."""
    app.send_task("specialist.x", args=["old"], queue=QUEUE, ignore_result=True)
    send(app, store, a_job(store), "a.1")
    app.send_task("specialist.x", args=["older"], queue=QUEUE, ignore_result=True)
    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(3)]
        assert [
            message.headers.get(MEMBER_HEADER, "").partition("/")[2] for message in messages
        ] == [
            "",
            "a.1",
            "",
        ]
        for message in messages:
            message.ack()


def test_a_claimed_handoff_without_its_element_loses_its_place(app: Celery, store: Store) -> None:
    send(app, store, job_id := a_job(store), "a.1", "b.1")
    client = store.connection.redis
    client.rpop(QUEUE)
    granted_claim(store, job_id, "a.1")
    store.due_work.sweep()
    assert [entry.decode().split()[0] for entry in client.zrange(keys.FAIR + QUEUE, 0, -1)] == [
        f"{job_id}/b.1"
    ]
    assert client.llen(QUEUE) == 1

    client.rpop(QUEUE)
    granted_claim(store, job_id, "b.1")
    store.due_work.sweep()
    assert not client.keys(f"{keys.FAIR}*")


def test_a_surplus_element_brings_its_own_message(app: Celery, store: Store) -> None:
    """The message is delivered twice. The second claim is refused."""
    send(app, store, a_job(store), "a.1")
    client = store.connection.redis
    client.rpush(QUEUE, client.lindex(QUEUE, 0))
    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(2)]
        assert [step_of(message) for message in messages] == ["a.1", "a.1"]
        for message in messages:
            message.ack()


def test_a_purge_empties_the_queue_and_wanted_messages_are_found_again(
    app: Celery, store: Store
) -> None:
    send(app, store, job_id := a_job(store), "a.1", "b.1")

    assert app.control.purge() == 2
    assert not store.connection.redis.exists(
        QUEUE, keys.FAIR + QUEUE, f"{keys.FAIR}{QUEUE}:messages", f"{keys.FAIR}{QUEUE}:next"
    )
    assert store.due_work.sweep().due == {}
    age_everything(store, LOST_AFTER_S + 1)
    assert {*store.due_work.sweep().due[job_id]} == {"a.1", "b.1"}


def test_a_group_finds_its_places_also_in_a_redis_that_has_forgotten_the_script(
    app: Celery, store: Store
) -> None:
    job_id = create_job_id()
    store.connection.redis.script_flush()
    publish_each(
        app,
        [
            TaskMessage("specialist.x", step, QUEUE, (step,), "()", f"{job_id}/{step}")
            for step in ("a.1", "b.1")
        ],
    )

    assert store.connection.redis.zcard(keys.FAIR + QUEUE) == 2


def test_no_message_is_taken_twice_after_a_broken_connection(
    app: Celery, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer takes messages both ways before the break: popped first, and in one step."""
    send(app, store, a_job(store), *(f"s{n}.1" for n in range(2 + 5 * MAX_AT_ONCE)))
    with queue_consumer(app) as queue:
        for _ in range(2 + MAX_AT_ONCE):
            queue.get(timeout=5).ack()
        connection = queue.channel.client.connection
        send_command = connection.send_command

        def lose_the_answer_to_a_script(*command: Any, **options: Any) -> None:
            send_command(*command, **options)
            if command[0] == "EVALSHA":
                connection.read_response()
                connection._sock.shutdown(socket.SHUT_RDWR)

        monkeypatch.setattr(connection, "send_command", lose_the_answer_to_a_script)
        with pytest.raises(ConnectionError):
            queue.get(timeout=5)

        assert store.connection.redis.zcard(keys.FAIR + QUEUE) == 3 * MAX_AT_ONCE


def test_a_consumer_reloads_a_script_that_redis_has_lost(app: Celery, store: Store) -> None:
    send(app, store, a_job(store), "a.1", "b.1")
    store.connection.redis.script_flush()

    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(2)]
        assert [step_of(message) for message in messages] == ["a.1", "b.1"]
        for message in messages:
            message.ack()
