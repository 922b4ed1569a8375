"""What a killer does to messages that wait: taken out, lost, copied. `shared.store.fair_queue` says how they stand in Redis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import ALONE, DEQUEUE, FOR, dequeue_order, is_for


def taken_out(client: Any, queue: str, element: bytes) -> bytes:
    """The message that a worker would have got for this element of the queue, on the hands of one that has died with it."""
    popped = json.loads(element)
    if element.endswith(ALONE) or is_for(popped) is None:
        return element
    message: bytes | None = DEQUEUE.run(
        client, dequeue_order(queue, popped)
    )  # in one step: Redis may be killed at any
    return message or element


def lose_all(client: Any, queue: str) -> None:
    """As if it had never been published."""
    fair = keys.FAIR + queue
    client.delete(queue, fair, f"{fair}:messages", f"{fair}:next")


def without_a_place(message: Mapping[str, Any]) -> str:
    """A copy that is delivered itself, whatever waits in its queue."""
    return json.dumps(
        {
            **message,
            "headers": {name: value for name, value in message["headers"].items() if name != FOR},
        }
    )
