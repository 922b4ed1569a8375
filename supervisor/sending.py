"""Many messages through one producer. Each is the one that `Celery.send_task` would send, to the byte."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu import Producer


class Sending:
    """What `send_task` looks up for every message is looked up once, and no result is made that nobody asks for.

    Celery's signals before and after a message are sent all the same: tracing sees no difference.
    """

    def __init__(self, app: Celery, producer: Producer) -> None:
        """In the thread that sends, and within the task that it sends for."""
        self._amqp = app.amqp
        self._producer = producer
        self._told: dict[str, Any] = {"reply_to": app.thread_oid}
        if (task := app.current_worker_task) is not None:
            self._told |= {"root_id": task.request.root_id or task.request.id, "parent_id": task.request.id}

    def send_task(
        self, name: str, *, args: tuple[Any, ...], task_id: str, chord: dict[str, Any], group_id: str, group_index: int, **options: Any
    ) -> None:
        """As `Celery.send_task` with these arguments, for a task that this process does not have itself."""
        place = {"chord": chord, "group_id": group_id, "group_index": group_index}
        message = self._amqp.create_task_message(task_id, name, args, **place, **self._told, **options)
        options.pop("ignore_result", None)  # stands in the message; what is left is said to the transport, too
        self._amqp.send_task_message(self._producer, name, message, **options)
