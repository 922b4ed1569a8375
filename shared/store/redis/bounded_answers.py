"""A limit for the answers of Redis to a blocking read. A worker may have written their content."""

from __future__ import annotations

from typing import Any

import redis


class LongAnswer(redis.RedisError):
    """An answer is longer than the limit of its connection. The connection is closed."""


class _CountingSocket:
    """A socket that counts the bytes of each answer, and otherwise is the given socket."""

    def __init__(self, socket: Any, max_bytes: int) -> None:
        self._socket = socket
        self._max_bytes = max_bytes
        self._read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, *arguments: Any) -> None:
        self._read_bytes = 0
        self._socket.sendall(*arguments)

    def recv(self, *arguments: Any) -> bytes:
        read: bytes = self._socket.recv(*arguments)
        self._count(len(read))
        return read

    def recv_into(self, *arguments: Any) -> int:
        read_bytes: int = self._socket.recv_into(*arguments)
        self._count(read_bytes)
        return read_bytes

    def _count(self, read_bytes: int) -> None:
        self._read_bytes += read_bytes
        if self._read_bytes > self._max_bytes:
            raise LongAnswer(f"an answer of Redis has more than {self._max_bytes:,} bytes")


def limit_answers(pool: Any, max_bytes: int) -> None:
    """Let each new connection of a pool refuse longer answers with `LongAnswer`."""
    connection_class: Any = pool.connection_class

    class BoundedConnection(connection_class):  # type: ignore[misc]
        def _connect(self) -> Any:
            return _CountingSocket(super()._connect(), max_bytes)

    pool.connection_class = BoundedConnection
