"""Bringing a backup back: everything is read and compared before anything is touched.

Called by `trace-svc restore`, and by `svc.backup.verifying` on a scratch server.

Ordering: manifest and digests; the passphrase; the target is claimed; secrets and spool; the rows; the newer
steps. A restore that is cut off is simply run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import trio

from protocol.backup import BackupRefused, Manifest, Relation
from svc.backup.folder import BackupFolder
from svc.backup.sealed import lay, opened
from svc.backup.spool import lay_spool
from svc.store.backup.loading import Target, unfit
from svc.store.postgres.database import Database


@attrs.frozen
class Restored:
    """What was brought back; `notes` are for the operator to act on."""

    rows: int
    steps: int
    took_s: float
    notes: tuple[str, ...]


async def check_files(
    folder: BackupFolder, manifest: Manifest, told: Callable[[str], None] = lambda _line: None
) -> int:
    """Compare every file with its digest. Returns how many. Raises `BackupDamaged`."""
    files = manifest.files()
    for number, file in enumerate(files, 1):
        await trio.to_thread.run_sync(folder.check, file)
        told(f"digest {number} of {len(files)}: {file.path}")
    return len(files)


def box_of(
    folder: BackupFolder, manifest: Manifest, passphrase: str | None, *, needed: bool
) -> dict[str, bytes]:
    """The backup's secrets, by their places. Raises `BackupRefused` when they cannot be had."""
    if manifest.secrets is None:
        return {}
    if passphrase is None:
        if needed:
            raise BackupRefused(
                "the backup holds secrets: set SVC_BACKUP_PASSPHRASE to the passphrase that it was made with,"
                " or say --without-secrets (then nothing that was sealed can be opened)"
            )
        return {}
    return opened(folder.bytes_of(manifest.secrets), passphrase)


async def restore(
    folder: BackupFolder,
    manifest: Manifest,
    database: Database,
    data_dir: Path,
    secrets: dict[str, bytes],
    told: Callable[[str], None] = lambda _line: None,
) -> Restored:
    """Fill an empty database. Raises `BackupRefused`, `BackupDamaged`, `Outage`, `OSError`."""
    began_s = time.monotonic()
    why = unfit(manifest)
    if why is not None:
        raise BackupRefused(why)
    await check_files(folder, manifest, told)

    def loaded(relation: Relation) -> None:
        told(f"restored: {relation.label}, {relation.fingerprint.rows:,} rows")

    target = Target(database, loaded)
    await target.claim()
    notes = lay(secrets, data_dir) if secrets else []
    if manifest.spool is not None and manifest.spool.file is not None:
        await trio.to_thread.run_sync(
            partial(lay_spool, folder.read(manifest.spool.file), data_dir / "spool")
        )
    rows = await target.fill(manifest, partial(parts_of, folder))
    applied = await target.finish()
    return Restored(rows, len(applied), time.monotonic() - began_s, tuple(notes))


def parts_of(folder: BackupFolder, relation: Relation) -> Iterator[bytes]:
    """The rows of a table as they lie in a backup."""
    assert relation.file is not None
    return folder.read(relation.file)
