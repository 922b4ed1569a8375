"""What kombu and Celery do for every message and every event, done less often."""

from __future__ import annotations

import re
from typing import Any

import pytest
from celery.worker import WorkController
from kombu.asynchronous import Hub

from shared.broker import EVENTS_EVERY_S, LastingChannel, SentinelTransport, Transport, WorkerConsumer
from shared.celery_app import make_app
from shared.config import Settings
from shared.wire.ids import NAME_PATTERN
from shared.wire.names import RESERVED


class CountingDispatcher:
    """Celery's event dispatcher as far as the consumer knows it."""

    def __init__(self) -> None:
        self.flushed = 0

    def flush(self) -> None:
        self.flushed += 1


def consumer_with(dispatcher: CountingDispatcher, hub: Any) -> WorkerConsumer:
    app = make_app("test", "redis://127.0.0.1:1/0", Settings(), ["known"])
    worker = WorkController(app=app, concurrency=1, queues=["known"])
    consumer = WorkerConsumer(print, init_callback=print, hostname="w", pool=None, app=app, controller=worker, hub=hub, worker_options={})
    consumer.event_dispatcher = dispatcher
    return consumer


@pytest.mark.parametrize("key", [LastingChannel.unacked_key, LastingChannel.unacked_index_key, LastingChannel.unacked_mutex_key])
def test_no_specialist_can_have_a_queue_in_the_place_of_a_key_of_the_broker(key: str) -> None:
    assert key in RESERVED


def test_celerys_own_queue_and_exchanges_are_no_names_for_a_specialist() -> None:
    conf = make_app("test", "redis://127.0.0.1:1/0", Settings(), ["known"]).conf
    theirs = {conf.task_default_queue, conf.task_default_exchange or "celery", conf.event_exchange, conf.control_exchange}
    assert all(name in RESERVED or not re.search(NAME_PATTERN, name) for name in {*theirs, "celery.pidbox"})


def test_events_that_come_together_leave_together() -> None:
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


def test_sentinels_are_asked_by_their_own_transport() -> None:
    app = make_app("t", "sentinel://a:1/0", Settings(), [])

    assert isinstance(app.connection_for_read().transport, SentinelTransport)


def test_a_tls_broker_checks_certificates_over_the_same_transport() -> None:
    connection = make_app("t", "rediss://h:1/0", Settings(), []).connection_for_read()

    assert isinstance(connection.transport, Transport)
    assert connection.ssl["ssl_cert_reqs"].name == "CERT_REQUIRED"
