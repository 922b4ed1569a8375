"""A socket whose timeouts the kernel keeps.

Python implements socket timeouts itself: before each read and write it waits in a separate
system call until the socket is ready, and releases the interpreter lock. In a process with
many threads another thread takes the lock each time. To get the lock back takes longer than
the call. The kernel's timeouts cost nothing until they expire.
"""

from __future__ import annotations

import _socket
import os
import socket
import struct
from typing import Any

_NOT_WAITING = int(
    socket.MSG_DONTWAIT
)  # a flag of Python's enum takes longer to combine than to send


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


def patient(plain: socket.socket) -> socket.socket:
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
