"""The WAL in an object store: it goes there with the backups, comes back with one, and goes with the last."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from protocol.backup import BackupDamaged, BackupRefused, Manifest, PhysicalCopy, StoredFile
from svc.backup.folder import BackupFolder, FileWriter
from svc.backup.remote import fetch, manifests_in, prune, push, wal_in
from svc.backup.restoring import check_files
from svc.backup.wal_folder import WalLine, WalReach, check_wal, listing_of
from svc.store.postgres.embedded.wal_feed import segment_after
from tests.backup.folders import FIRST_DAY, back_up, table
from tests.backup.test_remote import Watched, store

__all__ = ["store"]

FIRST = "000000010000000000000003"


def written(folder: BackupFolder, place: str, text: bytes) -> StoredFile:
    writer = FileWriter(folder, place, "tar.zst")
    writer.write(text)
    return writer.done()


def physical(folder: BackupFolder, day: int, wal_start: str) -> Manifest:
    """A backup of a cluster that needs the WAL from there on."""
    plain = back_up(folder, day, table(folder, "unused", f"day {day}"))
    copy = PhysicalCopy(
        major="18",
        machine="x86_64",
        branch="",
        parts=(written(folder, "physical/whole", f"whole {day}".encode()),),
        listing=written(folder, "physical/listing", f"listing {day}".encode()),
        wal_start=wal_start,
    )
    origin = msgspec.structs.replace(plain.origin, snapshot_at=FIRST_DAY + timedelta(days=day))
    manifest = msgspec.structs.replace(plain, relations=(), physical=copy, origin=origin)
    folder.write_manifest(manifest)
    return manifest


def two_days(root: Path) -> tuple[BackupFolder, list[Manifest], list[str]]:
    """Two backups, two segments after each, and how far they reach."""
    folder = BackupFolder(root / "backups")
    folder.root.mkdir(parents=True)
    names = [FIRST]
    for _ in range(3):
        names.append(segment_after(names[-1]))
    manifests = [physical(folder, 0, names[0]), physical(folder, 1, names[2])]
    line = WalLine(folder, "1")
    with line.held():
        for name in names:
            segment = root / name
            segment.write_bytes(name.encode() * 1_000)
            line.add(segment)
        end = FIRST_DAY + timedelta(days=2)
        line.reaches(WalReach(segment=names[-1], ended_at=end, moment=end))
    return folder, manifests, names


async def test_the_wal_is_sent_once_and_fetched_with_the_backup_that_it_follows(
    store: Watched, tmp_path: Path
) -> None:
    folder, (first, second), names = two_days(tmp_path)
    pushed = await push(folder, store)
    assert pushed.new_files == len(first.files()) + len(second.files()) + len(names)
    assert (await push(folder, store)).new_files == 0
    listing = await wal_in(store)
    assert set(listing.files["1"]) == set(names)
    assert listing.reaches == listing_of(folder).reaches
    early = FIRST_DAY + timedelta(hours=12)
    span = listing.chosen(await manifests_in(store), early)
    assert span.manifest == first
    assert list(span.files) == names
    copy = BackupFolder(tmp_path / "copy")
    await fetch(store, copy, span.manifest, span=span)
    await check_files(copy, first)
    there = listing_of(copy).chosen([first], early)
    assert check_wal(copy, there, lambda _line: None) == len(names)
    newest = listing.chosen([first, second], None)
    assert newest.manifest == second
    assert list(newest.files) == names[2:]


async def test_a_damaged_segment_is_not_sent_and_nothing_reaches_beyond_it(
    store: Watched, tmp_path: Path
) -> None:
    folder, (first, second), names = two_days(tmp_path)
    file = listing_of(folder).files["1"][names[1]]
    path = folder.path_of(file)
    path.write_bytes(b"x" * file.bytes)
    await push(folder, store)
    listing = await wal_in(store)
    assert [span.manifest for span in listing.spans([first, second])] == [second]
    with pytest.raises(BackupRefused, match="cannot be restored"):
        listing.chosen([first, second], FIRST_DAY + timedelta(hours=12))
    # One that went bad there is seen when it is fetched.
    key = listing.files["1"][names[3]].path
    await store.put(key, b"x" * listing.files["1"][names[3]].bytes)
    with pytest.raises(BackupDamaged, match="is damaged there"):
        await fetch(store, BackupFolder(tmp_path / "copy"), second, span=listing.span_after(second))


async def test_what_is_pruned_takes_its_wal_along(store: Watched, tmp_path: Path) -> None:
    folder, (_, second), names = two_days(tmp_path)
    await push(folder, store)
    await prune(store, 1)
    assert set((await wal_in(store)).files["1"]) == set(names[2:])
    assert (await wal_in(store)).span_after(second) is not None
    # Nor is it sent again for backups that are not.
    await push(folder, store, keep=1)
    assert set((await wal_in(store)).files["1"]) == set(names[2:])
