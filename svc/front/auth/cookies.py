"""The session cookie: a secret of 32 bytes, sealed, so that a forged one costs no look-up.

Owns the cookie's name, its attributes and its form: base64url of a 12-byte nonce, the AES-256-GCM ciphertext
and its tag, under a key derived from `SVC_AUTH_COOKIE_PASSWORD`. Whether the session lives is not known here.

Over HTTPS the names begin with `__Host-`: a browser takes such a cookie from this very host alone, over TLS
and for every path, so neither a sibling domain nor a plain page can plant one. The bare names are not read
there.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from typing import Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from svc.store.accounts.logins import SECRET_BYTES, SESSION_DAYS

NAME: Final = "svc_session"
#: The cookie of a sign-in that is under way at the identity provider.
ATTEMPT_NAME: Final = "svc_sso"
#: Where the browser brings it, unless its name asks for every path.
ATTEMPT_PATH: Final = "/auth/sso"
_HOST_PREFIX: Final = "__Host-"
_NONCE_BYTES: Final = 12
#: 12 bytes of nonce, 32 of secret and 16 of tag, in base64 without padding.
_LENGTH: Final = 80


@attrs.frozen
class Seal:
    """Seals and opens under one key. `purpose` keeps what was sealed for one use from serving another."""

    _key: AESGCM = attrs.field(repr=False)
    purpose: bytes

    @classmethod
    def of(cls, password: str, purpose: bytes = b"trace-svc session cookie") -> Seal:
        """The seal of a password."""
        return cls(AESGCM(derived_key(password, purpose)), purpose)

    def close(self, secret: bytes) -> str:
        """The sealed form, safe in a cookie."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return urlsafe_b64encode(nonce + self._key.encrypt(nonce, secret, self.purpose)).rstrip(b"=").decode()

    def open(self, sealed: str) -> bytes | None:
        """What was sealed, or None when it was not sealed by us or was touched since."""
        try:
            raw = urlsafe_b64decode(sealed.encode("ascii") + b"=" * (-len(sealed) % 4))
            if urlsafe_b64encode(raw).rstrip(b"=").decode() != sealed:
                return None
            return self._key.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], self.purpose)
        except (Base64Error, UnicodeError, InvalidTag, ValueError):
            return None


def derived_key(password: str, purpose: bytes) -> bytes:
    """A key of 32 bytes for one purpose. The password is a long random text: one round of HKDF is enough."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(password.encode())


def session_secret(seal: Seal, header: str | None, *, secure: bool) -> bytes | None:
    """The secret in a `Cookie` header; of several cookies of our name the first that opens counts."""
    for value in named(_full(NAME, secure), header):
        if len(value) == _LENGTH:
            secret = seal.open(value)
            if secret is not None and len(secret) == SECRET_BYTES:
                return secret
    return None


def attempts(header: str | None, *, secure: bool) -> Iterator[str]:
    """The values of every cookie of a sign-in that is under way."""
    return named(_full(ATTEMPT_NAME, secure), header)


def named(wanted_name: str, header: str | None) -> Iterator[str]:
    """The values of every cookie of a name."""
    for pair in (header or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted_name:
            yield value.strip().strip('"')


def set_session(sealed: str, *, secure: bool) -> str:
    """The `Set-Cookie` value that hands a session out."""
    return _cookie(NAME, sealed, "/", SESSION_DAYS * 86_400, secure)


def clear_session(*, secure: bool) -> str:
    """The `Set-Cookie` value that takes it back."""
    return _cookie(NAME, "", "/", 0, secure)


def set_attempt(sealed: str, max_age_s: int, *, secure: bool) -> str:
    """The `Set-Cookie` value that goes with a browser to the identity provider and back."""
    return _cookie(ATTEMPT_NAME, sealed, ATTEMPT_PATH, max_age_s, secure)


def clear_attempt(*, secure: bool) -> str:
    """The `Set-Cookie` value that takes it back."""
    return _cookie(ATTEMPT_NAME, "", ATTEMPT_PATH, 0, secure)


def _cookie(name: str, value: str, path: str, max_age_s: int, secure: bool) -> str:
    path = "/" if secure else path
    attributes = f"{_full(name, secure)}={value}; Path={path}; Max-Age={max_age_s}; HttpOnly; SameSite=Lax"
    return attributes + "; Secure" if secure else attributes


def _full(name: str, secure: bool) -> str:
    return _HOST_PREFIX + name if secure else name
