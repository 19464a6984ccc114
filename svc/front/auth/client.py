"""Who is at the other end: the address, the scheme, and whether the request comes from a page of ours.

Forwarded headers are honoured only from the networks of `TRUSTED_PROXIES`, and only when TLS ends upstream
(spec, `TLS_MODE`); from anyone else they are text without meaning. `X-Forwarded-Host` is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import attrs

Network = IPv4Network | IPv6Network

_PORTS: Final = {"http": 80, "https": 443}


@attrs.frozen
class Client:
    """One request's other end. `scheme` is how the request came.

    `secure` says that browsers reach us over HTTPS, whatever the last hop speaks.
    """

    address: str
    scheme: str
    secure: bool

    @property
    def place(self) -> str:
        """What limits are counted by: an IPv4 address, or the /64 that a client of IPv6 moves within."""
        try:
            ip = ip_address(self.address.partition("%")[0])
        except ValueError:
            return self.address
        if isinstance(ip, IPv4Address):
            return str(ip)
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ip_network((ip, 64), strict=False))


@attrs.frozen
class Surroundings:
    """What stands between us and browsers, from the settings.

    `proxies` is empty unless TLS ends upstream. `origins` are our public origins, `hosts` their hosts.
    """

    proxies: tuple[Network, ...] = ()
    origins: frozenset[str] = frozenset()
    always_secure: bool = False
    #: The path of the host under which browsers find us, blank for all of it.
    base_path: str = ""

    def client(self, peer: str | None, scheme: str, headers: Mapping[str, str]) -> Client:
        """The client behind a connection from `peer`."""
        address = peer or "unknown"
        if self._trusts(address):
            scheme = headers.get("x-forwarded-proto", scheme).split(",")[-1].strip().lower()
            # From the right, each hop was written by the next; the first that we do not trust is the client.
            for hop in reversed(headers.get("x-forwarded-for", "").split(",")):
                hop_address = _address(hop)
                if hop_address is None:
                    break
                address = hop_address
                if not self._trusts(hop_address):
                    break
        return Client(address, scheme, scheme == "https" or self.always_secure)

    def is_ours(self, headers: Mapping[str, str], client: Client) -> bool:
        """Whether a page of ours made the request: by `Sec-Fetch-Site` where it is sent, else by `Origin`.

        A request that says neither is none of a page's, and not ours either.
        """
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        origin = headers.get("origin")
        return origin is not None and self._is_own(origin, headers.get("host", ""), client.scheme)

    def is_foreign(self, headers: Mapping[str, str], client: Client) -> bool:
        """Whether a page of somebody else made the request."""
        return ("sec-fetch-site" in headers or "origin" in headers) and not self.is_ours(headers, client)

    def is_opened(self, headers: Mapping[str, str]) -> bool:
        """Whether a browser opens it as a page of its own: by a link from wherever, or typed in."""
        return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")

    def may_hold_key(self, headers: Mapping[str, str], client: Client) -> bool:
        """Whether the page that made a request with a bearer key may: none, ours, or one on this machine.

        A page under a name that only `Host` says is not ours: whoever rebinds a name of theirs to our address
        sends that name as both.
        """
        origin = headers.get("origin")
        if origin is None or origin in self.origins or _is_local(origin):
            return True
        return self.names_us(headers) and self._is_own(origin, headers.get("host", ""), client.scheme)

    def names_us(self, headers: Mapping[str, str]) -> bool:
        """Whether `Host` is an address, this machine or a public name of ours: not a name rebound to us."""
        try:
            host = urlsplit(f"//{headers.get('host', '')}").hostname
        except ValueError:
            return False
        if host is None:
            return False
        if _is_localhost(host) or _address(host) is not None:
            return True
        return any(urlsplit(origin).hostname == host for origin in self.origins)

    def _is_own(self, origin: str, host: str, scheme: str) -> bool:
        if origin in self.origins:
            return True
        try:
            origin_url = urlsplit(origin)
            reached = urlsplit(f"{origin_url.scheme}://{host}")
            return (
                origin_url.scheme == scheme
                and origin_url.scheme in _PORTS
                and origin_url.hostname is not None
                and (origin_url.hostname, origin_url.port or _PORTS[origin_url.scheme])
                == (reached.hostname, reached.port or _PORTS[origin_url.scheme])
            )
        except ValueError:
            return False

    def _trusts(self, address: str) -> bool:
        if not self.proxies:
            return False
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self.proxies)


def public_address(landing: str, base_path: str, headers: Mapping[str, str], client: Client) -> str:
    """How whoever made a request reaches the service, without a slash at its end."""
    scheme = "https" if client.secure else client.scheme
    return (landing or f"{scheme}://{headers.get('host', 'localhost')}{base_path}").rstrip("/")


def _is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _is_local(origin: str) -> bool:
    """Whether a page of this origin is served on the machine of whoever looks at it."""
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return False
    if host is None:
        return False
    address = _address(host)
    return _is_localhost(host) if address is None else ip_address(address).is_loopback


def _address(text: str) -> str | None:
    try:
        return str(ip_address(text.strip().strip("[]")))
    except ValueError:
        return None
