"""The fair order of a queue's messages: start-time fair queueing between tenants.

`lua/parts/fair_order.lua` computes the order, and takes the first message.
This module calls the scripts, and defines the header that names a message's job.

A queue is a Redis list, as everywhere in Celery, and the length of the list is its depth. A
sorted set holds one entry for each message of a job, ordered by the job's priority and tenant.
A worker that pops an element of the list receives the first message of that order in its
place. So all elements of the list are equal. A process that does not know the order takes
messages as they come, also next to processes that know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.store.redis.script import Script, build_source

FIRST_HEADER = "handoff-first"
"""Header of a message that other messages have overtaken. It goes before all messages of its
priority class.
"""
MEMBER_HEADER = "handoff-for"
"""Header with the job or handoff of a message, as the sorted sets name it: `job`, or
`job/handoff`. A message without the header has no place in the order.
"""

ALONE_SUFFIX = b" "
"""Suffix of the only element of a queue. Its message has no place in the order until another
message comes. JSON may end with a space.
"""


ENQUEUE = Script(build_source("fair_enqueue"))
DEQUEUE = Script(build_source("fair_dequeue"))
TAKE = Script(build_source("fair_dequeue_many"))
PURGE = Script(build_source("purge_queue"))


def get_member(message: Mapping[str, Any]) -> str | None:
    """Return the job or handoff of a message, from its header `MEMBER_HEADER`; None without a valid
    header.
    """
    member = (message.get("headers") or {}).get(MEMBER_HEADER)
    if isinstance(member, str) and member and not member[0].isspace():
        return member
    return None


def get_entry(message: Mapping[str, Any]) -> str | None:
    """Return the name of a message in the fair order, or None if its header names no job."""
    member = get_member(message)
    if member is None:
        return None
    return f"{member} {message['properties']['delivery_tag']}"


def enqueue_arguments(queue: str, message: Mapping[str, Any], *, is_first: bool) -> list[Any]:
    """Return the number of keys, the keys and the arguments of `fair_enqueue.lua`.

    Args:
        is_first: True to put the message before all others of its priority class.
    """
    tag = message["properties"]["delivery_tag"]
    return [1, queue, int(is_first), get_member(message), tag, json.dumps(message)]


def take_arguments(queues: Mapping[str, int]) -> list[Any]:
    """Return the number of keys, the keys and the arguments of `fair_dequeue_many.lua`.

    Args:
        queues: most messages to take from each queue, by name.
    """
    return [len(queues), *queues, *queues.values()]


def build_dequeue_arguments(queue: str, popped_message: Mapping[str, Any]) -> list[Any]:
    """Return the number of keys, the keys and the arguments of `fair_dequeue.lua`.

    Args:
        popped_message: message of the element that was popped from the list.
    """
    return [1, queue, popped_message["properties"]["delivery_tag"]]
