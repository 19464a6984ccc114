"""Laws of backups in an object store, over the library's own stores in memory and in a folder."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec
import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from protocol.backup import BackupDamaged, BackupRefused, BackupStoreFailed, Manifest
from svc.backup.erased import FILE as ERASED
from svc.backup.folder import BackupFolder
from svc.backup.remote import ObjectStore, chosen_in, fetch, manifests_in, prune, push
from svc.backup.restoring import check_files
from svc.outside import objects
from svc.outside.objects import ObstoreStore
from tests.backup.folders import back_up, file_of, only, table, three_days


@attrs.define
class Watched:
    """A store that notes each call, and fails from one call on."""

    store: ObstoreStore
    calls: list[tuple[str, Any]] = attrs.field(factory=list)
    fails_at: int | None = None
    label: str = "s3://watched"

    def _note(self, verb: str, what: Any = None) -> None:
        if self.fails_at is not None and len(self.calls) >= self.fails_at:
            raise BackupStoreFailed("the store is gone")
        self.calls.append((verb, what))

    def puts(self) -> list[str]:
        return [key for verb, key in self.calls if verb == "put"]

    async def sizes(self) -> dict[str, int]:
        self._note("sizes")
        return await self.store.sizes()

    async def get(self, key: str, limit: int) -> bytes | None:
        self._note("get", key)
        return await self.store.get(key, limit)

    async def read(self, key: str, start: int, length: int) -> bytes:
        self._note("read", key)
        return await self.store.read(key, start, length)

    async def put(self, key: str, data: bytes) -> None:
        self._note("put", key)
        await self.store.put(key, data)

    async def put_file(self, key: str, path: Path, size: int) -> None:
        self._note("put", key)
        await self.store.put_file(key, path, size)

    async def delete(self, keys: Sequence[str]) -> None:
        self._note("delete", list(keys))
        await self.store.delete(keys)


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Watched:
    if request.param == "memory":
        return Watched(ObstoreStore(MemoryStore(), "memory"))
    return Watched(ObstoreStore(LocalStore(tmp_path / "bucket", mkdir=True), "folder"))


async def whole(store: ObjectStore, root: Path) -> list[str]:
    """Every backup that is there, each fetched and its digests compared."""
    manifests = await manifests_in(store)
    for manifest in manifests:
        folder = BackupFolder(root / manifest.stamp)
        await fetch(store, folder, manifest)
        await check_files(folder, folder.chosen(None))
    return [manifest.stamp for manifest in manifests]


async def test_push_copies_only_what_is_new_and_the_manifest_of_the_newest_last(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    only(folder, days[:2])
    pushed = await push(folder, store)
    assert (pushed.stamp, pushed.new_files, pushed.kept_files) == (days[1].stamp, 3, 0)
    names = store.puts()
    assert names[-3:] == [*(f"manifests/{day.stamp}.json" for day in days[:2]), "manifest.json"]
    assert set(names[:-3]) == {file.path for day in days[:2] for file in day.files()}
    store.calls.clear()
    only(folder, days)
    pushed = await push(folder, store)
    assert (pushed.new_files, pushed.kept_files) == (1, 3)
    new = [file_of(days[2], "span").path, f"manifests/{days[2].stamp}.json", "manifest.json"]
    assert store.puts() == new
    store.calls.clear()
    assert (await push(folder, store)).new_files == 0
    assert store.puts() == []
    assert await whole(store, tmp_path / "fetched") == [day.stamp for day in days]


async def test_an_object_of_another_size_is_sent_again(store: Watched, tmp_path: Path) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    file = file_of(days[0], "key")
    await store.put(file.path, b"half")
    assert (await push(folder, store)).new_files == 1
    assert (await store.sizes())[file.path] == file.bytes


async def test_a_copy_that_is_killed_between_any_two_calls_leaves_earlier_backups_whole(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    for call in itertools.count():
        objects_ = ObstoreStore(MemoryStore(), "memory")
        only(folder, days[:2])
        await push(folder, objects_)
        only(folder, days)
        store = Watched(objects_, fails_at=call)
        try:
            await push(folder, store, keep=2)
            await prune(store, 2)
        except BackupStoreFailed:
            there = await whole(objects_, tmp_path / f"fetched {call}")
            assert {days[1].stamp} <= set(there)
            assert (await chosen_in(objects_, None)).stamp in there
            # The next attempt completes it.
            await push(folder, objects_, keep=2)
            await prune(objects_, 2)
            assert await whole(objects_, tmp_path / f"again {call}") == [day.stamp for day in days[1:]]
            continue
        break
    assert call > 8
    used = {file.path for day in days[1:] for file in day.files()}
    names = {*used, "manifest.json", *(f"manifests/{day.stamp}.json" for day in days[1:])}
    assert (await objects_.sizes()).keys() == names


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
async def test_prune_never_deletes_what_a_kept_manifest_names(
    store: Watched, tmp_path: Path, keep: int
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    await store.put("notes.txt", b"of somebody else")
    await store.put("tables/mine.txt", b"of somebody else")
    pruned, files, freed = await prune(store, keep)
    kept = days[-keep:]
    assert (pruned, files) == (len(days) - len(kept), len(days) - len(kept))
    assert (freed > 0) is (files > 0)
    assert await whole(store, tmp_path / "fetched") == [day.stamp for day in kept]
    assert {"notes.txt", "tables/mine.txt"} <= (await store.sizes()).keys()


async def test_prune_deletes_nothing_when_a_manifest_that_stays_cannot_be_read(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    await store.put(f"manifests/{days[1].stamp}.json", b"{")
    before = await store.sizes()
    with pytest.raises(BackupDamaged, match="is damaged"):
        await prune(store, 2)
    assert await store.sizes() == before


async def test_a_file_that_went_bad_here_is_not_sent_and_the_other_backups_are(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    bad = folder.path_of(file_of(days[0], "span"))
    bad.write_bytes(bad.read_bytes()[:-1] + b"!")
    with pytest.raises(BackupDamaged, match=rf"{bad.name} is damaged.*; backups without it are in"):
        await push(folder, store)
    assert await whole(store, tmp_path / "fetched") == [day.stamp for day in days[1:]]


async def test_an_older_folder_does_not_become_the_newest_backup_there(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    only(folder, days[:1])
    await push(folder, store)
    assert (await chosen_in(store, None)).stamp == days[2].stamp


async def test_a_fetch_that_broke_off_is_continued(store: Watched, tmp_path: Path) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    copy, span = BackupFolder(tmp_path / "copy"), file_of(days[2], "span")
    # What a fetch leaves that is killed before its last file.
    await fetch(store, copy, days[2])
    copy.path_of(span).rename(copy.root / f"{span.path}.part")
    shutil.rmtree(copy.root / "manifests")
    (copy.root / "manifest.json").unlink()
    assert (await fetch(store, copy, days[2])).new_files == 1
    # What went bad meanwhile is fetched again.
    path = copy.path_of(span)
    path.write_bytes(b"!" + path.read_bytes()[1:])
    assert (await fetch(store, copy, days[2])).new_files == 1
    assert (await fetch(store, copy, days[2])).new_files == 0
    assert list((tmp_path / "copy").rglob("*.part")) == []
    await check_files(copy, copy.chosen(None))


async def test_an_older_backup_is_chosen_by_its_stamp_and_does_not_become_the_newest(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    copy = BackupFolder(tmp_path / "copy")
    for day in (days[1], days[0], days[2]):
        await fetch(store, copy, await chosen_in(store, day.stamp))
        await check_files(copy, copy.chosen(day.stamp))
    assert copy.chosen(None).stamp == days[2].stamp
    with pytest.raises(BackupDamaged, match=f"there are: {days[0].stamp}, {days[1].stamp}, {days[2].stamp}"):
        await chosen_in(store, "../../manifest")


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (flipped, "is damaged there"),
        (lambda data: data[:-1], "is shorter there"),
        (lambda data: b"", "is shorter there"),
        (None, "is missing"),
    ],
)
async def test_a_damaged_or_missing_object_is_reported_and_gets_no_name(
    store: Watched, tmp_path: Path, how: Callable[[bytes], bytes] | None, error: str
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    file = file_of(days[2], "span")
    data = folder.bytes_of(file)
    await store.delete([file.path])
    if how is not None:
        await store.put(file.path, how(data))
    copy = BackupFolder(tmp_path / "copy")
    with pytest.raises((BackupDamaged, BackupStoreFailed), match=error):
        await fetch(store, copy, days[2])
    assert not copy.path_of(file).exists()
    assert copy.newest() is None
    assert list((tmp_path / "copy").rglob("*.part")) == []


async def test_a_longer_object_is_read_no_further_than_the_manifest_says(
    store: Watched, tmp_path: Path
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    file = file_of(days[2], "span")
    await store.put(file.path, folder.bytes_of(file) + b"more" * 1000)
    copy = BackupFolder(tmp_path / "copy")
    await fetch(store, copy, days[2])
    await check_files(copy, copy.chosen(None))


def named(manifest: Manifest, path: str, sha256: str | None = None) -> bytes:
    """The manifest's text with another place for its first file."""
    text = msgspec.json.decode(msgspec.json.encode(manifest))
    text["relations"][0]["file"]["path"] = path
    text["relations"][0]["file"]["sha256"] = sha256 or text["relations"][0]["file"]["sha256"]
    return msgspec.json.encode(text)


@pytest.mark.parametrize(
    "path",
    [
        "tables/../../x",
        "/etc/passwd",
        "tables/.",
        "tables/x/../y",
        "lock",
        "manifest.json",
        "manifests/2026-11-01T03-10-00Z.json",
        "tables/x",
        f"tables/x.{'0' * 24}.enc",
        f"tables/x.{'0' * 24}.enc/y",
    ],
)
async def test_a_manifest_there_reaches_no_place_outside_of_the_folder(
    store: Watched, tmp_path: Path, path: str
) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    await store.put("manifest.json", named(days[2], path))
    manifest = await chosen_in(store, None)
    copy = BackupFolder(tmp_path / "deep" / "copy")
    with pytest.raises(BackupDamaged, match="names a file"):
        await fetch(store, copy, manifest)
    assert [file for file in (tmp_path / "deep").rglob("*") if file.is_file() and file.name != "lock"] == []
    before = await store.sizes()
    with pytest.raises(BackupDamaged, match="names a file"):
        await prune(store, 1)
    assert await store.sizes() == before


async def test_a_manifest_under_another_stamp_is_refused(store: Watched, tmp_path: Path) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    await store.put(f"manifests/{days[0].stamp}.json", msgspec.json.encode(days[2]))
    with pytest.raises(BackupDamaged, match=f"is the manifest of {days[2].stamp}"):
        await chosen_in(store, days[0].stamp)


async def test_a_store_and_a_folder_without_backups_are_reported(store: Watched, tmp_path: Path) -> None:
    with pytest.raises(BackupDamaged, match=r"holds no backup: there is no manifest\.json"):
        await chosen_in(store, None)
    assert await manifests_in(store) == []
    assert await prune(store, 1) == (0, 0, 0)
    with pytest.raises(BackupRefused, match="contains no backup"):
        await push(BackupFolder(tmp_path / "empty"), store)


async def test_a_fetch_needs_room_and_a_folder_of_its_own(store: Watched, tmp_path: Path) -> None:
    folder, days = three_days(tmp_path / "backups")
    await push(folder, store)
    with pytest.raises(BackupRefused, match="GiB are needed"):
        await fetch(store, BackupFolder(tmp_path / "copy"), days[2], spare_bytes=1 << 60)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(BackupRefused, match="holds other things"):
        await fetch(store, BackupFolder(tmp_path / "other"), days[2])


async def test_notes_of_erasures_go_along_and_none_is_lost(store: Watched, tmp_path: Path) -> None:
    folder, days = three_days(tmp_path / "backups")
    await store.put(ERASED, b"of an earlier machine\n")
    (folder.root / ERASED).write_bytes(b"one\ntwo\n")
    await push(folder, store)
    assert await store.get(ERASED, 1000) == b"of an earlier machine\none\ntwo\n"
    copy = BackupFolder(tmp_path / "copy")
    copy.root.mkdir()
    (copy.root / ERASED).write_bytes(b"two\nthree\n")
    await fetch(store, copy, days[2])
    lines = (copy.root / ERASED).read_bytes().splitlines()
    assert sorted(lines) == [b"of an earlier machine", b"one", b"three", b"two"]


async def test_a_file_is_sent_in_parts_and_fetched_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[bool, int]] = []

    def put(store: Any, key: str, file: Any, **options: Any) -> Any:
        if isinstance(file, Path):
            sent.append((options["use_multipart"], options["chunk_size"]))
        return obstore.put(store, key, file, **options)

    monkeypatch.setattr(objects, "obstore", Recorded(put))
    store = Watched(ObstoreStore(MemoryStore(), "memory"))
    folder = BackupFolder(tmp_path / "backups")
    folder.root.mkdir()
    manifest = back_up(
        folder, 0, table(folder, "payload", "large", 20 * 2**20), table(folder, "key", "small")
    )
    await push(folder, store)
    assert sorted(sent) == [(False, objects.PART_BYTES), (True, objects.PART_BYTES)]
    await fetch(store, BackupFolder(tmp_path / "copy"), manifest)
    assert [key.split(".")[0] for verb, key in store.calls if verb == "read"].count("tables/payload") == 3


@attrs.frozen
class Recorded:
    """The library with another `put`."""

    put: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(obstore, name)
