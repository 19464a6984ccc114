"""Backups in S3 for `trace-svc backup` and `restore`: what is sent, fetched, listed and pruned there.

The library that speaks to the store is imported only here, once an address of one is given.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from protocol.backup import BackupRefused, Manifest
from svc.backup.folder import BackupFolder
from svc.backup.remote import ObjectStore, chosen_in, fetch, manifests_in, prune, push, wal_in
from svc.backup.wal_folder import WalListing, WalSpan
from svc.commands.terminal import Teller, print_json
from svc.config.table import Settings
from svc.domain.quantities import counted, size

_SCHEME: Final = "s3://"


def is_remote(place: str) -> bool:
    """Whether this names a store, not a folder."""
    return place.startswith(_SCHEME)


def checked_url(place: str) -> str:
    """The address of a store. Raises `BackupRefused` for a folder."""
    if not is_remote(place):
        raise BackupRefused(f"{place} is no address of backups in S3; expected s3://bucket/prefix")
    return place


def checked_folder(place: str) -> BackupFolder:
    """The folder of backups. Raises `BackupRefused` for a store."""
    if is_remote(place):
        raise BackupRefused(
            f"{place} is not a folder: make a backup in a folder and `backup push` it, or `backup fetch` it"
            " into one"
        )
    return BackupFolder(Path(place).expanduser())


def _store(settings: Settings, url: str) -> ObjectStore:
    from svc.wiring.objects import object_store

    return object_store(settings, url)


async def push_backups(
    settings: Settings, folder: BackupFolder, url: str | None = None, *, keep: int | None, as_json: bool
) -> None:
    """Send what is new, and let the old ones there go when `keep` says how many stay."""
    url = settings.backup_s3_url if url is None else checked_url(url)
    if url is None:
        raise BackupRefused("push to which store? Name s3://bucket/prefix, or set SVC_BACKUP_S3_URL")
    if keep is not None and keep < 1:
        raise BackupRefused("how many backups should stay? --keep N, at least 1")
    store = _store(settings, url)
    pushed = await push(folder, store, keep=keep or 0, told=Teller())
    pruned, files, freed = (0, 0, 0) if keep is None else await prune(store, keep, Teller())
    if as_json:
        print_json(
            {
                "backup": pushed.stamp,
                "new_files": pushed.new_files,
                "new_bytes": pushed.new_bytes,
                "unchanged_files": pushed.kept_files,
                "pruned": pruned,
                "freed_bytes": freed,
            }
        )
        return
    print(f"backups up to {pushed.stamp} are in {store.label}")
    print(_extent("sent", pushed.new_files, pushed.new_bytes, pushed.kept_files))
    if pruned or files:
        print(f"{pruned} backups pruned there, {files} files removed, {size(freed)} free")


def _extent(verb: str, new_files: int, new_bytes: int, kept_files: int) -> str:
    new, kept = counted(new_files, "file", "files"), counted(kept_files, "file", "files")
    return f"{verb}: {new}, {size(new_bytes)}; there before: {kept}"


async def fetch_backup(
    settings: Settings, url: str, folder: BackupFolder, stamp: str | None, *, as_json: bool
) -> None:
    """Bring one into a folder."""
    store = _store(settings, url)
    fetched = await fetch(store, folder, await chosen_in(store, stamp), told=Teller())
    if as_json:
        print_json(
            {
                "backup": fetched.manifest.stamp,
                "new_files": fetched.new_files,
                "new_bytes": fetched.new_bytes,
                "unchanged_files": fetched.kept_files,
            }
        )
        return
    print(f"backup {fetched.manifest.stamp} is in {folder.root}")
    print(_extent("fetched", fetched.new_files, fetched.new_bytes, fetched.kept_files))


async def list_backups(settings: Settings, url: str) -> tuple[list[Manifest], WalListing]:
    """Those that are there, oldest first, and the WAL between them."""
    store = _store(settings, url)
    return await manifests_in(store), await wal_in(store)


async def prune_backups(settings: Settings, url: str, keep: int) -> tuple[int, int, int]:
    """Leave the newest there. Returns how many went, how many files, and their bytes."""
    store = _store(settings, url)
    if not await manifests_in(store):
        raise BackupRefused(f"{store.label} contains no backup")
    return await prune(store, keep, Teller())


async def fetch_beside(
    settings: Settings,
    url: str,
    stamp: str | None,
    *,
    by_wal: bool,
    until: datetime | None,
    elsewhere: bool,
) -> tuple[BackupFolder, Manifest, WalSpan | None]:
    """Bring one into a folder beside the data folder, with room left there unless it is restored elsewhere.

    `by_wal` brings the one from which the moment `until` can be reached, None for the latest, and the WAL
    after it. The folder stays when a restore is cut off or refused: the next attempt continues with it.
    """
    store = _store(settings, url)
    span = (await wal_in(store)).chosen(await manifests_in(store), until) if by_wal else None
    manifest = await chosen_in(store, stamp) if span is None else span.manifest
    folder = BackupFolder(settings.data_dir.with_name(f"{settings.data_dir.name}.fetched"))
    teller = Teller()
    teller.say(f"fetching backup {manifest.stamp} into {folder.root}")
    spare_bytes = manifest.origin.size_bytes if settings.embedded and not elsewhere else 0
    await fetch(store, folder, manifest, span=span, spare_bytes=spare_bytes, told=teller)
    return folder, manifest, span
