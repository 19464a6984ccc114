"""Which addresses may be connected to on behalf of somebody who names them.

Owns the list of special-use ranges, the forms in which IPv6 carries an IPv4 address, and `AddressRule`.
`svc/outside/http.py` asks it before each connection, the Git client before each clone. It resolves no name
and opens no connection.

The list is our own, so that every Python answers alike: `ipaddress.is_global` of 3.11 to 3.13 lets ranges
pass that the registries call unreachable (measured November 2026: 64:ff9b:1::/48, 3fff::/20, 5f00::/16,
fec0::/10, 192.88.99.0/24).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import attrs

from protocol.refusals import ADDRESS_IN_THE_CLEAR, ADDRESS_NEVER, ADDRESS_PRIVATE

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: This machine and the networks that nobody reaches from outside: what a local start lets be reached.
LOCAL_NETWORKS: Final[tuple[Network, ...]] = tuple(
    ip_network(text)
    for text in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)

#: Ranges that are not globally reachable, or not with certainty: the IANA IPv4 and IPv6 Special-Purpose
#: Address Registries (iana.org/assignments/iana-ipv4-special-registry, …/iana-ipv6-special-registry), as of
#: October 2025, looked through in November 2026. A block is listed whole although some
#: single addresses in it are anycast services (192.0.0.0/24, 2001::/23): none of them is a provider. Rows
#: that the registries do not have name their RFC.
SPECIAL_USE: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(text), name)
    for text, name in (
        ("0.0.0.0/8", "this network, RFC 791"),
        ("10.0.0.0/8", "private, RFC 1918"),
        ("100.64.0.0/10", "shared by carriers, RFC 6598"),
        ("127.0.0.0/8", "loopback, RFC 1122"),
        ("169.254.0.0/16", "link-local, RFC 3927"),
        ("172.16.0.0/12", "private, RFC 1918"),
        ("192.0.0.0/24", "protocol assignments, RFC 6890"),
        ("192.0.2.0/24", "documentation, RFC 5737"),
        ("192.88.99.0/24", "6to4 relay anycast, RFC 7526"),
        ("192.168.0.0/16", "private, RFC 1918"),
        ("198.18.0.0/15", "benchmarking, RFC 2544"),
        ("198.51.100.0/24", "documentation, RFC 5737"),
        ("203.0.113.0/24", "documentation, RFC 5737"),
        ("224.0.0.0/4", "multicast, RFC 5771"),
        ("240.0.0.0/4", "reserved and broadcast, RFC 1112"),
        ("::/96", "unspecified, loopback, IPv4-compatible, RFC 4291"),
        ("::ffff:0:0:0/96", "IPv4-translated, RFC 2765"),
        ("64:ff9b::/96", "NAT64, RFC 6052"),
        ("64:ff9b:1::/48", "NAT64 of one network, RFC 8215"),
        ("100::/64", "discard, RFC 6666"),
        ("100:0:0:1::/64", "dummy prefix, RFC 9780"),
        ("2001::/23", "protocol assignments, Teredo, RFC 2928, RFC 4380"),
        ("2001:db8::/32", "documentation, RFC 3849"),
        ("2002::/16", "6to4, RFC 3056"),
        ("3fff::/20", "documentation, RFC 9637"),
        ("5f00::/16", "segment routing, RFC 9602"),
        ("fc00::/7", "unique local, RFC 4193"),
        ("fe80::/10", "link-local, RFC 4291"),
        ("fec0::/10", "site-local, RFC 3879"),
        ("ff00::/8", "multicast, RFC 4291"),
    )
)
#: All that IANA gives out for use between networks (RFC 4291 §2.4); what lies outside is nobody's yet.
_GLOBAL_UNICAST: Final = ip_network("2000::/3")

#: Where clouds tell a machine its own credentials, beside the link-local ones. No list opens these.
METADATA: Final = frozenset(
    ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
#: IPv6 that carries an IPv4 address inside, and which of its sixteen octets hold it. NAT64 of one network has
#: the four forms of RFC 6052 §2.2 that its prefix leaves room for; Teredo its server's address, then the
#: client's with every bit turned.
_END: Final = (12, 13, 14, 15)
_CARRIERS: Final = (
    (ip_network("::ffff:0:0/96"), (_END,)),
    (ip_network("::ffff:0:0:0/96"), (_END,)),
    (ip_network("::/96"), (_END,)),
    (ip_network("64:ff9b::/96"), (_END,)),
    (ip_network("64:ff9b:1::/48"), ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), _END)),
    (ip_network("2002::/16"), ((2, 3, 4, 5),)),
    (ip_network("2001::/32"), ((4, 5, 6, 7),)),
)
_TEREDO: Final = ip_network("2001::/32")


@attrs.frozen
class AddressRule:
    """Which addresses may be connected to: public ones where `public`, and those of `allowed`.

    Link-local addresses, multicast and the metadata services of clouds never are, nor what carries one of
    them inside.
    """

    allowed: tuple[Network, ...] = ()
    public: bool = True

    def refuses(self, address: str) -> bool:
        """Whether a connection to this address must not be made."""
        return self.why_not(address) is not None

    def why_not(self, address: str) -> str | None:
        """Why a connection to this address must not be made, None where it may."""
        outer = ip_address(address.partition("%")[0])
        if _never(outer) or any(_never(inner) for inner in carried(outer)):
            return ADDRESS_NEVER
        if isinstance(outer, IPv6Address) and outer.ipv4_mapped is not None:
            # The system itself connects to the IPv4 address.
            outer = outer.ipv4_mapped
        if any(_within(outer, network) for network in self.allowed):
            return None
        if not self.public:
            return ADDRESS_IN_THE_CLEAR
        return ADDRESS_PRIVATE if is_special(outer) else None


def is_special(address: Address) -> bool:
    """Whether an address is of a special use, or in IPv6 of none yet."""
    if any(_within(address, network) for network, _ in SPECIAL_USE):
        return True
    return address.version == 6 and address not in _GLOBAL_UNICAST


def carried(address: Address) -> Iterator[IPv4Address]:
    """Every IPv4 address that somebody who passes packets on may read out of this one.

    Of NAT64 the zeros of the forms that were not meant are left out.
    """
    if isinstance(address, IPv4Address) or address in (IPv6Address("::"), IPv6Address("::1")):
        return
    octets = address.packed
    for carrier, forms in _CARRIERS:
        if address in carrier:
            inner = [IPv4Address(bytes(octets[at] for at in form)) for form in forms]
            yield from (address for address in inner if len(forms) == 1 or int(address))
    if address in _TEREDO:
        yield IPv4Address(int(address) & 0xFFFF_FFFF ^ 0xFFFF_FFFF)


def _never(address: Address) -> bool:
    return address.is_link_local or address.is_multicast or address.is_unspecified or address in METADATA


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network
