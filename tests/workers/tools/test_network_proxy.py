"""The proxy of a tool passes on one well-formed request to a host and port of the web, as h11
writes it. It answers anything else with one line. All requests are raw bytes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest

from handoff_queue.workers.tools import network_proxy
from handoff_queue.workers.tools.network_proxy import (
    CallNetwork,
    Network,
    NetworkProxy,
    ProcessorShare,
)
from tests.thread_frames import threads_in
from tests.waiting import wait_until

HOST = "allowed.example.org"
NETWORK = Network(
    lambda _host, _port: ["127.0.0.1"], lambda address: address == ip_address("127.0.0.1")
)
"""127.0.0.1 stands for the public address of each host."""
REQUEST = f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n"


@dataclass(slots=True)
class Host:
    """A server that keeps the bytes of each connection, and answers when they are whole."""

    listener: socket.socket
    received: list[bytes] = field(default_factory=list)
    response: bytes = b"HTTP/1.1 200 OK\r\n\r\nreached"

    @property
    def name(self) -> str:
        return f"{HOST}:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, suppress(OSError):  # the proxy cut the connection
                data = b""
                while not is_whole(data) and (piece := client.recv(65_536)):
                    data += piece
                self.received.append(data)
                client.sendall(self.response)


def is_whole(data: bytes) -> bool:
    """Return whether a request has come whole. A body with a length ends with END."""
    if b"Content-Length" in data:
        return data.endswith(b"END")
    if b"Transfer-Encoding" in data:
        return data.endswith(b"0\r\n\r\n")
    return data.endswith((b"\r\n\r\n", b"END"))


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = Host(listener)
        thread = threading.Thread(target=served.serve)
        thread.start()
        yield served
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Yield the address of the proxy."""
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    proxy = NetworkProxy(listener, "tool", CallNetwork(((HOST,),), NETWORK))
    yield place
    proxy.close()
    for thread in threading.enumerate():
        if thread.name == "tool-proxy":
            thread.join()


def answer_to(address: tuple[str, int], data: bytes, *, ends: bool = False) -> bytes:
    """Return the answer of the proxy to these bytes.

    Args:
        ends: whether the tool ends its side after the bytes.
    """
    with socket.create_connection(address, 30) as tool:
        tool.sendall(data)
        if ends:
            tool.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := tool.recv(65_536):
            answer += piece
    return answer


STRANGE_HEADERS = {
    "a space before the colon": "X-A : b",
    "a space before the colon of a host": f"Host : {HOST}",
    "a space before the colon of a length": "Content-Length : 5",
    "a folded line": "X-A: b\r\n c",
    "a line folded with a tab": "X-A: b\r\n\tc",
    "a line feed": "X-A: b\nX-B: c",
    "a line feed before a host": f"X-A: b\nHost: {HOST}",
    "a return": "X-A: b\rX-B: c",
    "a return before the end": "X-A: b\r",
    "a NUL": "X-A: b\0c",
    "a control character": "X-A: b\x0bc",
    "a deleted character": "X-A: b\x7f",
    "a name with a NUL": "X\0A: b",
    "no name": ": b",
    "no colon": "X-A",
    "a name with a letter that is not ASCII": "X-\xc4: b",
    "both lengths": "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "both lengths, the other first": "Content-Length: 5\r\ntransfer-encoding: chunked",
    "two lengths": "Content-Length: 5\r\nContent-Length: 6",
    "two equal lengths": "Content-Length: 5\r\ncontent-length: 5",
    "a list of lengths": "Content-Length: 5, 5",
    "a length of letters": "Content-Length: 0x5",
    "a negative length": "Content-Length: -5",
    "a length with a sign": "Content-Length: +5",
    "an empty length": "Content-Length:",
    "two transfer encodings": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "another transfer encoding": "Transfer-Encoding: xchunked",
    "a list of transfer encodings": "Transfer-Encoding: gzip, chunked",
    "a transfer encoding with a vertical tab": "Transfer-Encoding: \x0bchunked",
    "two hosts": f"Host: {HOST}",
    "another host": "host: evil.example",
}


@pytest.mark.parametrize("kind", STRANGE_HEADERS)
def test_a_strange_header_is_refused(address: tuple[str, int], host: Host, kind: str) -> None:
    head = f"POST http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\n{STRANGE_HEADERS[kind]}"
    count = len(host.received)

    status, _, body = answer_to(address, f"{head}\r\n\r\n".encode("latin-1")).partition(b"\r\n")

    assert status == b"HTTP/1.1 400 Bad Request"
    (line,) = body.partition(b"\r\n\r\n")[2].splitlines()
    assert line.isascii()
    assert line.decode().isprintable()
    assert len(host.received) == count


STRANGE_REQUESTS = {
    "another host": f"GET http://{HOST}/ HTTP/1.1\r\nHost: evil.example",
    "another port": f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}:81",
    "a host with a user": f"GET http://{HOST}/ HTTP/1.1\r\nHost: user@{HOST}",
    "an empty host": f"GET http://{HOST}/ HTTP/1.1\r\nHost:",
    "no host": f"GET http://{HOST}/ HTTP/1.1",
    "another host of a tunnel": f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: evil.example:443",
    "a path of a tunnel": f"CONNECT {HOST}:443/a HTTP/1.1\r\nHost: {HOST}:443",
    "a user": f"GET http://user@{HOST}/ HTTP/1.1\r\nHost: {HOST}",
    "a host as the user": f"GET http://{HOST}@evil.example/ HTTP/1.1\r\nHost: {HOST}",
    "a backslash": f"GET http://{HOST}\\@evil.example/ HTTP/1.1\r\nHost: {HOST}",
    "no scheme": f"GET //{HOST}/ HTTP/1.1\r\nHost: {HOST}",
    "a path only": f"GET / HTTP/1.1\r\nHost: {HOST}",
    "two spaces": f"GET  http://{HOST}/ HTTP/1.1\r\nHost: {HOST}",
    "a tab": f"GET\thttp://{HOST}/ HTTP/1.1\r\nHost: {HOST}",
    "no version": f"GET http://{HOST}/\r\nHost: {HOST}",
    "HTTP/2.0": f"GET http://{HOST}/ HTTP/2.0\r\nHost: {HOST}",
    "HTTP/0.9": f"GET http://{HOST}/ HTTP/0.9\r\nHost: {HOST}",
    "an empty line first": f"\r\nGET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}",
    "a space first": f" GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}",
    "port 0": f"GET http://{HOST}:0/ HTTP/1.1\r\nHost: {HOST}:0",
    "TLS": "\x16\x03\x01\x02",
}


@pytest.mark.parametrize("kind", STRANGE_REQUESTS)
def test_a_strange_request_is_refused(address: tuple[str, int], kind: str) -> None:
    data = f"{STRANGE_REQUESTS[kind]}\r\n\r\n".encode("latin-1")

    assert answer_to(address, data).startswith(b"HTTP/1.1 400 ")


def test_a_head_whose_lines_end_with_a_line_feed_is_refused_at_once(
    address: tuple[str, int],
) -> None:
    data = f"{REQUEST}\r\n".replace("\r\n", "\n").encode()

    assert answer_to(address, data).startswith(b"HTTP/1.1 400 ")


def test_a_head_without_an_end_is_refused(address: tuple[str, int]) -> None:
    assert answer_to(address, REQUEST.encode(), ends=True).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("port", [22, 25, 81, 853, 1023])
@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_port_that_is_not_one_of_the_web_is_refused(
    address: tuple[str, int], method: str, port: int
) -> None:
    target = f"{HOST}:{port}" if method == "CONNECT" else f"http://{HOST}:{port}/"
    data = f"{method} {target} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()

    answer = answer_to(address, data)

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert answer.endswith(
        f"port {port} of {HOST} is not a web port (80, 443, or above 1023)\n".encode()
    )


def test_the_host_gets_the_headers_of_the_tool_and_none_for_the_proxy(
    address: tuple[str, int], host: Host
) -> None:
    lines = (
        f"GET http://{host.name}/a?b=c#d HTTP/1.1",
        f"Host: {host.name.upper()}",
        "Proxy-Authorization: Basic eA==",
        "Proxy-Connection: keep-alive",
        "Connection: Upgrade, HTTP2-Settings",
        "Keep-Alive: 5",
        "Upgrade: h2c",
        "TE: trailers",
        "Trailer: X-B",
        "X-A:\t b, c ",
        "Cookie: \xe4=1",
    )

    answer = answer_to(address, "\r\n".join((*lines, "", "")).encode("latin-1"))

    assert answer.endswith(b"reached")
    assert host.received[-1].decode("latin-1").split("\r\n") == [
        "GET /a?b=c HTTP/1.1",
        f"Host: {host.name}",
        "Connection: close",
        "X-A: b, c",
        "Cookie: \xe4=1",
        "",
        "",
    ]


def test_the_host_gets_the_body_and_no_second_request(address: tuple[str, int], host: Host) -> None:
    head = f"POST http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\nContent-Length: 6\r\n\r\n"
    second = "GET /b HTTP/1.1\r\nHost: evil.example\r\n\r\n"

    answer_to(address, f"{head}abcEND{second}".encode())

    head_sent, _, body = host.received[-1].partition(b"\r\n\r\n")
    assert b"evil" not in head_sent
    assert body == b"abcEND"


def test_a_request_without_a_body_has_none_for_the_host(
    address: tuple[str, int], host: Host
) -> None:
    second = "GET /b HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    head = f"GET http://{host.name}/ HTTP/1.0\r\n\r\n"

    assert answer_to(address, f"{head}{second}".encode()).endswith(b"reached")
    assert b"evil" not in host.received[-1]


def test_chunks_are_passed_on_without_their_trailers_and_extensions(
    address: tuple[str, int], host: Host
) -> None:
    head = f"POST http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\nTransfer-Encoding: Chunked"
    chunks = "3;a=b\r\nabc\r\n0\r\nHost: evil.example\r\n\r\n"

    answer = answer_to(address, f"{head}\r\n\r\n{chunks}".encode(), ends=True)

    assert answer.endswith(b"reached")
    assert b"evil" not in host.received[-1]


@pytest.mark.parametrize("chunks", ["3\r\nabcd\r\n", "x\r\n", "3\r\nab", "-1\r\n", "3\nabc\n0\n\n"])
def test_a_malformed_body_cuts_the_connection(
    address: tuple[str, int], host: Host, chunks: str
) -> None:
    head = f"POST http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\nTransfer-Encoding: chunked"

    answer = answer_to(address, f"{head}\r\n\r\n{chunks}".encode(), ends=True)

    assert answer == b""


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("HTTP/1.1 200 OK\r\n\r\na", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na"),
        (
            "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nKeep-Alive: timeout=5\r\nX: y\r\n\r\na",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nX: y\r\n\r\na",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\n\r\n\r\na",
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\r\n\r\na",
        ),
        ("no HTTP", "no HTTP"),
        ("", ""),
    ],
)
def test_a_response_tells_the_tool_that_its_connection_ends(
    address: tuple[str, int], host: Host, response: str, expected: str
) -> None:
    host.response, usual = response.encode(), host.response
    try:
        data = f"GET http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\n\r\n".encode()
        assert answer_to(address, data) == expected.encode()
    finally:
        host.response = usual


@pytest.mark.parametrize("head", ["HTTP/1.0", f"HTTP/1.1\r\nHost: {HOST}"])
def test_a_tunnel_passes_all_bytes(address: tuple[str, int], host: Host, head: str) -> None:
    answer = answer_to(address, f"CONNECT {host.name} {head}\r\n\r\nany\0\nbytes END".encode())

    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert answer.endswith(b"reached")
    assert host.received[-1] == b"any\0\nbytes END"


def without_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call use up its part of the processor with its first piece."""
    monkeypatch.setattr(network_proxy, "FIRST_S", 0.0)
    monkeypatch.setattr(network_proxy, "PROCESSOR_SHARE", 1e-8)


def a_thread_rests() -> bool:
    """Return whether a thread of this process waits in `ProcessorShare.rest`."""
    return threads_in(threading.Event.wait, called_by=ProcessorShare.rest) > 0


def test_a_call_that_has_used_its_part_of_the_processor_rests_until_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_a_share(monkeypatch)
    share, over = ProcessorShare(), threading.Event()
    passed: list[bytes] = []

    def work() -> None:
        for piece in share.pace_pieces([b"a", b"b", b"c"]):
            passed.append(piece)
        over.set()

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: over.is_set() or a_thread_rests(), expected="the rest")
    passed_before_end = list(passed)
    share.end()
    thread.join()

    assert passed_before_end == [b"a"]
    assert passed == [b"a", b"b", b"c"]


def test_a_call_with_a_part_of_the_processor_left_does_not_rest() -> None:
    pieces = [b"a"] * 1_000

    with ThreadPoolExecutor(1) as new_thread:  # the whole time of a thread counts
        passed = new_thread.submit(lambda: list(ProcessorShare().pace_pieces(pieces))).result()

    assert passed == pieces


@pytest.mark.parametrize(
    "request_line",
    ["POST http://{name}/ HTTP/1.1", "CONNECT {name} HTTP/1.1"],
    ids=["request", "tunnel"],
)
def test_the_proxy_rests_between_the_pieces_of_a_call_that_has_used_its_part(
    host: Host, monkeypatch: pytest.MonkeyPatch, request_line: str
) -> None:
    without_a_share(monkeypatch)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = NetworkProxy(listener, "tool", CallNetwork(((HOST,),), NETWORK))
    line = request_line.format(name=host.name)
    head = f"{line}\r\nHost: {host.name}\r\nTransfer-Encoding: chunked\r\n\r\n"
    if line.startswith("CONNECT"):
        head = f"{line}\r\nHost: {host.name}\r\n\r\n"
    answered, over = threading.Event(), threading.Event()

    def call() -> None:
        with suppress(OSError):
            answer = answer_to(listener.getsockname(), f"{head}1\r\na\r\n0\r\n\r\nEND".encode())
            if b"reached" in answer:
                answered.set()
        over.set()

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: over.is_set() or a_thread_rests(), expected="the rest")
    rested = a_thread_rests() and not answered.is_set()
    proxy.close()
    thread.join()

    assert rested


def test_interim_responses_without_end_cut_the_connection(
    address: tuple[str, int], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "response", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20_000 + b"end")

    head = f"GET http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\n\r\n"
    answer = answer_to(address, head.encode())

    assert answer.startswith(b"HTTP/1.1 103 Early Hints")
    assert len(answer) <= 262_144
    assert not answer.endswith(b"end")


def test_the_proxy_tries_three_addresses_of_a_host(host: Host) -> None:
    addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"]  # the server has the last one
    network = Network(lambda _host, _port: addresses, lambda _address: True)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = NetworkProxy(listener, "tool", CallNetwork(((HOST,),), network))
    head = f"GET http://{host.name}/ HTTP/1.1\r\nHost: {host.name}\r\n\r\n"
    try:
        answer = answer_to(listener.getsockname(), head.encode())
    finally:
        proxy.close()

    assert answer.startswith(b"HTTP/1.1 502")
