"""A published message names its job and its sender, and is sent again only if the first send may
have failed.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kombu.transport
import pytest
from celery import Celery, signals
from kombu.exceptions import OperationalError

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.message_publisher import (
    SIGNATURE,
    ChordPart,
    TaskMessage,
    build_signature,
    parse_message,
    publish,
    publish_each,
    wake_up,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import FIRST_HEADER, MEMBER_HEADER
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from tests.doubles.handoffs import JOB


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = make_app("test", redis_url, Settings(), [SUPERVISOR_QUEUE])
    yield app
    app.close()


def wake_up_message() -> TaskMessage:
    return wake_up(JobId(JOB))


@pytest.mark.parametrize("is_within_a_task", [True, False])
def test_a_message_names_its_job_its_chord_its_signature_and_its_parent(
    app: Celery, queues: Any, is_within_a_task: bool
) -> None:
    body = build_signature(wake_up(JobId(JOB), task_id=f"{JOB}:g1:fan-in"))
    message = TaskMessage(
        "specialist.researcher",
        f"{JOB}:a.1",
        SUPERVISOR_QUEUE,
        ("é",),
        f"({JOB}, a.1)",
        f"{JOB}/a.1",
        signature="signed",
        part=ChordPart(f"{JOB}:g1", 3, body),
    )

    def send() -> None:
        publish(app, message)

    if is_within_a_task:
        app.task(send, name="sends", shared=False).apply(task_id="a-wake-up", throw=True)
    else:
        send()

    (sent,) = (json.loads(frame) for frame in queues.lrange(SUPERVISOR_QUEUE, 0, -1))
    arguments, _, embedded = json.loads(b64decode(sent["body"]))
    parent = "a-wake-up" if is_within_a_task else None
    assert (arguments, embedded["chord"]) == (["é"], json.loads(json.dumps(body)))
    assert (
        sent["headers"]
        | {
            "id": f"{JOB}:a.1",
            "task": "specialist.researcher",
            "group": f"{JOB}:g1",
            "group_index": 3,
            "argsrepr": f"({JOB}, a.1)",
            "kwargsrepr": "{}",
            "root_id": parent or f"{JOB}:a.1",
            "parent_id": parent,
            MEMBER_HEADER: f"{JOB}/a.1",
            SIGNATURE: "signed",
        }
        == sent["headers"]
    )
    assert FIRST_HEADER not in sent["headers"]


def test_a_message_adds_no_other_key_to_redis(app: Celery, queues: Any) -> None:
    publish(app, wake_up_message())

    assert {key.decode() for key in queues.scan_iter()} == {
        SUPERVISOR_QUEUE,
        f"{keys.OUT}{SUPERVISOR_QUEUE}",
    }


def test_the_body_of_a_chord_is_the_signature_that_celery_would_write(app: Celery) -> None:
    message = wake_up(JobId(JOB), task_id=f"{JOB}:g1:fan-in")
    options = {
        "argsrepr": message.visible_args,
        "headers": {MEMBER_HEADER: JOB},
        "ignore_result": True,
        "kwargsrepr": "{}",
        "declare": (),
    }
    celerys = app.signature(
        message.task,
        message.args,
        immutable=True,
        queue=message.queue,
        task_id=message.task_id,
        **options,
    )

    assert build_signature(message) == dict(celerys)
    assert parse_message(json.loads(json.dumps(build_signature(message)))) == message


def test_tracing_signals_fire_before_and_after_each_message_in_order(
    app: Celery,
) -> None:
    signalled: list[tuple[str, str]] = []
    with _signals_in(signalled):
        publish_each(app, [wake_up(JobId(JOB), task_id=name) for name in ("first", "second")])
        publish(app, wake_up(JobId(JOB), task_id="third"))

    assert signalled == [
        (when, name) for name in ("first", "second", "third") for when in ("before", "after")
    ]


def test_the_headers_of_tracing_are_sent_with_the_message(app: Celery, queues: Any) -> None:
    def before(headers: dict[str, Any], **_: Any) -> None:
        headers["traceparent"] = "00-1-2-01"

    signals.before_task_publish.connect(before)
    publish(app, wake_up_message())
    signals.before_task_publish.disconnect(before)

    assert [
        json.loads(frame)["headers"]["traceparent"]
        for frame in queues.lrange(SUPERVISOR_QUEUE, 0, -1)
    ] == ["00-1-2-01"]


def test_an_app_that_was_closed_opens_a_new_connection(app: Celery, queues: Any) -> None:
    publish(app, wake_up_message())
    app.close()
    publish(app, wake_up_message())

    assert queues.llen(SUPERVISOR_QUEUE) == 2


def test_an_undeclared_queue_is_refused(app: Celery) -> None:
    with pytest.raises(KeyError):
        publish(app, wake_up(JobId(JOB), queue="nobodys"))


@pytest.mark.slow
def test_a_send_without_a_reply_in_time_is_not_repeated(redis_url: str, queues: Any) -> None:
    app = make_app("test", redis_url, Settings(), [SUPERVISOR_QUEUE])
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, "socket_timeout": 0.2}
    publish(app, wake_up_message())
    before = queues.info("stats")["total_connections_received"]

    queues.client_pause(1_000)
    with pytest.raises(OperationalError, match="did not answer in time"):
        publish(app, wake_up_message())

    assert queues.info("stats")["total_connections_received"] == before
    app.close()


def test_a_repeated_send_has_a_new_delivery_tag(
    redis_url: str, queues: Any, armed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kombu.transport, "_transport_cache", {})
    (armed / f"publish.{SUPERVISOR_QUEUE}.after").write_text("drop")
    app = make_app("test", redis_url, Settings(), [SUPERVISOR_QUEUE])
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "health_check_interval": 1,
    }  # with a separate connection pool
    publish(app, wake_up_message())

    assert not (armed / f"publish.{SUPERVISOR_QUEUE}.after").exists()
    first, again = (
        json.loads(frame)["properties"] for frame in queues.lrange(SUPERVISOR_QUEUE, 0, -1)
    )
    assert first.pop("delivery_tag") != again.pop("delivery_tag")
    assert first == again
    app.close()


@contextmanager
def _signals_in(signals_sent: list[tuple[str, str]]) -> Iterator[None]:
    """Collect the publish signals that tracing uses."""

    def before(headers: dict[str, Any], **_: Any) -> None:
        signals_sent.append(("before", headers["id"]))

    def after(headers: dict[str, Any], **_: Any) -> None:
        signals_sent.append(("after", headers["id"]))

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    yield
    signals.before_task_publish.disconnect(before)
    signals.after_task_publish.disconnect(after)
