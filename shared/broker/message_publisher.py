"""Publisher of our Celery messages: each like a message of `Celery.send_task`, and all
messages of a queue in one round trip.

For each message `send_task` computes constant parts again, declares the queue, repeats
headers, and creates a result that no process reads. One message takes 142 µs of processor
time, and 397 µs with `send_task`. Three messages take 193 µs, and 911 µs with `send_task`
(`python -m benchmarks.plain_forms --parts`).

The publisher sends Celery's signals before and after each message, in pairs, so that tracing
works. Supervisors, workers and chords send the message that wakes a job.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from celery import Celery, signals
from celery.utils import uuid
from celery.utils.nodenames import anon_nodename

from handoff_queue.shared.broker.transport import PersistentChannel
from handoff_queue.shared.store.fair_queue import FIRST_HEADER, MEMBER_HEADER
from handoff_queue.shared.text.gil_yielding import with_pauses
from handoff_queue.shared.types.ids import HandoffId, JobId, new_word
from handoff_queue.shared.types.names import ADVANCE, SUPERVISOR_QUEUE

PUT_AT_ONCE = 50
"""Messages of one round trip. Redis handles no other command during that time."""
SIGNATURE = "handoff_signature"
"""Header with the signature of a handoff. The task finds it in its request."""
RETRY: Mapping[str, Any] = {
    "max_retries": 3,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 1,
}
"""kombu's policy for tries to send while Redis refuses or is unreachable; times are seconds.
After the last try, the publication fails, and the sweeper publishes the message later.
"""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A call of a task without a Celery result."""

    task: str
    task_id: str
    queue: str
    args: tuple[Any, ...]
    shown: str
    """Arguments as Flower and logs show them."""
    member: str
    """Entry in the store's sorted sets: `job`, or `job/handoff`."""
    signature: str = ""
    """The sender's signature of the argument; empty without a keyring."""
    is_first: bool = False
    """True if other messages have overtaken the message: it goes before all messages of the
    same priority in its queue.
    """
    part: ChordPart | None = None


@dataclass(frozen=True, slots=True)
class ChordPart:
    """A place in a chord."""

    group_id: str
    index: int
    body: Mapping[str, Any]
    """Body of the chord, in the form of `signature_of`."""


def signature_of(message: TaskMessage) -> dict[str, Any]:
    """Return the message in the form of a chord's body, which the worker that ends the last
    part sends.
    """
    options = {
        "queue": message.queue,
        "task_id": message.task_id,
        "argsrepr": message.shown,
        "headers": {MEMBER_HEADER: message.member},
        "ignore_result": True,
        "kwargsrepr": "{}",
        "declare": (),
    }
    call = {"task": message.task, "args": message.args, "kwargs": {}, "options": options}
    return {**call, "subtask_type": None, "immutable": True}


def message_in(signature: Mapping[str, Any]) -> TaskMessage:
    """Return the message of a chord's body.

    Raises:
        LookupError, TypeError: it is not a message of ours.
    """
    options = signature["options"]
    return TaskMessage(
        task=signature["task"],
        task_id=options["task_id"],
        queue=options["queue"],
        args=tuple(signature["args"]),
        shown=options["argsrepr"],
        member=options["headers"][MEMBER_HEADER],
    )


def publish(app: Celery, message: TaskMessage) -> None:
    """Publish one message; within a task, as its child.

    Raises:
        OperationalError: the broker is unreachable, or has not confirmed the message in time.
        KeyError: the queue is not declared.
    """
    _send(app, [message], lambda channel, queue, frames: channel.put(queue, *frames))


def publish_each(app: Celery, messages: Iterable[TaskMessage]) -> None:
    """Publish many messages, each queue's messages together and in order. Each message belongs
    to the trace in which it was given.

    Raises:
        OperationalError, KeyError: as `publish`. Some messages may have been sent.
    """
    _send(app, messages, lambda channel, queue, frames: channel.put_each(queue, frames))


def _send(
    app: Celery,
    messages: Iterable[TaskMessage],
    put: Callable[[PersistentChannel, str, list[dict[str, Any]]], None],
) -> None:
    """Publish the messages of each queue in pieces of `PUT_AT_ONCE`, in order.

    Args:
        put: sends frames to one queue over a channel.
    """
    sender = _sender_headers(app)
    frames_by_queue: dict[str, list[dict[str, Any]]] = {}
    for message in with_pauses(messages):
        app.amqp.queues[message.queue]  # a message for an undeclared queue would vanish
        frames_by_queue.setdefault(message.queue, []).append(_frame(message, sender))

    with app.pool.acquire(block=True) as connection:
        # kombu's producers set the same options. Without these options, kombu would try for six
        # seconds to open a channel.
        connection.transport_options.update(RETRY)

        def put_once(queue: str, frames: list[dict[str, Any]]) -> None:
            _put(connection.default_channel, put, queue, frames)

        put_with_retries = connection.ensure(_Nothing, put_once, **RETRY)
        for queue, frames in frames_by_queue.items():
            for first in range(0, len(frames), PUT_AT_ONCE):
                put_with_retries(queue, frames[first : first + PUT_AT_ONCE])


def _put(
    channel: PersistentChannel,
    put: Callable[[PersistentChannel, str, list[dict[str, Any]]], None],
    queue: str,
    frames: list[Any],
) -> None:
    """Send the frames once, each with its own delivery tag. A process that receives a message
    twice distinguishes the copies by the tag.
    """
    for frame in frames:
        frame["properties"]["delivery_tag"] = new_word()
    put(channel, queue, frames)


class _Nothing:
    """Connection state that needs no renewal when a command is repeated over another connection."""

    @staticmethod
    def revive(_channel: object) -> None:
        pass


def _sender_headers(app: Celery) -> Mapping[str, Any]:
    """Return the headers that all current messages of this thread share."""
    root_id = None
    parent_id = None
    task = app.current_worker_task
    if task:
        parent_id = task.request.id
        root_id = task.request.root_id or task.request.id
    return {
        "reply_to": app.thread_oid,
        "root_id": root_id,
        "parent_id": parent_id,
        "origin": _origin(os.getpid()),
    }


@cache
def _origin(_pid: int) -> str:
    return str(anon_nodename())


def _frame(message: TaskMessage, sender: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message as kombu's Redis transport writes it, without its delivery tag.

    Celery's signals are sent around it. A receiver of the first signal may write into the
    headers. The second signal follows at once, because tracing makes a span of the time
    between both, and the next message must not fall into it.
    """
    part = message.part
    headers = _headers(message, sender)
    call: tuple[Any, ...] = (
        message.args,
        {},
        {"callbacks": None, "errbacks": None, "chain": None, "chord": part.body if part else None},
    )
    properties = {"correlation_id": message.task_id, "reply_to": sender["reply_to"]}
    told = {
        "sender": message.task,
        "body": call,
        "exchange": "",
        "routing_key": message.queue,
        "headers": headers,
    }
    signals.before_task_publish.send(
        **told, declare=(), properties=properties, retry_policy=dict(RETRY)
    )
    signals.after_task_publish.send(**told)
    body = b64encode(json.dumps(call).encode()).decode()
    kind = {"content-encoding": "utf-8", "content-type": "application/json"}
    how = {
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": message.queue},
        "priority": 0,
        "body_encoding": "base64",
    }
    return {"body": body, **kind, "headers": headers, "properties": {**properties, **how}}


def _headers(message: TaskMessage, sender: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of a message: those of Celery's task protocol 2, and ours."""
    part = message.part
    headers = {
        "lang": "py",
        "task": message.task,
        "id": message.task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": part.group_id if part else None,
        "group_index": part.index if part else None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": sender["root_id"] or message.task_id,
        "parent_id": sender["parent_id"],
        "argsrepr": message.shown,
        "kwargsrepr": "{}",
        "origin": sender["origin"],
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
        MEMBER_HEADER: message.member,
    }
    if message.is_first:
        headers[FIRST_HEADER] = True
    if message.signature:
        headers[SIGNATURE] = message.signature
    return headers


def wake_up(
    job_id: JobId,
    suspects: Sequence[HandoffId] = (),
    *,
    queue: str = SUPERVISOR_QUEUE,
    task_id: str | None = None,
) -> TaskMessage:
    """Return a message that calls `supervisor.advance` for a job.

    Args:
        suspects: handoffs that may need a repair.
        task_id: id of the message; a new id if it is left out.
    """
    shown = f"({job_id})"
    if suspects:
        shown = f"({job_id}, {' '.join(suspects)})"
    return TaskMessage(
        ADVANCE, task_id or uuid(), queue, (job_id, list(suspects)), shown, member=job_id
    )
