"""The fair order of a queue's messages, which its list does not have: four scripts, and the
header that says whose a message is.

A queue is a Redis list, as everywhere in Celery, and its length is the queue's depth. Each
message of a job has a place in a sorted set beside it, too, by its job's priority and tenant.
Whoever pops an element of the list gets the first message of that order in its stead. So all
elements are worth the same, and a process that knows nothing of this takes them as they come,
also beside others that do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from handoff_queue.shared.store.redis.script import Script, source_of

FIRST = "handoff-first"
"""The header of a message that others have overtaken: it goes ahead of those that wait in its
queue with the same priority.
"""
FOR = "handoff-for"
"""The header with what a message is for, as the store's sorted sets name it: `job`, or
`job/handoff`. Without it, it has no place.
"""

ALONE = b" "
"""Behind an element with nothing beside it in its queue: its message has no place, and is
taken as it is. JSON may end with this.
"""


ENQUEUE, DEQUEUE, TAKE, PURGE = (
    Script(source_of(name)) for name in ("enqueue", "dequeue", "take", "purge")
)


def is_for(message: Mapping[str, Any]) -> str | None:
    """What a message is for; None: it has no place in the order."""
    member = (message.get("headers") or {}).get(FOR)
    return member if isinstance(member, str) and member and not member[0].isspace() else None


def entry_of(message: Mapping[str, Any]) -> str | None:
    """Its name in the order; None: it has no place there."""
    member = is_for(message)
    return member and f"{member} {message['properties']['delivery_tag']}"


def enqueue_order(
    queue: str, messages: Sequence[Mapping[str, Any]], *, is_first: bool
) -> list[Any]:
    """Number of keys, keys and arguments of `enqueue.lua`."""
    each = [
        (is_for(message), message["properties"]["delivery_tag"], json.dumps(message))
        for message in messages
    ]
    return [1, queue, int(is_first), *chain.from_iterable(each)]


def take_order(queues: Mapping[str, int]) -> list[Any]:
    """The same of `take.lua`. `queues`: how many messages of each at most."""
    return [len(queues), *queues, *queues.values()]


def dequeue_order(queue: str, popped: Mapping[str, Any]) -> list[Any]:
    """The same of `dequeue.lua`. `popped`: what the element holds."""
    return [1, queue, popped["properties"]["delivery_tag"], is_for(popped)]
