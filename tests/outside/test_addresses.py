"""Laws of addresses: which are of a special use, what they carry inside, and what no list opens."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.refusals import ADDRESS_NEVER
from svc.outside.addresses import LOCAL_NETWORKS, METADATA, SPECIAL_USE, Address, AddressRule, Network

PUBLIC = AddressRule()
NEAR = AddressRule(LOCAL_NETWORKS)
EVERYTHING = AddressRule((ip_network("0.0.0.0/0"), ip_network("::/0")))

#: How IPv6 carries an IPv4 address: as the kernel does it, and as translators and tunnels do. By the octets
#: before it and after it; the ninth octet of RFC 6052 is always zero.
FORMS = {
    "mapped": lambda inner: bytes(10) + b"\xff\xff" + inner,
    "translated": lambda inner: bytes(8) + b"\xff\xff\0\0" + inner,
    "compatible": lambda inner: bytes(12) + inner,
    "NAT64": lambda inner: bytes.fromhex("0064ff9b") + bytes(8) + inner,
    "NAT64 of one network, /96": lambda inner: bytes.fromhex("0064ff9b0001") + bytes(6) + inner,
    "NAT64 of one network, /64": lambda inner: bytes.fromhex("0064ff9b00010000") + b"\0" + inner + bytes(3),
    "NAT64 of one network, /56": lambda inner: (
        bytes.fromhex("0064ff9b000100") + inner[:1] + b"\0" + inner[1:] + bytes(4)
    ),
    "NAT64 of one network, /48": lambda inner: (
        bytes.fromhex("0064ff9b0001") + inner[:2] + b"\0" + inner[2:] + bytes(5)
    ),
    "6to4": lambda inner: b"\x20\x02" + inner + bytes(10),
    "Teredo, its server": lambda inner: b"\x20\x01\0\0" + inner + bytes(8),
    "Teredo, its client": lambda inner: (
        bytes.fromhex("20010000") + IPv4Address("65.54.227.120").packed + bytes(4) + turned(inner)
    ),
}


def turned(octets: bytes) -> bytes:
    return bytes(octet ^ 0xFF for octet in octets)


def inside(network: Network) -> st.SearchStrategy[Address]:
    return st.integers(int(network[0]), int(network[-1])).map(type(network[0]))


SPECIAL = st.sampled_from([network for network, _ in SPECIAL_USE]).flatmap(inside)
SPECIAL_V4 = st.sampled_from([network for network, _ in SPECIAL_USE if network.version == 4]).flatmap(inside)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "fd12::1", "0.0.0.0"),
        *("::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "100.64.0.1"),
        *("100.100.100.200", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "fd00:ec2::254", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
        *("192.88.99.1", "fec0::1", "3fff::1", "3fff:fff:ffff::1", "5f00::1", "100::1", "100:0:0:1::1"),
        *("::ffff:0:7f00:1", "::ffff:0:101:101", "64:ff9b:1::a00:1", "64:ff9b:1:a00:0:100::", "4000::1"),
    ],
)
def test_nothing_but_public_addresses_is_connected_to(address: str) -> None:
    assert PUBLIC.refuses(address)


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.215.14", "1.1.1.1", "192.88.98.255", "192.88.100.0", "100.63.255.255", "100.128.0.0"),
        *("2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "2001:200::1", "2001:db7:ffff::1"),
        *("3ffe:ffff::1", "3fff:1000::1", "::ffff:1.1.1.1"),
    ],
)
def test_public_addresses_are_connected_to(address: str) -> None:
    assert not PUBLIC.refuses(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "fd12::1", "::ffff:192.168.1.1"])
def test_a_list_opens_private_networks(address: str) -> None:
    assert not NEAR.refuses(address)


@pytest.mark.parametrize("address", ["64:ff9b:1::a00:1", "64:ff9b:1:a00:0:100::", "fec0::1", "3fff::1"])
def test_a_list_opens_ranges_of_special_use(address: str) -> None:
    assert not EVERYTHING.refuses(address)


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "fe80::1", "224.0.0.1", "0.0.0.0"),
        *("168.63.129.16", "192.0.0.192", "fd20:ce::254", "::", "ff02::1", "::ffff:0.0.0.0"),
        *("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "::ffff:0:a9fe:a9fe"),
    ],
)
def test_no_list_opens_link_local_addresses_and_the_metadata_of_clouds(address: str) -> None:
    assert EVERYTHING.why_not(address) == ADDRESS_NEVER


@given(SPECIAL)
def test_no_address_of_a_special_use_is_connected_to(address: Address) -> None:
    assert PUBLIC.refuses(str(address))


@given(st.sampled_from(list(FORMS)), SPECIAL_V4)
def test_no_form_of_ipv6_carries_a_special_ipv4_address_past_the_rule(form: str, inner: Address) -> None:
    assert PUBLIC.refuses(str(IPv6Address(FORMS[form](inner.packed))))


NEVER_V4 = st.one_of(
    st.sampled_from([address for address in sorted(map(str, METADATA)) if ":" not in address]).map(
        IPv4Address
    ),
    inside(ip_network("169.254.0.0/16")),
    inside(ip_network("224.0.0.0/4")),
)


@given(st.sampled_from(list(FORMS)), NEVER_V4)
def test_no_list_opens_an_address_that_carries_metadata_inside(form: str, inner: Address) -> None:
    assert EVERYTHING.why_not(str(IPv6Address(FORMS[form](inner.packed)))) == ADDRESS_NEVER


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_whatever_python_calls_unreachable_is_refused(address: Address) -> None:
    mapped = getattr(address, "ipv4_mapped", None)
    if not (mapped or address).is_global:
        assert PUBLIC.refuses(str(address))


def test_the_ranges_are_told_once_and_from_low_to_high() -> None:
    for version in (4, 6):
        networks = [network for network, _ in SPECIAL_USE if network.version == version]
        assert networks == sorted(networks, key=lambda network: int(ip_address(network[0])))
        assert not [pair for pair in pairwise(networks) if pair[0].overlaps(pair[1])]
