"""The spool of disk mode in a backup: batches that were accepted and not stored yet.

Copied before the snapshot of the database: what has left the spool by then is stored, and what is in both is
stored once, for a span is known by its identity. The service goes on meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from protocol.backup import BackupRefused, SpoolCopy
from svc.backup.folder import BackupFolder, FileWriter
from svc.store.postgres.embedded.cluster import sync_folder

_WAIT_S: Final = 30.0
_CHUNK_BYTES: Final = 1024 * 1024
FILE: Final = "spool.db"


def copy_spool(spool: Path, folder: BackupFolder) -> SpoolCopy | None:
    """Copy the spool of a folder; None when there is none. Raises `BackupRefused`."""
    path = spool / FILE
    if not path.exists():
        return None
    (folder.root / "spool").mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.root / "spool", prefix="copy-") as beside:
        copy = Path(beside) / FILE
        try:
            with closing(_opened(path)) as live, closing(sqlite3.connect(copy)) as snapshot:
                live.backup(snapshot)
                # One file, without a log beside it.
                snapshot.execute("pragma journal_mode=delete")
                batches, spans = waiting(snapshot)
        except sqlite3.Error as error:
            raise BackupRefused(f"the spool {path} cannot be read: {error}") from None
        if not batches:
            return SpoolCopy(batches=0, spans=0)
        writer = FileWriter(folder, "spool/spool", "db.zst")
        with copy.open("rb") as opened:
            while data := opened.read(_CHUNK_BYTES):
                writer.write(data)
        return SpoolCopy(batches=batches, spans=spans, file=writer.done())


def waiting(db: sqlite3.Connection) -> tuple[int, int]:
    """How many batches lie in a spool, and their spans."""
    # A spool that never was opened by a service has no table yet.
    if not db.execute("select 1 from sqlite_master where name = 'batch'").fetchone():
        return 0, 0
    batches, spans = db.execute("select count(*), coalesce(sum(spans), 0) from batch").fetchone()
    return int(batches), int(spans)


def lay_spool(parts: Iterator[bytes], spool: Path) -> None:
    """Put the batches of a backup where the next start in disk mode finds them. Raises `BackupRefused`."""
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, draft = spool / FILE, spool / f"{FILE}.restored"
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(fd)
    if path.exists() and path.read_bytes() != draft.read_bytes() and _holds(path):
        draft.unlink()
        raise BackupRefused(f"the spool {path} holds batches of its own: move it away, and restore again")
    for name in (f"{FILE}-wal", f"{FILE}-shm"):
        (spool / name).unlink(missing_ok=True)
    draft.replace(path)
    sync_folder(spool)


def _holds(path: Path) -> bool:
    try:
        with closing(_opened(path)) as db:
            return waiting(db)[0] > 0
    except sqlite3.Error:
        return True


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=_WAIT_S)
