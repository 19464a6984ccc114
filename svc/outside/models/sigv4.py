"""Signed requests of the cloud: AWS Signature Version 4 over a request that is complete.

The canonical form encodes each segment of the path once more than the request does: `%3A` becomes `%253A`.
Judged in tests by botocore. Pure.

Secrets: the secret key goes into a chain of HMACs and nowhere else.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

import attrs


@attrs.frozen
class KeyPair:
    """Who signs; `session_token` goes with keys that are over soon, at `until`."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)
    until: datetime | None = None


def pair_of(username: str, secret: str) -> KeyPair:
    """The pair that an integration holds: its secret may have a session token behind a blank."""
    key, _, session = secret.partition(" ")
    return KeyPair(username, key, session or None)


def signed(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: KeyPair,
    *,
    service: str,
    region: str,
    at: datetime,
) -> dict[str, str]:
    """The headers with which the request is signed; `at` is aware UTC."""
    parts = urlsplit(url)
    moment = at.strftime("%Y%m%dT%H%M%SZ")
    signed_headers = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed_headers |= {"host": parts.netloc, "x-amz-date": moment}
    if keys.session_token is not None:
        signed_headers["x-amz-security-token"] = keys.session_token
    names = ";".join(sorted(signed_headers))
    query = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    canonical = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{signed_headers[name]}" for name in sorted(signed_headers)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{keys.secret_key}".encode()
    for word in (moment[:8], region, service, "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    del signed_headers["host"]
    return {
        **signed_headers,
        "authorization": f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope},"
        f" SignedHeaders={names}, Signature={signature}",
    }
