"""The transport does less often what kombu and Celery do for every message and every event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery.worker import WorkController
from kombu.asynchronous import Hub
from kombu.exceptions import OperationalError

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.consumer import EVENTS_AT_ONCE, EVENTS_EVERY_S, WorkerConsumer
from handoff_queue.shared.broker.transport import PersistentChannel, SentinelTransport, Transport
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.names import NAME_PATTERN, RESERVED


class CountingDispatcher:
    """The methods of Celery's event dispatcher that the consumer calls. It counts the flushes."""

    def __init__(self) -> None:
        self.flushed = 0

    def flush(self) -> None:
        self.flushed += 1


def consumer_with(dispatcher: Any, hub: Any) -> WorkerConsumer:
    app = make_app("test", "redis://127.0.0.1:1/0", Settings(), ["known"])
    worker = WorkController(app=app, concurrency=1, queues=["known"])
    consumer = WorkerConsumer(
        print,
        init_callback=print,
        hostname="w",
        pool=None,
        app=app,
        controller=worker,
        hub=hub,
        worker_options={},
    )
    consumer.event_dispatcher = dispatcher
    return consumer


@pytest.fixture
def server(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.mark.parametrize(
    "key",
    [
        PersistentChannel.unacked_key,
        PersistentChannel.unacked_index_key,
        PersistentChannel.unacked_mutex_key,
    ],
)
def test_no_specialist_can_have_a_queue_in_the_place_of_a_key_of_the_broker(key: str) -> None:
    assert key in RESERVED


def test_celerys_own_queue_and_exchanges_are_not_names_for_a_specialist() -> None:
    conf = make_app("test", "redis://127.0.0.1:1/0", Settings(), ["known"]).conf
    celerys_names = {
        conf.task_default_queue,
        conf.task_default_exchange or "celery",
        conf.event_exchange,
        conf.control_exchange,
    }
    assert all(
        name in RESERVED or not re.search(NAME_PATTERN, name)
        for name in {*celerys_names, "celery.pidbox"}
    )


def test_events_that_arrive_together_are_sent_together() -> None:
    hub, dispatcher = Hub(), CountingDispatcher()
    consumer = consumer_with(dispatcher, hub)
    for _ in range(5):
        consumer.on_send_event_buffered()
    while hub._ready:
        hub._ready.pop()()
    (entry,) = [scheduled.entry for scheduled in hub.timer.queue]
    assert dispatcher.flushed == 0

    entry()

    assert dispatcher.flushed == 1


def test_after_a_batch_of_events_the_next_one_waits_for_its_own() -> None:
    hub, dispatcher = Hub(), CountingDispatcher()
    consumer = consumer_with(dispatcher, hub)
    for _ in range(2):
        consumer.on_send_event_buffered()
        while hub._ready:
            hub._ready.pop()()
        hub.timer.queue[-1].entry()

    assert dispatcher.flushed == 2
    assert EVENTS_EVERY_S <= 1


def test_no_event_waits_for_the_timer_of_the_first(redis_url: str, server: Any) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])
    with (
        app.connection_for_write() as connection,
        app.events.Dispatcher(connection, buffer_group=["task"]) as dispatcher,
    ):
        consumer_with(dispatcher, Hub()).create_task_handler()
        server.config_resetstat()
        sent = []
        for _ in range(2 * EVENTS_AT_ONCE):
            dispatcher.send("task-started", uuid="t")
            sent.append(server.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"])
    app.close()

    assert [sent.count(times) for times in range(3)] == [EVENTS_AT_ONCE - 1, EVENTS_AT_ONCE, 1]


def test_events_that_wait_for_company_are_not_lost_with_their_connection(
    redis_url: str, server: Any
) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])
    with (
        app.connection_for_write() as connection,
        app.events.Dispatcher(connection, buffer_group=["task"]) as dispatcher,
    ):
        consumer = consumer_with(dispatcher, Hub())
        consumer.create_task_handler()
        server.config_resetstat()
        for _ in range(3):
            dispatcher.send("task-succeeded", uuid="t")
        consumer.on_close()
    app.close()

    assert server.info("commandstats")["cmdstat_publish"]["calls"] == 1


@pytest.mark.slow
def test_a_worker_retries_an_absent_broker_soon(caplog: pytest.LogCaptureFixture) -> None:
    consumer = consumer_with(CountingDispatcher(), Hub())
    consumer.app.conf.broker_connection_max_retries = 2

    with pytest.raises(OperationalError):
        consumer.connection_for_read()

    assert re.findall(r"Trying again (.+)\.\.\.", caplog.text) == ["now", "in 1.00 second"], (
        "after half a second, and after a whole one"
    )


def test_one_client_serves_all_messages_of_a_channel(redis_url: str) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])
    with app.connection_for_read() as connection:
        assert isinstance(connection.transport, Transport)
        channel = connection.default_channel
        first = channel._create_client()

        assert channel._create_client() is first


def test_a_channel_that_has_a_new_pool_has_a_new_client(redis_url: str) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        first = channel._create_client()
        channel._disconnect_pools()

        assert channel._create_client().connection_pool is channel.pool
        assert channel._create_client() is not first


@pytest.fixture
def channel(redis_url: str) -> Iterator[Any]:
    """Yield a channel that has taken two of three messages in its queue."""
    app = make_app("test", redis_url, Settings(), ["known"])
    for name in ("first", "second", "third"):
        app.send_task(name, queue="known", declare=())
    with app.connection_for_read() as connection:
        taker = connection.channel()
        taker.taken = [taker.basic_get("known") for _ in range(2)]
        yield taker
    app.close()


def waiting_messages(server: Any) -> list[str]:
    """Return the messages in the queue, next message first."""
    return [
        json.loads(message)["headers"]["task"]
        for message in reversed(server.lrange("known", 0, -1))
    ]


def test_redis_gets_no_command_for_taken_or_finished_messages(channel: Any, server: Any) -> None:
    channel.basic_ack(channel.taken[0].delivery_tag)

    assert not server.exists(channel.unacked_key, channel.unacked_index_key)
    assert waiting_messages(server) == ["third"]


def test_a_requeued_message_is_last_in_its_queue(channel: Any, server: Any) -> None:
    channel.basic_reject(channel.taken[0].delivery_tag, requeue=True)

    assert waiting_messages(server) == ["third", "first"]


def test_an_unfinished_message_returns_to_the_front_when_its_channel_closes(
    channel: Any, server: Any
) -> None:
    channel.basic_ack(channel.taken[0].delivery_tag)
    channel.close()

    assert waiting_messages(server) == ["second", "third"]


def test_an_acknowledgement_after_the_channels_end_restores_nothing(
    channel: Any, server: Any
) -> None:
    channel.close()
    channel.qos.reject(channel.taken[0].delivery_tag, requeue=True)
    channel.qos.ack(channel.taken[1].delivery_tag)

    assert sorted(waiting_messages(server)) == ["first", "second", "third"]


def test_a_process_takes_no_more_messages_than_it_may_hold(channel: Any) -> None:
    channel.qos.prefetch_count = 2
    assert not channel.qos.can_consume()

    channel.basic_ack(channel.taken[0].delivery_tag)

    assert channel.qos.can_consume()


class CountingHub(Hub):  # type: ignore[misc]
    """Event loop that counts how often a reader is added."""

    given = 0

    def add_reader(self, *args: Any) -> Any:
        self.given += 1
        return super().add_reader(*args)


def test_an_event_loop_gets_each_socket_once(redis_url: str) -> None:
    app, hub, sockets = (
        make_app("test", redis_url, Settings(), ["known"]),
        CountingHub(),
        list[Any](),
    )
    with (
        app.connection_for_read() as connection,
        app.amqp.TaskConsumer(connection, on_message=sockets.append) as consumer,
    ):
        connection.transport.register_with_event_loop(connection.transport, hub)
        given = []
        for count in range(1, 4):
            app.send_task("t", queue="known", declare=())
            while len(sockets) < count:
                hub.run_once()
            given.append(hub.given)
            if count == 2:
                consumer.channel.client.connection.disconnect()

        assert given == [1, 1, 2]
        hub.close()
    app.close()


def test_sentinels_are_asked_by_their_own_transport() -> None:
    app = make_app("t", "sentinel://a:1/0", Settings(), [])

    assert isinstance(app.connection_for_read().transport, SentinelTransport)


def test_a_tls_broker_uses_the_same_transport() -> None:
    connection = make_app("t", "rediss://h:1/0", Settings(), []).connection_for_read()

    assert isinstance(connection.transport, Transport)
    assert connection.ssl["ssl_cert_reqs"] == "required"
