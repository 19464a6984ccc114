"""What must be erased again after a restore: a file beside the backups and in the data folder.

Written when something is erased, read by `trace-svc restore`: a backup that is older than an erasure brings
back what was erased. A line names a project, a kind, and a keyed digest of an id with its key, so the file
says of nobody who they are, and whoever has an id can check it. Lines are only added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import msgspec
import trio

from protocol.storage import ErasedNote
from svc.config.table import Settings
from svc.store.retention.erasures import ErasureStore

FILE: Final = "erased.jsonl"


@attrs.frozen
class ErasedNotes:
    """The file, in each of these folders."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, settings: Settings) -> ErasedNotes:
        """Those in the data folder and, where backups go to a folder, beside them."""
        folders = [settings.data_dir, *([] if settings.backup_dir is None else [settings.backup_dir])]
        return cls(tuple(folder.expanduser() for folder in folders))

    async def write_down(self, store: ErasureStore, now: Callable[[], datetime]) -> None:
        """Write down what nobody has written down yet. Raises `Outage`, `OSError`."""
        while rows := await store.unnoted():
            await trio.to_thread.run_sync(partial(self.add, [note for _, note in rows]))
            await store.noted([erasure_id for erasure_id, _ in rows], now())

    def add(self, notes: Iterable[ErasedNote]) -> None:
        """Write them down for good. Raises `OSError`."""
        lines = b"".join(msgspec.json.encode(attrs.asdict(note)) + b"\n" for note in notes)
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)
            add_lines(folder, lines)

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


def add_lines(folder: Path, lines: bytes) -> None:
    """Add lines to the file of a folder for good. Raises `OSError`."""
    file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, lines)
        os.fsync(file)
    finally:
        os.close(file)


def new_lines(text: bytes, known: bytes) -> bytes:
    """The lines of one file that another does not have, each with its end."""
    lines = dict.fromkeys(line for line in text.splitlines() if line)
    others = set(known.splitlines())
    return b"".join(line + b"\n" for line in lines if line not in others)
