"""Validation of queue elements before Celery and kombu read them. Any client of Redis may have
written these bytes. Pure.

Celery and kombu expect valid messages. Without validation, an invalid element ends the process
that took it, and is lost with that process. So each element is checked when it arrives. An
invalid element is wrapped in a valid message, which is delivered, refused and acknowledged
like any other message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.store.fair_queue import get_member
from handoff_queue.shared.types.ids import create_word

UNREADABLE = "unreadable"
"""Header of a message that wraps an invalid element: the reason why it is not a message."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("lang", "shadow", "group", "root_id", "parent_id", "argsrepr", "kwargsrepr", "origin"),
        (str, type(None)),
    ),
    **dict.fromkeys(("retries", "group_index", "replaced_task_nesting"), (int, type(None))),
}
"""Types that Celery expects of optional headers."""
_FORBIDDEN_FOLLOW_UPS = ("callbacks", "errbacks", "chain")
"""Follow-up tasks that our messages never ask for."""
_FORBIDDEN_HEADERS = (
    "eta",
    "expires",
    "timelimit",
    "stamped_headers",
    "stamps",
    "chord",
    "ignore_result",
    *_FORBIDDEN_FOLLOW_UPS,
)
"""Headers that our messages never have, or have with one value. With such a header a message would
wait in the process that took it, or would vanish. Celery also sends the follow-up tasks that a
header names: the process would send messages of the attacker's choice with its own rights. With
`ignore_result` false, Celery would try again and again to store a result that a supervisor may not
store. A slot would wait for minutes.
"""
_UNSET: Mapping[str, tuple[object, ...]] = {
    "ignore_result": (None, True),
    "timelimit": (None, [None, None]),
    "stamped_headers": (None, []),
    "stamps": (None, {}),
}
"""Values that our messages have, or that Celery writes for an unset header. Other empty values are
refused: an `eta` of [] ends the process that reads it.
"""
_QUOTED_CHARS = 100
"""Characters of foreign text in a reason."""


def parse_frame(frame: bytes, queue: str) -> dict[str, Any]:
    """Return the message in the frame, or a message that wraps an invalid frame.

    The address of the message is the queue that had the frame. A process that puts the message back
    may write keys that the sender of the frame may not write.
    """
    try:
        # `loads` of bytes would also accept other encodings, and half characters
        value = json.loads(frame.decode())
        why = find_problem(value)
    except (ValueError, RecursionError) as error:
        why = f"its JSON cannot be read ({type(error).__name__})"
    if why is None:
        message: dict[str, Any] = value
        message["properties"]["delivery_info"].update(exchange="", routing_key=queue)
        return message
    return _wrap_frame(frame, queue, why)


def find_problem(value: object) -> str | None:
    """Return why kombu could not read the value of an element as a message, or could not put
    the message back later. Return None if it can do both.
    """
    if not isinstance(value, dict):
        return "a message must be a JSON object"
    properties, headers, body = value.get("properties"), value.get("headers"), value.get("body")
    info = None
    if isinstance(properties, dict):
        info = properties.get("delivery_info")
    if not isinstance(properties, dict) or not isinstance(info, dict):
        return "a message must have properties with delivery_info"
    if not isinstance(headers, dict | None) or "compression" in (headers or {}):
        return "a message must have headers, and must not be compressed"
    if not _are_texts(
        properties.get("delivery_tag"),
        info.get("exchange"),
        info.get("routing_key"),
        get_member(value) or "",
    ):
        return (
            "a message must have a delivery_tag, an exchange and a routing_key, and may name"
            " its job"
        )
    if not isinstance(body, str | None):
        return "the body of a message must be a text"
    return _find_body_problem(body or "", properties.get("body_encoding"))


def find_task_problem(
    headers: Mapping[str, Any], content_type: object, content_encoding: object
) -> str | None:
    """Return why these headers are not the headers of one of our tasks; None if they are."""
    if UNREADABLE in headers:
        return str(headers[UNREADABLE])
    if (content_type, content_encoding) != ("application/json", "utf-8"):
        return (
            f"its content type is {_quote_value(content_type)} in"
            f" {_quote_value(content_encoding)}, and only application/json in utf-8 is allowed"
        )
    if not _are_texts(headers.get("id"), headers.get("task")):
        return "its headers must name its task and its id"
    wrong = [name for name, kinds in _KINDS.items() if not isinstance(headers.get(name), kinds)]
    wrong += [
        name for name in _FORBIDDEN_HEADERS if headers.get(name) not in _UNSET.get(name, (None,))
    ]
    if wrong:
        return f"these headers are not allowed: {', '.join(wrong)}"
    return None


def find_arguments_problem(payload: object) -> str | None:
    """Return why this body cannot be the arguments of a task; None if it can."""
    kinds = (list, dict, dict)
    if (
        not isinstance(payload, list)
        or len(payload) != len(kinds)
        or not all(map(isinstance, payload, kinds))
    ):
        return "its body is not [arguments, named arguments, follow-up tasks]"
    follow_ups: dict[str, object] = payload[2]
    chord = follow_ups.get("chord")
    if any(map(follow_ups.get, _FORBIDDEN_FOLLOW_UPS)) or not isinstance(chord, dict | None):
        return "its follow-up tasks are not allowed"
    return None


def no_such_task(name: str) -> str:
    """Return the reason to refuse a message for an unknown task."""
    visible_name = name
    if len(name) > _QUOTED_CHARS:
        visible_name = _quote_value(name)
    return f"there is no task {visible_name} in this version"


def _find_body_problem(body: str, encoding: object) -> str | None:
    if encoding in (None, "", "utf-8"):
        if _are_texts(body):
            return None
        return "its body has half a character (a lone surrogate)"
    if encoding != "base64":
        return f"the encoding of its body is {_quote_value(encoding)}"
    try:
        base64.b64decode(body)
    except ValueError:
        return "its body is not base64"
    return None


def _wrap_frame(frame: bytes, queue: str, why: str) -> dict[str, Any]:
    properties = {
        "body_encoding": "base64",
        "delivery_tag": create_word(),
        "delivery_info": {"exchange": "", "routing_key": queue},
    }
    body = base64.b64encode(frame).decode()
    return {
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "body": body,
        "headers": {UNREADABLE: why},
        "properties": properties,
    }


def _are_texts(*values: object) -> bool:
    """Return whether the values are texts that can be sent to Redis again. JSON can spell lone
    surrogates, and UTF-8 cannot.
    """
    for value in values:
        if not isinstance(value, str):
            return False
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True


def _quote_value(value: object) -> str:
    value_text = repr(value)
    if len(value_text) <= _QUOTED_CHARS:
        return value_text
    return value_text[: _QUOTED_CHARS - 1] + "…"
