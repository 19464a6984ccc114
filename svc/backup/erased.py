"""What must be erased again after a restore: a file beside the backups and in the data folder.

Written when something is erased, read by `trace-svc restore`: a backup that is older than an erasure brings
back what was erased. A line names a project, a kind, and a keyed digest of an id with its key, so the file
says of nobody who they are, and whoever has an id can check it. Lines are only added.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs
import msgspec

from protocol.storage import ErasedNote

FILE: Final = "erased.jsonl"


@attrs.frozen
class ErasedNotes:
    """The file, in each of these folders."""

    folders: tuple[Path, ...]

    def add(self, notes: Iterable[ErasedNote]) -> None:
        """Write them down for good. Raises `OSError`."""
        lines = b"".join(msgspec.json.encode(attrs.asdict(note)) + b"\n" for note in notes)
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, lines)
                os.fsync(file)
            finally:
                os.close(file)

    def all(self) -> Sequence[ErasedNote]:
        """Every note, each once, the oldest first; a line that was cut off by a crash is none."""
        notes: dict[ErasedNote, None] = {}
        for folder in self.folders:
            path = folder / FILE
            if not path.exists():
                continue
            for line in path.read_bytes().splitlines():
                try:
                    notes[msgspec.json.decode(line, type=ErasedNote)] = None
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
        return sorted(notes, key=lambda note: note.asked_at)
