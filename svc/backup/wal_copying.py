"""Copying the WAL of the embedded cluster into the folder of backups, round by round, as it is written.

Called by the actor that keeps the WAL. A round ends the segment that is being written, unless nobody wrote
anything, copies what is not there yet, and lets the server go on without it. The server keeps what was not
copied, up to a bound: beyond it the hold is given up, so that a folder that is full or away never fills the
disk of the database. Then the next physical backup begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

from protocol.backup import BackupRefused, CopiedWal
from svc.backup.folder import BackupFolder
from svc.backup.wal_folder import WalLine, WalReach, line_name
from svc.domain.quantities import size
from svc.store.backup.wal import WalHold, WalPlace
from svc.store.postgres.embedded.physical import branch_of
from svc.store.postgres.embedded.server import EmbeddedServer
from svc.store.postgres.embedded.wal_feed import end_of, is_segment

T = TypeVar("T")

#: So much may wait to be copied; a checkpoint keeps up to a quarter of it anyway.
WAITING_BYTES: Final = 4 * 1024**3
#: For what a round copies at most, on a slow disk; a folder that takes longer hangs.
COPY_TIMEOUT_S: Final = 900.0


@attrs.define(eq=False)
class WalCopier:
    """Copies the WAL of one server. One task calls it."""

    server: EmbeddedServer
    hold: WalHold
    folder: BackupFolder
    waiting_bytes: int = WAITING_BYTES
    #: Whoever writes after this transaction has something that is not copied.
    _xid: int = attrs.field(default=-1, init=False)
    #: How far the last round got.
    _reach: WalReach | None = attrs.field(default=None, init=False)
    #: A folder that hangs keeps one thread, not one each round.
    _copying: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), init=False)

    async def round(self) -> CopiedWal:
        """Copy what was written since the last one.

        Raises `BackupRefused`, `Outage`, `OSError`; the rest waits with the server.
        """
        position = await self.hold.place()
        line = WalLine(self.folder, line_name(position.system_id, branch_of(self.server.cluster)))
        try:
            return await self._round(position, line)
        except (BackupRefused, OSError):
            if position.waiting_bytes > self.waiting_bytes:
                await self.hold.let_go()
                raise BackupRefused(
                    f"{size(position.waiting_bytes)} of WAL could not be copied to {line.root}; the database"
                    " no longer keeps it, and moments until the next backup cannot be restored"
                ) from None
            raise

    async def _round(self, position: WalPlace, line: WalLine) -> CopiedWal:
        reach = self._reach
        if reach is not None and position.oldest_xid == position.next_xid == self._xid + 1:
            reach = WalReach(segment=reach.segment, ended_at=reach.ended_at, moment=position.moment)
            await self._written(partial(_note, line, reach))
            self._reach = reach
            return CopiedWal(segments=0, bytes=0, moment=reach.moment)
        segment = await self.hold.end_segment()
        wal = self.server.cluster.pgdata / "pg_wal"
        reach = WalReach(segment=segment.name, ended_at=segment.moment, moment=segment.moment)
        copy = partial(_copy, line, wal, position.first_segment, reach)
        count, copied_bytes = await self._written(copy)
        await self.hold.move_on(end_of(segment.name))
        self._xid, self._reach = segment.xid, reach
        return CopiedWal(segments=count, bytes=copied_bytes, moment=segment.moment)

    async def _written(self, write: Callable[[], T]) -> T:
        """What writing into the folder came to. Raises `BackupRefused` when it does not end."""
        try:
            with trio.fail_after(COPY_TIMEOUT_S):
                return await trio.to_thread.run_sync(write, abandon_on_cancel=True, limiter=self._copying)
        except trio.TooSlowError:
            raise BackupRefused(
                f"{self.folder.root} did not take the WAL within {COPY_TIMEOUT_S / 60:.0f} minutes"
            ) from None


def _note(line: WalLine, reach: WalReach) -> None:
    with line.held():
        line.reaches(reach)


def _copy(line: WalLine, wal: Path, first: str, reach: WalReach) -> tuple[int, int]:
    """Copy every segment up to the last of the reach. Returns how many, and their bytes there."""
    with line.held():
        copied = line.files()
        count = copied_bytes = 0
        for path in sorted(wal.iterdir()):
            if is_segment(path.name) and first <= path.name <= reach.segment and path.name not in copied:
                copied_bytes += line.add(path).bytes
                count += 1
        line.reaches(reach)
        return count, copied_bytes
