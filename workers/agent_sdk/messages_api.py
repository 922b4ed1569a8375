"""A Messages-API server on the loopback address for one program of the Claude Agent SDK.

The program gets a token that is valid for this server only. It never gets the worker's key. A
request waits here until the worker answers it.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any

from handoff_queue.workers.agent_sdk.message_stream import PING, Event, as_server_sent

PATH = "/v1/messages"
MOST_REQUEST_BYTES = 32 * 1024 * 1024
"""The provider's limit of one request."""
PING_EVERY_S = 5.0
"""Seconds between two signs of life to a program that waits. A model may think for minutes."""


@dataclass(slots=True)
class ProgramRequest:
    """A request of the program that waits for its answer."""

    body: dict[str, Any]
    events: Sequence[Event] = ()
    """The answer. Empty: the connection is closed without one."""
    answered: threading.Event = field(default_factory=threading.Event)

    def answer(self, events: Sequence[Event]) -> None:
        """Send these events, and end the request."""
        self.events = events
        self.answered.set()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


class Gateway:
    """Takes the requests of one program until `close`."""

    def __init__(self, is_expected: Callable[[dict[str, Any]], bool]) -> None:
        """Bind a free port, and serve it in a thread.

        Args:
            is_expected: returns whether a request asks for the next call of the handoff. Other
                requests are refused, so the program causes no call that no budget contains.
        """
        self.token = secrets.token_urlsafe(32)
        self._requests: SimpleQueue[ProgramRequest] = SimpleQueue()
        self._open: list[ProgramRequest] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                gateway._respond(self, is_expected)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Listener(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="agent-sdk-gateway", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Base URL for the program."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_request(self, wait_s: float) -> ProgramRequest | None:
        """Return the next request, or None if none has come within these seconds."""
        try:
            return self._requests.get(timeout=wait_s)
        except Empty:
            return None

    def close(self) -> None:
        """Stop the server, and end the requests that wait."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for request in self._open:
            request.answered.set()

    def _respond(
        self, connection: BaseHTTPRequestHandler, is_expected: Callable[[dict[str, Any]], bool]
    ) -> None:
        """Check one request, and hold it until it is answered."""
        token = connection.headers.get("x-api-key") or ""
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            connection.send_error(401)
            return
        digits = connection.headers.get("content-length") or ""
        length = 0
        if digits.isascii() and digits.isdigit() and len(digits) < 10:
            length = int(digits)
        if connection.path.partition("?")[0] != PATH or not 0 < length <= MOST_REQUEST_BYTES:
            connection.send_error(404)
            return
        body = connection.rfile.read(length)
        try:
            request = ProgramRequest(json.loads(body))
            is_next = is_expected(request.body)
        except (ValueError, TypeError, AttributeError, KeyError):
            is_next = False
        if not is_next:
            connection.send_error(400)
            return
        self._open.append(request)
        self._requests.put(request)
        with suppress(OSError):  # the program has ended
            _stream(connection, request)
        self._open.remove(request)


def _stream(connection: BaseHTTPRequestHandler, request: ProgramRequest) -> None:
    """Send signs of life until there is an answer, and then the answer."""
    connection.send_response(200)
    connection.send_header("content-type", "text/event-stream")
    connection.end_headers()
    while not request.answered.wait(PING_EVERY_S):
        connection.wfile.write(as_server_sent(PING))
        connection.wfile.flush()
    for event in request.events:
        connection.wfile.write(as_server_sent(event))
