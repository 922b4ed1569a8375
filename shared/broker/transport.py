"""kombu's Redis transport without its needless commands, and with fixes where it ends a
process or loses a message.

A profile of a busy worker showed more time here than in all of our code. For every use of a
channel, kombu makes a new Redis client (a table of 300 entries). It makes two transactions for
every message, when the message is taken and when it is done. They serve a redelivery that no
promise needs (docs/decisions/0014-no-second-copy.md).

A task can end after the connection of its message has closed. A channel of kombu then builds a
connection pool from missing parts, and raises AttributeError. Celery reconnects only after
connection errors, so this channel raises ConnectionError. Such a message is not put back: the
store knows its handoff.

Invalid bytes in a queue end a process, too. The channel wraps them in messages
(`shared/broker/kombu_message_validation.py`), which are kept. A message is parsed once.

A list has one order. Messages of jobs are taken in the fair order
(`shared/store/fair_queue.py`), by priority and tenant. While more messages wait, one round
trip takes as many as there are free slots. Next to hundreds of busy threads each round trip
waits several times for the interpreter lock, and slots would be idle while work waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from queue import Empty
from typing import Any

from kombu.exceptions import OperationalError
from kombu.transport import redis as redis_transport
from kombu.transport import virtual

from handoff_queue.shared.broker.kombu_message_validation import find_problem, parse_frame
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.fair_queue import (
    ALONE_SUFFIX,
    DEQUEUE,
    ENQUEUE,
    FIRST_HEADER,
    MEMBER_HEADER,
    PURGE,
    TAKE,
    build_dequeue_arguments,
    enqueue_arguments,
    get_member,
    take_arguments,
)
from handoff_queue.shared.store.redis.client_factory import (
    PlainConnection,
    SentinelConnection,
    SentinelTlsConnection,
    build_driver_info,
    refuse_maintenance_notifications,
)
from handoff_queue.shared.store.redis.script import Script, get_user, may_load
from handoff_queue.shared.store.redis.tls import share_contexts
from handoff_queue.shared.types.ids import create_word
from handoff_queue.shared.types.names import ROLES_QUEUE

log = get_log(__name__)

KEYS_OF_KOMBU = (
    "keyprefix_queue",
    "keyprefix_binding_deadlines",
    "keyprefix_binding_permanent",
    "unacked_key",
    "unacked_index_key",
    "unacked_mutex_key",
)
"""Attributes of kombu's channel that name keys. kombu 5.5 lacks the two attributes for
bindings.
"""
MAX_AT_ONCE = 20
"""Messages that one round trip takes. Neither the consumer loop nor Redis does other work
during that time.
"""
ONE_BY_ONE = frozenset({ROLES_QUEUE})
"""Queues that are read one message at a time, because the worker checks after each message
whether it may take another (`shared/broker/consumer.py`).
"""


_REFRESH, _SWEEP = "REFRESH_BINDING", "SWEEP_BINDINGS"
"""Names of kombu's constants with the texts of its scripts."""


class LibraryScript:
    """A script of kombu. As with our scripts, a worker waits until a supervisor has loaded it."""

    def __init__(self, text: str, client: Any) -> None:
        self._script, self._client = Script(text), client

    def __call__(self, keys: Sequence[str], args: Sequence[Any], client: Any) -> Any:
        """Run the script, or add it to a pipeline.

        Args:
            client: a client or a pipeline.
        """
        (is_known,) = self._client.script_exists(self._script.digest)
        if not is_known:
            self._script.load(self._client)
        return self._script.add(client, [len(keys), *keys, *args])


def list_library_scripts() -> tuple[str, ...]:
    """Return the texts of the scripts that kombu runs."""
    texts: list[str] = []
    for name in (_REFRESH, _SWEEP):
        if text := getattr(redis_transport, name, ""):  # a kombu before 5.7 has no such script
            texts.append(text)
    return tuple(texts)


class PlainMessage(virtual.Message):  # type: ignore[misc]
    """A message whose body is plain JSON. kombu's search for its own types takes longer than
    parsing the body.
    """

    def _decode(self) -> Any:
        is_plain = MEMBER_HEADER in self.headers and (self.content_type, self.content_encoding) == (
            "application/json",
            "utf-8",
        )
        if not is_plain:
            return super()._decode()
        text = self.body
        if isinstance(text, bytes):
            text = text.decode()  # `loads` of bytes would also accept UTF-16
        return json.loads(text)


class ProcessQoS(redis_transport.QoS):  # type: ignore[misc]
    """Unacknowledged messages, kept only in this process. The process puts back messages that
    it cannot run, and the sweeper finds messages of a dead process
    (docs/decisions/0014-no-second-copy.md).
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Acknowledge the message, and put it back first if `requeue` is set. A closed channel
        has already put back all its unacknowledged messages. Any thread may call this.
        """
        message = None
        if requeue:
            message = self._delivered.get(delivery_tag)
        if message is not None:
            self.put_back([message], leftmost=True)
        self.ack(delivery_tag)

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Do nothing: no process keeps unacknowledged messages in Redis. kombu's lock for this
        would need a script that a worker may not load.
        """

    def restore_unacked(self, client: Any = None) -> None:
        """Put back the unacknowledged messages at the end of a channel."""
        self._flush()
        self.put_back(list(self._delivered.values()), leftmost=False, client=client)
        self._delivered.clear()

    def put_back(self, messages: list[Any], *, leftmost: bool, client: Any = None) -> None:
        """Put messages back in front of all waiting messages, or after them with `leftmost`,
        which is kombu's name for it.
        """
        if not messages:
            return
        with self.channel.conn_or_acquire(client) as connected_client:
            pipe = connected_client.pipeline(transaction=False)
            for message in messages:
                info = message.delivery_info
                self.channel._do_restore_message(
                    message._raw, info["exchange"], info["routing_key"], pipe, leftmost
                )
            pipe.execute()


class PersistentChannel(redis_transport.Channel):  # type: ignore[misc]
    """A channel that publishes and takes messages of jobs in their fair order. It makes one
    client for each connection pool, and raises ConnectionError after its connection has
    closed.

    A client is only a view of its pool, and is safe between threads.
    """

    QoS = ProcessQoS
    Message = PlainMessage
    connection_class: Any = PlainConnection
    client = cached_property(redis_transport.Channel.client.func)
    subclient = cached_property(redis_transport.Channel.subclient.func)
    """kombu's properties without the lock that kombu takes at each access, about twelve times
    for each message.
    """
    _view: Any = None
    _has_more = False
    """True if the queue of the last message has more messages. The next message is then taken
    in one round trip, without a blocking pop.
    """
    _is_taking = False
    """True if the last request to Redis took messages without a blocking pop."""

    global_keyprefix: str = ""
    key_prefix = ""
    """Prefix of every key of this channel: queues, bindings, and unacknowledged messages."""

    def _next_delivery_tag(self) -> str:
        return create_word()

    def _get_client(self) -> Any:
        """Return the class of clients. Move kombu's `global_keyprefix` into the key names of
        this channel first, so that neither kombu nor our scripts need a second class for it.
        """
        prefix = self.global_keyprefix
        self.global_keyprefix = ""
        if prefix:
            self.key_prefix = prefix
            for name in KEYS_OF_KOMBU:
                if hasattr(self, name):
                    setattr(self, name, prefix + getattr(self, name))
        return super()._get_client()

    def _q_for_pri(self, queue: str, pri: int) -> str:
        return f"{self.key_prefix}{super()._q_for_pri(queue, pri)}"

    def _deliver_fanout_message(self, message: Any, exchange: str) -> Any:
        """Deliver a broadcast message, or log and drop an invalid one. A sender that waits for
        an answer sends its broadcast again.
        """
        problem = find_problem(message)
        if problem:
            log.warning("a broadcast message was dropped", exchange=exchange, why=problem)
            return False
        try:
            return super()._deliver_fanout_message(message, exchange)
        except KeyError as error:
            # kombu would take it for the loss of the connection, and connect again
            raise ValueError(f"a message without {error}") from error

    def _receive_one(self, subscription: Any) -> Any:
        """Receive one broadcast message. If kombu cannot read the message, log and drop it:
        the error would end every process at once.
        """
        try:
            return super()._receive_one(subscription)
        except (*self.connection_errors, *self.connection.channel_errors, Empty):
            raise
        except Exception as error:  # noqa: BLE001 - any client of Redis may have sent these bytes
            log.warning(
                "a broadcast message was dropped",
                why=f"kombu cannot read its JSON ({type(error).__name__})",
            )
            return False

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Start kombu's blocking pop, or take messages at once if the last queue had more."""
        self._is_taking = self._has_more
        self._has_more = False
        if not self._is_taking:
            super()._brpop_start(timeout)
            return
        queues = self._queue_cycle.consume(len(self.active_queues))
        if not queues:
            return
        self._in_poll = self.client.connection
        self._brpop_sent_at = time.monotonic()
        limit = MAX_AT_ONCE
        free_slots = self.qos.can_consume_max_estimate()
        if free_slots is not None:
            limit = min(free_slots, MAX_AT_ONCE)
        most_by_queue = dict.fromkeys(queues, limit)
        for queue in ONE_BY_ONE.intersection(queues):
            most_by_queue[queue] = 1
        self._ask(most_by_queue, self.client.connection)

    def _brpop_read(self, **_: Any) -> bool:
        """Read messages and deliver them. kombu's method would parse each message a second
        time.

        Raises:
            Empty: there is no message (kombu's name).
        """
        try:
            queue_and_messages = self._receive_messages(self.client.connection)
            if queue_and_messages is None:
                raise Empty
            queue, messages = queue_and_messages
            self._queue_cycle.rotate(queue)
            # deliver every message, even if one fails: no other process has them
            with ExitStack() as deliveries:
                for message in reversed(messages):
                    deliveries.callback(self.connection._deliver, message, queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def end_pop(self) -> None:
        """Read the answer to the last request, and put its messages back in front of their
        queue. A worker that stops calls this. Redis gives messages to a blocking pop until the
        pop ends, after `brpop_timeout` (1 s), and the worker would keep them until it ends.
        """
        if not self._in_poll:
            return
        try:
            queue_and_messages = self._receive_messages(self.client.connection)
        except self.connection_errors as error:
            log.warning("cannot end the pop of a worker that stops", why=str(error))
            return
        finally:
            self._in_poll = None
        if queue_and_messages is not None:
            _, messages = queue_and_messages
            self.qos.put_back(
                [self.Message(message, channel=self) for message in messages], leftmost=False
            )

    def _receive_messages(self, connection: Any) -> tuple[str, list[dict[str, Any]]] | None:
        """Read the answer to the last request. Return a queue and its messages, or None if
        there are no messages.
        """
        try:
            if self._is_taking:
                return self._read_dequeued_messages(connection)
            return self._read_popped_message(connection)
        except self.connection_errors:
            connection.disconnect()
            raise

    def _read_dequeued_messages(self, connection: Any) -> tuple[str, list[dict[str, Any]]] | None:
        """Read the answer of `fair_dequeue_many.lua`."""
        answer = self._read_answer(connection)
        if not answer:
            return None
        key, frames, element, left = answer
        queue = str(key.decode())
        messages = [parse_frame(frame, queue) for frame in frames]
        if element:
            messages.append(self._choose_fairest(queue, element, connection))
        self._has_more = left > 0
        return queue, messages

    def _read_popped_message(self, connection: Any) -> tuple[str, list[dict[str, Any]]] | None:
        """Read the answer of the blocking pop."""
        answer = connection.read_response()
        if not answer:
            return None
        key, element = answer
        queue = str(key.decode()).removeprefix(self.key_prefix)
        return queue, [self._choose_fairest(queue, element, connection)]

    def _choose_fairest(self, queue: str, frame: bytes, connection: Any) -> dict[str, Any]:
        """Return the first message of the fair order for an element that was popped over this
        connection. Return the element itself if no message is in the order.
        """
        popped_message = parse_frame(frame, queue)
        self._has_more = get_member(popped_message) is not None and not frame.endswith(ALONE_SUFFIX)
        if not self._has_more:
            return popped_message
        first_message = self._take(queue, popped_message, connection)
        if not first_message:
            return popped_message
        return parse_frame(first_message, queue)

    def _ask(self, queues: Mapping[str, int], connection: Any) -> None:
        """Ask Redis for messages.

        Args:
            queues: most messages of each queue.
        """
        TAKE.with_prefix(self.key_prefix).send(connection, take_arguments(queues))

    def _read_answer(self, connection: Any) -> Any:
        return TAKE.with_prefix(self.key_prefix).read_reply(connection.read_response, connection)

    def _take(self, queue: str, popped_message: Mapping[str, Any], connection: Any) -> bytes | None:
        """Take the first message of the fair order for a popped element. Return None if the
        element itself is the message.
        """
        script = DEQUEUE.with_prefix(self.key_prefix)
        message: bytes | None = script.run_on(
            connection, build_dequeue_arguments(queue, popped_message)
        )
        return message

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        """Put a message into its queue, and a job's message into its place in the fair order. With
        the header `FIRST_HEADER`, it goes in front of the waiting messages of the same priority.

        Raises:
            OperationalError: Redis has not confirmed the message in time. It may be in the queue:
                another try would wait as long again, and could add a second copy.
        """
        if get_member(message) is None:
            super()._put(queue, message, **kwargs)
            return
        is_first = bool(message["headers"].get(FIRST_HEADER))
        try:
            self._run(ENQUEUE, enqueue_arguments(queue, message, is_first=is_first))
        except redis_transport.redis.exceptions.TimeoutError as error:
            raise OperationalError(
                f"Redis did not answer in time whether a message is in {queue}"
            ) from error

    def _do_restore_message(
        self, payload: Any, exchange: str, routing_key: str, pipe: Any, leftmost: bool = False
    ) -> None:
        """Put a message back.

        Args:
            leftmost: kombu's name for the place after all other messages.
        """
        if get_member(payload) is None:
            super()._do_restore_message(payload, exchange, routing_key, pipe, leftmost)
            return
        payload["headers"]["redelivered"] = payload["properties"]["delivery_info"][
            "redelivered"
        ] = True
        script = ENQUEUE.with_prefix(self.key_prefix)
        for queue in self._lookup(exchange, routing_key):
            if may_load(get_user(pipe)):
                pipe.script_load(script.text)
            script.add(pipe, enqueue_arguments(queue, payload, is_first=not leftmost))

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        """Return the queues of a message. A message without an exchange goes to the queue of its
        routing key. A reply to a control command goes to the bound queue of its sender. No message
        has another exchange. A worker may write any number of bindings of any length, so no
        process reads them.
        """
        if not exchange:
            return super()._lookup(exchange, routing_key, default)
        if not exchange.startswith("reply."):
            return []
        queue = f"{routing_key}.{exchange}"
        binding = self.sep.join([routing_key, "", queue])
        with self.conn_or_acquire() as client:
            is_bound = client.sismember(self.keyprefix_queue % exchange, binding)
        return [queue] if is_bound else []

    @cached_property
    def _refresh_binding(self) -> LibraryScript:
        return LibraryScript(getattr(redis_transport, _REFRESH), self._create_client())

    @cached_property
    def _sweep_bindings(self) -> LibraryScript:
        return LibraryScript(getattr(redis_transport, _SWEEP), self._create_client())

    def _purge(self, queue: str) -> int:
        return int(self._run(PURGE, [1, queue]))

    def _run(self, script: Script, arguments: list[Any]) -> Any:
        with self.conn_or_acquire() as client:
            return script.with_prefix(self.key_prefix).run(client, arguments)

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._view is None or self._view.connection_pool is not self.pool:
            self._view = super()._create_client()
        return self._view

    def _get_pool(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to Redis that this message came over is closed")
        pool = super()._get_pool(asynchronous)
        share_contexts(pool)
        refuse_maintenance_notifications(pool)
        pool.connection_kwargs.update(build_driver_info())
        return pool


class _SentinelChannel(PersistentChannel, redis_transport.SentinelChannel):  # type: ignore[misc]
    """A persistent channel to the server that sentinels name."""

    connection_class, connection_class_ssl = SentinelConnection, SentinelTlsConnection


class _WatchesOnce:
    """An event loop that registers each socket once. kombu registers all sockets before every
    poll, and each registration is a system call that fails.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def add_reader(self, fd: int, callback: Any, *args: Any) -> None:
        if self._loop.readers.get(fd) != (callback, args):
            self._loop.add_reader(fd, callback, *args)


class _Watched:
    """Mixin for a transport that registers each of its sockets with the event loop once."""

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        transport: Any = super()
        transport.register_with_event_loop(connection, _WatchesOnce(loop))


class Transport(_Watched, redis_transport.Transport):  # type: ignore[misc]
    """Transport for redis:// and rediss://."""

    Channel = PersistentChannel


class SentinelTransport(_Watched, redis_transport.SentinelTransport):  # type: ignore[misc]
    """Transport for sentinel://."""

    Channel = _SentinelChannel
