"""Copying the WAL of the embedded cluster into the folder of backups, round by round, as it is written.

Called by the actor that keeps the WAL. A round ends the segment that is being written, unless nobody wrote
anything, copies what is not there yet, and lets the server go on without it. The server keeps what was not
copied, up to a bound: beyond it the hold is given up, so that a folder that is full or away never fills the
disk of the database. Then the next physical backup begins anew.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from protocol.backup import BackupRefused, CopiedWal
from svc.backup.folder import BackupFolder
from svc.backup.wal_folder import WalLine, WalReach, line_name
from svc.domain.quantities import size
from svc.store.backup.wal import EndedSegment, WalHold, WalPlace
from svc.store.postgres.embedded.physical import branch_of
from svc.store.postgres.embedded.server import EmbeddedServer
from svc.store.postgres.embedded.wal_feed import end_of, is_segment

#: So much may wait to be copied; a checkpoint keeps up to a quarter of it anyway.
WAITING_BYTES: Final = 4 * 1024**3


@attrs.define(eq=False)
class WalCopier:
    """Copies the WAL of one server. One task calls it."""

    server: EmbeddedServer
    hold: WalHold
    folder: BackupFolder
    waiting_bytes: int = WAITING_BYTES
    #: Whoever writes after this transaction has something that is not copied.
    _xid: int = attrs.field(default=-1, init=False)

    async def round(self) -> CopiedWal:
        """Copy what was written since the last one.

        Raises `BackupRefused`, `BackupDamaged`, `Outage`, `OSError`; the rest waits with the server.
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
        reach = await trio.to_thread.run_sync(line.reach)
        if reach is not None and position.oldest_xid == position.next_xid == self._xid + 1:
            reach = WalReach(segment=reach.segment, ended_at=reach.ended_at, moment=position.moment)
            await trio.to_thread.run_sync(_note, line, reach)
            return CopiedWal(segments=0, bytes=0, moment=reach.moment)
        segment = await self.hold.end_segment()
        wal = self.server.cluster.pgdata / "pg_wal"
        count, copied_bytes = await trio.to_thread.run_sync(
            partial(_copy, line, wal, position.first_segment, segment), abandon_on_cancel=True
        )
        await self.hold.move_on(end_of(segment.name))
        self._xid = segment.xid
        return CopiedWal(segments=count, bytes=copied_bytes, moment=segment.moment)


def _note(line: WalLine, reach: WalReach) -> None:
    with line.held():
        line.reaches(reach)


def _copy(line: WalLine, wal: Path, first: str, ended: EndedSegment) -> tuple[int, int]:
    """Copy every segment up to the one that was ended. Returns how many, and their bytes there."""
    with line.held():
        copied = line.files()
        count = copied_bytes = 0
        for path in sorted(wal.iterdir()):
            if is_segment(path.name) and first <= path.name <= ended.name and path.name not in copied:
                copied_bytes += line.add(path).bytes
                count += 1
        line.reaches(WalReach(segment=ended.name, ended_at=ended.moment, moment=ended.moment))
        return count, copied_bytes
