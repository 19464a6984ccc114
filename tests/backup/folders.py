"""Folders of backups without a database: files of random bytes, and manifests that name them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from protocol.backup import FORMAT, Fingerprint, Manifest, Origin, Relation, StoredFile
from svc.backup.folder import BackupFolder, FileWriter

FIRST_DAY = datetime(2026, 11, 1, 3, 10, tzinfo=UTC)


def table(folder: BackupFolder, name: str, seed: str, size: int = 2_000) -> Relation:
    """A table with one file of its own."""
    writer = FileWriter(folder, f"tables/{name}", "copy.zst")
    writer.write(random.Random(seed).randbytes(size))
    mark = Fingerprint(rows=1, newest=1, versions=seed)
    return Relation(name=name, parent=None, day=None, columns=(), fingerprint=mark, file=writer.done())


def back_up(folder: BackupFolder, day: int, *relations: Relation) -> Manifest:
    """The backup of a day that consists of these tables."""
    origin = Origin(
        system_id="1",
        database="trace_svc",
        server_version="17.0",
        snapshot_at=FIRST_DAY,
        next_xid=1,
        size_bytes=1,
    )
    manifest = Manifest(
        format=FORMAT,
        release="1",
        taken_at=FIRST_DAY + timedelta(days=day),
        took_s=0.1,
        origin=origin,
        steps=(),
        relations=relations,
        sequences=(),
        spool_mode="memory",
    )
    folder.write_manifest(manifest)
    return manifest


def three_days(root: Path) -> tuple[BackupFolder, list[Manifest]]:
    """Three backups: one table stays, one changes each day."""
    root.mkdir(parents=True, exist_ok=True)
    folder = BackupFolder(root)
    stays = table(folder, "key", "stays")
    manifests = [back_up(folder, day, stays, table(folder, "span", f"day {day}")) for day in range(3)]
    return folder, manifests


def only(folder: BackupFolder, manifests: list[Manifest]) -> None:
    """Make it the folder of a day when only these backups existed."""
    for path in folder.manifests():
        path.unlink()
    for manifest in manifests:
        folder.write_manifest(manifest)


def file_of(manifest: Manifest, name: str) -> StoredFile:
    """The file of a table."""
    (file,) = [relation.file for relation in manifest.relations if relation.name == name]
    assert file is not None
    return file
