"""The grammar of API keys: `svc_<scope letter>_<22 random characters>` (spec, "Token format").

Owns making a token, taking it apart and reading it from an `Authorization` value. It never verifies one:
that is the key cache's work, and the scope that counts is the stored one.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from typing import Final, Literal, get_args

Scope = Literal["write", "query", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

#: The purpose of a key that gives feedback and opens nothing else, so that it may stand in a web page.
FEEDBACK_PURPOSE: Final = "feedback"
#: The purpose of a key that reads over MCP and opens nothing else: it may stand in an editor's settings.
MCP_PURPOSE: Final = "mcp"
#: The purpose of the access tokens that applications get by OAuth: as `MCP_PURPOSE`, for an hour.
OAUTH_PURPOSE: Final = "oauth"

#: Length of the lookup prefix: the 6-character literal prefix and the first 8 random characters.
LOOKUP_PREFIX_LENGTH: Final = 14

_TOKEN = re.compile(r"svc_[wqa]_[A-Za-z0-9_-]{22}", re.ASCII)


def new_token(scope: Scope) -> str:
    """A fresh token: 22 base64url characters from 16 random bytes behind the scope's prefix.

    Secrets: the return value is the plaintext. Show it once, hash it, drop it.
    """
    return f"svc_{scope[0]}_{urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b'=').decode()}"


def lookup_prefix(token: str) -> str:
    """The part of a token that is stored in plain text and indexed."""
    return token[:LOOKUP_PREFIX_LENGTH]


def is_token(text: str) -> bool:
    """Whether the text has the form of a token. A text that has not is refused without touching the store."""
    return _TOKEN.fullmatch(text) is not None


def bearer(authorization: str | None) -> str | None:
    """The credential of an `Authorization: Bearer …` value (RFC 6750 §2.1), or None when there is none."""
    if authorization is None:
        return None
    scheme, _, credential = authorization.strip().partition(" ")
    credential = credential.strip()
    return credential if scheme.lower() == "bearer" and credential else None
