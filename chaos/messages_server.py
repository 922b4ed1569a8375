"""A Messages-API server for tests, with faults that a script sets.

    with MessagesServer(lambda request: says("hello")) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)

The script gets the request's JSON and returns a `Reply`; `in_turn(a, b, ...)` gives one after the
other. `server.requests` holds the received requests, `server.headers` their headers.

The server is strict. It answers a request that breaks a rule of the API (`chaos.request_rules`)
with the API's own 400. The end of the `with` block then raises `BrokenRules`, even if the client
has hidden the error.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from types import TracebackType
from typing import Any, Self

from handoff_queue.chaos.request_rules import MOST_REQUEST_BYTES, header_violations, violations
from handoff_queue.chaos.signatures import Signatures
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import ALONE, DEQUEUE, FOR, dequeue_order, is_for
from handoff_queue.shared.store.redis.connection import INSIST_EVERY_S


def taken_out(client: Any, queue: str, element: bytes) -> bytes:
    """Take the message that a worker would receive for this element of the queue, as a worker that
    dies with it.
    """
    popped = json.loads(element)
    if element.endswith(ALONE) or is_for(popped) is None:
        return element
    message: bytes | None = DEQUEUE.run(
        client, dequeue_order(queue, popped)
    )  # in one step: Redis may be killed at any
    return message or element


def lose_all(client: Any, queue: str) -> None:
    """Delete all messages of a queue."""
    fair = keys.FAIR + queue
    client.delete(queue, fair, f"{fair}:messages", f"{fair}:next")


def without_a_place(message: Mapping[str, Any]) -> str:
    """Return a copy without a place in the fair order, which is delivered as it is."""
    return json.dumps(
        {
            **message,
            "headers": {name: value for name, value in message["headers"].items() if name != FOR},
        }
    )


ARRIVES_WITHIN_S = 0.5
"""Seconds between the death of a caller and the record of its last call: the server may read the
call after the death. A replacement process needs longer to start.
"""
DIES_WITHIN_S = 0.05
"""Seconds in which Redis may still answer after its kill. It needs longer to restart."""
EVERYBODY = "*"
"""The target of what hits all processes at once: Redis is gone, connections are cut."""


class Fault(StrEnum):
    """A kind of fault."""

    KILL_WORKER = "worker killed"
    KILL_SUPERVISOR = "supervisor killed"
    KILL_REDIS = "Redis killed"
    STOP = "stopped past its lease"
    FREEZE = "frozen"
    CUT = "connections cut"
    DROP = "answer lost"
    TWICE = "messages delivered twice"
    END = "told to end"

    @property
    def is_kill(self) -> bool:
        """SIGKILL."""
        return self in (Fault.KILL_WORKER, Fault.KILL_SUPERVISOR, Fault.KILL_REDIS)


@dataclass(frozen=True, slots=True)
class Strike:
    """A strike. `at`: Unix seconds."""

    fault: Fault
    target: str
    """The process's name, or EVERYBODY."""
    at: float
    point: str = ""
    """The failpoint, if it was at one."""
    lasts_s: float = 0.0
    """Seconds for which the target was stopped or frozen."""
    outage_s: float = 0.0
    """Seconds for which Redis was unreachable, including the next try."""

    @property
    def until(self) -> float:
        """Return the time until which calls may arrive that the target sent before the strike."""
        return self.at + self.lasts_s + ARRIVES_WITHIN_S

    def hits(self, process: str) -> bool:
        """Return whether a call of this process in flight may have to be repeated."""
        return self.fault is not Fault.TWICE and self.target in (process, EVERYBODY)


def with_outages(strikes: Iterable[Strike], answered_at: Iterable[float]) -> list[Strike]:
    """Return the strikes with the time for which each made Redis unreachable.

    Args:
        answered_at: times at which Redis answered.
    """
    asked = sorted(answered_at)

    def outage_s(strike: Strike) -> float:
        match strike.fault:
            case Fault.KILL_REDIS:
                return (
                    next((at for at in asked if at > strike.at + DIES_WITHIN_S), inf)
                    - strike.at
                    + INSIST_EVERY_S
                )
            case Fault.CUT:
                return INSIST_EVERY_S
            case _:
                return 0.0

    return [replace(strike, outage_s=outage_s(strike)) for strike in strikes]


Json = dict[str, Any]
USAGE: Json = {"input_tokens": 100, "output_tokens": 20}


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of the server."""

    blocks: tuple[Json, ...] = ()
    stop_reason: str | None = "end_turn"
    usage: Json = field(default_factory=lambda: dict(USAGE))
    model: str | None = None
    """Name of the model; None: the requested model."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    """Sent as it is, instead of a reply (errors, garbage)."""
    chunk_chars: int = 12
    cut_after_events: int | None = None
    """Number of events after which the connection breaks."""
    stall: threading.Event | None = None
    """Event that the server waits for before the end of the stream, without a time limit: a reply
    that a test holds does not continue by itself.
    """
    takes_s: float = 0.0
    """Seconds until the end of the stream, or until the answer without a stream."""
    stall_before_headers: bool = False
    as_json: bool = False
    """Ignore `stream: true`."""
    raw_events: tuple[str, ...] = ()
    """Sent as they are before the ordinary events."""
    when_out: Callable[[bool], None] | None = None
    """Called when the last byte is sent, with True if the client was still connected."""


Script = Callable[[Json], Reply]


def says(text: str, **rest: Any) -> Reply:
    """Return a reply with one text."""
    return Reply(blocks=({"type": "text", "text": text},), **rest)


def says_json(value: Any, **rest: Any) -> Reply:
    return says(json.dumps(value), **rest)


def calls(*tools: tuple[str, Json], text: str = "", **rest: Any) -> Reply:
    """Return a reply that calls tools: (name, arguments), ... Each call has a unique id."""
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for name, arguments in tools:
        id_ = f"toolu_{secrets.token_hex(8)}"
        blocks.append({"type": "tool_use", "id": id_, "name": name, "input": arguments})
    return Reply(blocks=tuple(blocks), stop_reason="tool_use", **rest)


def fails(status: int, message: str = "no", kind: str = "api_error", **headers: str) -> Reply:
    """Return an error response. Header names have underscores instead of dashes."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}})
    return Reply(
        status=status,
        body=body,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def in_turn(*replies: Reply) -> Script:
    """Return a script that gives the replies in order, and the last one for every further request."""
    left = list(replies)
    lock = threading.Lock()

    def script(_request: Json) -> Reply:
        with lock:
            if len(left) > 1:
                return left.pop(0)
            return left[0]

    return script


def said_in(request: Json) -> str:
    """Return the text of a request's first message, which holds the task."""
    return "".join(block.get("text", "") for block in request["messages"][0]["content"])


def asked_for(request: Json) -> Json:
    """Return the properties of the requested answer, by which a script knows the caller. Empty for
    plain text.
    """
    found: Json = (
        request.get("output_config", {}).get("format", {}).get("schema", {}).get("properties", {})
    )
    return found


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a whole fleet calls at once


class BrokenRules(AssertionError):
    """Requests came in that the Messages API would refuse."""


class MessagesServer:
    """Serves the script on a free port while the `with` block lasts."""

    raises = True
    """True if the end of the `with` block raises `BrokenRules`."""

    def __init__(self, script: Script, host: str = "127.0.0.1", *, tolerates: str = "") -> None:
        """Make a server; entering the `with` block starts it.

        Args:
            script: returns the reply to a request.
            host: another address of this machine, for clients in containers.
            tolerates: reason why this server accepts requests that break the API's rules. Empty: it
                refuses them.
        """
        self.script = script
        self.violations: list[str] = []
        """The rules that requests have broken."""
        self._tolerates = tolerates
        self._signatures = Signatures()
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self._server = _Listener((host, 0), self._handler())
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True
        )

    @property
    def url(self) -> str:
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
        if self.violations and self.raises and error is None:
            raise BrokenRules("\n".join(self.violations))

    def _refusal(self, request: Json, headers: Mapping[str, str], size: int) -> Reply | None:
        """Return the API's answer to a request that breaks a rule, and record the rule. None:
        no rule is broken.
        """
        if self._tolerates:
            return None
        if size > MOST_REQUEST_BYTES:
            self.violations.append(f"the request has {size} bytes")
            return fails(413, "Request exceeds the maximum size", "request_too_large")
        broken = [*header_violations(headers), *violations(request)]
        broken = broken or list(self._signatures.violations(request))
        self.violations += broken
        if broken:
            return fails(400, broken[0], "invalid_request_error")
        return None

    def answer(self, request: Json, headers: Mapping[str, str]) -> Reply:
        """Return the reply to a request; called from many threads."""
        self.requests.append(request)
        self.headers.append(dict(headers))
        return self.script(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                if (
                    len(body := self.rfile.read(length)) < length
                ):  # the caller was killed during the request
                    self.close_connection = True
                    return
                request = json.loads(body)
                headers: dict[str, str] = {}
                for name, value in self.headers.items():
                    headers[name.lower()] = value
                reply = server._refusal(request, headers, length)
                if reply is None:
                    reply = server.answer(request, headers)
                    blocks = server._signatures.sign(reply.blocks, reply.stop_reason)
                    reply = replace(reply, blocks=blocks, model=reply.model or request["model"])
                was_there = True
                try:
                    _answer(
                        self, reply, is_stream=bool(request.get("stream")) and not reply.as_json
                    )
                except (BrokenPipeError, ConnectionResetError):
                    was_there, self.close_connection = (
                        False,
                        True,
                    )  # the client has hung up: that is what some tests are about
                if reply.when_out is not None:
                    reply.when_out(was_there)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def message_of(reply: Reply) -> Json:
    """Return the reply as one JSON object."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": list(reply.blocks),
        "stop_reason": reply.stop_reason,
        "stop_sequence": None,
        "usage": reply.usage,
    }


def events_of(reply: Reply) -> list[Json]:
    """Return the reply as the events of a stream."""
    start = {
        **message_of(reply),
        "content": [],
        "stop_reason": None,
        "usage": {**reply.usage, "output_tokens": 1} if reply.usage else {},
    }
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(reply.blocks):
        match block["type"]:
            case "text":
                empty: Json = {**block, "text": ""}
                pieces = [
                    {"type": "text_delta", "text": piece}
                    for piece in _pieces(block["text"], reply.chunk_chars)
                ]
            case "tool_use":
                empty = {**block, "input": {}}
                if isinstance(block["input"], str):
                    text = block["input"]
                else:
                    text = json.dumps(block["input"])
                pieces = [
                    {"type": "input_json_delta", "partial_json": piece}
                    for piece in _pieces(text, reply.chunk_chars)
                ]
            case "thinking":
                empty = {**block, "thinking": "", "signature": ""}
                pieces = [
                    {"type": "thinking_delta", "thinking": piece}
                    for piece in _pieces(block["thinking"], reply.chunk_chars)
                ]
                pieces.append({"type": "signature_delta", "signature": block["signature"]})
            case _:
                empty, pieces = block, []
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [
            {"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces
        ]
        events.append({"type": "content_block_stop", "index": index})
    end: Json = {
        "type": "message_delta",
        "delta": {"stop_reason": reply.stop_reason, "stop_sequence": None},
    }
    if "output_tokens" in reply.usage:
        end["usage"] = {"output_tokens": reply.usage["output_tokens"]}
    return [*events, end, {"type": "message_stop"}]


def _pieces(text: str, size: int) -> list[str]:
    pieces: list[str] = []
    for at in range(0, len(text), size):
        pieces.append(text[at : at + size])
    return pieces


def _answer(handler: BaseHTTPRequestHandler, reply: Reply, *, is_stream: bool) -> None:
    if reply.stall is not None and reply.stall_before_headers:
        reply.stall.wait()
    if reply.body is not None or not is_stream:
        time.sleep(reply.takes_s)
    handler.send_response(reply.status)
    handler.send_header("request-id", "req_1")
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if reply.body is not None or not is_stream:
        body = (reply.body if reply.body is not None else json.dumps(message_of(reply))).encode()
        if "content-type" not in reply.headers:
            handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()
    for raw in reply.raw_events:
        handler.wfile.write(raw.encode())
    events = events_of(reply)
    for count, event in enumerate(events):
        if count == reply.cut_after_events:
            break
        if event["type"] == "message_delta" and reply.stall is not None:
            handler.wfile.flush()
            reply.stall.wait()
        if event["type"] == "message_delta" and reply.takes_s:
            handler.wfile.flush()
            time.sleep(reply.takes_s)
        handler.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    handler.close_connection = True
