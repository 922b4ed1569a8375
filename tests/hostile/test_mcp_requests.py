"""MCP servers that make the worker send one request after another, or fill its memory."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, McpServer
from handoff_queue.workers.tools.mcp.connections import McpConnections
from handoff_queue.workers.tools.mcp.response_size_limit import (
    MAX_BYTES,
    REQUEST_BYTES,
    ByteAllowance,
    JsonStream,
    TooManyBytes,
)
from tests.waiting import wait_until

TOOL = {"name": "act", "description": "Acts.", "inputSchema": {"type": "object"}}
ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "tickets", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
PINGS = b"".join(
    b'data: {"jsonrpc": "2.0", "id": "%d", "method": "ping"}\n\n' % n for n in range(1_000)
)


class Server(ThreadingHTTPServer):
    """Counts the requests of each kind. `stream`: the body of the answer to each GET.
    `media_type`: the media type of the answer to each POST.
    """

    daemon_threads = True
    stream = b""
    media_type = "application/json"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests[message.get("method", "answer")] += 1
        result = ANSWERS.get(message.get("method", ""))
        if result is None:
            self.send_response(202)
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", self.server.media_type)
        self.send_header("mcp-session-id", "s1")
        self.end_headers()
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        with suppress(OSError):  # the worker has had enough
            self.wfile.write(json.dumps(answer).encode())

    def do_GET(self) -> None:
        self.server.requests["GET"] += 1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        with suppress(OSError):  # the worker has closed the connection
            self.wfile.write(self.server.stream)

    def do_DELETE(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def connections() -> Iterator[McpConnections]:
    made = McpConnections()
    yield made
    made.close()


def tickets_at(server: Server) -> AcceptedServer:
    url = f"http://127.0.0.1:{server.server_port}/mcp"
    config = McpServer(url=url, tools=("act",), allow_private=True, timeout_s=20.0)
    return AcceptedServer("tickets", config, {"act": TOOL}, Path("someone.md"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stream"),
    [
        ("GET", b"retry: 0\nid: 1\n\n"),
        ("answer", b"retry: 3600000\n\n" + PINGS),
    ],
    ids=["a stream that ends at once", "a stream of pings"],
)
def test_a_server_that_asks_for_endless_requests_is_left(
    kind: str, stream: bytes, server: Server, connections: McpConnections
) -> None:
    server.stream = stream
    tickets = tickets_at(server)

    def is_left() -> bool:
        return all(
            opened.allowance.is_exceeded for opened in connections._open_connections.values()
        )

    with suppress(ToolFailed):  # the connection may be left before its answer is read
        connections.call(tickets, "act", {})
    wait_until(is_left, expected="the end of the requests")

    assert 100 < server.requests[kind] <= MAX_BYTES // REQUEST_BYTES
    with suppress(ToolFailed):
        connections.call(tickets, "act", {})
    assert server.requests["initialize"] == 2, "the next call has a new connection"


@pytest.mark.slow
def test_each_call_of_a_server_begins_with_the_whole_allowance(
    server: Server, connections: McpConnections
) -> None:
    calls = MAX_BYTES // REQUEST_BYTES + 1
    for _ in range(calls):
        connections.call(tickets_at(server), "act", {})

    assert (server.requests["initialize"], server.requests["tools/call"]) == (1, calls)


@pytest.mark.slow
def test_a_result_of_many_empty_parts_is_too_much(
    server: Server, connections: McpConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"content": [{"type": "text", "text": ""}] * 100_000}
    monkeypatch.setitem(ANSWERS, "tools/call", parts)

    with pytest.raises(ToolFailed, match="the server has sent too much"):
        connections.call(tickets_at(server), "act", {})


def take_in_pieces(stream: JsonStream, data: bytes, piece_bytes: int) -> None:
    for begin in range(0, len(data), piece_bytes):
        stream.take(data[begin : begin + piece_bytes])


PART_WITHOUT_OBJECT = {
    "arrays": b"[],",
    "numbers": b"0,",
    "texts": b'"",',
    "texts with quotes": b'"\\"",',
    "nested arrays": b"[" * 100 + b"]" * 100 + b",",
    "lines": b"\n",
}


@pytest.mark.parametrize("kind", PART_WITHOUT_OBJECT)
@pytest.mark.parametrize("piece_bytes", [1, 7, 65_536])
def test_many_small_values_are_too_much_in_pieces_of_each_size(kind: str, piece_bytes: int) -> None:
    part = PART_WITHOUT_OBJECT[kind]
    data = b'{"a": [' + part * (400_000 // len(part))
    stream = JsonStream(ByteAllowance(MAX_BYTES // 4))

    with pytest.raises(TooManyBytes):
        take_in_pieces(stream, data, piece_bytes)


@pytest.mark.parametrize("line_end", [b"\n", b"\r"])
def test_a_quote_in_a_comment_of_a_stream_hides_no_values(line_end: bytes) -> None:
    stream = JsonStream(ByteAllowance())
    stream.take(b': "' + line_end)

    with pytest.raises(TooManyBytes):
        stream.take(b"data: [" + b"0," * 200_000)


@pytest.mark.slow
def test_a_result_of_many_numbers_costs_one_result_and_not_the_memory_of_the_worker(
    server: Server, connections: McpConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "tools/call", {"content": [0] * 1_000_000})

    with pytest.raises(ToolFailed, match="the server has sent too much"):
        connections.call(tickets_at(server), "act", {})


def test_a_response_in_another_charset_is_refused(
    server: Server, connections: McpConnections
) -> None:
    server.media_type = "application/json; charset=utf-7"

    with pytest.raises(ToolFailed, match="the server has ended"):
        connections.call(tickets_at(server), "act", {})


@pytest.mark.parametrize(
    "piece",
    [
        b"A" * 5_000_000,
        b'{"city": "Bonn", "people": 331885},' * 20_000,
        b'"' + b"1,2,{[" * 1_000_000 + b'"',
    ],
    ids=["an image", "a table", "a text with a table"],
)
def test_a_large_result_of_few_values_is_not_too_much(piece: bytes) -> None:
    allowance = ByteAllowance()
    stream = JsonStream(allowance)
    take_in_pieces(stream, piece, 65_536)

    assert not allowance.is_exceeded
