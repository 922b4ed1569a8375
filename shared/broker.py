"""Celery's consumer and kombu's Redis transport, with what they do too often left out, mended where they end a process or lose a message.

A profile of a busy worker showed more time in these habits than in everything of ours: one message for every single event, a new Redis
client (a table of 300 entries) for every use of a channel, and two transactions for every message, one to note that it was taken and one
that it is done with, for a redelivery on which nothing relies (docs/decisions/0014-no-second-copy.md).

A task can end after the connection that its message came over. What it asks of the old channel builds a new pool of connections from what
that no longer has: an AttributeError, and Celery connects again only after errors of connections. So does the closing of that channel,
while a task is in flight. Such a message is put back by nobody: the ledger knows what it was about.

Bytes in a queue that are no message end a process too; a message that Celery cannot run is logged and gone. Both are kept instead: the
client makes messages of such bytes (`shared/frames.py`), and the consumer gives what it cannot run to the app's `keep_unreadable`.

And a list has one order. Messages of jobs are taken in a fair one (`shared/fair.py`), by priority and tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog
from celery.worker.consumer import Consumer
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.transport import redis as redis_transport

from shared.fair import ALONE, DEQUEUE, ENQUEUE, FIRST, PURGE, dequeue_order, enqueue_order, is_for
from shared.frames import deliverable, no_such_task, problem_with, problem_with_arguments, problem_with_task
from shared.ledger.direct import DirectClient
from shared.ledger.script import Script
from shared.wire.errors import LedgerError

log = structlog.get_logger()

EVENTS_EVERY_S = 0.25
"""Task events wait this long for company; whoever watches looks once a second at most. Celery's own buffer limit (24) still holds."""

RECONNECT = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": 5}
"""Seconds between tries while Redis is away. Celery's own are 2, 4, 6 and so on up to 30: a second without Redis is two without work."""


class WorkerConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer minus gossip and mingle, also for people who type plain `celery worker`, with events sent together.

    Workers have nothing to tell each other, and gossip and mingle leave pidbox keys behind and slow down a reconnect.
    """

    def __init__(self, *args: Any, worker_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._is_flush_due = False
        super().__init__(*args, worker_options={**(worker_options or {}), "without_gossip": True, "without_mingle": True}, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = partial(conn.ensure_connection, **RECONNECT)
        return super().ensure_connected(conn)

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


class _Client(DirectClient):
    """Brings nothing out of a queue that kombu cannot make a message of, and for each message the fairest."""

    channel: LastingChannel

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        answer = super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]
        if command_name != "BRPOP" or not answer:
            return answer
        queue, frame = answer
        return queue, self.channel.fairest(queue.decode(), frame, connection)


class LastingBatch(redis_transport.PublishBatch):  # type: ignore[misc]
    """Its first message brings the script along by which all of them enter their queues."""

    @property
    def is_empty(self) -> bool:
        return not self._buffered


class ProcessQoS(redis_transport.QoS):  # type: ignore[misc]
    """What was delivered and is not done with is known to this process alone: it puts back what it cannot do, and what dies with it the
    sweeper finds. What another version has left in Redis for a redelivery is still delivered.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """From any thread. Where the channel has been closed meanwhile, all that was not done with has been put back."""
        message = self._delivered.get(delivery_tag) if requeue else None
        if message is not None:
            self._put_back([message], leftmost=True)
        self.ack(delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """At the end of a channel."""
        self._flush()
        self._put_back(list(self._delivered.values()), leftmost=False, client=client)
        self._delivered.clear()

    def _put_back(self, messages: list[Any], *, leftmost: bool, client: Any = None) -> None:
        """As kombu does. `leftmost`: behind what waits there."""
        if not messages:
            return
        with self.channel.conn_or_acquire(client) as ours:
            pipe = ours.pipeline(transaction=False)
            for message in messages:
                info = message.delivery_info
                self.channel._do_restore_message(message._raw, info["exchange"], info["routing_key"], pipe, leftmost)
            pipe.execute()


class LastingChannel(redis_transport.Channel):  # type: ignore[misc]
    """A channel that keeps the client it makes for a pool, and says what is wrong once its connection is closed.

    A client is nothing but a view of its pool, and safe between threads. Messages of jobs leave and are taken in their fair order.
    """

    QoS = ProcessQoS
    _view: Any = None

    def _get_client(self) -> Any:
        return _Client

    def _deliver_fanout_message(self, message: Any, exchange: str) -> Any:
        """What is said to all processes is asked again by whoever waits for the answer, so what is no message is only dropped."""
        if why := problem_with(message):
            log.warning("dropped", exchange=exchange, why=why)
            return False
        return super()._deliver_fanout_message(message, exchange)

    def fairest(self, queue: str, frame: bytes, connection: Any) -> bytes:
        """The message that is taken for an element that was popped over this connection: that itself, where none waits in the order."""
        frame, popped = deliverable(frame, queue)
        has_place = is_for(popped) and not frame.endswith(ALONE)
        return (has_place and self._take(queue, popped, connection)) or frame

    def _take(self, queue: str, popped: Mapping[str, Any], connection: Any) -> bytes | None:
        """None: it is the element itself."""
        taken: bytes | None = DEQUEUE.run_over(connection, dequeue_order(queue, popped))
        return taken

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        if is_for(message) is None:
            super()._put(queue, message, **kwargs)
            return
        order = enqueue_order(queue, message, is_first=bool(message["headers"].get(FIRST)))
        if (batch := kwargs.get("_publish_batch")) is None:
            self._run(ENQUEUE, order)
        else:
            if batch.is_empty:
                batch.add("script_load", ENQUEUE.text)
            batch.add("evalsha", ENQUEUE.digest, *order)

    def _do_restore_message(self, payload: Any, exchange: str, routing_key: str, pipe: Any, leftmost: bool = False) -> None:
        """`leftmost`: kombu's word for behind all others."""
        if is_for(payload) is None:
            super()._do_restore_message(payload, exchange, routing_key, pipe, leftmost)
            return
        payload["headers"]["redelivered"] = payload["properties"]["delivery_info"]["redelivered"] = True
        for queue in self._lookup(exchange, routing_key):
            pipe.script_load(ENQUEUE.text)
            ENQUEUE.add(pipe, enqueue_order(queue, payload, is_first=not leftmost))

    def _purge(self, queue: str) -> int:
        return int(self._run(PURGE, [1, queue]))

    def _run(self, script: Script, order: list[Any]) -> Any:
        with self.conn_or_acquire() as client:
            return script.run(client, order)

    def create_publish_batch(self, max_size: int) -> Any:
        return LastingBatch(self, max_size)

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            client = super()._create_client(asynchronous=True)
            client.channel = self
            return client
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


def use_our_transports() -> None:
    """From now on, in this process, for every broker URL; a setting would replace the scheme in what logs and Flower show."""
    ours = f"{__name__}:{Transport.__name__}"
    TRANSPORT_ALIASES.update(redis=ours, rediss=ours, sentinel=f"{__name__}:{SentinelTransport.__name__}")
