"""A backup of the embedded cluster file by file, and the way back into an empty data folder.

For large installs: the first copies the cluster, the next ones what changed since. Beside the files it is a
backup like any other: manifest last, digests, spool before the snapshot, secrets under the passphrase. What
changed is worth nothing without what it is put over, so a manifest names all of them, and `prune` keeps them.

Called by `trace-svc backup --physical`, `restore` and `svc.backup.verifying`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from protocol.backup import FORMAT, BackupRefused, Manifest, PhysicalCopy, StoredFile
from protocol.release import release
from svc.backup.folder import BackupFolder, FileWriter
from svc.backup.restoring import check_files
from svc.backup.sealed import lay
from svc.backup.spool import copy_spool, lay_spool
from svc.backup.taking import TakenBackup, box_file, intact, moment_of
from svc.backup.wal_folder import WalSpan
from svc.config.table import Settings
from svc.store.backup.loading import unfit
from svc.store.backup.physical import log_kept, looked_at
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.cluster import MAJOR
from svc.store.postgres.embedded.physical import (
    NoSummaries,
    Replay,
    branch_of,
    copy_cluster,
    emptied_home,
    lay_cluster,
    wal_start,
)
from svc.store.postgres.embedded.server import EmbeddedServer

#: A whole copy and so many of what changed since; then a whole one again. A week of nights.
PARTS_MOST: Final = 7
_TELL_BYTES: Final = 256 * 1024 * 1024


@attrs.define(eq=False)
class _Told:
    """A file in the making that says how far it is."""

    writer: FileWriter
    told: Callable[[str], None]
    done_bytes: int = 0
    _next: int = _TELL_BYTES

    def write(self, data: bytes) -> None:
        self.writer.write(data)
        self.done_bytes += len(data)
        if self.done_bytes >= self._next:
            self._next = self.done_bytes + _TELL_BYTES
            self.told(f"copied: {self.done_bytes / 2**20:,.0f} MiB of the cluster")


async def take_physical(
    settings: Settings,
    database: Database,
    server: EmbeddedServer,
    folder: BackupFolder,
    *,
    full: bool = False,
    told: Callable[[str], None] = lambda _line: None,
) -> TakenBackup:
    """Make one. Raises as `take` does, and `EmbeddedServerError`; the backups before stay as they are."""
    began_s = time.monotonic()
    folder.check_ours()
    with folder.held():
        folder.check_room()
        newest = intact(folder.newest, told, then="")
        spool = await trio.to_thread.run_sync(partial(copy_spool, settings.data_dir / "spool", folder))
        origin, steps = await looked_at(database)
        branch = branch_of(server.cluster)
        base = None if full else _base_copy(folder, origin.system_id, branch, told)
        async with log_kept(database):
            try:
                copy = await _copied(database, server, folder, base, branch, told)
            except NoSummaries as lost:
                told(f"{lost}; everything is copied")
                base = None
                copy = await _copied(database, server, folder, None, branch, told)
        manifest = Manifest(
            format=FORMAT,
            release=release(),
            taken_at=moment_of(origin.snapshot_at, newest),
            took_s=round(time.monotonic() - began_s, 3),
            origin=origin,
            steps=steps,
            relations=(),
            sequences=(),
            spool_mode=settings.spool_mode,
            spool=spool,
            secrets=box_file(settings, folder),
            physical=copy,
        )
        folder.write_manifest(manifest)
    earlier_copies = 0 if base is None else len(base.parts)
    return TakenBackup(manifest, 2, copy.parts[-1].bytes + copy.listing.bytes, earlier_copies)


def _base_copy(
    folder: BackupFolder, system_id: str, branch: str, tell: Callable[[str], None]
) -> PhysicalCopy | None:
    """The copy that this one may be put over, if there is one."""
    manifest = intact(partial(folder.newest_of, physical=True), tell)
    if manifest is None or manifest.physical is None:
        return None
    copy = manifest.physical
    if (manifest.origin.system_id, copy.branch, copy.major) != (system_id, branch, MAJOR):
        tell("the backup before is of another database: everything is copied")
        return None
    if len(copy.parts) >= PARTS_MOST or not all(map(folder.whole, (*copy.parts, copy.listing))):
        tell("a whole copy is due")
        return None
    return copy


async def _copied(
    database: Database,
    server: EmbeddedServer,
    folder: BackupFolder,
    base: PhysicalCopy | None,
    branch: str,
    tell: Callable[[str], None],
) -> PhysicalCopy:
    earlier = None if base is None else b"".join(folder.read(base.listing))
    writer = FileWriter(folder, f"physical/{'whole' if base is None else 'changes'}", "tar.zst")
    try:
        text = await copy_cluster(server, _Told(writer, tell), earlier)
        complete_at = await database.run(server_clock, transaction=False)
        part = await trio.to_thread.run_sync(writer.done)
    except BaseException:
        writer.abandon()
        raise
    listing = FileWriter(folder, "physical/listing", "json.zst")
    listing.write(text)
    parts: tuple[StoredFile, ...] = () if base is None else base.parts
    return PhysicalCopy(
        major=MAJOR,
        machine=platform.machine(),
        branch=branch,
        parts=(*parts, part),
        listing=listing.done(),
        wal_start=wal_start(text),
        complete_at=complete_at,
    )


def unfit_here(manifest: Manifest) -> str | None:
    """Why this machine, or this release, cannot take a physical backup up; None when it can."""
    copy = manifest.physical
    assert copy is not None, "asked of physical backups alone"
    if copy.major != MAJOR:
        return (
            f"the backup is a copy of a cluster of PostgreSQL {copy.major}, and this release brings {MAJOR}:"
            f" restore with the release that made it, trace-svc {manifest.release}"
        )
    if copy.machine != platform.machine():
        return (
            f"the backup is a copy of files of a {copy.machine} machine, and this is {platform.machine()}:"
            " restore it there, and move with a backup that is not --physical"
        )
    return unfit(manifest)


async def lay_down(
    folder: BackupFolder, manifest: Manifest, data_dir: Path, replay: Replay | None = None
) -> None:
    """Make the cluster of a backup in a data folder that has none, and replay what was written since.

    Raises `BackupDamaged`, `EmbeddedServerError`, `OSError`.
    """
    copy = manifest.physical
    assert copy is not None, "asked of physical backups alone"
    parts = [partial(folder.read, part) for part in copy.parts]
    size = sum(part.raw_bytes for part in copy.parts)
    async with emptied_home(data_dir) as (cluster, start_lock):
        await lay_cluster(cluster, start_lock, parts, size, replay)


def replay_of(
    folder: BackupFolder, span: WalSpan, until: datetime | None, told: Callable[[str], None]
) -> Replay:
    """What is replayed after the backup of a span: up to a moment, None for all that there is."""

    def segments(name: str) -> Iterator[bytes] | None:
        file = span.files.get(name)
        if file is None:
            return None
        folder.check(file)
        return folder.read(file)

    # Nobody wrote anything between the end of the last segment and the moment up to which it reaches.
    beyond = until is None or until > span.reach.ended_at
    return Replay(segments, None if beyond else until, told)


async def restore_physical(
    folder: BackupFolder,
    manifest: Manifest,
    data_dir: Path,
    secrets: dict[str, bytes],
    told: Callable[[str], None] = lambda _line: None,
    replay: Replay | None = None,
) -> list[str]:
    """Fill an empty data folder; with `replay` up to a moment after the backup. Returns notes for people.

    Raises `BackupRefused`, `BackupDamaged`, `EmbeddedServerError`, `OSError`. Cut off, it is run again: the
    cluster comes last.
    """
    why = unfit_here(manifest)
    if why is not None:
        raise BackupRefused(why)
    await check_files(folder, manifest, told)
    async with emptied_home(data_dir):
        pass
    notes = lay(secrets, data_dir) if secrets else []
    if manifest.spool is not None and manifest.spool.file is not None:
        await trio.to_thread.run_sync(
            partial(lay_spool, folder.read(manifest.spool.file), data_dir / "spool")
        )
    told("the cluster is unpacked")
    await lay_down(folder, manifest, data_dir, replay)
    return notes
