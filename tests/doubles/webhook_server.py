"""A receiver of webhooks on loopback. It answers with the given statuses in order, and then
repeats the last status.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from handoff_queue.testing.messages_server import LoopbackServer, lower_case_headers


@dataclass(frozen=True, slots=True)
class Post:
    """One received request."""

    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class WebhookServer(LoopbackServer):
    """A webhook server that runs during its `with` block. `posts` holds the received requests."""

    def __init__(
        self,
        *statuses: int,
        location: str | None = None,
        answers_after: threading.Event | None = None,
    ) -> None:
        """Set up a server. It answers no request before `answers_after` is set."""
        self.posts: list[Post] = []
        self._statuses = list(statuses) or [200]
        self._location = location
        self._answers_after = answers_after
        super().__init__(self._respond)

    @property
    def url(self) -> str:
        return f"{super().url}/hook"

    def _next_status(self) -> int:
        if len(self._statuses) > 1:
            return self._statuses.pop(0)
        return self._statuses[0]

    def _respond(self, connection: BaseHTTPRequestHandler) -> None:
        body = connection.rfile.read(int(connection.headers["content-length"]))
        self.posts.append(Post(lower_case_headers(connection), body))
        if self._answers_after is not None:
            self._answers_after.wait()
        connection.send_response(self._next_status())
        if self._location:
            connection.send_header("location", self._location)
        connection.send_header("content-length", "0")
        connection.end_headers()
