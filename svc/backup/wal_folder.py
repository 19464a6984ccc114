"""The WAL of the embedded cluster in a folder of backups: its segments, how far they reach, what is missing.

    DIR/wal/LINE/000000010000000000000012.SHA.wal.zst   a segment
    DIR/wal/LINE/reach.json                             up to which moment all of it is there

A line is one cluster between two restores: what is restored writes another history under the same names.

Ordering: segments first, then the reach. A file is written beside its place, synced and renamed, so that one
that has its name is whole; its name holds its digest. One process at a time writes (`lock`), beside backups.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
import msgspec

from protocol.backup import BackupDamaged, BackupRefused, Manifest, StoredFile
from svc.backup.folder import BackupFolder, FileWriter, read_manifest
from svc.store.postgres.embedded.cluster import sync_folder, write_file
from svc.store.postgres.embedded.wal_feed import SEGMENT_BYTES, segment_after

TOP: Final = "wal"
_REACH: Final = "reach.json"
_FILE: Final = re.compile(r"([0-9A-F]{24})\.([0-9a-f]{24})\.wal\.zst")


class WalReach(msgspec.Struct, frozen=True, kw_only=True):
    """How far the segments of a line reach.

    Up to `ended_at` a commit after the moment is in them as well. Nobody wrote anything between that and
    `moment`.
    """

    segment: str
    ended_at: datetime
    moment: datetime


@attrs.frozen
class WalSpan:
    """What a backup can be brought forward by: the segments after it, up to a moment."""

    manifest: Manifest
    files: Mapping[str, StoredFile]
    reach: WalReach

    @property
    def begins(self) -> datetime:
        """The earliest moment that can be brought back."""
        return self.manifest.whole_from


@attrs.frozen
class WalLine:
    """The WAL of one line. Every verb raises `OSError` when the disk does not do as told."""

    folder: BackupFolder
    name: str

    @property
    def root(self) -> Path:
        return self.folder.root / TOP / self.name

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only one who writes it. Raises `BackupRefused` when somebody else does."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.root.parent / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupRefused(f"another service copies its WAL to {self.root.parent}") from None
            yield
        finally:
            os.close(fd)

    def files(self) -> dict[str, StoredFile]:
        """The segments that are there, by their names."""
        with os.scandir(self.root) as entries:
            sizes = {f"{TOP}/{self.name}/{entry.name}": entry.stat().st_size for entry in entries}
        return _files(sizes).get(self.name, {})

    def add(self, segment: Path) -> StoredFile:
        """Copy a segment. Raises `BackupRefused` when the disk is nearly full."""
        writer = FileWriter(self.folder, f"{TOP}/{self.name}/{segment.name}", "wal.zst")
        try:
            with segment.open("rb") as file:
                while part := file.read(1024 * 1024):
                    writer.write(part)
            return writer.done()
        except BaseException:
            writer.abandon()
            raise

    def reaches(self, reach: WalReach) -> None:
        """From now on it reaches that far."""
        # A backup that no segment follows yet has a reach as well.
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(self.root)
        write_file(self.root / _REACH, msgspec.json.encode(reach).decode(), 0o600)

    def reach(self) -> WalReach | None:
        """How far it reaches; None before the first round. Raises `BackupDamaged`."""
        path = self.root / _REACH
        try:
            return _reach(path.read_bytes(), str(self.root))
        except FileNotFoundError:
            return None


def line_of(manifest: Manifest) -> str:
    """The line that a physical backup is of."""
    assert manifest.physical is not None, "asked of physical backups alone"
    return line_name(manifest.origin.system_id, manifest.physical.branch)


def line_name(system_id: str, branch: str) -> str:
    """The name of the line that a cluster writes."""
    return f"{system_id}-{branch}" if branch else system_id


@attrs.frozen
class WalListing:
    """The segments and the reach of each line, in a folder or in an object store."""

    label: str
    files: Mapping[str, Mapping[str, StoredFile]]
    reaches: Mapping[str, WalReach]

    def span_after(self, manifest: Manifest) -> WalSpan | None:
        """What a backup can be brought forward by; None where a segment is missing."""
        if manifest.physical is None or not manifest.physical.wal_start:
            return None
        line = line_of(manifest)
        reach, files = self.reaches.get(line), self.files.get(line, {})
        if reach is None or reach.moment < manifest.whole_from:
            return None
        chain = {}
        name = manifest.physical.wal_start
        while name <= reach.segment:
            if name not in files:
                return None
            chain[name] = files[name]
            name = segment_after(name)
        return WalSpan(manifest, chain, reach)

    def spans(self, manifests: Sequence[Manifest]) -> list[WalSpan]:
        """What can be brought back to any moment, oldest first."""
        spans = map(self.span_after, manifests)
        return [span for span in spans if span is not None]

    def chosen(self, manifests: Sequence[Manifest], until: datetime | None) -> WalSpan:
        """The newest backup from which a moment can be reached; None is the latest moment there is.

        Raises `BackupRefused` for a moment that cannot be brought back.
        """
        spans = self.spans(manifests)
        if not spans:
            raise BackupRefused(
                f"{self.label} contains no WAL that follows a --physical backup, so a moment between backups"
                " cannot be restored; SVC_BACKUP_WAL_SECONDS keeps it from now on"
            )
        if until is None:
            return max(spans, key=lambda span: (span.reach.moment, span.begins))
        fitting = [span for span in spans if span.begins <= until <= span.reach.moment]
        if not fitting:
            raise BackupRefused(f"{_shown(until)} cannot be restored; {covered(spans)}")
        return fitting[-1]


def listing_of(folder: BackupFolder) -> WalListing:
    """What there is in a folder. Raises `BackupDamaged`, `OSError`."""
    top = folder.root / TOP
    lines = [WalLine(folder, path.name) for path in top.iterdir() if path.is_dir()] if top.is_dir() else []
    reaches = {line.name: line.reach() for line in lines}
    return WalListing(
        str(folder.root),
        {line.name: line.files() for line in lines},
        {name: reach for name, reach in reaches.items() if reach is not None},
    )


def listing_from(label: str, sizes: Mapping[str, int], reaches: Mapping[str, bytes]) -> WalListing:
    """What there is elsewhere: the size of each file, and the reach of each line. Raises `BackupDamaged`."""
    return WalListing(label, _files(sizes), {line: _reach(text, label) for line, text in reaches.items()})


def _files(sizes: Mapping[str, int]) -> dict[str, dict[str, StoredFile]]:
    """The segments among files with these places and sizes, by their lines and names."""
    files: dict[str, dict[str, StoredFile]] = {}
    for key, size in sizes.items():
        top, _, below = key.partition("/")
        line, _, name = below.partition("/")
        match = _FILE.fullmatch(name)
        if top == TOP and match is not None:
            file = StoredFile(path=key, bytes=size, sha256=match[2], raw_bytes=SEGMENT_BYTES)
            files.setdefault(line, {})[match[1]] = file
    return files


def reach_key(line: str) -> str:
    """The place of the reach of a line, below the folder."""
    return f"{TOP}/{line}/{_REACH}"


def _reach(text: bytes, label: str) -> WalReach:
    try:
        return msgspec.json.decode(text, type=WalReach)
    except msgspec.MsgspecError:
        raise BackupDamaged(
            f"{label}: it is not known how far the WAL reaches, {_REACH} is damaged"
        ) from None


def covered(spans: list[WalSpan]) -> str:
    """A sentence on which moments can be brought back."""
    ranges: list[tuple[datetime, datetime]] = []
    for span in spans:
        if ranges and span.begins <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], span.reach.moment))
        else:
            ranges.append((span.begins, span.reach.moment))
    words = ", and ".join(f"from {_shown(begins)} to {_shown(ends)}" for begins, ends in ranges)
    return f"`restore --until` can bring back any moment {words}"


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def check_wal(folder: BackupFolder, span: WalSpan, told: Callable[[str], None]) -> int:
    """Compare each segment of a span with its digest. Returns how many. Raises `BackupDamaged`."""
    for number, file in enumerate(span.files.values(), 1):
        folder.check(file)
        if number % 64 == 0:
            told(f"compared: {number} of {len(span.files)} segments of the WAL")
    return len(span.files)


def unused_wal(listing: WalListing, manifests: Sequence[Manifest]) -> list[StoredFile]:
    """The segments that none of these backups can be brought forward by."""
    needed: dict[str, str] = {}
    for manifest in manifests:
        if manifest.physical is not None and manifest.physical.wal_start:
            line = line_of(manifest)
            start = manifest.physical.wal_start
            needed[line] = min(needed.get(line, start), start)
    return [
        file
        for line, files in listing.files.items()
        for segment, file in files.items()
        if line not in needed or segment < needed[line]
    ]


def prune_wal(folder: BackupFolder) -> tuple[int, int]:
    """Remove what no backup can be brought forward by. Returns how many files, and their bytes.

    Raises `BackupDamaged`, `OSError`.
    """
    unused = unused_wal(listing_of(folder), [read_manifest(path) for path in folder.manifests()])
    for file in unused:
        folder.path_of(file).unlink(missing_ok=True)
    return len(unused), sum(file.bytes for file in unused)
