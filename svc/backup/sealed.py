"""The secrets of an instance in a backup: what they are, and where they are put back.

Without them a restored database is whole, but nobody opens what was sealed in it, and everybody signs in
anew. They are in a backup only under a passphrase.

Secrets: plaintext passes from files into the box and back, and never into a line or an error.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

import msgspec

from protocol.backup import BackupDamaged, BackupRefused
from svc.config.table import PLACEHOLDER_COOKIE_PASSWORD, PLACEHOLDER_SECRET_KEY, Settings
from svc.secrets.passphrase import open_box, seal_box
from svc.store.postgres.embedded.cluster import SystemAccount, claim_folder, open_home, sync_folder

#: Folders below the data folder whose files are secrets.
FOLDERS: Final = ("secrets", "tls")
PRICES: Final = "prices.toml"
KEY: Final = "secrets/secret-key"
COOKIE: Final = "secrets/cookie-password"
EARLIER: Final = "secrets/secret-key-previous"
_FILE_BYTES: Final = 1024 * 1024


def gather(settings: Settings) -> dict[str, bytes]:
    """Everything secret of an instance, by its place below the data folder."""
    texts: dict[str, bytes] = {}
    for folder in FOLDERS:
        for path in sorted((settings.data_dir / folder).glob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _FILE_BYTES:
                texts[f"{folder}/{path.name}"] = path.read_bytes()
    # What the environment names comes before what is kept.
    if settings.secret_key != b64decode(PLACEHOLDER_SECRET_KEY):
        texts[KEY] = b64encode(settings.secret_key) + b"\n"
    if settings.cookie_password != PLACEHOLDER_COOKIE_PASSWORD:
        texts[COOKIE] = settings.cookie_password.encode() + b"\n"
    if settings.secret_key_previous:
        texts[EARLIER] = b" ".join(b64encode(key) for key in settings.secret_key_previous) + b"\n"
    if settings.prices_file is not None:
        texts[PRICES] = settings.prices_file.read_bytes()
    return texts


def sealed(texts: dict[str, bytes], passphrase: str) -> bytes:
    """The box that holds them."""
    return seal_box(msgspec.msgpack.encode(texts), passphrase)


def opened(box: bytes, passphrase: str) -> dict[str, bytes]:
    """What a box holds. Raises `BackupRefused` for another passphrase."""
    plain = open_box(box, passphrase)
    if plain is None:
        raise BackupRefused("SVC_BACKUP_PASSPHRASE is not the one that the backup's secrets are sealed under")
    try:
        texts = msgspec.msgpack.decode(plain, type=dict[str, bytes])
    except msgspec.MsgspecError:
        raise BackupDamaged("the backup's secrets cannot be read") from None
    for path in texts:
        folder, _, name = path.rpartition("/")
        if path != PRICES and (folder not in FOLDERS or name in ("", ".", "..")):
            raise BackupDamaged("the backup's secrets name a place that is not theirs")
    return texts


def lay(texts: dict[str, bytes], data_dir: Path) -> list[str]:
    """Put them back. What is there already and differs stays; the other is put beside it.

    Returns a sentence for each that the operator has to decide about.
    """
    open_home(data_dir)
    differences = []
    for name, text in texts.items():
        path = data_dir / name
        if path.parent != data_dir:
            claim_folder(path.parent, 0o700, SystemAccount(os.geteuid(), os.getegid(), switch=False))
        if path.exists() and path.read_bytes().strip() != text.strip():
            differences.append(f"{path} is another one than the backup's, which is put beside it")
            path = path.with_name(f"{path.name}.from-backup")
        _write(path, text)
    return differences


def key_of(secrets: dict[str, bytes]) -> tuple[bytes, ...]:
    """The sealing keys among them, the present one first."""
    texts = [*secrets.get(KEY, b"").split(), *secrets.get(EARLIER, b"").split()]
    return tuple(b64decode(text) for text in texts)


def _write(path: Path, text: bytes) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)
    draft.replace(path)
    sync_folder(path.parent)
