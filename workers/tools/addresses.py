"""Which network addresses a tool may reach: the public internet, and nothing of the network that the worker stands in."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Policy = Callable[[Address], bool]
"""Whether an address may be reached."""
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
"""IANA's special-purpose registry, multicast and reserved space; 169.254.169.254, where clouds keep credentials, is in it."""
_GLOBAL_UNICAST_6 = IPv6Network("2000::/3")
"""All that IANA has given out; loopback, mapped, local, link-local, site-local and multicast lie outside."""
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
"""Teredo and 6to4 carry IPv4 addresses inside; the rest is documentation and protocol space. (NAT64 lies outside 2000::/3.)"""


def is_public(address: Address) -> bool:
    """The policy of every worker. Both the list and the standard library must agree that it is public."""
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
    """What the operating system says, in its order of preference."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class AddressRefused(OSError):
    """A host that leads to an address that may not be reached."""


def allowed_addresses(host: str, port: int, resolver: Resolver, policy: Policy) -> list[str]:
    """The addresses of a host, all checked. One bad address damns the host: a public one beside it is how the check would be dodged.

    Raises:
        AddressRefused: not all addresses may be reached, or there are none.
        OSError: the host is not known.
    """
    found = resolver(host, port)
    try:
        refused = not found or not all(policy(ip_address(text)) for text in found)
    except ValueError:
        refused = True
    if refused:
        raise AddressRefused(f"{host} is not on the public internet")
    return found
