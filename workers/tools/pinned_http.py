"""HTTP requests to the address that was checked, and to no private address."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore2
import httpx2

Address = IPv4Address | IPv6Address
Policy = Callable[[Address], bool]
"""Decides whether an address may be reached."""
Resolver = Callable[[str, int], list[str]]
"""(host, port) -> addresses as text.  Raises: OSError."""

_NOT_PUBLIC_4 = tuple(
    IPv4Network(net)
    for net in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
        "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
        "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
"""IANA's special-purpose registry, multicast and reserved space; 169.254.169.254, where clouds
keep credentials, is in it.
"""
_GLOBAL_UNICAST_6 = IPv6Network("2000::/3")
"""All addresses that IANA has assigned. Loopback, mapped, local, link-local, site-local and
multicast addresses are outside.
"""
_NOT_PUBLIC_6 = tuple(
    IPv6Network(net)
    for net in (
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "2620:4f:8000::/48",
        "3ffe::/16",
        "3fff::/20",
    )
)
"""Teredo and 6to4 carry IPv4 addresses inside; the rest is documentation and protocol space.
(NAT64 lies outside 2000::/3.)
"""


def is_public(address: Address) -> bool:
    """Return whether an address is public by both the list and the standard library. This is the
    policy of every worker.
    """
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return (
        address in _GLOBAL_UNICAST_6
        and address.scope_id is None
        and not any(address in network for network in _NOT_PUBLIC_6)
    )


def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses from the operating system, in its order of preference."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in answers))


class AddressRefused(OSError):
    """A host that leads to an address that may not be reached."""


def check_addresses(host: str, port: int, resolver: Resolver, policy: Policy) -> list[str]:
    """Return the addresses of a host, all checked. A single refused address refuses the host: a
    public address next to it could be used to avoid the check.

    Raises:
        AddressRefused: not all addresses may be reached, or there are none.
        OSError: the host is unknown.
    """
    addresses = resolver(host, port)
    try:
        refused = not addresses or not all(policy(ip_address(text)) for text in addresses)
    except ValueError:
        refused = True
    if refused:
        raise AddressRefused(f"{host} is not on the public internet")
    return addresses


_CONNECT_S = 5.0
"""Seconds to connect to one address; a host may have several."""


class Deadline:
    """A single deadline for all parts of a fetch: a server that sends a byte a second must not hold
    a worker's thread.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self, most_s: float | None = None) -> float:
        """Return the seconds left, or `most_s` if that is less.

        Raises:
            httpcore2.ReadTimeout: no time is left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("took too long")
        if most_s is None:
            return left
        return min(left, most_s)


class PinnedTransport(httpx2.BaseTransport):
    """A transport for one fetch, including redirects: every connection is checked again."""

    def __init__(
        self, resolver: Resolver, policy: Policy, deadline: Deadline, tls: ssl.SSLContext
    ) -> None:
        backend = _CheckedBackend(resolver, policy, deadline)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls, network_backend=backend, max_connections=2, retries=0
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        response = self._pool.handle_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
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
    """Opens connections, only to addresses that the policy allows."""

    def __init__(self, resolver: Resolver, policy: Policy, deadline: Deadline) -> None:
        self._resolver = resolver
        self._policy = policy
        self._deadline = deadline
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
        for address in addresses[:3]:
            try:
                stream = self._sockets.connect_tcp(
                    address,
                    port,
                    self._deadline.left_s(min(timeout or _CONNECT_S, _CONNECT_S)),
                    local_address,
                    socket_options,
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _TimedStream(stream, self._deadline)
        raise httpcore2.ConnectError(f"{host} does not answer on port {port}")

    def _resolve_in_time(self, host: str, port: int) -> list[str]:
        """Resolve a host within the deadline. The operating system's resolver has no timeout, so a
        slow call is left in its thread.
        """
        answers: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

        def resolve() -> None:
            try:
                answers.put(self._resolver(host, port))
            except (OSError, UnicodeError) as error:
                answers.put(
                    error if isinstance(error, OSError) else OSError(f"{host} is not a host name")
                )

        threading.Thread(target=resolve, name="fetch_url-resolver", daemon=True).start()
        try:
            answer = answers.get(timeout=self._deadline.left_s())
        except queue.Empty:
            raise httpcore2.ConnectTimeout(f"the name server does not answer for {host}") from None
        if isinstance(answer, OSError):
            raise answer
        return answer


class _TimedStream(httpcore2.NetworkStream):
    """A connection on which every wait ends at the deadline."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left_s(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        return _TimedStream(
            self._stream.start_tls(ssl_context, server_hostname, self._deadline.left_s(timeout)),
            self._deadline,
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
