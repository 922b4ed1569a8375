"""A socket whose timeouts are the system's.

Python keeps those of a socket itself: before each read and each write it waits in a system
call of its own until the socket is ready, and lets go of the interpreter lock for it. In a
process of many threads another one takes the lock each time, and to have it back takes the
processor longer than the call. The system's own timeouts cost nothing until they run out.
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
    """For `recv_into` and `sendall`, with which redis-py reads and writes. A signal that
    Python handles begins a read's time anew.
    """

    _seconds: float | None = None
    """How long the other end may be silent; None: for ever."""

    def settimeout(self, seconds: float | None) -> None:
        """As ever: None is for ever, 0 not at all."""
        super().settimeout(seconds)
        self._seconds = seconds
        if seconds != 0:
            _let_the_system_keep(self, seconds)
            super().settimeout(None)

    def recv_into(self, *where: Any) -> int:
        """Raises:
        TimeoutError: nothing came in time.
        """
        try:
            return super().recv_into(*where)
        except BlockingIOError:
            if self._seconds == 0:
                raise
            raise TimeoutError("timed out") from None

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Raises:
        TimeoutError: not all was taken in time. What the system does not take at once is left
        to Python, whose time is for all of it.
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
    """The same connection, with the timeout that it has; itself, where it is not to wait, is
    not Python's (gevent's and eventlet's wait in a loop of their own), or the system takes no
    timeout.
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


def _let_the_system_keep(one: socket.socket, seconds: float | None) -> None:
    """For reads. No shorter than the system's shortest, for 0 is for ever there."""
    micros = 0 if seconds is None else max(1, round(seconds * 1e6))
    one.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", *divmod(micros, 1_000_000))
    )
