"""What a backup says of itself: the manifest, and the two ways in which a backup cannot be used.

Shapes only. `svc.store.backup` fills the part of the database, `svc.backup` the rest and writes it down; the
manifest is the last file of a backup, so that without it there is none.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from protocol.operator import OperatorError

#: Of the manifest and of the folder around it.
FORMAT: Final = 1


class BackupRefused(OperatorError):
    """A backup or a restore that must not be done now; the text says why and what to do."""


class BackupDamaged(OperatorError):
    """A backup that is not whole, or not what its manifest says."""


class BackupStoreFailed(OperatorError):
    """An object store that did not do as asked; the text says why and what to do, and holds no key."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup: its place below the folder, its size, its digest, and its size inflated.

    The digest is whole in a manifest; of a segment of the WAL it is the part that its name holds.
    """

    path: str
    bytes: int
    sha256: str
    raw_bytes: int


class ColumnType(msgspec.Struct, frozen=True, kw_only=True):
    """A column as COPY writes it. Generated columns are not copied."""

    name: str
    type: str


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What every write to a table changes: how many rows, their newest writer, and a sum over all versions.

    `versions` is a sum of hashes of each row's place and writer. The newest writer alone would miss one that
    began before it and committed after the backup.
    """

    rows: int
    newest: int
    versions: str


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """A table with rows of its own: an ordinary one, or a partition with its `parent` and its `day`."""

    name: str
    parent: str | None
    #: As `2026-11-01`; None of tables that are not kept by the day, and of default partitions.
    day: str | None
    columns: tuple[ColumnType, ...]
    fingerprint: Fingerprint
    #: None when it has no rows.
    file: StoredFile | None = None

    @property
    def label(self) -> str:
        """The name as people know it."""
        return self.name if self.day is None else f"{self.parent} of {self.day}"


class SequencePlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far a sequence has counted."""

    name: str
    last_value: int
    is_called: bool


class SchemaStep(msgspec.Struct, frozen=True, kw_only=True):
    """A migration that the database had, and the digest of its text."""

    number: int
    digest: str


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Which database it was, and when it was looked at."""

    system_id: str
    database: str
    server_version: str
    #: The server's clock at the snapshot.
    snapshot_at: datetime
    #: The number of the next transaction, with its epoch.
    next_xid: int
    size_bytes: int


class SpoolCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The batches of disk mode that were accepted and not stored yet."""

    batches: int
    spans: int
    file: StoredFile | None = None


class PhysicalCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of the embedded cluster, file by file.

    `parts` are a whole copy and what changed since, this backup's last; earlier backups have the others too.
    `listing` is what the next one is compared with. `branch` tells a restored cluster from its original.
    `wal_start` is the first segment of the WAL that is needed to go on from here; "" where that is unknown.
    `complete_at` is a moment at which the copy was complete; None where it was not written down.
    """

    major: str
    machine: str
    branch: str
    parts: tuple[StoredFile, ...]
    listing: StoredFile
    wal_start: str = ""
    complete_at: datetime | None = None


class CopiedWal(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of copying the WAL did, and up to which moment all of it is in the folder now."""

    segments: int
    bytes: int
    moment: datetime


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one backup consists of. A physical one has no relations."""

    format: int
    release: str
    taken_at: datetime
    took_s: float
    origin: Origin
    steps: tuple[SchemaStep, ...]
    relations: tuple[Relation, ...]
    sequences: tuple[SequencePlace, ...]
    spool_mode: str
    spool: SpoolCopy | None = None
    #: None without a passphrase.
    secrets: StoredFile | None = None
    physical: PhysicalCopy | None = None

    @property
    def stamp(self) -> str:
        """Its name among the backups of a folder; it sorts by time."""
        return f"{self.taken_at:%Y-%m-%dT%H-%M-%S}Z"

    @property
    def whole_from(self) -> datetime:
        """From which moment on it can be brought forward by the WAL: the one at which it was complete."""
        if self.physical is not None and self.physical.complete_at is not None:
            return self.physical.complete_at
        # Later than it was by what came before the snapshot, so never too early.
        return self.origin.snapshot_at + timedelta(seconds=self.took_s)

    def files(self) -> list[StoredFile]:
        """Every file that it needs."""
        files = [relation.file for relation in self.relations]
        files += [None if self.spool is None else self.spool.file, self.secrets]
        if self.physical is not None:
            files += [*self.physical.parts, self.physical.listing]
        return [file for file in files if file is not None]

    @property
    def raw_bytes(self) -> int:
        """What all tables are together before they are compressed."""
        return sum(relation.file.raw_bytes for relation in self.relations if relation.file is not None)
