"""The folder of backups: files named by their digests, the manifests beside them, and who may write.

    DIR/manifest.json                        the newest backup
    DIR/manifests/2026-11-01T03-10-00Z.json  every backup that is kept, the newest too
    DIR/tables/NAME.SHA.copy.zst             a table
    DIR/days/2026-11-01/NAME.SHA.copy.zst    one day of a table
    DIR/secrets/SHA.enc, DIR/spool/SHA.db.zst
    DIR/physical/whole.SHA.tar.zst, changes.SHA.tar.zst   the embedded cluster, file by file
    DIR/wal/LINE/SEGMENT.SHA.wal.zst         its WAL (`svc.backup.wal_folder`)

Ordering: a file is written under a name of its own, synced and renamed; the manifest comes last, by rename.
Nothing that an earlier manifest names is ever changed, so a backup that is killed leaves the earlier ones as
they were, and some files that the next `prune` takes away. One process at a time writes (`lock`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs
import msgspec
import zstandard

from protocol.backup import FORMAT, BackupDamaged, BackupRefused, Manifest, StoredFile
from svc.backup.erased import FILE as ERASED
from svc.store.postgres.embedded.cluster import sync_folder, write_file

#: Below this share of free space no backup is begun, and one that gets there ends.
FREE_SHARE: Final = 0.10
#: Level 3 takes a third less than level 1 of the tables; payloads are compressed already.
_LEVEL: Final = 3
_CHUNK_BYTES: Final = 1024 * 1024
_PART: Final = ".part"
_PLACE: Final = re.compile(
    r"(tables|days/\d{4}-\d\d-\d\d|secrets|spool|physical|wal/[0-9a-f-]{1,60})/[A-Za-z0-9_-]{1,80}\.([0-9a-f]{24})\.[a-z.]{1,16}"
)
_FOLDERS: Final = ("tables", "days", "secrets", "spool", "physical", "manifests")
#: A large file looks for room again and again while it is written.
_LOOK_BYTES: Final = 64 * 1024 * 1024
MANIFEST_BYTES: Final = 256 * 1024 * 1024


class FileWriter:
    """One file in the making: compressed, counted and digested as it is written."""

    def __init__(self, folder: BackupFolder, place: str, suffix: str, *, compressed: bool = True) -> None:
        self._folder, self._place, self._suffix = folder, place, suffix
        self._path = folder.root / f"{place}{_PART}"
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self._file = open(fd, "wb")  # noqa: SIM115 - closed by `done`, or with the process
        self._digest = hashlib.sha256()
        self._zstd = zstandard.ZstdCompressor(level=_LEVEL).compressobj() if compressed else None
        self._bytes = self._raw_bytes = 0
        self._looked_bytes = 0

    def write(self, data: bytes) -> None:
        """More of the file. Raises `BackupRefused` when the disk is nearly full by now."""
        self._raw_bytes += len(data)
        self._put(data if self._zstd is None else self._zstd.compress(data))

    def done(self) -> StoredFile:
        """On disk, under its final name. Raises `BackupRefused` when the disk is nearly full by now."""
        if self._zstd is not None:
            self._put(self._zstd.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sha256 = self._digest.hexdigest()
        # So many characters tell any two apart; the manifest has all of them.
        final = f"{self._place}.{sha256[:24]}.{self._suffix}"
        self._path.replace(self._folder.root / final)
        self._folder.touched.add(self._path.parent)
        self._folder.check_room()
        return StoredFile(path=final, bytes=self._bytes, sha256=sha256, raw_bytes=self._raw_bytes)

    def abandon(self) -> None:
        """Not to be: what is written of it goes."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._bytes += len(data)
        self._file.write(data)
        if self._bytes - self._looked_bytes >= _LOOK_BYTES:
            self._looked_bytes = self._bytes
            self._folder.check_room()


@attrs.frozen
class BackupFolder:
    """A folder of backups. Every verb raises `OSError` when the disk does not do as told."""

    root: Path
    #: Folders with new files, to be synced before the manifest names them.
    touched: set[Path] = attrs.field(factory=set, eq=False, repr=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only one who writes here; the kernel frees the hold when the process ends, however."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupRefused(
                    f"another backup is being made, copied or pruned in {self.root}"
                ) from None
            yield
        finally:
            os.close(fd)

    def check_room(self) -> None:
        """Raises `BackupRefused` below a tenth of free space."""
        usage = shutil.disk_usage(self.root)
        if usage.free < usage.total * FREE_SHARE:
            raise BackupRefused(
                f"the disk of {self.root} has {usage.free / 2**30:.1f} of {usage.total / 2**30:.1f} GiB free,"
                " less than 10 %: make room, or `trace-svc backup prune`; earlier backups are untouched"
            )

    def check_ours(self) -> None:
        """Raises `BackupRefused` for a folder of something else."""
        if not self.root.exists():
            return
        strange = {path.name for path in self.root.iterdir()} - {
            *_FOLDERS,
            "manifest.json",
            "manifest.json.new",
            "lock",
            "lost+found",
            "wal",
            ERASED,
        }
        if strange and not (self.root / "manifest.json").exists():
            raise BackupRefused(
                f"{self.root} holds other things ({', '.join(sorted(strange)[:3])}): name an empty folder"
            )

    def newest(self) -> Manifest | None:
        """The manifest of the newest backup, or None. Raises `BackupDamaged`."""
        path = self.root / "manifest.json"
        return read_manifest(path) if path.exists() else None

    def newest_of(self, *, physical: bool) -> Manifest | None:
        """The newest backup of a kind, or None. Raises `BackupDamaged`."""
        newest = self.newest()
        if newest is None or (newest.physical is not None) == physical:
            return newest
        for path in reversed(self.manifests()):
            manifest = read_manifest(path)
            if (manifest.physical is not None) == physical:
                return manifest
        return None

    def chosen(self, stamp: str | None) -> Manifest:
        """The newest backup, or that of a moment. Raises `BackupDamaged` when there is none."""
        if stamp is None:
            manifest = self.newest()
            if manifest is None:
                raise BackupDamaged(f"{self.root} holds no backup: there is no manifest.json")
            return manifest
        for path in self.manifests():
            if path.stem == stamp:
                return read_manifest(path)
        stamps = ", ".join(path.stem for path in self.manifests()) or "none"
        raise BackupDamaged(f"{self.root} holds no backup {stamp}; there are: {stamps}")

    def manifests(self) -> list[Path]:
        """The manifests that are kept, oldest first."""
        folder = self.root / "manifests"
        return sorted(folder.glob("*.json")) if folder.is_dir() else []

    def write_manifest(self, manifest: Manifest, *, newest: bool = True) -> None:
        """From now on there is this backup; the newest one is `manifest.json` as well."""
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode()
        path_ = self.root / "manifests" / f"{manifest.stamp}.json"
        path_.parent.mkdir(mode=0o700, exist_ok=True)
        for folder in self.touched:
            sync_folder(folder)
        self.touched.clear()
        for path in (path_, *([self.root / "manifest.json"] if newest else [])):
            write_file(path, text, 0o600)

    def whole(self, file: StoredFile) -> bool:
        """Whether a file is there, with its size; its digest costs reading it."""
        try:
            return self.path_of(file).stat().st_size == file.bytes
        except OSError:
            return False

    def check(self, file: StoredFile) -> None:
        """Read a file and compare it with its digest. Raises `BackupDamaged`."""
        digest = hashlib.sha256()
        try:
            with self.path_of(file).open("rb") as opened:
                while data := opened.read(_CHUNK_BYTES):
                    digest.update(data)
        except FileNotFoundError:
            raise BackupDamaged(f"{file.path} is missing") from None
        except OSError as error:
            raise BackupDamaged(f"{file.path} cannot be read: {error.strerror}") from None
        if not digest.hexdigest().startswith(file.sha256):
            raise BackupDamaged(f"{file.path} is damaged: it is not what was written")

    def read(self, file: StoredFile) -> Iterator[bytes]:
        """A compressed file, inflated, in parts; never more than the manifest says."""
        bytes_left = file.raw_bytes
        try:
            with self.path_of(file).open("rb") as opened:
                for part in zstandard.ZstdDecompressor().read_to_iter(opened, write_size=_CHUNK_BYTES):
                    bytes_left -= len(part)
                    if bytes_left < 0:
                        raise BackupDamaged(f"{file.path} is longer than the manifest says")
                    yield part
        except (zstandard.ZstdError, OSError) as error:
            raise BackupDamaged(f"{file.path} cannot be read ({type(error).__name__})") from None
        if bytes_left:
            raise BackupDamaged(f"{file.path} is shorter than the manifest says")

    def bytes_of(self, file: StoredFile) -> bytes:
        """A small file as it lies there."""
        return self.path_of(file).read_bytes()

    def prune(self, keep: int) -> tuple[int, int, int]:
        """Leave the newest `keep` backups. Returns how many went, how many files, and their bytes.

        Manifests go first: a prune that is killed leaves files that nobody names, for the next one.
        """
        paths = self.manifests()
        pruned, stay = paths[:-keep], paths[-keep:]
        manifests = [read_manifest(path) for path in stay]
        newest = self.newest()
        if newest is not None:
            manifests.append(newest)
        for path in pruned:
            path.unlink()
        used = {file.path for manifest in manifests for file in manifest.files()}
        files = size = 0
        for top in _FOLDERS[:-1]:
            for path in sorted((self.root / top).rglob("*"), reverse=True):
                if path.is_dir():
                    with suppress(OSError):
                        path.rmdir()
                elif path.relative_to(self.root).as_posix() not in used:
                    size += path.lstat().st_size
                    files += 1
                    path.unlink()
        return len(pruned), files, size

    def path_of(self, file: StoredFile) -> Path:
        """Where a file is. Raises `BackupDamaged` for a name that no backup gives."""
        return self.root / checked_place(file)


def is_place(name: str) -> bool:
    """Whether a file of a backup may be called so."""
    return _PLACE.fullmatch(name) is not None


def checked_place(file: StoredFile) -> str:
    """The place of a file below its folder. Raises `BackupDamaged` for a name that no backup gives."""
    name = _PLACE.fullmatch(file.path)
    if name is None:
        raise BackupDamaged(f"the manifest names a file outside of the backup: {file.path[:100]!r}")
    if not file.sha256.startswith(name[2]):
        raise BackupDamaged(f"the manifest names a file by another digest than its own: {file.path[:100]!r}")
    return file.path


def read_manifest(path: Path) -> Manifest:
    """A manifest. Raises `BackupDamaged`."""
    try:
        if path.stat().st_size > MANIFEST_BYTES:
            raise BackupDamaged(f"{path} is too large to be a manifest")
        return parse_manifest(path.read_bytes(), str(path))
    except OSError as error:
        raise BackupDamaged(f"{path} cannot be read: {error.strerror}") from None


def parse_manifest(text: bytes, label: str) -> Manifest:
    """The manifest with this text. Raises `BackupDamaged`, `BackupRefused`."""
    try:
        fields = msgspec.json.decode(text, type=dict)
        if fields.get("format") != FORMAT:
            raise BackupRefused(
                f"{label} is of format {fields.get('format')}, this release reads {FORMAT}: use the release"
                " that made the backup"
            )
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise BackupDamaged(f"{label} is not a manifest: it is damaged") from None


def file_name(name: str) -> str:
    """The name of a table as part of the name of a file."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:80]
