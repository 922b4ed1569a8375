"""A request of a tool to its proxy. The library `h11` parses it and writes it again. So the host
gets the bytes of `h11` and never the bytes of the tool.

The rules are stricter than those of h11. Servers disagree about other forms, and would take a part
of such a request for a second request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

MAX_HEAD_BYTES = 16_384
_PIECE = 65_536
END = re.compile(rb"\n\r?\n")
"""End of a head. A request whose head ends with LF LF is refused as soon as it has come."""
_STRAY = re.compile(rb"(?<!\r)\n|\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""A single LF, a folded line, or a control character. h11 refuses a single CR."""
_LENGTH = re.compile(rb"^content-length[ \t]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_PLACE = re.compile(rf"(?P<host>{_HOST}):(?P<port>[0-9]{{1,5}})")
_OF_CONNECTION = (b"connection:", b"keep-alive:", b"proxy-connection:")
"""Beginnings of the lines of a response that say whether its connection stays open."""
_HOP_BY_HOP = (b"connection", b"host", b"keep-alive", b"te", b"trailer", b"upgrade")
"""Names of headers that are for the proxy only, or that the proxy writes itself."""


class NoProxyRequest(ValueError):
    """The bytes are not a request to a proxy."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    host: str
    port: int
    head: h11.Request | None
    """The request that the host gets. None: a tunnel."""
    rest: bytes
    """Bytes that came after the head of a tunnel."""
    incoming: h11.Connection = field(repr=False)
    """State of the parser, which has read the head."""

    def iterate_pieces(self, receive: Callable[[int], bytes]) -> Iterator[bytes]:
        """Yield the bytes for the host: this request, and nothing that follows it.

        Args:
            receive: returns at most so many bytes of the tool; none at their end.

        Raises:
            NoProxyRequest: the body is cut off, or its chunks are malformed.
        """
        if self.head is None:
            yield self.rest
            while piece := receive(_PIECE):
                yield piece
            return
        outgoing = h11.Connection(h11.CLIENT)
        yield outgoing.send(self.head) or b""
        event = _next_event(self.incoming)
        while not isinstance(event, h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield outgoing.send(event) or b""
            else:
                self.incoming.receive_data(receive(_PIECE))
            event = _next_event(self.incoming)
        yield outgoing.send(h11.EndOfMessage()) or b""


def read_request(receive: Callable[[int], bytes]) -> ProxyRequest:
    """Return the request of a tool.

    Args:
        receive: returns at most so many bytes of the tool; none at their end.

    Raises:
        NoProxyRequest: the bytes are not a request to a proxy.
    """
    data = b""
    piece = receive(_PIECE)
    while piece:
        data += piece
        start = max(0, len(data) - len(piece) - 2)
        if len(data) > MAX_HEAD_BYTES or END.search(data, start):
            break
        piece = receive(_PIECE)
    return parse_request(data)


def parse_request(data: bytes) -> ProxyRequest:
    """Return the request that begins with these bytes.

    Raises:
        NoProxyRequest: the bytes are not a request to a proxy.
    """
    end = END.search(data)
    if end is None or end.end() > MAX_HEAD_BYTES:
        raise NoProxyRequest(f"not a request to an HTTP proxy of at most {MAX_HEAD_BYTES:,} bytes")
    head = data[: end.end()]
    _check_lines(head)
    incoming = h11.Connection(h11.SERVER)
    incoming.receive_data(data)
    request = _next_event(incoming)
    if not isinstance(request, h11.Request) or request.http_version not in (b"1.0", b"1.1"):
        raise NoProxyRequest("not a request of HTTP/1.0 or HTTP/1.1")
    headers = dict(request.headers)
    if b"transfer-encoding" in headers and b"content-length" in headers:
        raise NoProxyRequest("Transfer-Encoding and Content-Length together: send only one")
    target = _get_target(request)
    host, port = target.host, target.port
    host_header = headers.get(b"host", host.encode()).lower()
    if host_header not in (host.encode(), f"{host}:{port}".encode()):
        raise NoProxyRequest(f"the header Host is not {host}, the host of the address")
    forwarded, rest = None, data[end.end() :]
    if target.path is not None:
        forwarded, rest = _build_forwarded_request(request, host, port, target.path), b""
    return ProxyRequest(host=host, port=port, head=forwarded, rest=rest, incoming=incoming)


def _check_lines(head: bytes) -> None:
    """Check what h11 accepts although servers disagree about it.

    Raises:
        NoProxyRequest: a line of the head has another form, or there are two lengths.
    """
    if _STRAY.search(head):
        raise NoProxyRequest(
            "each header must be one line of visible characters that ends with CR LF"
        )
    if len(b",".join(_LENGTH.findall(head)).split(b",")) > 1:
        raise NoProxyRequest("more than one Content-Length: send only one")


def _next_event(incoming: h11.Connection) -> object:
    """Return the next event of a parser.

    Raises:
        NoProxyRequest: the parser refuses the bytes.
    """
    try:
        return incoming.next_event()
    except h11.RemoteProtocolError as error:
        raise NoProxyRequest(f"not a request to an HTTP proxy: {str(error)[:200]}") from None


class _Target(NamedTuple):
    """The server that a request names."""

    host: str
    port: int
    path: str | None
    """The path and the query of the request. None: a tunnel."""


def _get_target(request: h11.Request) -> _Target:
    """Return the server that a request names.

    Raises:
        NoProxyRequest: the request names no host and port, or another scheme than http.
    """
    address = request.target.decode("ascii")
    path = None
    if request.method != b"CONNECT":
        address, path = _split_http_url(address)
    match = _PLACE.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65_536:
        raise NoProxyRequest("the address is not a host and a port")
    return _Target(match["host"].lower(), int(match["port"]), path)


def _split_http_url(url: str) -> tuple[str, str]:
    """Return `HOST:PORT` of a URL, and its path with the query. `HOST:PORT` is '' if the scheme is
    not http, or if the URL is wrong or has a user.
    """
    try:
        parts = urlsplit(url)
        address = f"{parts.hostname}:{parts.port or 80}"
    except ValueError:
        return "", ""
    if parts.scheme != "http" or "@" in parts.netloc:
        return "", ""
    path = parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="").geturl()
    return address, path


def _build_forwarded_request(request: h11.Request, host: str, port: int, path: str) -> h11.Request:
    """Return the request that the proxy sends to the host."""
    host_header = host if port == 80 else f"{host}:{port}"
    headers = [(b"Host", host_header.encode()), (b"Connection", b"close")]
    for name, value in request.headers.raw_items():
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(b"proxy-"):
            headers.append((name, value))
    return h11.Request(method=request.method, target=path, headers=headers)


def with_close(head: bytes) -> bytes:
    """Return the head of a response, which tells the tool that its connection ends. Some servers
    close a connection without the header. A client would then send its next request into it.
    """
    first, *lines = head.split(b"\n")
    kept_lines = [line for line in lines if not line.lower().startswith(_OF_CONNECTION)]
    return b"\n".join((first, b"Connection: close\r", *kept_lines))
