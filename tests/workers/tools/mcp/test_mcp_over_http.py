"""Servers over HTTP that do harm, and the headers of requests."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, McpServer
from handoff_queue.workers.tools.mcp.tools import make_mcp_tools
from tests.workers.tools.contexts import ToolHarness
from tests.workers.tools.mcp.a_hostile_server import TOOL

SECRET = "kV9-canary-2c41"
NOTIFICATION = (
    b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "'
    + b"x" * 10_000
    + b'"}}'
)
SHUTDOWN = threading.Event()


class Harm(BaseHTTPRequestHandler):
    """Does the harm that the path names, and keeps the headers of each request."""

    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        self.rfile.read(int(self.headers.get("content-length", "0")))
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has had enough
            getattr(self, self.path.strip("/"))()

    def do_GET(self) -> None:
        self.seen.append({"method": "GET"})
        self.send_error(405)

    def do_DELETE(self) -> None:
        self.send_error(405)

    def answer(self, kind: str, **headers: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def flood(self) -> None:
        self.answer("application/json")
        while True:
            self.wfile.write(b" " * 65_536)

    def events(self) -> None:
        self.answer("text/event-stream")
        while True:
            self.wfile.write(b"event: message\r\ndata: " + NOTIFICATION + b"\r\n\r\n")

    def bomb(self) -> None:
        self.answer("application/json", content_encoding="gzip")
        self.wfile.write(gzip.compress(b" " * 50_000_000))

    def hang(self) -> None:
        SHUTDOWN.wait()

    def elsewhere(self) -> None:
        self.send_response(307)
        self.send_header("location", "http://127.0.0.1:1/hidden")
        self.end_headers()

    def echo(self) -> None:
        self.send_error(500, self.headers.get("authorization"))

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def harming() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the URL of the server, and the headers of its requests."""

    class OfThisTest(Harm):
        seen: list[dict[str, str]] = []  # noqa: RUF012 (the handler is made for each request)

    SHUTDOWN.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), OfThisTest) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", OfThisTest.seen
        SHUTDOWN.set()
        server.shutdown()
        thread.join()


def failure_of(url: str, timeout_s: float = 20.0, **headers: str) -> str:
    """Return the line of the error of a call."""
    config = McpServer(
        url=url, tools=("act",), headers=headers, allow_private=True, timeout_s=timeout_s
    )
    tools = make_mcp_tools([AcceptedServer("tickets", config, {"act": TOOL}, Path("someone.md"))])
    try:
        return ToolHarness().failure(tools.tools["tickets__act"])
    finally:
        tools.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "line"),
    [
        ("flood", "tickets: the server has sent too much, and was stopped"),
        ("events", "tickets: the server has sent too much, and was stopped"),
        ("bomb", "tickets: the server "),
        ("elsewhere", "tickets: the server "),
    ],
)
def test_harm_over_http_costs_one_failed_result(harm: str, line: str) -> None:
    with harming() as (url, _):
        assert failure_of(f"{url}/{harm}").startswith(line)


@pytest.mark.slow
def test_a_server_over_http_that_hangs_costs_one_failed_result() -> None:
    with harming() as (url, _):
        failed = failure_of(f"{url}/hang", timeout_s=1.0)

    assert failed == "tickets: the server did not answer within 1 s"


@pytest.mark.slow
def test_the_secret_of_a_header_reaches_the_server_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TICKETS_TOKEN", SECRET)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with harming() as (url, seen):
        failed = failure_of(f"{url}/echo", Authorization="Bearer ${TICKETS_TOKEN}")

    assert seen[0]["authorization"] == f"Bearer {SECRET}"
    assert seen[0]["accept-encoding"] == "identity"
    assert SECRET not in failed
    assert caplog.text == "", "the texts of a server are in no log"


@pytest.mark.slow
def test_a_secret_that_breaks_a_header_is_a_failed_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKETS_TOKEN", f"{SECRET}\r\nX-Injected: yes")
    with harming() as (url, seen):
        failed = failure_of(f"{url}/echo", Authorization="Bearer ${TICKETS_TOKEN}")

    assert failed.startswith("tickets: the server ")
    assert SECRET not in failed
    assert not any("x-injected" in headers for headers in seen)
