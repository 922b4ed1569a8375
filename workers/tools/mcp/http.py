"""A server over streamable HTTP: requests to checked addresses, and responses with a limit."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import httpcore2
import httpx2

from handoff_queue.shared.network.pinned_transport import HeadLimit, convert_request
from handoff_queue.shared.network.ssrf_guard import (
    Policy,
    accepts_any_address,
    check_addresses,
    is_public,
    resolve_with_system,
)
from handoff_queue.workers.tools.mcp.response_size_limit import (
    PIECE_BYTES,
    REQUEST_BYTES,
    ByteAllowance,
    JsonStream,
)

CONNECT_S = 5.0
"""Longest time in seconds to connect to one address of a host."""
_CHARSETS = ("", "utf-8", "utf8", "us-ascii", "ascii")


def create_http_client(
    headers: Mapping[str, str], allowance: ByteAllowance, *, allow_private: bool
) -> httpx2.AsyncClient:
    """Return a client without proxies and redirects, whose responses use up an allowance."""
    policy = accepts_any_address if allow_private else is_public
    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        transport=_CheckedTransport(policy, allowance),
        timeout=httpx2.Timeout(CONNECT_S, read=None),
        trust_env=False,
    )


class _CheckedTransport(httpx2.AsyncBaseTransport):
    """A transport that checks the addresses of each connection, and counts requests and bytes."""

    def __init__(self, policy: Policy, allowance: ByteAllowance) -> None:
        self._allowance = allowance
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            network_backend=_CheckedBackend(policy),
            retries=0,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._allowance.take(REQUEST_BYTES)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        response = await self._pool.handle_async_request(convert_request(request))
        stream = response.extensions["network_stream"]
        if isinstance(stream, _LimitedStream):
            stream.head.end()
        headers = httpx2.Headers(response.headers)
        encoding = headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("", "identity"):
            await response.aclose()
            raise httpx2.DecodingError("the response is compressed, which was not asked for")
        charset = _find_charset(headers)
        if charset not in _CHARSETS:  # its values could not be counted
            await response.aclose()
            raise httpx2.DecodingError("the response is not UTF-8")
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response, self._allowance),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


def _find_charset(headers: httpx2.Headers) -> str:
    """Return the charset of a response as the package `httpx2` reads it; "" if there is none."""
    return (httpx2.Response(200, headers=headers).charset_encoding or "").lower()


class _Body(httpx2.AsyncByteStream):
    """A response's bytes, as they arrive."""

    def __init__(self, response: httpcore2.Response, allowance: ByteAllowance) -> None:
        self._response = response
        self._allowance = allowance

    async def __aiter__(self) -> AsyncIterator[bytes]:
        json_stream = JsonStream(self._allowance)
        async for piece in self._response.aiter_stream():
            self._allowance.take(PIECE_BYTES)
            json_stream.take(piece)
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections only to addresses that the policy allows."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await asyncio.to_thread(
            check_addresses, host, port, resolve_with_system, self._policy
        )
        for address in addresses:
            try:
                stream = await self._sockets.connect_tcp(
                    address,
                    port,
                    min(timeout or CONNECT_S, CONNECT_S),
                    local_address,
                    socket_options,
                )
                return _LimitedStream(stream)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        raise httpcore2.ConnectError(f"{host} does not answer on port {port}")

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


class _LimitedStream(httpcore2.AsyncNetworkStream):
    """A connection whose heads have a limit."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self.head = HeadLimit()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        self.head.take(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.head.begin()  # a request, or a part of its body
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _LimitedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
