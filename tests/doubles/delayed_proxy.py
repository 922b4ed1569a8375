"""A proxy to another server that accepts connections from the start, and forwards them after
`open`.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class DelayedProxy:
    """Proxy that holds its connections until `open`. Until then, clients receive no data."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        port: int = self._server.getsockname()[1]
        return port

    def open(self, host: str, port: int) -> None:
        """Forward new and waiting connections to this address."""
        self._start(threading.Thread(target=self._serve, args=((host, port),), daemon=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        _shut(self._server)
        while self._threads:
            for connection in self._sockets:
                _shut(connection)
            self._threads.pop().join()
        for connection in (self._server, *self._sockets):
            connection.close()

    def _start(self, thread: threading.Thread) -> None:
        self._threads.append(thread)
        thread.start()

    def _serve(self, address: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(address)
                self._sockets += (client, server)
                for source, target in ((client, server), (server, client)):
                    self._start(threading.Thread(target=_pump, args=(source, target), daemon=True))


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    _shut(source)
    _shut(target)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
