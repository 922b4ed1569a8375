"""Private and special addresses are refused in every notation."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import chain

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handoff_queue.shared.network.ssrf_guard import (
    AddressRefused,
    check_addresses,
    is_public,
    is_web_port,
)

SPECIAL = {
    "this network": ["0.0.0.0", "0.1.2.3", "::"],
    "private": ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12::1"],
    "carrier-grade NAT": ["100.64.0.1", "100.127.255.255"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "link-local and site-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "with a scope": ["2606:4700:4700::1111%eth0", "fe80::a9fe:a9fe%1"],
    "metadata of most clouds": ["169.254.169.254", "fd00:ec2::254", "fd20:ce::254"],
    "credentials of containers on AWS": ["169.254.170.2", "fd00:ec2::23"],
    "the Azure host": ["168.63.129.16"],
    "metadata of Alibaba": ["100.100.100.200"],
    "metadata of Oracle": ["192.0.0.192"],
    "protocols": ["192.0.0.1", "192.88.99.1", "192.31.196.1", "192.52.193.1", "100::1"],
    "name servers of private zones": ["192.175.48.1", "2620:4f:8000::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved and broadcast": ["240.0.0.1", "255.255.255.255", "5f00::1", "4000::1"],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:168.63.129.16"],
    "IPv4-compatible": ["::127.0.0.1", "::8.8.8.8"],
    "IPv4-translated": ["::ffff:0:127.0.0.1"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1::a00:1"],
    "6to4": ["2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:a83f:8110::1"],
    "Teredo": ["2001::1", "2001:0:a00:1::f5ff:fffe"],
    "other tunnels and identifiers": ["2001:20::1", "2001:10::1", "3ffe::1"],
}  # fmt: skip
"""Kind of addresses -> addresses that no request may reach."""
PRIVATE = list(chain.from_iterable(SPECIAL.values()))


@pytest.mark.parametrize("address", PRIVATE)
def test_special_addresses_are_refused(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "168.63.129.15",
        "168.63.129.17",
        "2606:4700:4700::1111",
        "2a00:1450:4001:81b::200e",
    ],
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.integers(0, 2**32 - 1))
def test_an_ipv6_address_that_contains_an_ipv4_address_is_refused(number: int) -> None:
    for address in (
        0xFFFF << 32 | number,
        number,
        (0x64FF9B << 96) | number,
        (0x2002 << 112) | (number << 80),
        (0x20010000 << 96) | number,
    ):
        assert not is_public(IPv6Address(address))


@given(st.ip_addresses())
def test_an_address_that_the_standard_library_calls_private_is_never_public(
    address: IPv4Address | IPv6Address,
) -> None:
    assume(
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
    )

    assert not is_public(address)


@given(
    st.lists(st.sampled_from(["8.8.8.8", "1.1.1.1", "2606:4700::1"])),
    st.sampled_from([a for a in PRIVATE if "%" not in a]),
    st.integers(0, 3),
)
def test_one_private_address_among_public_ones_blocks_the_host(
    public: list[str], private: str, index: int
) -> None:
    mixed = [*public[:index], private, *public[index:]]

    with pytest.raises(AddressRefused):
        check_addresses("evil.example", 80, lambda _host, _port: mixed, is_public)


@pytest.mark.parametrize("addresses", [[], ["nonsense"]])
def test_a_host_without_a_usable_address_is_refused(addresses: list[str]) -> None:
    with pytest.raises(AddressRefused):
        check_addresses("odd.example", 80, lambda _host, _port: addresses, is_public)


def test_public_addresses_are_given_in_the_resolvers_order() -> None:
    assert check_addresses(
        "good.example", 443, lambda _host, _port: ["8.8.8.8", "1.1.1.1"], is_public
    ) == ["8.8.8.8", "1.1.1.1"]


@pytest.mark.parametrize("port", [80, 443, 1024, 8080, 65_535])
def test_a_server_of_the_web_has_one_of_these_ports(port: int) -> None:
    assert is_web_port(port)


@pytest.mark.parametrize("port", [0, 22, 25, 53, 79, 81, 110, 389, 442, 445, 444, 873, 1023])
def test_a_port_of_a_system_is_not_one_of_the_web(port: int) -> None:
    assert not is_web_port(port)
