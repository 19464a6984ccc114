"""Sealing of stored secrets: AES-256-GCM under `SVC_SECRET_KEY`, with the key's id in front (contract §6).

A sealed value is base64 of key id (4 bytes) ‖ nonce (12) ‖ ciphertext ‖ tag (16). The id is taken from a hash
of the key, so that a value says which key it needs; `SVC_SECRET_KEY_PREVIOUS` still opens older ones. What a
value is for is bound into it, so that one cannot be put in the place of another.

Secrets: plaintext is returned by `open` and kept nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocol.sealed import Lost
from svc.config.table import Settings

_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


def key_id(key: bytes) -> bytes:
    """The id of a key: it tells keys apart and tells nothing of them."""
    return hashlib.sha256(b"trace-svc sealing key id\x00" + key).digest()[:_ID_BYTES]


def marking_key(settings: Settings) -> bytes:
    """The key under which detected secrets are told apart; it opens nothing that is sealed."""
    return hmac.digest(settings.secret_key, b"trace-svc marks of detected secrets", "sha256")


@attrs.frozen
class Sealer:
    """Seals under the first key, opens under any."""

    _keys: tuple[bytes, ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Sealer:
        """The sealer of this instance."""
        return cls((settings.secret_key, *settings.secret_key_previous))

    def seal(self, text: str, purpose: str) -> str:
        """The sealed form of a text, openable for the same purpose only."""
        key = self._keys[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, text.encode(), purpose.encode())
        return b64encode(key_id(key) + nonce + sealed).decode()

    def open(self, sealed: str, purpose: str) -> str | Lost:
        """What was sealed, or why it cannot be opened."""
        raw = _raw(sealed)
        if raw is None:
            return Lost("the sealed value is damaged")
        key = self._key(raw[:_ID_BYTES])
        if key is None:
            return Lost(
                f"it was sealed with a key that is not here (id {raw[:_ID_BYTES].hex()}); add that key to "
                "SVC_SECRET_KEY_PREVIOUS, or enter the secret anew"
            )
        nonce = raw[_ID_BYTES : _ID_BYTES + _NONCE_BYTES]
        try:
            return AESGCM(key).decrypt(nonce, raw[_ID_BYTES + _NONCE_BYTES :], purpose.encode()).decode()
        except (InvalidTag, UnicodeError):
            return Lost("the sealed value is damaged")

    def opens(self, sealed: str) -> bool:
        """Whether the key of a sealed value is here; cheap, and says nothing of damage."""
        raw = _raw(sealed)
        return raw is not None and self._key(raw[:_ID_BYTES]) is not None

    def is_current(self, sealed: str) -> bool:
        """Whether a value is sealed under the first key already."""
        raw = _raw(sealed)
        return raw is not None and raw[:_ID_BYTES] == key_id(self._keys[0])

    def _key(self, wanted_id: bytes) -> bytes | None:
        return next((key for key in self._keys if key_id(key) == wanted_id), None)


def _raw(sealed: str) -> bytes | None:
    try:
        raw = b64decode(sealed, validate=True)
    except (Base64Error, ValueError):
        return None
    return raw if len(raw) >= _ID_BYTES + _NONCE_BYTES + _TAG_BYTES else None
