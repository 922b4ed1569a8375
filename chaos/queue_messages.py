"""Functions that take, delete and copy messages in the broker's queues, for the faults of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import (
    ALONE_SUFFIX,
    DEQUEUE,
    MEMBER_HEADER,
    dequeue_arguments,
    member_of,
)


def take_message(client: Any, queue: str, element: bytes) -> bytes:
    """Take the message that a worker would receive for this element of the queue. The message
    is lost, as if the worker had died with it.
    """
    popped = json.loads(element)
    if element.endswith(ALONE_SUFFIX) or member_of(popped) is None:
        return element
    # One script: a fault may kill Redis between two commands.
    message: bytes | None = DEQUEUE.run(client, dequeue_arguments(queue, popped))
    return message or element


def delete_queue(client: Any, queue: str) -> None:
    """Delete all messages of a queue."""
    fair = keys.FAIR + queue
    client.delete(queue, fair, f"{fair}:messages", f"{fair}:next")


def without_fair_order(message: Mapping[str, Any]) -> str:
    """Return a copy of a message that a worker receives without the fair order."""
    headers = {}
    for name, value in message["headers"].items():
        if name != MEMBER_HEADER:
            headers[name] = value
    return json.dumps({**message, "headers": headers})
