"""Making a backup: spool, database, secrets, and the manifest at the very end.

Called by `trace-svc backup`, which the nightly actor runs as well, in a process of its own. Beside a running
service it takes a connection, read-only, and never anything that ingest waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import attrs
import trio

from protocol.backup import FORMAT, BackupDamaged, Manifest, Origin, Relation, StoredFile
from protocol.release import release
from svc.backup.folder import BackupFolder, FileWriter, file_name
from svc.backup.sealed import gather, sealed
from svc.backup.spool import copy_spool
from svc.config.table import Settings
from svc.store.backup.reading import TableWriter, read_database
from svc.store.postgres.database import Database

#: The upper half of a transaction's number: when it changes, the lower half begins anew.
_EPOCH: Final = 1 << 32


@attrs.frozen
class TakenBackup:
    """A backup that was made, and what of it is new."""

    manifest: Manifest
    new_files: int
    new_bytes: int
    kept_files: int


@attrs.define(eq=False)
class _Sink:
    folder: BackupFolder
    #: The backup before, while its files can be kept.
    earlier: Manifest | None
    told: Callable[[str], None]
    new_files: int = 0
    new_bytes: int = 0
    kept_files: int = 0
    _by_name: dict[str, Relation] = attrs.field(factory=dict)

    def begun(self, origin: Origin, size: int) -> None:
        """Keep nothing of a backup whose transactions cannot be compared with these."""
        self.told(f"{size} tables, {origin.size_bytes / 2**20:.0f} MiB in the database")
        earlier = self.earlier
        if earlier is None:
            return
        previous = earlier.origin
        same = (previous.system_id, previous.database) == (origin.system_id, origin.database)
        if not same:
            self.told("the backup before is of another database: everything is copied")
        elif origin.next_xid // _EPOCH != previous.next_xid // _EPOCH or origin.next_xid < previous.next_xid:
            self.told("the numbers of transactions began anew: everything is copied")
        else:
            self._by_name = {relation.name: relation for relation in earlier.relations}

    def kept(self, relation: Relation) -> StoredFile | None:
        """The file that the backup before has of the same rows."""
        earlier = self._by_name.get(relation.name)
        if earlier is None or earlier.file is None or not self.folder.whole(earlier.file):
            return None
        if (earlier.fingerprint, earlier.columns) != (relation.fingerprint, relation.columns):
            return None
        self.kept_files += 1
        self.told(f"unchanged: {relation.label}")
        return earlier.file

    def writer(self, relation: Relation) -> TableWriter:
        """A new file."""
        name = file_name(relation.name if relation.parent is None or not relation.day else relation.parent)
        path = f"days/{relation.day}/{name}" if relation.day else f"tables/{name}"
        return _Counted(FileWriter(self.folder, path, "copy.zst"), self, relation)

    def note(self, file: StoredFile, relation: Relation) -> None:
        """One more file is there."""
        self.new_files += 1
        self.new_bytes += file.bytes
        rows = relation.fingerprint.rows
        self.told(f"copied: {relation.label}, {rows:,} rows, {file.bytes / 2**20:.1f} MiB")


@attrs.frozen
class _Counted:
    writer: FileWriter
    destination: _Sink
    relation: Relation

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def done(self) -> StoredFile:
        file = self.writer.done()
        self.destination.note(file, self.relation)
        return file


async def take(
    settings: Settings,
    database: Database,
    folder: BackupFolder,
    *,
    full: bool = False,
    told: Callable[[str], None] = lambda _line: None,
) -> TakenBackup:
    """Make a backup. Raises `BackupRefused`, `Outage`, `OSError`; the backups before stay as they are."""
    began_s = time.monotonic()
    folder.check_ours()
    with folder.held():
        folder.check_room()
        earlier = intact(folder.newest, told)
        same = None if full else intact(partial(folder.newest_of, physical=False), told)
        spool = await trio.to_thread.run_sync(partial(copy_spool, settings.data_dir / "spool", folder))
        destination = _Sink(folder, same, told)
        contents = await read_database(database, destination)
        box = box_file(settings, folder)
        manifest = Manifest(
            format=FORMAT,
            release=release(),
            taken_at=moment_of(contents.origin.snapshot_at, earlier),
            took_s=round(time.monotonic() - began_s, 3),
            origin=contents.origin,
            steps=contents.steps,
            relations=contents.relations,
            sequences=contents.sequences,
            spool_mode=settings.spool_mode,
            spool=spool,
            secrets=box,
        )
        folder.write_manifest(manifest)
    return TakenBackup(manifest, destination.new_files, destination.new_bytes, destination.kept_files)


def intact(
    find: Callable[[], Manifest | None], tell: Callable[[str], None], then: str = "; everything is copied"
) -> Manifest | None:
    """What was found, None where it is damaged: that is told, and what follows of it."""
    try:
        return find()
    except BackupDamaged as damaged:
        tell(f"{damaged}{then}")
        return None


def box_file(settings: Settings, folder: BackupFolder) -> StoredFile | None:
    """The secrets under the passphrase, None without one."""
    if settings.backup_passphrase is None:
        return None
    writer = FileWriter(folder, "secrets/secrets", "enc", compressed=False)
    writer.write(sealed(gather(settings), settings.backup_passphrase))
    return writer.done()


def moment_of(snapshot_at: datetime, earlier: Manifest | None) -> datetime:
    """The moment of the backup, later than that of the one before: it is its name, to the second."""
    if earlier is None:
        return snapshot_at
    return max(snapshot_at, earlier.taken_at + timedelta(seconds=1))
