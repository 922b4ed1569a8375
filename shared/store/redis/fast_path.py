"""redis-py's client, pool and packer on the shortest path to the socket, without redis-py's
own statistics of each command.

A round trip takes 15 µs of processor time, and 37 µs with plain redis-py (`python -m
benchmarks.plain_forms --parts`).

redis-py still opens connections, repeats commands, makes health checks, parses answers, raises
errors and follows Sentinel. A round trip takes about half of redis-py's processor time, and a
job makes about twenty. Without TLS a round trip releases the interpreter lock twice instead of
five times. Each release makes the thread wait for the other threads of the process.

The kernel keeps the timeouts of the sockets. Python implements socket timeouts itself: before
each read and write it waits in a separate system call until the socket is ready, and releases
the interpreter lock. In a process with many threads another thread takes the lock each time.
To get the lock back takes longer than the call. The kernel's timeouts cost nothing until they
expire.
"""

from __future__ import annotations

import _socket
import os
import socket
import struct
import time
from collections.abc import Sequence
from queue import Empty, Full, SimpleQueue
from typing import Any

import hiredis
import redis
from redis.connection import HiredisRespSerializer
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from handoff_queue.shared.store.redis.versions import (
    connection_from,
    health_check_clock,
    should_reconnect,
)

_NOT_WAITING = int(socket.MSG_DONTWAIT)
"""A number, because a flag of Python's enum takes longer to combine than to send."""


class KernelTimeoutSocket(socket.socket):
    """Socket for `recv_into` and `sendall`, which redis-py uses. A signal that Python handles
    restarts the timeout of a read.
    """

    _seconds: float | None = None
    """Seconds that the other end may be silent; None: no limit."""

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout: None means no limit, 0 means no wait."""
        super().settimeout(seconds)
        self._seconds = seconds
        if seconds != 0:
            _let_the_system_keep(self, seconds)
            super().settimeout(None)

    def recv_into(self, *where: Any) -> int:
        """Receive data.

        Raises:
            TimeoutError: no data came in time.
        """
        try:
            return super().recv_into(*where)
        except BlockingIOError:
            if self._seconds == 0:
                raise
            raise TimeoutError("timed out") from None

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all data. Python sends the rest that the kernel does not take at once, with one
        timeout for all data.

        Raises:
            TimeoutError: not all data was sent in time.
        """
        if self._seconds == 0:
            super().sendall(data, flags)
            return
        try:
            sent = super().send(data, flags | _NOT_WAITING)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        super().settimeout(self._seconds)
        try:
            super().sendall(memoryview(data)[sent:], flags)
        finally:
            super().settimeout(None)


def with_kernel_timeouts(plain: socket.socket) -> socket.socket:
    """Return the same connection with its timeout in the kernel.

    The socket itself is returned if it does not block or if the system supports no such
    timeout. The same holds for sockets that are not Python's own: gevent and eventlet wait in
    their own loop.
    """
    seconds = plain.gettimeout()
    if seconds == 0 or os.name != "posix" or not isinstance(plain, _socket.socket):
        return plain
    try:
        _let_the_system_keep(plain, seconds)
    except OSError:
        return plain
    made = KernelTimeoutSocket(plain.family, plain.type, plain.proto, plain.detach())
    made.settimeout(seconds)
    return made


def _let_the_system_keep(kernel_socket: socket.socket, seconds: float | None) -> None:
    """Set the kernel's timeout for reads. It is at least the kernel's smallest timeout,
    because 0 means no limit there.
    """
    if seconds is None:
        micros = 0
    else:
        micros = max(1, round(seconds * 1e6))
    kernel_socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", *divmod(micros, 1_000_000))
    )


FRESH_S = 0.05
"""Seconds for which a used connection is taken without a check that the server has closed it.
If the server has closed it, that call fails, like any call in flight at such a moment. The
next call opens a new connection; a restarted server takes longer than this to come back.
"""


class _KernelTimeouts:
    """A connection whose timeouts the kernel keeps."""

    def _connect(self) -> Any:
        plain: Any = super()
        connection: Any = self
        try:
            return with_kernel_timeouts(plain._connect())
        except TimeoutError as error:  # redis-py's own error does not name the address
            address = f"{connection.host}:{connection.port}"
            raise redis.TimeoutError(f"Timeout connecting to {address}") from error


class DirectConnection(_KernelTimeouts, redis.Connection):
    """Connection to the server of the address, without TLS."""


class _NamedBySentinels(SentinelManagedConnection):
    """Connection that closes its socket if the thread is interrupted while it waits for an
    answer. redis-py keeps the socket open, so the next command would read that answer.
    """

    def read_response(self, *how: Any, disconnect_on_error: bool | None = True, **more: Any) -> Any:
        plain: Any = super()
        return plain.read_response(*how, disconnect_on_error=disconnect_on_error, **more)


class ManagedConnection(_KernelTimeouts, _NamedBySentinels):
    """Connection to the server that Sentinel names."""


class ManagedTlsConnection(_NamedBySentinels, SentinelManagedSSLConnection):
    """Connection with TLS to the server that Sentinel names."""


class DirectClient(redis.Redis):
    """Client that repeats a command only as the retry policy of the connection says."""

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if self.connection is not None:  # kombu gives a connection to a client
            return super().execute_command(*command, **options)  # type: ignore[no-untyped-call]
        options.pop("keys", None)  # for redis-py's cache
        if options:
            return super().execute_command(*command, **options)  # type: ignore[no-untyped-call]
        pool: Any = self.connection_pool
        connection = connection_from(pool.get_connection)
        try:
            answer = connection.retry.call_with_retry(
                lambda: _answer_of(connection, command), lambda _: connection.disconnect()
            )
        finally:
            pool.release(connection)
        callbacks: Any = self.response_callbacks
        read = callbacks.get(command[0])
        if read is None:
            return answer
        return read(answer)


def _answer_of(connection: Any, command: Sequence[Any]) -> Any:
    """Send a command and read its answer. Raise redis-py's errors. A broken connection is
    closed.
    """
    interval = connection.health_check_interval
    is_due = connection._sock is None or (
        interval and health_check_clock() > connection.next_health_check
    )
    # If its server has become a replica, redis-py asks the sentinels for the new master.
    if is_due or isinstance(connection, SentinelManagedConnection):
        connection.send_command(*command)
        answer = connection.read_response()
    else:
        answer = _answer_at_once(connection, command)
    connection.answered_at = time.monotonic()  # no answer is on its way, see `DirectPool`
    connection.next_health_check = health_check_clock() + interval
    return answer


def _answer_at_once(connection: Any, command: Sequence[Any]) -> Any:
    """Send a command over a connection that is open and was used just now, and return the
    answer.
    """
    try:
        for part in connection._command_packer.pack(*command):
            connection._sock.sendall(part)
        answer = connection._parser.read_response()
    except BaseException as error:
        connection.disconnect()
        if isinstance(error, TimeoutError):
            raise redis.TimeoutError("Redis did not take the whole command in time") from error
        if isinstance(error, OSError):
            raise redis.ConnectionError(f"the connection to Redis broke: {error}") from error
        raise
    if isinstance(answer, redis.ResponseError):
        raise answer
    return answer


class DirectPool(redis.BlockingConnectionPool):
    """Pool that hands out free, ready connections itself. redis-py opens connections, waits for
    a free connection, and handles a fork.
    """

    def __init__(self, most: int, timeout_s: float, connection_class: Any, **options: Any) -> None:
        slots: Any = _Slots
        super().__init__(most, timeout_s, connection_class, slots, **options)  # type: ignore[no-untyped-call]

    def get_connection(self, *_: Any, **__: Any) -> Any:
        connection = None
        if self.pid == os.getpid():
            connection = self._ready()
        if connection is None:
            connection = connection_from(super().get_connection)
        connection.answered_at = 0.0  # an unread answer would go to the next command
        return connection

    def _ready(self) -> Any:
        """Return an open connection, or None if the next one must be opened first."""
        try:
            connection = self.pool.get_nowait()
        except Empty:
            return None
        is_ready = False
        try:
            is_ready = (
                connection is not None
                and connection._sock is not None
                and (_is_fresh(connection) or not connection.can_read())
            )
        except redis.ConnectionError:
            pass  # the server has closed it
        finally:
            if not is_ready:
                self.pool.put_nowait(connection)
        if is_ready:
            return connection
        return None

    def release(self, connection: Any) -> None:
        if self.pid == os.getpid() == connection.pid and not should_reconnect(connection):
            self.pool.put_nowait(connection)
        else:
            super().release(connection)  # type: ignore[no-untyped-call]


def _is_fresh(connection: Any) -> bool:
    return bool(time.monotonic() - connection.answered_at < FRESH_S)


class _Slots:
    """The part of `queue.LifoQueue` that the pool uses, with operations that are atomic in C.
    The connection that came back last leaves first. Slots without a connection, stored as
    None, leave last.
    """

    def __init__(self, most: int) -> None:
        self.queue: list[Any] = []
        self._most, self._free = most, SimpleQueue[None]()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._free.get(block, timeout)
        try:
            return self.queue.pop()
        except IndexError:
            return None

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def put_nowait(self, connection: Any) -> None:
        if connection is not None:
            self.queue.append(connection)
        elif self._free.qsize() >= self._most:
            raise Full
        self._free.put(None)


class DirectPacker(HiredisRespSerializer):
    """Packs commands without checks of their arguments. redis-py packs commands of two words,
    and arguments that hiredis does not take.
    """

    def pack(self, *command: Any) -> list[bytes]:
        try:
            if " " not in command[0]:
                return [hiredis.pack_command(command)]
        except TypeError:
            pass
        packed: list[bytes] = super().pack(*command)
        return packed
