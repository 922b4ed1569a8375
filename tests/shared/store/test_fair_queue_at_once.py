"""A worker takes several messages in one round trip if many wait. It also takes unknown
elements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.names import ROLES_QUEUE
from tests.doubles.jobs import a_job, issue
from tests.doubles.queue_access import queue_consumer, send, step_of
from tests.doubles.sweep_states import QUEUE


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", redis_url, Settings(), [QUEUE])
    yield app
    app.close()


def test_a_quarter_of_many_waiting_messages_is_taken_in_one_round_trip(
    app: Celery, store: Store
) -> None:
    names = [f"s{n}.1" for n in range(20)]
    with queue_consumer(app) as queue:
        for _ in range(2):  # the first call loads the scripts into Redis
            send(app, store, a_job(store), *names)
            store.connection.redis.config_resetstat()
            messages = [queue.get(timeout=5) for _ in names]
            for message in messages:
                message.ack()
            assert [step_of(message) for message in messages] == names
    stats = store.connection.redis.info("commandstats")
    assert (stats["cmdstat_brpop"]["calls"], stats["cmdstat_evalsha"]["calls"]) == (
        1,
        1 + len([5, 4, 3, 2, 2, 1, 1, 1]),
    )


@contextmanager
def consumer_of(
    app: Celery, queue: str, to: Callable[[Any], None], slots: int = 0
) -> Iterator[Any]:
    """Yield a consumer that passes each message to `to`, as a worker's does.

    `slots` is the maximum number of unacknowledged messages. 0 means no limit.
    """
    with (
        app.connection_for_read() as connection,
        app.amqp.TaskConsumer(
            connection, queues=[app.amqp.queues[queue]], on_message=to
        ) as consumer,
    ):
        consumer.qos(prefetch_count=slots)
        yield connection


def publish_many(app: Celery, store: Store, queue: str, size: int) -> None:
    job_id = a_job(store)
    with app.producer_or_acquire() as producer:
        for n in range(size):
            app.send_task(
                "specialist.x",
                queue=queue,
                headers={MEMBER_HEADER: f"{job_id}/s{n}.1"},
                producer=producer,
                ignore_result=True,
            )


def test_a_round_trip_takes_as_many_messages_as_there_are_free_slots(
    app: Celery, store: Store
) -> None:
    client, delivered = store.connection.redis, list[Any]()
    publish_many(app, store, QUEUE, 60)
    with consumer_of(app, QUEUE, delivered.append, slots=12) as connection:
        connection.drain_events(timeout=5)
        client.config_resetstat()
        connection.drain_events(timeout=5)

        assert (len(delivered), client.llen(QUEUE)) == (12, 48)
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1


def test_a_supervisor_takes_one_role_at_a_time(redis_url: str, store: Store) -> None:
    """The supervisor knows only after it took a message whether it has another free slot."""
    app, delivered = make_app("test", redis_url, Settings(), [ROLES_QUEUE]), list[Any]()
    publish_many(app, store, ROLES_QUEUE, 5)
    with consumer_of(app, ROLES_QUEUE, delivered.append) as connection:
        for count in (1, 2, 3):
            connection.drain_events(timeout=5)
            assert len(delivered) == count
    app.close()


def test_messages_taken_with_an_undeliverable_message_are_delivered(
    app: Celery, store: Store
) -> None:
    delivered = list[Any]()

    def receive(message: Any) -> None:
        delivered.append(message)
        if len(delivered) == 3:
            raise ConnectionError("in the middle")

    publish_many(app, store, QUEUE, 21)
    with consumer_of(app, QUEUE, receive) as connection:
        connection.drain_events(timeout=5)
        with pytest.raises(ConnectionError):
            connection.drain_events(timeout=5)

    assert len(delivered) == 6


def test_a_batch_consumer_reloads_a_script_that_redis_has_lost(app: Celery, store: Store) -> None:
    send(app, store, a_job(store), *(names := [f"s{n}.1" for n in range(6)]))
    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(3)]
        store.connection.redis.script_flush()
        messages += [queue.get(timeout=5) for _ in range(3)]
        assert [step_of(message) for message in messages] == names
        for message in messages:
            message.ack()


def test_a_batch_of_several_queues_may_come_from_any_queue(redis_url: str, store: Store) -> None:
    app = make_app("test", redis_url, Settings(), [QUEUE, "other"])
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        send(app, store, a_job(store), "a.1", "b.1")
        job_id = a_job(store)
        issue(store, job_id, "c.1", group="g-c.1")
        app.send_task(
            "specialist.x",
            args=["c.1"],
            queue="other",
            headers={MEMBER_HEADER: f"{job_id}/c.1"},
            ignore_result=True,
        )
        delivered: list[str] = []
        with connection.Consumer(
            [*app.amqp.queues.values()],
            channel=channel,
            on_message=lambda message: delivered.append(step_of(message)),
        ):
            for _ in range(3):
                connection.drain_events(timeout=5)
    app.close()

    assert sorted(delivered) == ["a.1", "b.1", "c.1"]


UNKNOWN_MESSAGE = {
    "body": "",
    "headers": {MEMBER_HEADER: 7},
    "properties": {"delivery_tag": "t", "delivery_info": {"exchange": "", "routing_key": QUEUE}},
}
CUT = (
    '{"headers": {"handoff-for": "j-000000000001/x.1"}, "properties": {"delivery_tag": "t",'
    ' "delivery_'
)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    "element", [json.dumps(UNKNOWN_MESSAGE), CUT], ids=["of a stranger", "cut off"]
)
def test_an_element_of_an_unknown_version_is_taken(
    element: str, place: int, app: Celery, store: Store
) -> None:
    """An unknown element is taken at any place among ordered messages. The task that runs it
    reports the error.
    """
    client = store.connection.redis
    send(app, store, a_job(store), "a.1", "b.1", "c.1")
    others = client.lrange(QUEUE, 0, -1)
    client.delete(QUEUE)
    client.rpush(QUEUE, *others[:place], element, *others[place:])
    with queue_consumer(app) as queue:
        messages = [queue.get(timeout=5) for _ in range(4)]
        steps = {
            str(message.headers.get(MEMBER_HEADER, "")).partition("/")[2] for message in messages
        }
        assert steps == {"", "a.1", "b.1", "c.1"}
        for message in messages:
            message.ack()
