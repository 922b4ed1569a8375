"""Publisher of our Celery messages: `Celery.send_task` with one producer for all messages of a
call.

Supervisors, workers and chords send the message that wakes a job. Celery's signals are sent
before and after each message, so that tracing works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.utils import uuid

from handoff_queue.shared.broker.gil_yielding import with_pauses
from handoff_queue.shared.store.fair_queue import FIRST_HEADER, MEMBER_HEADER
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ADVANCE, SUPERVISOR_QUEUE

SIGNATURE = "handoff_signature"
"""Header with the signature of a handoff. The task finds it in its request."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A call of a task without a Celery result."""

    task: str
    task_id: str
    queue: str
    args: tuple[Any, ...]
    visible_args: str
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
    """Body of the chord, in the form of `build_signature`."""


def build_signature(message: TaskMessage) -> dict[str, Any]:
    """Return the message in the form of a chord's body, which the worker that ends the last
    part sends.
    """
    options = {
        "queue": message.queue,
        "task_id": message.task_id,
        "argsrepr": message.visible_args,
        "headers": {MEMBER_HEADER: message.member},
        "ignore_result": True,
        "kwargsrepr": "{}",
        "declare": (),
    }
    call = {"task": message.task, "args": message.args, "kwargs": {}, "options": options}
    return {**call, "subtask_type": None, "immutable": True}


def parse_message(signature: Mapping[str, Any]) -> TaskMessage:
    """Return the message of a chord's body.

    Raises:
        LookupError, TypeError: it is not a message of this project.
    """
    options = signature["options"]
    return TaskMessage(
        task=signature["task"],
        task_id=options["task_id"],
        queue=options["queue"],
        args=tuple(signature["args"]),
        visible_args=options["argsrepr"],
        member=options["headers"][MEMBER_HEADER],
    )


def publish(app: Celery, message: TaskMessage) -> None:
    """Publish one message; within a task, as its child.

    Raises:
        OperationalError: the broker is unreachable, or has not confirmed the message in time.
        KeyError: the queue is not declared.
    """
    publish_each(app, [message])


def publish_each(app: Celery, messages: Iterable[TaskMessage]) -> None:
    """Publish many messages in order. Each message belongs to the trace in which it was given.

    Raises:
        OperationalError, KeyError: as `publish`. Earlier messages have been sent.
    """
    with app.producer_pool.acquire(block=True) as producer:
        for message in with_pauses(messages):
            app.send_task(message.task, producer=producer, **_build_options(message))


def _build_options(message: TaskMessage) -> dict[str, Any]:
    """Return the arguments of `send_task` for a message."""
    headers: dict[str, Any] = {MEMBER_HEADER: message.member}
    if message.is_first:
        headers[FIRST_HEADER] = True
    if message.signature:
        headers[SIGNATURE] = message.signature
    options = {
        "args": message.args,
        "task_id": message.task_id,
        "queue": message.queue,
        "argsrepr": message.visible_args,
        "kwargsrepr": "{}",
        "headers": headers,
        "ignore_result": True,
        "add_to_parent": False,  # the parent would keep the result of each message
        "declare": (),  # the consumer of a queue declares it
    }
    part = message.part
    if part is not None:
        options |= {"group_id": part.group_id, "group_index": part.index, "chord": part.body}
    return options


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
    visible_args = f"({job_id})"
    if suspects:
        visible_args = f"({job_id}, {' '.join(suspects)})"
    return TaskMessage(
        ADVANCE, task_id or uuid(), queue, (job_id, list(suspects)), visible_args, member=job_id
    )
