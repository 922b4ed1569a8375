"""The connection that one reply comes over: cut by who leaves, given back to the client's pool by who has read all of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2

MOST_REST_BYTES = 65_536
"""What is read of a body after the reply in it is whole: the mark of its end, and what a proxy may add."""


class Connection(httpx2.SyncByteStream):
    """Stands where the response's body was, so as to know the moment before the pool has the connection again: whoever cuts it later than
    that would cut another call's. One thread reads, another one cuts.
    """

    def __init__(self) -> None:
        self.is_left = threading.Event()
        """Nobody waits for the reply any more."""
        self.is_free = threading.Event()
        """It is in the pool again, or closed."""
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._body: Any = None
        self._parts: Iterator[bytes] = iter(())

    def carry(self, response: httpx2.Response) -> None:
        """From here on it can be cut; at once, if it has been left meanwhile."""
        self._body = response.stream
        self._parts = iter(self._body)
        response.stream = self
        with self._lock:
            self._socket = _socket_of(response)
        if self.is_left.is_set():
            self.leave()

    def leave(self) -> None:
        """Whatever the reading thread waits for, it has come: the connection is cut. Before its headers there is none to be cut, and the
        time-out ends it.
        """
        self.is_left.set()
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def read_rest(self) -> None:
        """To the body's end, without which the pool can't use the connection again; or so far that it isn't worth it."""
        size = 0
        for part in self._parts:
            size += len(part)
            if size > MOST_REST_BYTES or self.is_left.is_set():
                break

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        with self._lock:
            self._socket = None
        self._body.close()
        self.is_free.set()

    def __getattr__(self, name: str) -> Any:
        """What the client has hung on the body that was here."""
        return getattr(self._body, name)


def _socket_of(response: httpx2.Response) -> socket.socket | None:
    """None: there is none (the offline model), or it is not told."""
    network = response.extensions.get("network_stream")
    found = network.get_extra_info("socket") if network is not None else None
    return found if isinstance(found, socket.socket) else None
