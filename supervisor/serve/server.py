"""The server process: uvicorn, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from handoff_queue.supervisor.serve.authentication import AppState

STOP_S = 10
"""Longest time in seconds that open requests get at the end."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """uvicorn's server. It ends open streams when it stops, and then ends without a signal."""

    def __init__(self, application: FastAPI, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws="none",
                timeout_graceful_shutdown=STOP_S,
            )
        )
        self._state: AppState = application.state.handoff_queue
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal. uvicorn itself would raise the signal again after its end."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals
            return
        before = {kind: signal.signal(kind, self.handle_exit) for kind in _SIGNALS}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and call `on_ready`. After that, a signal stops the server without an
        error.
        """
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, so that their connections close, and stop."""
        await self._state.jobs.stop_following()
        await super().shutdown(sockets)


def serve_until_stopped(
    application: FastAPI, listening: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Serve an application on a socket until SIGTERM or Ctrl-C.

    Args:
        on_ready: called once, when the server takes requests and handles signals.
    """
    Server(application, on_ready).run([listening])
