"""HTTP requests that connect only to addresses that were checked. No private address is reached."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore2
import httpx2

from handoff_queue.shared.agent.seen_texts import is_allowed_host

Address = IPv4Address | IPv6Address
Policy = Callable[[Address], bool]
"""Function that returns whether an address may be reached."""
Resolver = Callable[[str, int], list[str]]
"""Function that returns the addresses of a host and a port as text. Raises OSError."""

_NOT_PUBLIC_4 = tuple(map(IPv4Network, (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24",
    "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)))  # fmt: skip
"""Networks of IANA's special-purpose registry, and multicast and reserved networks. They
include 169.254.169.254, from which clouds serve credentials.
"""
_GLOBAL_UNICAST_6 = IPv6Network("2000::/3")
"""Network of all global unicast addresses that IANA assigns. Loopback, mapped, local,
link-local, site-local, multicast and NAT64 addresses are outside.
"""
_NOT_PUBLIC_6 = tuple(map(IPv6Network, (
    "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3ffe::/16", "3fff::/20",
)))  # fmt: skip
"""Networks of Teredo and 6to4, whose addresses contain IPv4 addresses, and networks for
documentation and protocols.
"""


def is_public(address: Address) -> bool:
    """Return whether an address is public by these networks and also by the standard library.
    This is the policy of every worker.
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
    """Return the addresses of a host from the operating system, each once, in its order of
    preference.
    """
    addresses: dict[str, None] = {}
    for *_, socket_address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        addresses[str(socket_address[0])] = None
    return list(addresses)


class AddressRefused(OSError):
    """The host, or an address of the host, may not be reached."""


def only_hosts(resolver: Resolver, hosts: Sequence[str]) -> Resolver:
    """Return a resolver that asks no name server about a host outside of the list. A redirect
    to such a host is refused in the same way.

    Args:
        hosts: the allowed hosts, see `is_allowed_host`; empty: all hosts.
    """
    if not hosts:
        return resolver

    def resolve(host: str, port: int) -> list[str]:
        if not is_allowed_host(host, hosts):
            raise AddressRefused(f"{host[:100]} is not in the list of hosts of this specialist")
        return resolver(host, port)

    return resolve


def check_addresses(host: str, port: int, resolver: Resolver, policy: Policy) -> list[str]:
    """Return the addresses of a host after a check of each. A single refused address refuses
    the host, because a public address next to it could serve to avoid the check.

    Raises:
        AddressRefused: an address may not be reached or is invalid, or there are no addresses.
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
"""Longest time in seconds to connect to one address of a host."""
_MOST_ADDRESSES = 3
"""Addresses of a host that are tried."""


class Deadline:
    """One deadline for all parts of a fetch. A server that sends a byte a second then does not
    hold a worker's thread.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self, most_s: float | None = None) -> float:
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


class PinnedTransport(httpx2.BaseTransport):
    """A transport for one fetch, including redirects. It checks the addresses for each
    connection.
    """

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
    """Opens connections only to addresses that the policy allows."""

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
        for address in addresses[:_MOST_ADDRESSES]:
            connect_s = self._deadline.left_s(min(timeout or _CONNECT_S, _CONNECT_S))
            try:
                stream = self._sockets.connect_tcp(
                    address, port, connect_s, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _TimedStream(stream, self._deadline)
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

        threading.Thread(target=resolve, name="fetch_url-resolver", daemon=True).start()
        try:
            answer = answers.get(timeout=self._deadline.left_s())
        except queue.Empty:
            raise httpcore2.ConnectTimeout(f"the name server does not answer for {host}") from None
        if isinstance(answer, OSError):
            raise answer
        return answer


class _TimedStream(httpcore2.NetworkStream):
    """A connection whose reads and writes end at the deadline."""

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
