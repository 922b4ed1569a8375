"""Celery's consumer and kombu's Redis transport, with what they do too often left out, mended where they end a process or lose a message.

A profile of a busy worker showed more time in these two habits than in everything of ours: one message for every single event, and a
new Redis client (a table of 300 entries) for every single message that is taken or acknowledged.

A task can end after the connection that its message came over. Its acknowledgement goes to the old channel, which builds a new pool of
connections from what it no longer has: an AttributeError, and Celery connects again only after errors of connections. So does the closing
of that channel, while a task is in flight. Such a message is acknowledged by nobody: a second copy, hours later, does nothing.

Bytes in a queue that are no message end a process too; a message that Celery cannot run is logged and gone. Both are kept instead: the
client makes messages of such bytes (`shared/frames.py`), and the consumer gives what it cannot run to the app's `keep_unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from celery.worker.consumer import Consumer
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as redis_transport

from shared.frames import deliverable, no_such_task, problem_with, problem_with_arguments, problem_with_task
from shared.wire.errors import LedgerError

log = structlog.get_logger()

EVENTS_EVERY_S = 0.1
"""Task events wait this long for company; whoever watches looks once a second at most. Celery's own buffer limit (24) still holds."""


class WorkerConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer minus gossip and mingle, also for people who type plain `celery worker`, with events sent together.

    Workers have nothing to tell each other, and gossip and mingle leave pidbox keys behind and slow down a reconnect.
    """

    def __init__(self, *args: Any, worker_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._is_flush_due = False
        super().__init__(*args, worker_options={**(worker_options or {}), "without_gossip": True, "without_mingle": True}, **kwargs)

    def on_send_event_buffered(self) -> None:
        """From any thread, for every event."""
        if self.hub and not self._is_flush_due:
            self._is_flush_due = True
            self.hub.call_soon(self.hub.call_later, EVENTS_EVERY_S, self._flush_now)

    def shutdown(self) -> None:
        self._flush_now()
        super().shutdown()

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        take = super().create_task_handler(*args, **kwargs)

        def taken(message: Any) -> None:
            if why := self._problem_with(message):
                self._set_aside(message, why)
            else:
                take(message)

        return taken

    def _problem_with(self, message: Any) -> str | None:
        """Why this cannot be run here. Of Celery's own tasks nothing is ever sent, and so none is run."""
        if problem := problem_with_task(message.headers, message.content_type, message.content_encoding):
            return problem
        name = message.headers["task"]
        if name not in self.strategies or name.startswith("celery."):
            return no_such_task(name)
        try:
            payload = message.decode()
        except Exception as error:  # noqa: BLE001 - whatever kombu's decoders raise
            return f"its body is not JSON that kombu reads ({type(error).__name__})"
        if problem := problem_with_arguments(payload):
            return problem
        try:
            self.app.tasks[name].__header__(*payload[0], **payload[1])
        except TypeError:
            return f"{name} does not take these arguments"
        return None

    def _set_aside(self, message: Any, why: str) -> None:
        """Acknowledged when it is kept, and not before."""
        queue, text = str(message.delivery_info["routing_key"]), (message.body or b"").decode(errors="backslashreplace")
        keep: Callable[[str, str, str], bool] = self.app.keep_unreadable
        try:
            is_dead = keep(queue, why, text)
        except LedgerError as error:
            log.warning("dead letter not kept", queue=queue, why=str(error))
            message.reject_log_error(log, self.connection_errors, requeue=True)
            return
        log.warning("dead letter" if is_dead else "left to another version", queue=queue, why=why)
        message.reject_log_error(log, self.connection_errors)
        if self.event_dispatcher and isinstance(task_id := message.headers.get("id"), str):
            kind, said = ("task-failed", "dead letter") if is_dead else ("task-retried", "left to another version")
            self.event_dispatcher.send(kind, uuid=task_id, exception=f"{said}: {why}", traceback="")

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush_events()


class _Client(redis_transport.redis.Redis):  # type: ignore[misc]
    """Brings nothing out of a queue that kombu cannot make a message of."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        answer = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not answer:
            return answer
        queue, frame = answer
        return queue, deliverable(frame, queue.decode())


class LastingChannel(redis_transport.Channel):  # type: ignore[misc]
    """A channel that keeps the client it makes for a pool, and says what is wrong once its connection is closed.

    A client is nothing but a view of its pool, and safe between threads.
    """

    _view: Any = None

    def _get_client(self) -> Any:
        return _Client

    def _deliver_fanout_message(self, message: Any, exchange: str) -> Any:
        """What is said to all processes is asked again by whoever waits for the answer, so what is no message is only dropped."""
        if why := problem_with(message):
            log.warning("dropped", exchange=exchange, why=why)
            return False
        return super()._deliver_fanout_message(message, exchange)

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._view is None or self._view.connection_pool is not self.pool:
            self._view = super()._create_client()
        return self._view

    def _get_pool(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to Redis that this message came over is closed")
        return super()._get_pool(asynchronous)


class _SentinelChannel(LastingChannel, redis_transport.SentinelChannel):  # type: ignore[misc]
    """The same where sentinels say which server to use."""


class Transport(redis_transport.Transport):  # type: ignore[misc]
    """For redis:// and rediss://."""

    Channel = LastingChannel


class SentinelTransport(redis_transport.SentinelTransport):  # type: ignore[misc]
    """For sentinel://."""

    Channel = _SentinelChannel


def tell_chord_size(app: Any, group_id: str, size: int) -> None:
    """Where the backend has not been told, because its process died before it could: a chord of no size never ends. Celery's own call
    says it to any chord, and one that has ended would begin again.
    """
    backend = app.backend
    key, expires_s = backend.get_key_for_group(group_id, ".s"), backend.chord_expires or None
    backend.ensure(lambda: backend.client.set(key, size, nx=True, ex=expires_s), ())


def use_our_transports() -> None:
    """From now on, in this process, for every broker URL; a setting would replace the scheme in what logs and Flower show."""
    ours = f"{__name__}:{Transport.__name__}"
    TRANSPORT_ALIASES.update(redis=ours, rediss=ours, sentinel=f"{__name__}:{SentinelTransport.__name__}")
