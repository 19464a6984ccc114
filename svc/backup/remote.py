"""Backups in an object store, under the names that they have in a folder: push, fetch, list and prune.

Ordering: files first, then the manifest of each backup, `manifest.json` last. Pruning deletes manifests
before files. So a push or a prune that is killed leaves every backup that has a manifest there whole, and
some files that the next prune deletes. A name holds the digest of its file, so what is there in its size is
not sent again.

Two instances need two prefixes: each would delete files that the other is sending.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import attrs
import msgspec
import trio

from protocol.backup import BackupDamaged, BackupRefused, BackupStoreFailed, Manifest, StoredFile
from svc.backup.erased import FILE as ERASED
from svc.backup.erased import add_lines, new_lines
from svc.backup.fetching import fetch_file
from svc.backup.folder import (
    MANIFEST_BYTES,
    BackupFolder,
    checked_place,
    is_place,
    parse_manifest,
    read_manifest,
)
from svc.backup.wal_folder import (
    WalLine,
    WalListing,
    WalSpan,
    line_of,
    listing_from,
    listing_of,
    reach_key,
    unused_wal,
)

_MANIFEST: Final = re.compile(r"manifests/(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)\.json")
_NEWEST: Final = "manifest.json"
_REACH_BYTES: Final = 64 * 1024
_ERASED_BYTES: Final = 256 * 1024 * 1024
#: Most files are small, and a store answers each after a while.
_FILES_AT_ONCE: Final = 4


class ObjectStore(Protocol):
    """Objects by their keys. Every call raises `BackupStoreFailed` when it was not done."""

    @property
    def label(self) -> str: ...

    async def sizes(self) -> dict[str, int]: ...

    async def get(self, key: str, limit: int) -> bytes | None: ...

    async def read(self, key: str, start: int, length: int) -> bytes: ...

    async def put(self, key: str, data: bytes) -> None: ...

    async def put_file(self, key: str, path: Path, size: int) -> None: ...

    async def delete(self, keys: Sequence[str]) -> None: ...


@attrs.frozen
class PushedBackups:
    """What a push sent, and the newest backup that is there now."""

    stamp: str
    new_files: int
    new_bytes: int
    kept_files: int


@attrs.frozen
class FetchedBackup:
    """A backup that lies in the folder now, and what of it was sent."""

    manifest: Manifest
    new_files: int
    new_bytes: int
    kept_files: int


def _silent(_line: str) -> None:
    pass


async def push(
    folder: BackupFolder, store: ObjectStore, *, keep: int = 0, told: Callable[[str], None] = _silent
) -> PushedBackups:
    """Copy the newest `keep` backups of a folder, 0 for all; only what is not there is sent.

    Raises `BackupRefused`, `BackupStoreFailed`, `OSError`, and `BackupDamaged` for backups that are not whole
    here, once all others are there.
    """
    if not folder.manifests():
        raise BackupRefused(f"{folder.root} contains no backup")
    with folder.held():
        paths = folder.manifests()[-keep:]
        manifests = [read_manifest(path) for path in paths]
        sizes = await store.sizes()
        await _push_notes(folder, store)
        files = {checked_place(file): file for manifest in manifests for file in manifest.files()}
        missing = [file for key, file in files.items() if sizes.get(key) != file.bytes]
        damage = await _push_files(folder, store, missing, told)
        sound = [
            (path, manifest)
            for path, manifest in zip(paths, manifests, strict=True)
            if not any(file.path in damage for file in manifest.files())
        ]
        texts = {manifest.stamp: path.read_bytes() for path, manifest in sound}
        for stamp, text in texts.items():
            if sizes.get(f"manifests/{stamp}.json") != len(text):
                await store.put(f"manifests/{stamp}.json", text)
        if texts:
            await _put_newest(store, *max(texts.items()))
        wal_files, wal_bytes = await _push_wal(folder, store, sizes, manifests, told)
    if damage:
        raise BackupDamaged(f"{next(iter(damage.values()))}; backups without it are in {store.label}")
    new_bytes = sum(file.bytes for file in missing) + wal_bytes
    kept_files = len(files) - len(missing)
    return PushedBackups(manifests[-1].stamp, len(missing) + wal_files, new_bytes, kept_files)


async def _push_wal(
    folder: BackupFolder,
    store: ObjectStore,
    sizes: Mapping[str, int],
    manifests: Sequence[Manifest],
    told: Callable[[str], None],
) -> tuple[int, int]:
    """Send the segments that these backups can be brought forward by, then how far they reach.

    Returns how many segments, and their bytes. One that is damaged here is missing there, and nothing reaches
    beyond it.
    """
    listing = await trio.to_thread.run_sync(listing_of, folder)
    unused = {file.path for file in unused_wal(listing, manifests)}
    files = [file for line in listing.files.values() for file in line.values()]
    missing = [file for file in files if file.path not in unused and sizes.get(file.path) != file.bytes]
    await _push_files(folder, store, missing, told)
    for line, reach in listing.reaches.items():
        if any(file.path not in unused for file in listing.files[line].values()):
            await store.put(reach_key(line), msgspec.json.encode(reach))
    return len(missing), sum(file.bytes for file in missing)


async def wal_in(store: ObjectStore) -> WalListing:
    """The WAL that is there. Raises `BackupDamaged`, `BackupStoreFailed`."""
    sizes = await store.sizes()
    lines = listing_from(store.label, sizes, {}).files
    reaches = {line: await store.get(reach_key(line), _REACH_BYTES) for line in lines}
    return listing_from(
        store.label, sizes, {line: text for line, text in reaches.items() if text is not None}
    )


async def _put_newest(store: ObjectStore, stamp: str, text: bytes) -> None:
    """Make it the newest backup there, unless there is a later one."""
    earlier = await store.get(_NEWEST, MANIFEST_BYTES)
    if earlier == text:
        return
    if earlier is not None:
        # A damaged one is replaced.
        with suppress(BackupDamaged):
            if parse_manifest(earlier, _NEWEST).stamp > stamp:
                return
    await store.put(_NEWEST, text)


async def _push_files(
    folder: BackupFolder, store: ObjectStore, files: Sequence[StoredFile], told: Callable[[str], None]
) -> dict[str, str]:
    """Send them. Returns those that are damaged here, each with a sentence."""
    damage: dict[str, str] = {}
    sent_count = 0

    async def send(file: StoredFile) -> None:
        nonlocal sent_count
        try:
            # A file that went bad on the disk must not get there under the name of a good one.
            await trio.to_thread.run_sync(folder.check, file, abandon_on_cancel=True)
        except BackupDamaged as damaged:
            damage[file.path] = str(damaged)
            return
        await store.put_file(checked_place(file), folder.path_of(file), file.bytes)
        sent_count += 1
        told(f"sent {sent_count} of {len(files)}: {file.path}, {file.bytes / 2**20:.1f} MiB")

    await _each(files, send)
    return damage


async def _push_notes(folder: BackupFolder, store: ObjectStore) -> None:
    """What must be erased again after a restore; notes that only the store has stay there."""
    path = folder.root / ERASED
    text = await trio.to_thread.run_sync(lambda: path.read_bytes() if path.exists() else b"")
    if not text:
        return
    stored = await store.get(ERASED, _ERASED_BYTES) or b""
    lines = new_lines(text, stored)
    if lines:
        await store.put(ERASED, stored + lines)


async def prune(store: ObjectStore, keep: int, told: Callable[[str], None] = _silent) -> tuple[int, int, int]:
    """Leave the newest `keep` backups. Returns how many went, how many files, and their bytes.

    Raises `BackupDamaged`, before anything is deleted, when a manifest that stays cannot be read.
    """
    sizes = await store.sizes()
    keys = sorted(filter(_MANIFEST.fullmatch, sizes))
    pruned, stay = keys[:-keep], keys[-keep:]
    if not stay:
        return 0, 0, 0
    if _NEWEST in sizes:
        stay.append(_NEWEST)
    manifests = [await _manifest_at(store, key) for key in stay]
    used = {checked_place(file) for manifest in manifests for file in manifest.files()}
    wal = listing_from(store.label, sizes, {})
    unused_segments = {file.path for file in unused_wal(wal, manifests)}
    used |= {file.path for line in wal.files.values() for file in line.values()} - unused_segments
    unused = [key for key in sizes if is_place(key) and key not in used]
    told(f"pruning {len(pruned)} backups and {len(unused)} files")
    for group in (pruned, unused):
        if group:
            await store.delete(group)
    return len(pruned), len(unused), sum(sizes[key] for key in unused)


async def manifests_in(store: ObjectStore) -> list[Manifest]:
    """Every backup that is there, oldest first."""
    keys = sorted(filter(_MANIFEST.fullmatch, await store.sizes()))
    return [await _manifest_at(store, key) for key in keys]


async def chosen_in(store: ObjectStore, stamp: str | None) -> Manifest:
    """The newest backup, or that of a moment. Raises `BackupDamaged` when there is none."""
    if stamp is None:
        if await store.get(_NEWEST, MANIFEST_BYTES) is None:
            raise BackupDamaged(f"{store.label} holds no backup: there is no {_NEWEST}")
        return await _manifest_at(store, _NEWEST)
    keys = sorted(filter(_MANIFEST.fullmatch, await store.sizes()))
    key = f"manifests/{stamp}.json"
    if key not in keys:
        stamps = ", ".join(Path(key).stem for key in keys) or "none"
        raise BackupDamaged(f"{store.label} holds no backup {stamp}; there are: {stamps}")
    return await _manifest_at(store, key)


async def _manifest_at(store: ObjectStore, key: str) -> Manifest:
    text = await store.get(key, MANIFEST_BYTES)
    label = f"{key} in {store.label}"
    if text is None:
        raise BackupDamaged(f"{label} is missing")
    manifest = parse_manifest(text, label)
    name = _MANIFEST.fullmatch(key)
    if name is not None and name[1] != manifest.stamp:
        raise BackupDamaged(f"{label} is the manifest of {manifest.stamp}")
    return manifest


async def fetch(
    store: ObjectStore,
    folder: BackupFolder,
    manifest: Manifest,
    *,
    span: WalSpan | None = None,
    spare_bytes: int = 0,
    told: Callable[[str], None] = _silent,
) -> FetchedBackup:
    """Bring a backup into a folder, with `spare_bytes` free beside it; what it has is not fetched again.

    A `span` of it brings the WAL after it as well.

    Raises `BackupRefused`, `BackupDamaged`, `BackupStoreFailed`, `OSError`.
    """
    folder.check_ours()
    with folder.held():
        segments = () if span is None else span.files.values()
        files = {checked_place(file): file for file in (*manifest.files(), *segments)}
        missing = await trio.to_thread.run_sync(_missing_in, folder, list(files.values()))
        new_bytes = sum(file.bytes for file in missing)
        needed, free = new_bytes + spare_bytes, shutil.disk_usage(folder.root).free
        if free < needed:
            raise BackupRefused(
                f"the disk of {folder.root} has {free / 2**30:.1f} GiB free and"
                f" {needed / 2**30:.1f} GiB are needed"
            )
        fetched = 0

        async def bring(file: StoredFile) -> None:
            nonlocal fetched
            await fetch_file(partial(store.read, checked_place(file)), folder, file)
            fetched += 1
            told(f"fetched {fetched} of {len(missing)}: {file.path}, {file.bytes / 2**20:.1f} MiB")

        await _each(missing, bring)
        notes = await store.get(ERASED, _ERASED_BYTES)
        if notes is not None:
            await trio.to_thread.run_sync(_add_notes, folder.root, notes)
        if span is not None:
            WalLine(folder, line_of(manifest)).reaches(span.reach)
        stamps = [path.stem for path in folder.manifests()]
        folder.write_manifest(manifest, newest=all(stamp <= manifest.stamp for stamp in stamps))
    return FetchedBackup(manifest, len(missing), new_bytes, len(files) - len(missing))


def _missing_in(folder: BackupFolder, files: Sequence[StoredFile]) -> list[StoredFile]:
    """What must be fetched; a folder that was half fetched, or is damaged, has the rest."""
    missing = []
    for file in files:
        try:
            folder.check(file)
        except BackupDamaged:
            missing.append(file)
    return missing


def _add_notes(root: Path, notes: bytes) -> None:
    path = root / ERASED
    add_lines(root, new_lines(notes, path.read_bytes() if path.exists() else b""))


async def _each(files: Iterable[StoredFile], work: Callable[[StoredFile], Awaitable[None]]) -> None:
    """Do this with every file, some at once. Raises the first error."""
    queue, errors = iter(files), list[Exception]()

    async def worker() -> None:
        for file in queue:
            try:
                await work(file)
            except (BackupDamaged, BackupRefused, BackupStoreFailed, OSError) as error:
                errors.append(error)
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(_FILES_AT_ONCE):
            nursery.start_soon(worker)
    if errors:
        raise errors[0]
