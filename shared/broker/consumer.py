"""Celery's consumer, which sends fewer messages of its own and keeps messages that it cannot
run.

A profile of a busy worker showed a message for every single event, and messages for gossip and
mingle. Celery logs a message that it cannot run and drops it; this consumer gives it to the
app's `keep_unreadable`.

The worker leaves out the roles queue while no role slot is free (docs/decisions/0007), and the
queues of paused agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from celery.worker.consumer import Consumer
from celery.worker.consumer.control import Control

from handoff_queue.shared.broker.kombu_message_validation import (
    find_arguments_problem,
    find_task_problem,
    no_such_task,
)
from handoff_queue.shared.broker.remote_control import (
    build_control_commands,
    send_reply,
    take_command,
)
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.types.errors import StoreError

log = get_log(__name__)

READ_TIMEOUT_S = 0.1
"""Longest blocking read, in seconds, of a worker that leaves out a queue. A blocking read
cannot be extended to another queue. With kombu's one second, a free slot would be idle for up
to a second.
"""


class ConsumptionControl:
    """Pauses and resumes the consumption of some queues of one worker."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._is_consumed: dict[str, bool] = {}
        """Whether the worker consumes each controlled queue."""
        self._resumes_quickly = False
        self._may_take: Callable[[str], bool] = bool

    def attach(
        self,
        consumer: Any,
        queues: Iterable[str],
        may_take: Callable[[str], bool],
        *,
        resumes_quickly: bool = False,
    ) -> None:
        """Start the control.

        Args:
            consumer: Celery's consumer of a started worker.
            queues: queues to control. A queue that the worker does not consume is ignored.
            may_take: whether the worker may consume a queue now.
            resumes_quickly: True to resume a queue within `READ_TIMEOUT_S`. Otherwise it takes up
                to a second.
        """
        self._may_take = may_take
        self._resumes_quickly = resumes_quickly
        self._is_consumed = {}
        for queue in queues:
            if queue in consumer.app.amqp.queues.consume_from:
                self._is_consumed[queue] = True
        self._consumer = consumer
        self.schedule_update()

    def schedule_update(self) -> None:
        """Have the worker's own thread ask `may_take` again for each queue. Any thread may
        call this.
        """
        if self._consumer is not None:
            self._consumer.call_soon(self._settle)

    def _settle(self) -> None:
        """Start or stop to consume each queue whose answer of `may_take` has changed."""
        for queue, is_consumed in self._is_consumed.items():
            if self._may_take(queue) == is_consumed:
                continue
            self._is_consumed[queue] = not is_consumed
            try:
                if is_consumed:
                    self._consumer.cancel_task_queue(queue)
                else:  # the queue was declared when the worker started
                    self._consumer.task_consumer.auto_declare = False
                    self._consumer.add_task_queue(queue)
                if self._resumes_quickly:
                    self._set_read_timeout()
            except Exception:  # the connection is lost; the next connection uses the noted queues
                log.exception(
                    "cannot change the consumption of a queue before the next connection",
                    queue=queue,
                )

    def _set_read_timeout(self) -> None:
        channel = self._consumer.task_consumer.channel
        if all(self._is_consumed.values()):
            channel.brpop_timeout = channel.connection.brpop_timeout
        else:
            channel.brpop_timeout = READ_TIMEOUT_S


EVENTS_EVERY_S = 0.25
"""Seconds that task events are collected before they are sent. Displays read once a second at
most.
"""
EVENTS_AT_ONCE = 250
"""Events that are sent at once, about 100 KB. Celery's default of 24 sends with every eighth
task, from the thread that runs the task.
"""

RECONNECT = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": 5}
"""Seconds between tries to connect: 0.5, 1.0, 1.5 and so on up to 5. Celery waits 2, 4, 6 and
so on up to 30 seconds, so one second without Redis would cost two seconds of work.
"""


def _send_event(send: Callable[..., Any], kind: str, **fields: Any) -> Any:
    """Send an event. The event of a delivery clears the reason of an earlier RETRY in Flower.

    Only `task-received` may do so. Celery takes no reason from it after the end of a task. A later
    delivery of a failed handoff thus leaves the reason of the failure.
    """
    if kind == "task-received":
        fields = {"exception": "", "traceback": "", **fields}
    return send(kind, **fields)


class WorkerConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer without gossip and mingle, and with its events sent together. No
    option of `celery worker` is necessary for it.

    Our workers need no facts about each other. Gossip and mingle leave pidbox keys behind and
    slow down a reconnect.
    """

    def __init__(
        self, *args: Any, worker_options: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._is_flush_due = False
        super().__init__(
            *args,
            worker_options={
                **(worker_options or {}),
                "without_gossip": True,
                "without_mingle": True,
            },
            **kwargs,
        )
        for step in self.steps:
            if isinstance(step, Control):
                node = step.box.node
                node.handlers = build_control_commands(node.handlers)
                node.handle_message = partial(take_command, node)
                node.reply = partial(send_reply, node)

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = partial(conn.ensure_connection, **RECONNECT)
        return super().ensure_connected(conn)

    def on_send_event_buffered(self) -> None:
        """Schedule a flush of the collected events, if none is scheduled. Celery calls this
        for each event, from any thread.
        """
        if self.hub and not self._is_flush_due:
            self._is_flush_due = True
            self.hub.call_soon(self.hub.call_later, EVENTS_EVERY_S, self._flush_now)

    def on_close(self) -> None:
        """Send the collected events before the next connection: the dispatcher of that
        connection takes over only events that could not be sent.
        """
        if self.event_dispatcher:
            self.event_dispatcher.buffer_limit = 1
            self.event_dispatcher.flush(errors=False)
        super().on_close()

    def stop(self) -> None:
        """Stop taking messages, before the worker waits for its running tasks."""
        super().stop()
        if self.task_consumer:
            self.task_consumer.channel.end_pop()

    def shutdown(self) -> None:
        self._flush_now()
        super().shutdown()

    def update_strategies(self) -> None:
        """Build Celery's handler of each task. They send the events with `_send_event`, as code
        of the app may do with `app.send_event`.
        """
        if self.event_dispatcher:
            self.event_dispatcher.send = partial(_send_event, self.event_dispatcher.send)
            self.app.send_event = self.event_dispatcher.send
        super().update_strategies()

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Return the message handler of a connection to the broker. It sets aside each message
        that this process cannot run.
        """
        if self.event_dispatcher:
            self.event_dispatcher.buffer_limit = EVENTS_AT_ONCE
        take = super().create_task_handler(*args, **kwargs)

        def take_if_valid(message: Any) -> None:
            problem = self._find_problem(message)
            if problem is None:
                take(message)
            else:
                self._set_aside(message, problem)

        return take_if_valid

    def _find_problem(self, message: Any) -> str | None:
        """Return the reason why this process cannot run the message, or None. Celery's own
        tasks are refused, because nothing sends them.
        """
        problem = find_task_problem(message.headers, message.content_type, message.content_encoding)
        if problem:
            return problem
        name = message.headers["task"]
        if name not in self.strategies or name.startswith("celery."):
            return no_such_task(name)
        try:
            payload = message.decode()
        except Exception as error:  # noqa: BLE001 - kombu's decoders raise errors of many types
            return f"kombu cannot read its body as JSON ({type(error).__name__})"
        problem = find_arguments_problem(payload)
        if problem:
            return problem
        try:
            self.app.tasks[name].__header__(*payload[0], **payload[1])
        except TypeError:
            return f"{name} does not take these arguments"
        return None

    def _set_aside(self, message: Any, why: str) -> None:
        """Keep the message as a dead letter, or leave it to another version, and then
        acknowledge it. If the store does not answer, put the message back into its queue.
        """
        queue = str(message.delivery_info["routing_key"])
        text = (message.body or b"").decode(errors="backslashreplace")
        keep: Callable[[str, str, str], bool] = self.app.keep_unreadable
        try:
            is_dead = keep(queue, why, text)
        except StoreError as error:
            log.warning("cannot store a dead letter", queue=queue, why=str(error))
            message.reject_log_error(log, self.connection_errors, requeue=True)
            return
        log.warning(
            "a message became a dead letter" if is_dead else "kept for another version",
            queue=queue,
            why=why,
        )
        message.reject_log_error(log, self.connection_errors)
        self._report_set_aside(message.headers.get("id"), why, is_dead=is_dead)

    def _report_set_aside(self, task_id: object, why: str, *, is_dead: bool) -> None:
        """Send the event that Flower shows for a message that was set aside."""
        if not self.event_dispatcher or not isinstance(task_id, str):
            return
        kind = "task-failed" if is_dead else "task-retried"
        outcome = "dead letter" if is_dead else "kept for another version"
        self.event_dispatcher.send(kind, uuid=task_id, exception=f"{outcome}: {why}", traceback="")

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush_events()
