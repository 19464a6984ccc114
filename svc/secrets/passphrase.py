"""Sealing under a passphrase, for what leaves the machine in a backup: scrypt and AES-256-GCM.

A sealed box is magic ‖ log2 of scrypt's N ‖ salt (16) ‖ nonce (12) ‖ ciphertext ‖ tag; all before the
ciphertext is bound into it. Unlike `svc.secrets.sealing` it needs nothing of this machine to be opened.

Secrets: neither the passphrase nor what was sealed is kept or printed.
"""

from __future__ import annotations

import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

_MAGIC: Final = b"tsvcbox1"
#: 64 MiB and a fifth of a second for each guess.
_LOG_N: Final = 16
#: What a box may ask for: 1 GiB.
_MOST_LOG_N: Final = 20
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_HEAD_BYTES: Final = len(_MAGIC) + 1 + _SALT_BYTES + _NONCE_BYTES


def seal_box(plain: bytes, passphrase: str) -> bytes:
    """The sealed box."""
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    head = _MAGIC + bytes([_LOG_N]) + salt + nonce
    return head + AESGCM(_key(passphrase, salt, _LOG_N)).encrypt(nonce, plain, head)


def open_box(box: bytes, passphrase: str) -> bytes | None:
    """What was sealed; None when the passphrase is another, or the box is damaged."""
    if len(box) < _HEAD_BYTES or not box.startswith(_MAGIC):
        return None
    head = box[:_HEAD_BYTES]
    log_n = head[len(_MAGIC)]
    if not 1 <= log_n <= _MOST_LOG_N:
        return None
    salt, nonce = head[len(_MAGIC) + 1 : -_NONCE_BYTES], head[-_NONCE_BYTES:]
    try:
        return AESGCM(_key(passphrase, salt, log_n)).decrypt(nonce, box[_HEAD_BYTES:], head)
    except InvalidTag:
        return None


def _key(passphrase: str, salt: bytes, log_n: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**log_n, r=8, p=1).derive(passphrase.encode())
