"""A receiver of webhooks on loopback: answers with the statuses that a test gives it, one
after the other, the last one for ever.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Post:
    """One request that came in."""

    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class WebhookServer:
    """A webhook server that runs inside its `with` block. `posts` holds the received requests."""

    def __init__(self, *statuses: int, location: str | None = None) -> None:
        self.posts: list[Post] = []
        self._statuses = list(statuses) or [200]
        self._location = location
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

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

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hooks.posts.append(
                    Post({name.lower(): value for name, value in self.headers.items()}, body)
                )
                self.send_response(
                    hooks._statuses.pop(0) if len(hooks._statuses) > 1 else hooks._statuses[0]
                )
                if hooks._location:
                    self.send_header("location", hooks._location)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
