"""The last part of a chord sends the chord's body. The store holds the results, and Celery counts
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.chord_result_backend import StoreBackend, tell_parts_left
from handoff_queue.shared.broker.message_publisher import build_signature, wake_up
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE

JOB = JobId("j-000000000001")


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", redis_url, Settings(), [SUPERVISOR_QUEUE])
    yield app
    app.close()


class Task:
    """The parts of a Celery task that the backend reads."""

    def __init__(self, chord: Any = None) -> None:
        body = json.loads(json.dumps(build_signature(wake_up(JOB, task_id=f"{JOB}:g1:fan-in"))))
        self.request = Context(id=f"{JOB}:a.1", group=f"{JOB}:g1", chord=chord or body)


def finish_part(app: Celery, task: Task) -> None:
    app.backend.mark_as_done(task.request.id, "ok", request=task.request, store_result=False)


def queued_ids(store: Store) -> list[str]:
    return [
        json.loads(frame.rstrip())["headers"]["id"]
        for frame in store.connection.redis.lrange(SUPERVISOR_QUEUE, 0, -1)
    ]


def test_the_last_part_sends_the_chords_body(app: Celery, store: Store) -> None:
    task = Task()
    tell_parts_left(task, 0)
    finish_part(app, task)

    assert queued_ids(store) == [f"{JOB}:g1:fan-in"]


@pytest.mark.parametrize("left", [2, 1, -1])
def test_an_earlier_part_does_not_send_the_chords_body(
    left: int, app: Celery, store: Store
) -> None:
    task = Task()
    tell_parts_left(task, left)
    finish_part(app, task)

    assert queued_ids(store) == []


def test_no_body_is_sent_for_a_task_that_the_store_does_not_know(app: Celery, store: Store) -> None:
    finish_part(app, Task())

    assert queued_ids(store) == []


def test_a_header_about_open_parts_sends_no_body(app: Celery, store: Store) -> None:
    """Celery makes an attribute of the request from each header of a message. A worker that was
    taken over could so send messages with the rights of the supervisor.
    """
    task = Task()
    task.request.parts_left = json.loads("0")
    finish_part(app, task)

    assert queued_ids(store) == []


def test_a_part_leaves_no_other_key_in_redis(app: Celery, store: Store) -> None:
    task = Task()
    tell_parts_left(task, 1)
    finish_part(app, task)

    assert store.connection.redis.keys("celery*") == []


def test_an_invalid_body_ends_no_task(app: Celery, store: Store) -> None:
    task = Task(chord={"task": 7, "options": 3})
    tell_parts_left(task, 0)
    finish_part(app, task)

    assert queued_ids(store) == []


@pytest.mark.parametrize(
    "url", ["redis://h:1/0", "rediss://h:1/0", "sentinel://h:1/0?master_name=main"]
)
def test_the_store_counts_at_every_address(url: str) -> None:
    app = make_app("test", url, Settings(), [SUPERVISOR_QUEUE])

    assert isinstance(app.backend, StoreBackend)
    app.close()
