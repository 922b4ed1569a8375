"""A Messages-API server on the loopback address for one process of the Claude Agent SDK's CLI, and
a message of the model as server-sent events.

The CLI gets a token that is valid for this server only. It never gets the worker's key. A request
waits here until the worker answers it.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any

from handoff_queue.shared.types.model import Block

Event = dict[str, Any]
PING: Event = {"type": "ping"}
PATH = "/v1/messages"
MAX_REQUEST_BYTES = 32 * 1024 * 1024
"""The provider's limit of one request."""
PING_EVERY_S = 5.0
"""Seconds between two pings to a CLI that waits. A model may think for minutes."""
HEADERS_WITHIN_S = 30.0
"""Seconds in which a connection must send its request."""
MAX_CONNECTIONS = 256
"""Connections at the same time. The CLI needs a few. Each process of the machine can connect, also
without the token, and each connection has a thread of the worker.
"""


@dataclass(slots=True)
class CliRequest:
    """A request of the CLI that waits for its answer."""

    body: dict[str, Any]
    events: Sequence[Event] = ()
    """The answer. Empty: the connection is closed without one."""
    answered: threading.Event = field(default_factory=threading.Event)

    def send_answer(self, events: Sequence[Event]) -> None:
        """Send these events, and end the request."""
        self.events = events
        self.answered.set()


class _Listener(ThreadingHTTPServer):
    """Serves a limited number of connections. It closes each further connection at once."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # there is no thread left
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a connection that has gone. The base class would print a traceback,
        and each process of the machine could fill the log.
        """


class Gateway:
    """Takes the requests of one CLI process until `close`."""

    def __init__(self, is_expected: Callable[[dict[str, Any]], bool]) -> None:
        """Bind a free port, and serve it in a thread.

        Args:
            is_expected: returns whether a request asks for the next call of the handoff. The
                server refuses other requests. So the CLI cannot cause a call outside the budgets.
        """
        self.token = secrets.token_urlsafe(32)
        self._requests: SimpleQueue[CliRequest] = SimpleQueue()
        self._open_requests: list[CliRequest] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            timeout = HEADERS_WITHIN_S

            def do_POST(self) -> None:
                gateway._respond(self, is_expected)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Listener(Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="agent-sdk-gateway", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Base URL for the CLI."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_request(self, wait_s: float) -> CliRequest | None:
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
        for request in self._open_requests:
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
        if connection.path.partition("?")[0] != PATH or not 0 < length <= MAX_REQUEST_BYTES:
            connection.send_error(404)
            return
        body = connection.rfile.read(length)
        try:
            request = CliRequest(json.loads(body))
            is_next = is_expected(request.body)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            is_next = False
        if not is_next:
            connection.send_error(400)
            return
        self._open_requests.append(request)
        self._requests.put(request)
        with suppress(OSError):  # the CLI has ended
            _stream_answer(connection, request)
        self._open_requests.remove(request)


def _stream_answer(connection: BaseHTTPRequestHandler, request: CliRequest) -> None:
    """Send pings until there is an answer, and then the answer."""
    connection.send_response(200)
    connection.send_header("content-type", "text/event-stream")
    connection.end_headers()
    while not request.answered.wait(PING_EVERY_S):
        connection.wfile.write(as_server_sent(PING))
        connection.wfile.flush()
    for event in request.events:
        connection.wfile.write(as_server_sent(event))


def iterate_events(message_id: str, model: str, content: Sequence[Block]) -> Iterator[Event]:
    """Yield the events of one message with texts and calls of tools.

    The usage is zero: the worker counts the tokens, not the CLI.

    Args:
        message_id: id of the message. The CLI joins messages of the same id.
    """
    stop_reason = "end_turn"
    message: Event = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(content):
        if block["type"] == "tool_use":
            stop_reason = "tool_use"
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            empty = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 0}}
    yield {"type": "message_stop"}


def as_server_sent(event: Event) -> bytes:
    """Return an event in the form of a server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
