"""Servers whose answers never begin, or come in very small pieces."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, McpServer
from handoff_queue.supervisor.engine.webhooks import post
from handoff_queue.workers.tools.fetch_url import MAX_PIECES, Web, fetch_url_tool
from handoff_queue.workers.tools.mcp.tools import make_mcp_tools
from tests.workers.tools.contexts import ToolHarness
from tests.workers.tools.mcp.a_hostile_server import TOOL
from tests.workers.tools.servers import loopback_only, resolve_to_loopback

WITHIN_S = 5.0
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECES = b"1\r\nx\r\n" * 1_000


@contextmanager
def server_that_sends(first: bytes, for_ever: bytes) -> Iterator[str]:
    """Yield the address of a server that answers each request in this way."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has had enough
            connection.recv(65_536)
            connection.sendall(first)
            while True:
                connection.sendall(for_ever)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):  # the test is over
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def outcome_of_webhook(url: str) -> str:
    return post(url, b"{}", {}, ["127.0.0.1"], WITHIN_S)[1]


def outcome_of_fetch(url: str) -> str:
    web = Web(resolver=resolve_to_loopback, policy=loopback_only, max_seconds=WITHIN_S)
    return ToolHarness().failure(fetch_url_tool(web), url=url)


def outcome_of_mcp(url: str) -> str:
    config = McpServer(url=url, tools=("act",), allow_private=True, timeout_s=WITHIN_S)
    tools = make_mcp_tools([AcceptedServer("tickets", config, {"act": TOOL}, Path("someone.md"))])
    try:
        return ToolHarness().failure(tools.tools["tickets__act"])
    finally:
        tools.close()


@pytest.mark.parametrize(
    ("outcome_of", "outcome"),
    [
        (outcome_of_webhook, "RemoteProtocolError"),
        (outcome_of_fetch, "RemoteProtocolError: sent more than 262,144 bytes before"),
        (outcome_of_mcp, "tickets: the server has ended"),
    ],
    ids=["webhook", "fetch_url", "MCP"],
)
def test_interim_answers_without_end_are_cut_long_before_the_time_limit(
    outcome_of: Callable[[str], str], outcome: str
) -> None:
    with server_that_sends(b"", INTERIM) as url:
        assert outcome in outcome_of(url)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome_of", "outcome"),
    [
        (outcome_of_fetch, f"comes in more than {MAX_PIECES:,} pieces"),
        (outcome_of_mcp, "tickets: the server has sent too much"),
    ],
    ids=["fetch_url", "MCP"],
)
def test_an_answer_in_very_small_pieces_is_cut_long_before_its_limit_of_bytes(
    outcome_of: Callable[[str], str], outcome: str
) -> None:
    with server_that_sends(ANSWER, PIECES) as url:
        assert outcome in outcome_of(url)
