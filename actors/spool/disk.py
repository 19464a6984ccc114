"""Disk mode: a 200 means that the batch is fsynced on the local disk, with no broker.

Owns the file `spool.db` (SQLite, WAL, `synchronous=FULL`) and its byte budget. Offers wait in memory for the
next commit; one thread commits whatever has gathered meanwhile, so that concurrent requests share an fsync.
Stored batches are deleted in the same commits, and so are damaged ones once they lie among the dead letters.
After a crash `recover` finds what was not deleted; a batch
may then be written twice, which the identity rule of spans makes harmless.

A full disk, or one that cannot be written, is an outage: offers are answered `full`, nothing is lost, and the
writer tries again. The spool leaves the last `FLOOR_BYTES` of a disk alone, because the embedded database
may live on it and needs room to write down what the spool gives it.
The same room lets finished batches be deleted, which SQLite cannot do on a disk filled to the last byte.

Ordering: `recover` before the doors open; `DiskWriter` runs until the drainers have gone home.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trio

from actors.ports import Batch, Letter, Outage
from actors.spool.memory import Entry, Room, Spool, Ticket
from actors.supervision import Vitals
from protocol.operator import OperatorError
from protocol.spooled import Unpackable, outline, pack, unpack

#: What one commit takes at most; more would make the first offer of a group wait for the last.
COMMIT_BYTES: Final = 16 * 1024 * 1024
#: Free space below which offers are refused.
FLOOR_BYTES: Final = 128 * 1024 * 1024
_PAGE_BYTES: Final = 16 * 1024
RETRY_PAUSE_S: Final = 0.5


class SpoolInUse(OperatorError):
    """Another process holds the spool of this folder."""


class SpoolDamaged(OperatorError):
    """The spool file cannot be opened; the text says where it is and what to do."""


class DiskSpool(Spool):
    """A queue whose batches lie on disk; bodies stay in memory too, up to a budget of their own."""

    mode = "disk"
    durable = True

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        memory_bytes: int,
        floor_bytes: int = FLOOR_BYTES,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        super().__init__(max_bytes, clock=clock)
        self._folder, self._memory_bytes, self._floor_bytes = folder, memory_bytes, floor_bytes
        self._held_bytes = 0
        self._pending: deque[tuple[Entry, Ticket]] = deque()
        self._pending_bytes = 0
        self._doomed: list[int] = []
        self._in_commit = self._in_commit_bytes = 0
        self._work = trio.Event()
        self._disk = trio.CapacityLimiter(1)
        self._lock = -1
        self._db: sqlite3.Connection | None = None

    async def recover(self, now_s: float, wall_s: float) -> int:
        """Open the file and queue what an earlier process left. Returns the number of batches.

        `now_s` and `wall_s` are the same moment on the monotonic and the wall clock. Raises `SpoolInUse` and
        `SpoolDamaged`.
        """
        rows = await trio.to_thread.run_sync(self._open, limiter=self._disk)
        for row, spans, size, inflated, received_us in rows:
            age_s = max(0.0, wall_s - received_us / 1_000_000)
            self._waiting.append(Entry(None, spans, size, now_s - age_s, row=row, inflated_bytes=inflated))
            self._bytes += size
            self._recovered_spans += spans
            self._held_spans += spans
        return len(rows)

    async def shut(self) -> None:
        """Close the file. Call it when the writer has ended."""
        await trio.to_thread.run_sync(self._close, limiter=self._disk)

    async def commit_once(self) -> None:
        """Wait for work and commit it: new batches in, finished ones out. Raises `sqlite3.Error`.

        Cancellation: the thread is waited for, so a commit is never left half way; offers in hand go back
        and are committed by the next call.
        """
        await self._work.wait()
        self._work = trio.Event()
        group = self._next_group()
        doomed, self._doomed = self._doomed, []
        self._in_commit = len(group)
        self._in_commit_bytes = sum(entry.size_bytes for entry, _ in group)
        try:
            stored = await trio.to_thread.run_sync(
                self._commit, [entry for entry, _ in group], doomed, limiter=self._disk
            )
        except sqlite3.Error:
            self._doomed += doomed
            self._refuse(group)
            raise
        except BaseException:
            self._pending.extendleft(reversed(group))
            self._pending_bytes += sum(entry.size_bytes for entry, _ in group)
            self._doomed += doomed
            raise
        finally:
            self._in_commit = self._in_commit_bytes = 0
            if self._pending or self._doomed:
                self._work.set()
        for (entry, ticket), (row, size_bytes) in zip(group, stored, strict=True):
            self._bytes += size_bytes - entry.size_bytes
            entry.row, entry.size_bytes = row, size_bytes
            self._hold(entry)
            self._admit([entry])
            ticket.settle("accepted")
        if self._closed:
            self._lot.unpark_all()

    async def flush(self) -> None:
        """Wait until nothing waits for a commit any more; `DiskWriter` must be running."""
        while self._pending or self._doomed or self._in_commit:  # noqa: ASYNC110 - asked once, at the stop
            await trio.sleep(0.01)

    def offer(self, batch: Batch) -> Ticket:
        """As `Spool.offer`; also `full` while what waits for the disk uses up the memory budget."""
        if self._pending_bytes and self._pending_bytes + batch.size_bytes > self._memory_bytes:
            self._refused_full += 1
            return Ticket("full")
        return super().offer(batch)

    def _make_room(self, held_bytes: int, size_bytes: int) -> Room:
        """As `Spool._make_room`: bodies that lie on disk already give way to one that comes in."""
        arriving = self._in_memory() - self._held_bytes - held_bytes
        self._shed(self._memory_bytes - arriving - size_bytes)
        if not arriving and size_bytes <= self._max_bytes:
            # As with an offer, one body alone may be larger than the budget of memory.
            return "closed" if self._closed else "held"
        return super()._make_room(held_bytes, size_bytes)

    def _shed(self, bound_bytes: int) -> None:
        """Forget bodies that can be read from disk, the last first, until those in memory are within this."""
        for entry in reversed(self._waiting):
            if self._held_bytes <= bound_bytes:
                return
            if entry.batch is not None and entry.row is not None:
                self._held_bytes -= entry.batch.size_bytes
                entry.batch = None

    def _in_memory(self) -> int:
        return self._pending_bytes + self._in_commit_bytes + self._held_bytes + self._reserved

    def _memory_bound(self) -> int:
        return self._memory_bytes

    def _next_group(self) -> list[tuple[Entry, Ticket]]:
        group: list[tuple[Entry, Ticket]] = []
        size = 0
        while self._pending and (not group or size + self._pending[0][0].size_bytes <= COMMIT_BYTES):
            group.append(self._pending.popleft())
            size += group[-1][0].size_bytes
        self._pending_bytes -= size
        return group

    def _take(self, entry: Entry) -> Ticket:
        ticket = Ticket()
        self._pending.append((entry, ticket))
        self._pending_bytes += entry.size_bytes
        self._work.set()
        return ticket

    def _refuse(self, group: list[tuple[Entry, Ticket]]) -> None:
        """The disk did not take them: give their bytes back and let the clients come again."""
        for entry, ticket in group:
            self._bytes -= entry.size_bytes
            self._refused_full += 1
            ticket.settle("full")

    def _busy(self) -> bool:
        return bool(self._leased or self._pending or self._in_commit)

    def _hold(self, entry: Entry) -> None:
        """Keep the body in memory while there is room; a drainer reads it from disk otherwise."""
        assert entry.batch is not None
        if self._in_memory() + entry.batch.size_bytes > self._memory_bytes:
            entry.batch = None
        else:
            self._held_bytes += entry.batch.size_bytes

    async def _fetch(self, entries: list[Entry]) -> None:
        absent = [entry for entry in entries if entry.batch is None]
        if not absent:
            return
        try:
            batches = await trio.to_thread.run_sync(self._read, absent, limiter=self._disk)
        except sqlite3.Error as error:
            raise Outage(f"the spool cannot be read: {error}") from error
        for entry, batch in zip(absent, batches, strict=True):
            if isinstance(batch, Letter):
                entry.letter = batch
            else:
                entry.batch = batch
                self._held_bytes += batch.size_bytes

    def _free(self, entries: list[Entry]) -> None:
        super()._free(entries)
        self._held_bytes -= sum(entry.batch.size_bytes for entry in entries if entry.batch is not None)
        self._doomed += [entry.row for entry in entries if entry.row is not None]
        self._work.set()

    # What follows runs in threads, one at a time.

    def _open(self) -> list[tuple[int, int, int, int, int]]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "spool.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SpoolInUse(f"another process uses the spool in {self._folder}") from None
        path = self._folder / "spool.db"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # Not locked for others: a backup reads it meanwhile. FULL: a commit returns after its fsync.
            for pragma in (f"page_size={_PAGE_BYTES}", "journal_mode=wal"):
                self._db.execute(f"pragma {pragma}")
            self._db.execute("pragma synchronous=full")
            # The log may grow to a quarter of the floor, so that emptying it into the file always finds room.
            # Most batches are deleted again before they get that far.
            log_pages = max(16, self._floor_bytes // 4 // _PAGE_BYTES)
            self._db.execute(f"pragma wal_autocheckpoint={log_pages}")
            # One row a batch; `data` is what `protocol.spooled` packs.
            self._db.execute(
                "create table if not exists batch (id integer primary key, spans integer not null,"
                " received_us integer not null, data blob not null, inflated_bytes integer)"
            )
            self._measure_old_rows(self._db)
            # Everything that an earlier process accepted and did not finish, oldest first.
            return self._db.execute(
                "select id, spans, length(data), inflated_bytes, received_us from batch order by id"
            ).fetchall()
        except sqlite3.DatabaseError as error:
            raise SpoolDamaged(
                f"{path} cannot be opened ({error}); move it aside to start without the batches in it"
            ) from error

    @staticmethod
    def _measure_old_rows(db: sqlite3.Connection) -> None:
        """An earlier release did not write down what a batch inflates to; a damaged one does not say it."""
        # The columns of the file as it is.
        if not any(column[1] == "inflated_bytes" for column in db.execute("pragma table_info(batch)")):
            db.execute("alter table batch add column inflated_bytes integer")
        # One at a time: together they may be larger than memory.
        for (row,) in db.execute("select id from batch where inflated_bytes is null").fetchall():
            (data,) = db.execute("select data from batch where id = ?", (row,)).fetchone()
            try:
                inflated = outline(data).body_bytes + Batch.OVERHEAD_BYTES
            except Unpackable:
                inflated = len(data)
            db.execute("update batch set inflated_bytes = ? where id = ?", (inflated, row))

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            os.close(self._lock)
            self._db = None

    def _commit(self, entries: list[Entry], doomed: list[int]) -> list[tuple[int, int]]:
        """Store the entries and delete the finished rows. Returns row and size of each entry."""
        if entries and shutil.disk_usage(self._folder).free < self._floor_bytes:
            if doomed:
                self._transact([], [], doomed)
            raise sqlite3.OperationalError("the disk of the spool is nearly full")
        packed = [pack(entry.batch) for entry in entries if entry.batch is not None]
        return self._transact(entries, packed, doomed)

    def _transact(
        self, entries: list[Entry], packed: list[bytes], doomed: list[int]
    ) -> list[tuple[int, int]]:
        assert self._db is not None
        self._db.execute("begin immediate")
        try:
            stored = []
            for entry, data in zip(entries, packed, strict=True):
                assert entry.batch is not None
                received_us = int(entry.batch.received_at.timestamp() * 1_000_000)
                # One accepted batch.
                row = self._db.execute(
                    "insert into batch (spans, received_us, data, inflated_bytes) values (?, ?, ?, ?)",
                    (entry.spans, received_us, data, entry.inflated_bytes),
                ).lastrowid
                assert row is not None
                stored.append((row, len(data)))
            # Batches that are stored in the database by now.
            self._db.executemany("delete from batch where id = ?", [(row,) for row in doomed])
            self._db.execute("commit")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise
        return stored

    def _read(self, entries: list[Entry]) -> list[Batch | Letter]:
        """The batches by their rows; a damaged one as the letter that buries it, byte for byte as it lay."""
        assert self._db is not None
        batches: list[Batch | Letter] = []
        for entry in entries:
            # One batch by its row.
            row = self._db.execute(
                "select data, received_us from batch where id = ?", (entry.row,)
            ).fetchone()
            data, received_us = row or (b"", 0)
            try:
                if row is None:
                    raise Unpackable("a spooled batch is gone from the file of the spool")
                batches.append(unpack(data, received_s=entry.received_s))
            except Unpackable as damage:
                received_at = datetime.fromtimestamp(received_us / 1_000_000, UTC)
                # Whose it was cannot be trusted any more.
                batches.append(Letter(0, str(damage), bytes(data), received_at, entry.spans))
        return batches


class DiskWriter:
    """The actor behind the disk spool: commits until cancelled, waits while the disk cannot be written."""

    def __init__(self, *, spool: DiskSpool, vitals: Vitals) -> None:
        self._spool, self._vitals = spool, vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            try:
                await self._spool.commit_once()
            except sqlite3.Error as error:
                self._vitals.waits(f"the spool cannot be written: {error}")
                await trio.sleep(RETRY_PAUSE_S)
            else:
                self._vitals.works()
