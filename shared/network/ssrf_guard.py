"""Addresses and ports that a request may reach, if an untrusted text may have chosen its host."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from handoff_queue.shared.agent.seen_texts import is_allowed_host

MAX_ADDRESSES = 3
"""Most addresses of a host that are tried. Without a limit, a name server with many addresses that
do not answer could hold a thread for hours.
"""
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
    "168.63.129.16/32",
)))  # fmt: skip
"""Networks of IANA's special-purpose registry, multicast and reserved networks, and the address
of the Azure host, which looks public. They include the addresses from which clouds serve
credentials: 169.254.169.254, 100.100.100.200 and 192.0.0.192.
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
    This is the policy of every process.
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


def accepts_any_address(_: Address) -> bool:
    """Allow each address. This is the policy for hosts that the operator has named."""
    return True


def is_web_port(port: int) -> bool:
    """Return whether a server of the web may have this port: 80, 443, or a port above 1023. The
    ports between belong to services of a system, such as mail and SSH.
    """
    return port in (80, 443) or port > 1023


def resolve_with_system(host: str, port: int) -> list[str]:
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
    """Return the first addresses of a host after a check of all. A single refused address refuses
    the host, because a public address next to it could serve to avoid the check.

    Raises:
        AddressRefused: an address may not be reached or is invalid, or there are no addresses.
        OSError: the host is unknown.
    """
    addresses = resolver(host, port)
    try:
        verdicts = [policy(ip_address(address)) for address in addresses]
    except ValueError:
        verdicts = []
    if not verdicts or not all(verdicts):
        raise AddressRefused(f"{host} is not on the public internet")
    return addresses[:MAX_ADDRESSES]
