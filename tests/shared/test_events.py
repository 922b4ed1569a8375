"""Of tasks, a worker says something to those who listen, and nothing into the void."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from shared.celery_app import make_app
from shared.config import Settings
from shared.ledger.ledger import Ledger

BEAT, RECEIVED = "worker-heartbeat", "task-received"


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", redis_url, Settings(), ["researcher"])
    yield app
    app.close()


@pytest.fixture
def dispatcher(app: Celery) -> Iterator[Any]:
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="w1") as dispatcher:
        yield dispatcher


@pytest.fixture
def listener(ledger: Ledger) -> Iterator[Any]:
    with ledger.connection.redis.pubsub(ignore_subscribe_messages=True) as listener:
        yield listener


def starts(listener: Any) -> None:
    listener.psubscribe("*celeryev*")
    listener.get_message(timeout=5)


def heard(listener: Any) -> list[str]:
    frames = iter(lambda: listener.get_message(timeout=0.2), None)
    return [kind_of(frame["data"]) for frame in frames]


def kind_of(frame: bytes) -> str:
    from base64 import b64decode

    return str(json.loads(b64decode(json.loads(frame)["body"]))["type"])


def test_who_listens_hears_of_tasks(dispatcher: Any, listener: Any) -> None:
    starts(listener)
    for kind in (BEAT, RECEIVED):
        dispatcher.send(kind)

    assert heard(listener) == [BEAT, RECEIVED]


def test_after_a_heartbeat_that_nobody_heard_nothing_is_said_of_tasks(dispatcher: Any, listener: Any) -> None:
    dispatcher.send(BEAT)
    starts(listener)
    dispatcher.send(RECEIVED)

    assert heard(listener) == []


def test_after_one_that_somebody_hears_it_is_again(dispatcher: Any, listener: Any) -> None:
    dispatcher.send(BEAT)
    starts(listener)
    for kind in (BEAT, RECEIVED):
        dispatcher.send(kind)

    assert heard(listener) == [BEAT, RECEIVED]


def test_a_worker_without_heartbeats_says_everything(dispatcher: Any, listener: Any) -> None:
    dispatcher.send(RECEIVED)
    starts(listener)
    dispatcher.send(RECEIVED)

    assert heard(listener) == [RECEIVED]
