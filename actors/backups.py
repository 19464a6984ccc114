"""The nightly backup: at its hour each day, and at once when the last hour passed without one; the WAL since.

Owns the rhythm and the tally; making a backup is a process of its own that the wiring hands in, and so is
copying it to an object store. Never holds up anything: a backup that fails leaves the earlier ones as they
are and is tried again an hour later, and so is a copy, whatever becomes of backups meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, time, timedelta
from typing import Any, Final

import attrs
import trio

from actors.rounds import Rounds
from actors.supervision import Vitals
from protocol.backup import CopiedWal

log = logging.getLogger(__name__)

#: The clock is looked at this often: it may be set, and nights may have no such hour.
LOOK_S: Final = 60.0
RETRY_S: Final = 3600.0
#: A last good backup that is older is told of.
OVERDUE: Final = timedelta(hours=26)


@attrs.define
class BackupTally:
    """What became of the nightly backups since the start of this process."""

    runs: int = 0
    failures: int = 0
    #: When the newest good one was made, by this process or another.
    last_good_at: datetime | None = None
    last_error: str | None = None
    #: Whether this process has looked into the folder yet.
    looked: bool = False
    under_way: bool = False
    overdue: bool = False
    #: Copies to an object store: how many were tried, how many failed, and when the last good one ended.
    copies: int = 0
    copy_failures: int = 0
    copied_at: datetime | None = None
    last_copy_error: str | None = None
    copying: bool = False
    #: Segments of the WAL that were copied, their bytes in the folder, how many rounds failed, and the moment
    #: up to which everything is there.
    wal_segments: int = 0
    wal_bytes: int = 0
    wal_failures: int = 0
    wal_copied_until: datetime | None = None
    last_wal_error: str | None = None

    @property
    def trouble(self) -> str | None:
        """What is wrong with the last backup, with its copy, or with the WAL."""
        if self.last_error is not None:
            return self.last_error
        if self.last_copy_error is not None:
            return f"the copy in the object store failed: {self.last_copy_error}"
        if self.last_wal_error is not None:
            return f"the WAL was not copied: {self.last_wal_error}"
        return None

    def snapshot(self) -> dict[str, Any]:
        """The tally as health shows it."""
        return attrs.asdict(self)


def last_hour(now: datetime, at: time) -> datetime:
    """When a backup was due last."""
    today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


@attrs.define(eq=False, repr=False, kw_only=True)
class NightlyBackup(Rounds):
    """Makes a backup a day. `newest` is when the last good one was made; `make` says what went wrong.

    `copy` copies what there is elsewhere, once at the start and after each backup, and says what went wrong.
    """

    _at: time
    _newest: Callable[[], Awaitable[datetime | None]]
    _make: Callable[[], Awaitable[str | None]]
    _now: Callable[[], datetime]
    _tally: BackupTally
    _vitals: Vitals
    _copy: Callable[[], Awaitable[str | None]] | None = None
    _copied: datetime | None = attrs.field(default=None, init=False)
    _no_backup_until_s: float = attrs.field(default=0.0, init=False)
    _no_copy_until_s: float = attrs.field(default=0.0, init=False)

    async def _turn(self) -> float:
        tally = self._tally
        tally.last_good_at = await self._newest()
        tally.looked = True
        due = tally.last_good_at is None or tally.last_good_at < last_hour(self._now(), self._at)
        if due and trio.current_time() >= self._no_backup_until_s:
            await self._back_up()
        if (
            self._copy is not None
            and tally.last_good_at not in (None, self._copied)
            and trio.current_time() >= self._no_copy_until_s
        ):
            await self._copy_away(self._copy)
        self._watch()
        return LOOK_S

    async def _back_up(self) -> None:
        tally = self._tally
        tally.under_way = True
        try:
            fault = await self._make()
        finally:
            tally.under_way = False
        tally.runs += 1
        tally.last_error = fault
        if fault is None:
            tally.last_good_at = await self._newest()
            log.info("the nightly backup is done")
            return
        tally.failures += 1
        self._no_backup_until_s = trio.current_time() + RETRY_S
        log.warning("the nightly backup failed: %s; next attempt in an hour", fault)

    async def _copy_away(self, copy: Callable[[], Awaitable[str | None]]) -> None:
        tally, copied = self._tally, self._tally.last_good_at
        tally.copying = True
        try:
            fault = await copy()
        finally:
            tally.copying = False
        tally.copies += 1
        tally.last_copy_error = fault
        if fault is None:
            self._copied, tally.copied_at = copied, self._now()
            log.info("the backups are copied to the object store")
            return
        tally.copy_failures += 1
        self._no_copy_until_s = trio.current_time() + RETRY_S
        log.warning("the copy of the backups failed: %s; next attempt in an hour", fault)

    def _watch(self) -> None:
        good = self._tally.last_good_at
        overdue = good is not None and self._now() - good > OVERDUE
        if overdue and not self._tally.overdue:
            log.warning("the last good backup is of %s, more than 26 hours ago", good)
        self._tally.overdue = overdue


@attrs.define(eq=False, repr=False, kw_only=True)
class WalKeeper(Rounds):
    """Has the WAL of the embedded database copied every so often; `copy` does it, or says what went wrong.

    What was not copied waits with the server, so that the next round brings it.
    """

    _every_s: float
    _copy: Callable[[], Awaitable[CopiedWal | str]]
    _tally: BackupTally
    _vitals: Vitals

    async def _turn(self) -> float:
        tally, copied = self._tally, await self._copy()
        if isinstance(copied, str):
            tally.wal_failures += 1
            if tally.last_wal_error is None:
                log.warning("the WAL was not copied: %s; next attempt in %.0f s", copied, self._every_s)
            tally.last_wal_error = copied
            return self._every_s
        if tally.last_wal_error is not None:
            log.info("the WAL is copied again")
        tally.last_wal_error = None
        tally.wal_segments += copied.segments
        tally.wal_bytes += copied.bytes
        tally.wal_copied_until = copied.moment
        return self._every_s
