"""Invalid bytes are wrapped in a valid message. A valid message stays unchanged, byte for byte."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from kombu import Connection

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.kombu_message_validation import (
    find_arguments_problem,
    find_problem,
    find_task_problem,
    parse_frame,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.store.store import Store

JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(some.text() | some.just("body"), inner, max_size=3)
    ),
    max_leaves=10,
)


def test_a_message_that_celery_publishes_is_valid_and_unchanged(
    store: Store, redis_url: str
) -> None:
    app = make_app("test", redis_url, Settings(), ["known"])
    body = app.signature("advance", args=("j", []), immutable=True, queue="known").set(task_id="f")
    app.signature("run", args=("text",), queue="known").apply_async(
        group_id="g", group_index=0, chord=body
    )
    (frame,) = store.connection.redis.lrange("known", 0, -1)
    headers = json.loads(frame)["headers"]

    assert parse_frame(frame, "known") == json.loads(frame)
    assert find_task_problem(headers, "application/json", "utf-8") is None
    assert find_arguments_problem(json.loads(base64.b64decode(json.loads(frame)["body"]))) is None


@given(frame=some.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_kombu_makes_a_message_with_the_original_bytes_from_any_bytes(frame: bytes) -> None:
    around = json.loads(json.dumps(parse_frame(frame, "writer")))
    channel = Connection("memory://").channel()
    message = channel.Message(around, channel=channel)

    assert (message.body, message.delivery_info["routing_key"]) == (frame, "writer")
    assert (
        find_task_problem(message.headers, message.content_type, message.content_encoding)
        == message.headers["unreadable"]
    )


HALF = "\ud83d"


def message_with(**properties: Any) -> dict[str, Any]:
    info = {"exchange": "", "routing_key": "writer"}
    return {
        "body": "",
        "headers": {MEMBER_HEADER: "j"},
        "properties": {"delivery_tag": "t", "delivery_info": info, **properties},
    }


@pytest.mark.parametrize(
    "value",
    [
        message_with(delivery_tag=HALF),
        message_with(delivery_info={"exchange": HALF, "routing_key": "writer"}),
        message_with(delivery_info={"exchange": "", "routing_key": HALF}),
        message_with() | {"headers": {MEMBER_HEADER: f"j-{HALF}"}},
    ],
)
@pytest.mark.parametrize("is_escaped", [True, False])
def test_bytes_that_redis_cannot_repeat_are_not_a_message(
    value: dict[str, Any], is_escaped: bool
) -> None:
    frame = json.dumps(value, ensure_ascii=is_escaped).encode("utf-8", "surrogatepass")

    assert find_problem(message_with()) is None
    assert "unreadable" in parse_frame(frame, "writer")["headers"]


def test_a_message_that_is_not_utf_8_is_invalid() -> None:
    assert (
        "unreadable"
        in parse_frame(json.dumps(message_with()).encode("utf-16"), "writer")["headers"]
    )


@given(value=JSON)
def test_no_value_is_more_than_a_problem(value: object) -> None:
    headers = value if isinstance(value, dict) else {"task": value, "id": "i", "retries": value}

    assert find_problem(value)
    assert find_task_problem(headers, "application/json", "utf-8")
    find_arguments_problem(value)
    find_arguments_problem([[], {}, headers])


@pytest.mark.parametrize(
    "headers",
    [
        {"eta": "2999-01-01"},
        {"timelimit": [1, 2]},
        {"stamped_headers": 5},
        {"group": {}},
        {"retries": "x"},
        {"task": "x" * 500},
    ],
)
def test_a_reason_is_one_short_line(headers: dict[str, object]) -> None:
    reason = find_task_problem({"task": [1] * 500, **headers}, "x" * 500, "utf-8")

    assert reason
    assert len(reason) < 300
    assert "\n" not in reason
