"""The plain port beside TLS: what of it still answers, and where it sends everybody else.

Owns which requests that came without TLS are let through, answered or refused once the process itself does
TLS. `Door` asks it first. What a client sent in the clear is never read here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import quote

import attrs
import trio

from protocol.storage import Outage

log = logging.getLogger(__name__)

CHALLENGES: Final = "/.well-known/acme-challenge/"
HEALTH: Final = "/actuator/health"
_QUOTED: Final = "/%:@!$&'()*+,;=-._~"
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: Looking for a challenge at once; anybody may ask for one.
_LOOKS: Final = 4
_LOOK_TIMEOUT_S: Final = 5.0

#: The key authorization of a token, None for one that nobody waits for. Raises `Outage`.
Answers = Callable[[str], Awaitable[str | None]]


def _address(end: Any) -> IPv4Address | IPv6Address | None:
    """The address of one end of a connection, as ASGI gives it."""
    try:
        return ip_address(str((end or ("",))[0]).partition("%")[0])
    except ValueError:
        return None


@attrs.define(eq=False)
class PlainPort:
    """What the plain port does under a public name. `answers` finds what an authority asks for."""

    domain: str
    answers: Answers
    _looks: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(_LOOKS))

    def lets_in(self, scope: dict[str, Any]) -> bool:
        """Whether the request is answered as over TLS: health, for who stands on this machine."""
        path = scope["path"]
        if path != HEALTH and not path.startswith(HEALTH + "/"):
            return False
        peer, own = (_address(scope.get(end)) for end in ("client", "server"))
        # Only this machine speaks from the address that it is reached at.
        return peer is not None and (peer.is_loopback or peer == own)

    def asks_for_proof(self, scope: dict[str, Any]) -> bool:
        """Whether it is the question of an authority."""
        return scope["method"] in ("GET", "HEAD") and scope["path"].startswith(CHALLENGES)

    async def proof(self, scope: dict[str, Any]) -> str | None:
        """The answer to it, None when there is none (now)."""
        token = scope["path"].removeprefix(CHALLENGES)
        if not _TOKEN.fullmatch(token):
            return None
        try:
            with trio.fail_after(_LOOK_TIMEOUT_S):
                async with self._looks:
                    return await self.answers(token)
        except (Outage, trio.TooSlowError) as error:
            log.warning("could not answer a challenge of the certificate authority: %s", type(error).__name__)
            return None

    def location(self, scope: dict[str, Any]) -> bytes | None:
        """Where a reader is sent, None for whoever wanted to send something."""
        if scope["method"] not in ("GET", "HEAD"):
            return None
        path = scope.get("raw_path") or scope["path"].encode()
        if not path.startswith(b"/"):
            path = b"/"
        query = scope.get("query_string") or b""
        # Already quoted where its sender did; what would end the header is not let through.
        target = quote(path, safe=_QUOTED) + (quote(b"?" + query, safe=_QUOTED + "?") if query else "")
        return f"https://{self.domain}{target}".encode()
