"""HTTP requests that connect only to addresses that were checked. No private address is reached."""

from __future__ import annotations

import queue
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore2
import httpx2

from handoff_queue.shared.network.ssrf_guard import Policy, Resolver, check_addresses

REQUEST_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    OSError,
    UnicodeError,
)
"""Errors of an exchange over `PinnedTransport`, with `AddressRefused`."""
_CONNECT_S = 5.0
"""Longest time in seconds to connect to one address of a host."""
MAX_HEAD_BYTES = 262_144
"""Most bytes of a server before its response begins. The parser takes a head of 102,400 bytes, and
reads 65,536 bytes at once.
"""


class HeadLimit:
    """The bytes that a server may send before a response begins. A server may send interim
    responses (status 1xx) before, which would otherwise use the processor without end.
    """

    def __init__(self) -> None:
        self._left: int | None = MAX_HEAD_BYTES

    def begin(self) -> None:
        """Begin a request."""
        self._left = MAX_HEAD_BYTES

    def end(self) -> None:
        """Count no more bytes, because the response has begun."""
        self._left = None

    def take(self, count: int) -> None:
        """Count bytes that the server has sent.

        Raises:
            httpcore2.RemoteProtocolError: there are too many.
        """
        if self._left is None:
            return
        self._left -= count
        if self._left < 0:
            raise httpcore2.RemoteProtocolError(
                f"sent more than {MAX_HEAD_BYTES:,} bytes before its response"
            )


class Deadline:
    """One deadline for all parts of an exchange. A server that sends a byte a second then does
    not hold a thread.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def compute_remaining_s(self, most_s: float | None = None) -> float:
        """Return the remaining seconds, at most `most_s`.

        Raises:
            httpcore2.ReadTimeout: no time is left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("took too long")
        if most_s is None:
            return left
        return min(left, most_s)


def convert_request(request: httpx2.Request) -> httpcore2.Request:
    """Return a request of httpx2 as a request of its connection pool."""
    url = request.url
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        ),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


class PinnedTransport(httpx2.BaseTransport):
    """A transport for one exchange, including redirects. It checks the addresses for each
    connection.
    """

    def __init__(
        self, resolver: Resolver, policy: Policy, deadline: Deadline, tls: ssl.SSLContext
    ) -> None:
        self._head = HeadLimit()
        backend = _CheckedBackend(resolver, policy, deadline, self._head)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls, network_backend=backend, max_connections=2, retries=0
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.SyncByteStream)
        self._head.begin()
        response = self._pool.handle_request(convert_request(request))
        self._head.end()
        assert isinstance(response.stream, Iterable)
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    """A response's bytes, as they arrive."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class _CheckedBackend(httpcore2.NetworkBackend):
    """Opens connections only to addresses that the policy allows."""

    def __init__(
        self, resolver: Resolver, policy: Policy, deadline: Deadline, head: HeadLimit
    ) -> None:
        self._resolver = resolver
        self._policy = policy
        self._deadline = deadline
        self._head = head
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        addresses = check_addresses(host, port, self._resolve_in_time, self._policy)
        for address in addresses:
            connect_s = self._deadline.compute_remaining_s(min(timeout or _CONNECT_S, _CONNECT_S))
            try:
                stream = self._sockets.connect_tcp(
                    address, port, connect_s, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _LimitedStream(stream, self._deadline, self._head)
        raise httpcore2.ConnectError(f"{host} does not answer on port {port}")

    def _resolve_in_time(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host within the deadline. The operating system's resolver
        has no timeout, so the thread of a slow call is abandoned.
        """
        answers: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

        def resolve() -> None:
            try:
                answers.put(self._resolver(host, port))
            except OSError as error:
                answers.put(error)
            except UnicodeError:
                answers.put(OSError(f"{host} is not a host name"))

        threading.Thread(target=resolve, name="pinned-http-resolver", daemon=True).start()
        try:
            answer = answers.get(timeout=self._deadline.compute_remaining_s())
        except queue.Empty:
            raise httpcore2.ConnectTimeout(f"the name server does not answer for {host}") from None
        if isinstance(answer, OSError):
            raise answer
        return answer


class _LimitedStream(httpcore2.NetworkStream):
    """A connection whose reads and writes end at the deadline, and whose heads have a limit."""

    def __init__(
        self, stream: httpcore2.NetworkStream, deadline: Deadline, head: HeadLimit
    ) -> None:
        self._stream = stream
        self._deadline = deadline
        self._head = head

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._deadline.compute_remaining_s(timeout))
        self._head.take(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.compute_remaining_s(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        return _LimitedStream(
            self._stream.start_tls(
                ssl_context, server_hostname, self._deadline.compute_remaining_s(timeout)
            ),
            self._deadline,
            self._head,
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
