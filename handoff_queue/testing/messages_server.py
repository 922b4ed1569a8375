"""A Messages-API server for tests, which replies from a script.

The server is strict. It answers a request that breaks a rule of the API (`request_rules`) with
the API's own error, 400 or 413. The end of the `with` block then raises `BrokenRules`, even if
the client has hidden the error. It runs in a
separate thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from handoff_queue.testing.batches import PATH as BATCHES
from handoff_queue.testing.batches import Batches
from handoff_queue.testing.context_edits import (
    Compactions,
    find_compaction_violations,
    find_edit_violations,
    get_capabilities,
    with_edits,
)
from handoff_queue.testing.replies import (
    Json,
    Reply,
    Script,
    convert_to_message,
    error_reply,
    stream_events,
)
from handoff_queue.testing.request_rules import (
    MAX_REQUEST_BYTES,
    find_header_violations,
    find_violations,
    parse_betas,
)
from handoff_queue.testing.signatures import Signatures

MODELS = "/v1/models/"
Respond = Callable[[BaseHTTPRequestHandler], None]
"""A function that reads a POST request and sends the response."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a whole fleet calls at once


class LoopbackServer:
    """Serves POST requests on a free port of this machine during its `with` block."""

    def __init__(
        self, respond: Respond, host: str = "127.0.0.1", *, respond_to_get: Respond | None = None
    ) -> None:
        """Bind the port.

        Args:
            respond: called in a thread of each connection.
            host: address of this machine.
            respond_to_get: called for GET requests. None: the server answers them with 501.
        """

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                respond(self)

            def log_message(self, *_: Any) -> None:
                pass

        class HandlerWithGet(Handler):
            def do_GET(self) -> None:
                assert respond_to_get is not None
                respond_to_get(self)

        handler = Handler if respond_to_get is None else HandlerWithGet

        self._server = _Listener((host, 0), handler)
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


class BrokenRules(AssertionError):
    """Requests broke rules of the Messages API. The text has one line for each broken rule."""


class MessagesServer(LoopbackServer):
    """Serve the replies of a script on a free port of this machine, in a `with` block.

    Attributes:
        script: the function that returns the reply to a request. A test may replace it.
        requests: bodies of the received requests, in the order of arrival.
        headers: headers of the received requests, with lower-case names.
        violations: rules of the API that requests have broken.
        batches: batches of the server, with their duration. The server gives their requests the
            replies of the script.
        has_edits: True if the models of the server have context editing and compaction on request.
            The script gets a request without the results that the server has cleared.
    """

    raises = True
    """True if the end of the `with` block raises `BrokenRules` after a request broke a rule."""

    def __init__(
        self, script: Script, host: str = "127.0.0.1", *, lenient_because: str = ""
    ) -> None:
        """Bind the port. The server replies during the `with` block.

        Args:
            script: returns the reply to a request. The server calls it from many threads.
            host: another address of this machine, for clients in containers.
            lenient_because: why this server accepts requests that break rules of the API. If
                empty, the server refuses them.
        """
        self.script = script
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.violations: list[str] = []
        self.has_edits = True
        self._lenient_because = lenient_because
        self._signatures = Signatures()
        self._compactions = Compactions()
        self.batches = Batches(self._reply_in_batch)
        super().__init__(self._respond, host, respond_to_get=self._respond_to_get)

    @property
    def url(self) -> str:
        """Base URL for the client: `ANTHROPIC_BASE_URL`."""
        return super().url

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self.violations and self.raises and error is None:
            raise BrokenRules("\n".join(self.violations))

    def _check_request(self, request: Json, headers: Mapping[str, str], size: int) -> Reply | None:
        """Return the error response to a request that breaks a rule, and record the rule.
        Return None if no rule is broken.
        """
        if self._lenient_because:
            return None
        if size > MAX_REQUEST_BYTES:
            self.violations.append(f"the request has {size} bytes")
            return error_reply(413, "Request exceeds the maximum size", "request_too_large")
        betas = parse_betas(headers) if self.has_edits else ()
        problems = [*find_header_violations(headers), *find_violations(request, betas)]
        problems = problems or [
            *self._signatures.find_violations(request),
            *find_edit_violations(request),
            *find_compaction_violations(request),
            *self._compactions.find_violations(request),
        ]
        self.violations += problems
        if problems:
            return error_reply(400, problems[0], "invalid_request_error")
        return None

    def answer(self, request: Json, headers: Mapping[str, str]) -> Reply:
        """Record a request and return the reply of the script. The threads of all connections
        call this method.
        """
        self.requests.append(request)
        self.headers.append(dict(headers))
        return self._reply_with_edits(request, self.script)

    def _reply_with_edits(self, request: Json, script: Script) -> Reply:
        """Return the reply of a script to a request that the server may shorten, with the report
        about it.
        """
        shorter, report = with_edits(request)
        reply = script(shorter)
        if report is not None:
            reply = replace(reply, context_management=report)
        if "compaction" in request:
            reply = self._compactions.as_summary(reply)
        return reply

    def _respond(self, connection: BaseHTTPRequestHandler) -> None:
        """Read one request and send its reply."""
        length = int(connection.headers.get("content-length") or 0)
        body = connection.rfile.read(length)
        if len(body) < length:  # the client died during the request
            connection.close_connection = True
            return
        request = json.loads(body or b"{}")
        headers = lower_case_headers(connection)
        if connection.path.startswith(BATCHES):
            self._respond_about_batches(connection, request)
            return
        reply = self._check_request(request, headers, length) or self._answer_with_signatures(
            request, headers
        )
        is_stream = bool(request.get("stream")) and not reply.as_json
        is_connected = True
        try:
            _send(connection, reply, is_stream=is_stream)
        except (BrokenPipeError, ConnectionResetError):
            is_connected = False
            connection.close_connection = True
        if reply.on_sent is not None:
            reply.on_sent(is_connected)

    def _answer_with_signatures(self, request: Json, headers: Mapping[str, str]) -> Reply:
        """Return the reply of the script, with its thinking signed."""
        reply = self.answer(request, headers)
        blocks = self._signatures.sign(reply.blocks, reply.stop_reason, request["model"])
        return replace(reply, blocks=blocks, model=reply.model or request["model"])

    def _reply_in_batch(self, request: Json, headers: Mapping[str, str]) -> Reply:
        """Return the reply to a request of a batch. The API checks such a request late, too."""
        if "stream" in request:
            self.violations.append("a request of a batch has `stream`")
            return error_reply(
                400, "stream: Extra inputs are not permitted", "invalid_request_error"
            )
        return self._check_request(request, headers, 0) or self._answer_with_signatures(
            request, headers
        )

    def _respond_to_get(self, connection: BaseHTTPRequestHandler) -> None:
        path = connection.path.partition("?")[0]
        if not path.startswith(MODELS):
            self._respond_about_batches(connection, {})
            return
        name = unquote(path.removeprefix(MODELS))
        facts = get_capabilities(name, has_edits=self.has_edits)
        with suppress(BrokenPipeError, ConnectionResetError):
            _send(connection, Reply(body=json.dumps(facts)), is_stream=False)

    def _respond_about_batches(self, connection: BaseHTTPRequestHandler, body: Json) -> None:
        headers = lower_case_headers(connection)
        reply = self.batches.answer(connection.command, connection.path, body, headers, self.url)
        try:
            _send(connection, reply, is_stream=False)
        except (BrokenPipeError, ConnectionResetError):
            connection.close_connection = True


def _send(handler: BaseHTTPRequestHandler, reply: Reply, *, is_stream: bool) -> None:
    if reply.stall is not None and reply.stall_before_headers:
        reply.stall.wait()
    if reply.body is not None or not is_stream:
        time.sleep(reply.duration_s)
    handler.send_response(reply.status)
    handler.send_header("request-id", "req_1")
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if reply.body is not None:
        _send_body(handler, reply, reply.body)
    elif not is_stream:
        _send_body(handler, reply, json.dumps(convert_to_message(reply)))
    else:
        _send_stream(handler, reply)


def _send_body(handler: BaseHTTPRequestHandler, reply: Reply, text: str) -> None:
    body = text.encode()
    if "content-type" not in reply.headers:
        handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _send_stream(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    """Send all events before a pause at once. A system call for each event would take most of the
    time of a long reply.
    """
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()
    waiting = "".join(reply.raw_events)
    for count, event in enumerate(stream_events(reply)):
        if count == reply.cut_after_events:
            break
        if event["type"] == "message_delta":
            handler.wfile.write(waiting.encode())
            waiting = ""
            if reply.stall is not None:
                reply.stall.wait()
            time.sleep(reply.duration_s)
        waiting += f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
    handler.wfile.write(waiting.encode())
    handler.close_connection = True
