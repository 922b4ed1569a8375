"""An HTTP server for a test, in a separate thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Respond = Callable[[BaseHTTPRequestHandler], None]
"""A function that reads a POST request and sends the response."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a whole fleet calls at once


class LoopbackServer:
    """Serves POST requests on a free port of this machine during its `with` block."""

    def __init__(self, respond: Respond, host: str = "127.0.0.1") -> None:
        """Bind the port.

        Args:
            respond: called in a thread of each connection.
            host: address of this machine.
        """

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                respond(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Listener((host, 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        """Base URL of the server."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def lower_case_headers(request: BaseHTTPRequestHandler) -> dict[str, str]:
    """Return the headers of a request with lower-case names."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name.lower()] = value
    return headers
