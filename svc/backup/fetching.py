"""One file of a backup from elsewhere: written beside its place, compared with its digest, then renamed.

It is never larger than the manifest says, and lies nowhere but below the folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from protocol.backup import BackupDamaged, StoredFile
from svc.backup.folder import BackupFolder

_PART_BYTES: Final = 8 * 1024 * 1024


async def fetch_file(
    read: Callable[[int, int], Awaitable[bytes]], folder: BackupFolder, file: StoredFile
) -> None:
    """Fetch a file by `read`, which takes a start and a length. Raises `BackupDamaged`, `OSError`."""
    draft = _Draft(folder, file)
    try:
        for start in range(0, file.bytes, _PART_BYTES):
            length = min(_PART_BYTES, file.bytes - start)
            part = await read(start, length)
            if len(part) != length:
                raise BackupDamaged(f"{file.path} is shorter there than the manifest says")
            await trio.to_thread.run_sync(draft.write, part)
        await trio.to_thread.run_sync(draft.done)
    finally:
        draft.discard()


class _Draft:
    """The file in the making. Its name is the file's own: several of one table are fetched at once."""

    def __init__(self, folder: BackupFolder, file: StoredFile) -> None:
        self._folder, self._wanted = folder, file
        self._path = folder.path_of(file)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._draft = self._path.with_name(f"{self._path.name}.part")
        fd = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self._file = open(fd, "wb")  # noqa: SIM115 - closed by `discard`
        self._digest = hashlib.sha256()

    def write(self, part: bytes) -> None:
        self._digest.update(part)
        self._file.write(part)

    def done(self) -> None:
        if not self._digest.hexdigest().startswith(self._wanted.sha256):
            raise BackupDamaged(f"{self._wanted.path} is damaged there: it is not what was written")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._draft.replace(self._path)
        self._folder.touched.add(self._path.parent)

    def discard(self) -> None:
        """Close it; what did not get its name goes."""
        self._file.close()
        self._draft.unlink(missing_ok=True)
