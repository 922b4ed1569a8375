"""The fair order of a queue's messages: four scripts, and the header that names a message's job.

A queue is a Redis list, as everywhere in Celery, and the length of the list is its depth. A sorted
set holds one entry for each message of a job, ordered by the job's priority and tenant. A worker
that pops an element of the list receives the first message of that order in its place. So all
elements of the list are equal. A process that does not know the order takes messages as they come,
also next to processes that know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from handoff_queue.shared.store.redis.script import Script, source_of

FIRST = "handoff-first"
"""Header of a message that other messages have overtaken. It goes before all messages of the same
priority in its queue.
"""
FOR = "handoff-for"
"""Header with the job or handoff of a message, as the sorted sets name it: `job`, or `job/handoff`.
A message without the header has no place in the order.
"""

ALONE = b" "
"""Suffix of an element whose message has no place in the order, and is taken as it is. JSON may end
with a space.
"""


ENQUEUE, DEQUEUE, TAKE, PURGE = (
    Script(source_of(name)) for name in ("enqueue", "dequeue", "take", "purge")
)


def is_for(message: Mapping[str, Any]) -> str | None:
    """Return the entry of a message in the order, or None if it has no place."""
    member = (message.get("headers") or {}).get(FOR)
    if isinstance(member, str) and member and not member[0].isspace():
        return member
    return None


def entry_of(message: Mapping[str, Any]) -> str | None:
    """Return the name of a message in the order, or None if it has no place."""
    member = is_for(message)
    return member and f"{member} {message['properties']['delivery_tag']}"


def enqueue_order(
    queue: str, messages: Sequence[Mapping[str, Any]], *, is_first: bool
) -> list[Any]:
    """Number of keys, keys and arguments of `enqueue.lua`."""
    each: list[tuple[str | None, Any, str]] = []
    for message in messages:
        each.append((is_for(message), message["properties"]["delivery_tag"], json.dumps(message)))
    return [1, queue, int(is_first), *chain.from_iterable(each)]


def take_order(queues: Mapping[str, int]) -> list[Any]:
    """Return keys and arguments of `take.lua`.

    Args:
        queues: most messages to take, by queue.
    """
    return [len(queues), *queues, *queues.values()]


def dequeue_order(queue: str, popped: Mapping[str, Any]) -> list[Any]:
    """Return keys and arguments of `dequeue.lua`.

    Args:
        popped: content of the element of the list.
    """
    return [1, queue, popped["properties"]["delivery_tag"], is_for(popped)]
