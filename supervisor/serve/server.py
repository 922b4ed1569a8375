"""The server process: uvicorn, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from handoff_queue.supervisor.serve.authentication import AppState
from handoff_queue.supervisor.serve.slow_clients import SlowConnections

STOP_S = 10
"""Longest time in seconds that open requests get at the end."""
_TICKS_A_SECOND = 10
"""Calls of `on_tick` in a second by uvicorn."""
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
        self._slow_connections = SlowConnections()

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

    async def on_tick(self, counter: int) -> bool:
        """Close slow connections, once a second. Return whether the server must stop."""
        if counter % _TICKS_A_SECOND == 0:
            self._slow_connections.close([*self.server_state.connections], time.monotonic())
        return await super().on_tick(counter)

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
