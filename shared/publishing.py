"""Messages of ours on their way into Celery's queues: each as `Celery.send_task` would send it, and those of one queue together.

`send_task` looks up for every message what is the same for all, declares its queue, says things twice, and makes a result that nobody asks
for: most of what a message costs its sender. Celery's signals before and after are sent all the same: tracing sees no difference.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from celery import Celery, signals
from celery.utils.nodenames import anon_nodename

from shared.broker import LastingChannel
from shared.fair import FIRST, FOR
from shared.gently import gently
from shared.wire.ids import new_word

RETRY: Mapping[str, Any] = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 1}
"""Seconds between tries to send; who cannot then leaves it to the sweeper."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A call of a task, whose result nobody waits for."""

    task: str
    task_id: str
    queue: str
    args: tuple[Any, ...]
    shown: str
    """Its arguments, in Flower and in logs."""
    is_for: str
    """As the ledger's sorted sets name it: `job`, or `job/handoff`."""
    is_first: bool = False
    """Others have overtaken it: ahead of those that wait in its queue with the same priority."""
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A place in a chord."""

    group_id: str
    index: int
    body: Mapping[str, Any]
    """The chord's, by `signature_of`."""


def signature_of(message: TaskMessage) -> dict[str, Any]:
    """The message as Celery writes the body of a chord: sent by who ends the chord's last part."""
    options = {
        "queue": message.queue,
        "task_id": message.task_id,
        "argsrepr": message.shown,
        "headers": {FOR: message.is_for},
        "ignore_result": True,
        "kwargsrepr": "{}",
        "declare": (),
    }
    call = {"task": message.task, "args": message.args, "kwargs": {}, "options": options}
    return {**call, "subtask_type": None, "immutable": True}


def message_in(signature: Mapping[str, Any]) -> TaskMessage:
    """The way back.

    Raises:
        LookupError, TypeError: it is none of ours.
    """
    options = signature["options"]
    return TaskMessage(
        task=signature["task"],
        task_id=options["task_id"],
        queue=options["queue"],
        args=tuple(signature["args"]),
        shown=options["argsrepr"],
        is_for=options["headers"][FOR],
    )


def publish(app: Celery, message: TaskMessage) -> None:
    """One; within a task, as its child.

    Raises:
        OperationalError: the broker is away.
        KeyError: nobody has declared the queue.
    """
    _send(app, [message], lambda channel, queue, frames: channel.put(queue, *frames))


def publish_each(app: Celery, messages: Iterable[TaskMessage]) -> None:
    """Many, in their order; those of a queue that follow on one another leave together. Each belongs to the trace in which it was given.
    Raises as `publish`; some may have left then.
    """
    _send(app, messages, lambda channel, queue, frames: channel.put_each(queue, frames))


def _send(app: Celery, messages: Iterable[TaskMessage], put: Callable[[LastingChannel, str, list[dict[str, Any]]], None]) -> None:
    whose = _whose(app)
    with app.pool.acquire(block=True) as connection:
        connection.transport_options.update(RETRY)  # as kombu's producers do: or it would try for six seconds to open a channel
        ensured = connection.ensure(_Nothing, lambda *what: put(connection.default_channel, *what), **RETRY)
        for queue, some in groupby(messages, attrgetter("queue")):
            app.amqp.queues[queue]  # or it would vanish where nobody takes it
            calls, frames = list[_Call](), list[dict[str, Any]]()
            for message in gently(some):
                calls.append(call := _Call(message, whose))
                frames.append(call.frame())
            ensured(queue, frames)
            for call in calls:
                call.has_left()


class _Nothing:
    """Of what is said again over another connection, nothing is to be renewed."""

    @staticmethod
    def revive(_channel: object) -> None:
        pass


def _whose(app: Celery) -> Mapping[str, Any]:
    """Headers that are the same for all messages that this thread sends just now."""
    task = app.current_worker_task
    root_id, parent_id = (task.request.root_id or task.request.id, task.request.id) if task else (None, None)
    return {"reply_to": app.thread_oid, "root_id": root_id, "parent_id": parent_id, "origin": _origin(os.getpid())}


@cache
def _origin(_pid: int) -> str:
    return str(anon_nodename())


class _Call:
    """A message as Celery's signals tell of it, before it is written and when it has left."""

    def __init__(self, message: TaskMessage, whose: Mapping[str, Any]) -> None:
        self._message = message
        part = message.part
        after = {"callbacks": None, "errbacks": None, "chain": None, "chord": part.body if part else None}
        self._headers = {
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
            "root_id": whose["root_id"] or message.task_id,
            "parent_id": whose["parent_id"],
            "argsrepr": message.shown,
            "kwargsrepr": "{}",
            "origin": whose["origin"],
            "ignore_result": True,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
            FOR: message.is_for,
        } | ({FIRST: True} if message.is_first else {})
        self._properties = {"correlation_id": message.task_id, "reply_to": whose["reply_to"]}
        self._told = {
            "sender": message.task,
            "body": (message.args, {}, after),
            "exchange": "",
            "routing_key": message.queue,
            "headers": self._headers,
        }

    def frame(self) -> dict[str, Any]:
        """As kombu's Redis transport writes it. Whoever hears of it first may write into its headers."""
        told = {"declare": (), "properties": self._properties, "retry_policy": dict(RETRY)}
        signals.before_task_publish.send(**self._told, **told)
        properties = {
            **self._properties,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": self._message.queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": new_word(),
        }
        body = b64encode(json.dumps(self._told["body"]).encode()).decode()
        kind = {"content-encoding": "utf-8", "content-type": "application/json"}
        return {"body": body, **kind, "headers": self._headers, "properties": properties}

    def has_left(self) -> None:
        signals.after_task_publish.send(**self._told)
