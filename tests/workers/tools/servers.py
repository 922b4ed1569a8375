"""A web server on loopback that answers for every host name."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from handoff_queue.shared.network.ssrf_guard import Address


@dataclass
class Page:
    """One answer of the server."""

    body: bytes = b""
    content_type: str | None = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    """Send the head, and then a byte of the body every 50 ms until the server stops."""


@dataclass
class Server:
    """A running server, with its port and its received requests."""

    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(Host header, path)"""
    request_headers: list[Mapping[str, str]] = field(default_factory=list)


def loopback_only(address: Address) -> bool:
    """Allow only 127.0.0.1: an address policy for tests."""
    return address == ip_address("127.0.0.1")


def resolve_to_loopback(_host: str, _port: int) -> list[str]:
    """Resolve every name to this machine."""
    return ["127.0.0.1"]


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors, such as a client that disconnects."""


def _handler(
    pages: Mapping[str, Page], server: Server, over: threading.Event
) -> type[BaseHTTPRequestHandler]:
    """Return a handler class that answers from `pages` and records its requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append((self.headers["Host"], self.path))
            server.request_headers.append(dict(self.headers))
            page = pages.get(self.path, Page(status=404))
            self.send_response(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            if page.content_type is not None:
                self.send_header("Content-Type", page.content_type)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(page.body)
                while page.hangs and not over.wait(0.05):
                    self.wfile.write(b".")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


@contextmanager
def serving(
    pages: Mapping[str, Page], *, certificate: Path | None = None, key: Path | None = None
) -> Iterator[Server]:
    """Serve these pages until the end of the block. With a certificate, serve over TLS."""
    over = threading.Event()
    server = Server(port=0)
    with _Quiet(("127.0.0.1", 0), _handler(pages, server, over)) as running:
        server.port = running.server_port
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            running.socket = tls.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            over.set()
            running.shutdown()
            thread.join()
