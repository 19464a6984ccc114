"""What is said of certificates: the pair that is served, what it says of itself, how the keeping of it goes.

The doors, the actor that keeps a certificate and the client of an authority speak in these. Nothing here
does any work.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import attrs

from protocol.operator import OperatorError
from protocol.storage import Outage

#: How a name is proven to an authority (RFC 8555 §8.3, RFC 8737).
ChallengeKind = Literal["http-01", "tls-alpn-01"]
CHALLENGES: Final[tuple[ChallengeKind, ...]] = ("http-01", "tls-alpn-01")

#: How a server says in its handshake that it answers a challenge.
ACME_TLS: Final = "acme-tls/1"


class BadPair(OperatorError):
    """A certificate and key that cannot be served. The text names the file and what is wrong with it."""


@attrs.frozen
class Pair:
    """A certificate with its chain, and its private key, both in PEM.

    Secrets: `key` is never printed.
    """

    chain: bytes = attrs.field(repr=False)
    key: bytes = attrs.field(repr=False)


@attrs.frozen
class CertificateFacts:
    """What a certificate says of itself. Times are of UTC."""

    issuer: str
    names: tuple[str, ...]
    begins_at: datetime
    ends_at: datetime
    self_signed: bool

    def covers(self, domain: str) -> bool:
        """Whether browsers take it for this name."""
        parent = domain.partition(".")[2]
        return any(name.lower() in (domain, f"*.{parent}") for name in self.names)

    @property
    def due_at(self) -> datetime:
        """When two thirds of its life are over, which is when it is renewed where nobody says otherwise."""
        return self.begins_at + (self.ends_at - self.begins_at) * 2 / 3

    def left(self, now: datetime) -> timedelta:
        """Until it ends; negative afterwards."""
        return self.ends_at - now


@attrs.frozen
class Challenge:
    """What an authority wants to find at our name."""

    kind: ChallengeKind
    domain: str
    token: str
    key_authorization: str = attrs.field(repr=False)


@attrs.frozen
class Kept:
    """What is kept of an authority's doing, from one start to the next.

    Secrets: `account_key` and the key of the pair are never printed.
    """

    account_key: bytes | None = attrs.field(default=None, repr=False)
    #: Where the account is, at which directory, and by which challenge our name was proven last.
    account_url: str | None = None
    directory_url: str | None = None
    proven_by: ChallengeKind | None = None
    pair: Pair | None = None


@attrs.frozen
class Ordered:
    """An order at an authority: what is to be proven first, None when it knows already.

    `kept` has the account that it was made under, `order` is the client's own.
    """

    kept: Kept
    challenge: Challenge | None
    order: Any = attrs.field(repr=False)


class AuthorityFault(Outage):
    """An authority did not give what it was asked for: away, busy, or it says no. Later may help."""


class NotProven(AuthorityFault):
    """It could not see that the name is ours, by this challenge."""


@attrs.define
class TlsState:
    """How the keeping of the certificate goes. Written by its actor, read by health, metrics and `doctor`."""

    mode: str
    domain: str
    facts: CertificateFacts | None = None
    #: Why the last look or try failed; None once one succeeded.
    fault: str | None = None
    swaps: int = 0

    def snapshot(self, now: datetime) -> dict[str, Any]:
        """The details as health shows them."""
        details: dict[str, Any] = {"mode": self.mode, "domain": self.domain, "tls": self.word(now)}
        if self.facts is not None:
            validity = self.facts.left(now)
            details |= {
                "issuer": self.facts.issuer,
                "expires_at": self.facts.ends_at.isoformat().replace("+00:00", "Z"),
                "days_left": round(validity / timedelta(days=1), 1),
            }
        if self.fault is not None:
            details["last_fault"] = self.fault
        return details

    def word(self, now: datetime) -> Literal["waiting", "expired", "valid"]:
        """`waiting` while only a certificate of our own making is served."""
        if self.facts is None or (self.facts.self_signed and self.mode == "acme"):
            return "waiting"
        return "expired" if self.facts.left(now) <= timedelta(0) else "valid"


def other_names(domain: str, names: Sequence[str]) -> str:
    """The warning of a certificate that does not name the domain."""
    names_text = ", ".join(names[:5]) or "no name at all"
    return f"the certificate is for {names_text} and not for SITE_DOMAIN, {domain}; browsers will refuse it"
