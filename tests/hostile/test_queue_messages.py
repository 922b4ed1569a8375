"""A hostile element of a queue is a dead letter with a short reason, and never reaches a task."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import pytest

from handoff_queue.shared.broker.kombu_message_validation import (
    UNREADABLE,
    find_arguments_problem,
    find_task_problem,
    parse_frame,
)


class Evil:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("owned",)


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


ARGUMENTS = [["j-0123456789ab"], {}, {"callbacks": None, "errbacks": None, "chain": None}]
MESSAGE: dict[str, Any] = {
    "body": encoded(ARGUMENTS),
    "content-encoding": "utf-8",
    "content-type": "application/json",
    "headers": {"task": "advance", "id": "f"},
    "properties": {
        "body_encoding": "base64",
        "delivery_tag": "t",
        "delivery_info": {"exchange": "", "routing_key": "writer"},
    },
}
PICKLED = base64.b64encode(pickle.dumps(Evil())).decode()
SIGNATURE = {"task": "celery.map", "args": [], "kwargs": {}, "options": {}}
HALF = "\ud83d"


def changed(**parts: Any) -> dict[str, Any]:
    """Return the message with other parts."""
    return {**MESSAGE, **{name.replace("_", "-"): value for name, value in parts.items()}}


def with_headers(**headers: Any) -> dict[str, Any]:
    return changed(headers={**MESSAGE["headers"], **headers})


def with_properties(**properties: Any) -> dict[str, Any]:
    return changed(properties={**MESSAGE["properties"], **properties})


def with_follow_ups(**follow_ups: Any) -> dict[str, Any]:
    return changed(body=encoded([[], {}, follow_ups]))


MESSAGES: dict[str, Any] = {
    "a pickle": changed(body=PICKLED, content_type="application/x-python-serialize"),
    "a pickle in binary": changed(
        body=PICKLED, content_type="application/x-python-serialize", content_encoding="binary"
    ),
    "YAML": changed(content_type="application/x-yaml"),
    "MessagePack": changed(content_type="application/x-msgpack", content_encoding="binary"),
    "another encoding": changed(content_encoding="utf-7"),
    "a content type that is a list": changed(content_type=["application/json"]),
    "no content type": changed(content_type=None),
    "compression": with_headers(compression="application/x-gzip"),
    "an unknown compression": with_headers(compression="zstd"),
    "no headers": changed(headers=None),
    "headers that are a list": changed(headers=[]),
    "no task": with_headers(task=None),
    "a task that is a list": with_headers(task=["advance"]),
    "an id that is a number": with_headers(id=7),
    "half a character in the task": with_headers(task=HALF),
    "half a character in the id": with_headers(id=HALF),
    "a time to wait": with_headers(eta="2999-01-01T00:00:00"),
    "a time to wait that is a list": with_headers(eta=[]),
    "an expiry": with_headers(expires="2000-01-01T00:00:00"),
    "an expiry that is a number": with_headers(expires=-1),
    "a result of Celery": with_headers(ignore_result=False),
    "a limit of time": with_headers(timelimit=[1, 1]),
    "a limit of time that is a text": with_headers(timelimit="1"),
    "stamps": with_headers(stamped_headers=["a"], stamps={"a": ["b"]}),
    "retries that are a text": with_headers(retries="many"),
    "a group that is a list": with_headers(group=[1]),
    "an index that is a text": with_headers(group_index="0"),
    "a nesting that is a list": with_headers(replaced_task_nesting=[]),
    "a shadow that is a number": with_headers(shadow=1),
    "a parent that is an object": with_headers(parent_id={}),
    "callbacks": with_follow_ups(callbacks=[SIGNATURE]),
    "callbacks of errors": with_follow_ups(errbacks=[SIGNATURE]),
    "a chain": with_follow_ups(chain=[SIGNATURE]),
    "a chord that is a list": with_follow_ups(chord=[SIGNATURE]),
    "callbacks in a header": with_headers(callbacks=[SIGNATURE]),
    "callbacks of errors in a header": with_headers(errbacks=[SIGNATURE]),
    "a chain in a header": with_headers(chain=[SIGNATURE]),
    "a chord in a header": with_headers(chord=SIGNATURE),
    "no list of arguments": changed(body=encoded({"args": []})),
    "arguments that are a text": changed(body=encoded(["j", {}, {}])),
    "four parts": changed(body=encoded([[], {}, {}, {}])),
    "a body of deep brackets": changed(body=base64.b64encode(b"[" * 100_000).decode()),
    "a body that is not JSON": changed(body=base64.b64encode(b"\xff").decode()),
    "a body that is not base64": changed(body="%%%"),
    "a body that is an object": changed(body={}),
    "a body of another encoding": with_properties(body_encoding="rot13"),
    "a body encoding that is a list": with_properties(body_encoding=["base64"]),
    "no properties": changed(properties=None),
    "no place of delivery": with_properties(delivery_info=None),
    "a place that is a list": with_properties(delivery_info=["", "writer"]),
    "half a character in the place": with_properties(
        delivery_info={"exchange": HALF, "routing_key": "writer"}
    ),
    "no tag of delivery": with_properties(delivery_tag=None),
    "a mark of this project": with_headers(**{UNREADABLE: "\x1b[2J"}),
    "a number": 7,
    "a list": [MESSAGE],
    "null": None,
}
FRAMES = {
    **{name: json.dumps(message).encode() for name, message in MESSAGES.items()},
    "bytes of a pickle": pickle.dumps(Evil()),
    "bytes of zlib": zlib.compress(json.dumps(MESSAGE).encode()),
    "UTF-16": json.dumps(MESSAGE).encode("utf-16"),
    "UTF-8 with a mark": b"\xef\xbb\xbf" + json.dumps(MESSAGE).encode(),
    "a message and more": json.dumps(MESSAGE).encode() + b"{}",
    "half a message": json.dumps(MESSAGE).encode()[:-9],
    "deep brackets": b"[" * 100_000,
    "not a number": b'{"body": NaN}',
    "nothing": b"",
    "a NUL": b"\0",
}


def reason_of(frame: bytes) -> str | None:
    """Return why an element of a queue reaches no task, or None if it does."""
    message = parse_frame(frame, "writer")
    headers = message.get("headers") or {}
    problem = find_task_problem(
        headers, message.get("content-type"), message.get("content-encoding")
    )
    if problem is not None:
        return problem
    try:
        arguments = json.loads(base64.b64decode(message["body"]))
    except (ValueError, RecursionError) as error:
        return f"its body cannot be read ({type(error).__name__})"
    return find_arguments_problem(arguments)


@pytest.mark.parametrize("name", FRAMES)
def test_a_hostile_element_reaches_no_task(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    reason = reason_of(FRAMES[name])

    assert reason
    assert len(reason) < 500
    assert not capsys.readouterr().out, "no pickle was read"


def test_a_message_of_this_project_reaches_its_task() -> None:
    assert reason_of(json.dumps(MESSAGE).encode()) is None


def test_a_message_that_is_put_back_goes_to_the_queue_that_had_it() -> None:
    """A process that drains would else write to a key of the sender's choice."""
    forged = json.loads(json.dumps(MESSAGE))
    forged["properties"]["delivery_info"] = {"exchange": "", "routing_key": "handoff:due"}

    message = parse_frame(json.dumps(forged).encode(), "writer")

    info = message["properties"]["delivery_info"]
    assert (info["exchange"], info["routing_key"]) == ("", "writer")
