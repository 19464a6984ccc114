"""What passes between the front and an external identity provider: an attempt, and who came back.

Shapes only; neither side knows the other. Secrets: the three texts of an attempt are never shown.
"""

from __future__ import annotations

import secrets

import attrs


class SsoFailed(Exception):
    """The sign-in cannot be believed, or the provider refused it. The text is for the person who tries."""


@attrs.frozen
class Attempt:
    """What has to come back: kept, sealed, in the browser that was sent away."""

    state: str = attrs.field(repr=False)
    nonce: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)

    @classmethod
    def fresh(cls) -> Attempt:
        """An attempt with random values that nobody can guess."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))


@attrs.frozen
class Identity:
    """Who the provider says came. `verified` is whether it vouches for the address."""

    issuer: str
    subject: str
    email: str | None
    verified: bool
