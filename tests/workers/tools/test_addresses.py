"""Private and special addresses are refused in every notation."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handoff_queue.workers.tools.pinned_http import AddressRefused, check_addresses, is_public

PRIVATE = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1",
    "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:8.8.8.8",
    "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001::1", "2001:db8::1",
    "100::1", "3fff::1", "fd00:ec2::254",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_special_addresses_are_refused(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"],
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
