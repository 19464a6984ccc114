"""The spool: accepted batches between the doors and the drainers. Here: its common face, and memory mode.

Owns the queue, its byte budget and its counters. Both doors call `offer`, drainers call `lease`; it is a
passive object. It never decodes a batch. `disk_spool` adds a mode that survives a crash.

The budget counts a batch from the moment it is accepted until it is stored (contract §2): a leased batch
still counts, so the promise "full means 503" holds for what the drainers have in hand as well. A body that is
still on its way in counts too (`Reservation`): before, eight exporters at 60 of 64 MiB took the process from
96 to 579 MiB (measured 2026-11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar, Final, Literal

import attrs
import trio

from actors.ports import Batch, Letter, Offered

#: A batch that was put back this often is not tried again as a whole; it is taken apart.
MAX_TRIES: Final = 3
#: A group that was put back comes again in so many parts: one of it may be to blame, and the others must not
#: come one by one for that, each in a transaction of its own.
PARTS: Final = 8


#: What asking for room can answer; the words mean what they mean of an offer.
Room = Literal["held", "full", "never", "closed"]


class SpoolEmpty(Exception):
    """The spool is closed and nothing is left to lease: the drainers may go home."""


@attrs.frozen
class SpoolState:
    """A snapshot for health and metrics. Ages are seconds; `oldest_age_s` is 0 when nothing waits."""

    mode: str
    durable: bool
    depth: int
    bytes: int
    max_bytes: int
    oldest_age_s: float
    accepted_batches: int
    accepted_spans: int
    recovered_spans: int
    waiting_spans: int
    refused_full: int
    refused_never: int
    #: Held for bodies on their way in; not part of `bytes`.
    reserved_bytes: int = 0


class Ticket:
    """An offer on its way to an answer: already there in memory mode, after an fsync in a durable one.

    Cancellation: whoever stops waiting leaves the batch to its fate; it may be stored all the same, which
    the identity rule of spans makes harmless.
    """

    __slots__ = ("_answer", "_answered")

    def __init__(self, answer: Offered | None = None) -> None:
        self._answer: Offered | None = answer
        self._answered: trio.Event | None = None if answer is not None else trio.Event()

    def settle(self, answer: Offered) -> None:
        """Give the answer. Only the first counts."""
        if self._answer is None and self._answered is not None:
            self._answer = answer
            self._answered.set()

    @property
    def known(self) -> Offered | None:
        """The answer when it is there already."""
        return self._answer

    async def answer(self, timeout_s: float) -> Offered:
        """The answer; `full` when it takes too long."""
        if self._answered is not None:
            with trio.move_on_after(timeout_s):
                await self._answered.wait()
        return self._answer or "full"


@attrs.define(eq=False)
class Entry:
    """One batch in the queue. `row` and an absent batch belong to the disk spool.

    `size_bytes` is what it takes of the budget, `inflated_bytes` what of memory in a drainer's hands;
    they differ on disk, where batches are packed. `together` is how many may be leased at once with one
    that failed before; 0 is any number.
    """

    batch: Batch | None
    spans: int
    size_bytes: int
    received_s: float
    tries: int = 0
    together: int = 0
    row: int | None = None
    #: What became of a batch that cannot be read any more: it waits to be buried.
    letter: Letter | None = None
    inflated_bytes: int = attrs.field(kw_only=True)

    @inflated_bytes.default
    def _as_counted(self) -> int:
        return self.size_bytes


class Lease:
    """A group of batches in a drainer's hands. `done()` frees them; leaving without it puts them back.

    Cancellation: leaving by a cancellation or a crash puts the batches back at the head of the queue, in
    their old order, with one try more, to come again in `PARTS` smaller groups.
    """

    def __init__(self, spool: Spool, entries: list[Entry]) -> None:
        self._spool, self._entries, self._done = spool, entries, False

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The leased batches, oldest first."""
        return tuple(entry.batch for entry in self._entries if entry.batch is not None)

    @property
    def inflated_bytes(self) -> int:
        """What the group takes of memory in a drainer's hands."""
        return sum(entry.inflated_bytes for entry in self._entries)

    @property
    def tries(self) -> int:
        """How often each batch of the group failed before."""
        return self._entries[0].tries if self._entries else 0

    @property
    def letters(self) -> tuple[Letter, ...]:
        """The batches of the group that cannot be read any more, to be buried."""
        return tuple(entry.letter for entry in self._entries if entry.letter is not None)

    def buried(self) -> None:
        """The letters lie among the dead ones: they leave the lease, whatever becomes of the others."""
        damaged = [entry for entry in self._entries if entry.letter is not None]
        self._entries = [entry for entry in self._entries if entry.letter is None]
        self._spool._leased.difference_update(damaged)
        self._spool._free(damaged)

    def done(self) -> None:
        """Everything in the lease is stored, rejected or buried: free its bytes."""
        self._done = True

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool._returned(self._entries, done=self._done)


class Reservation:
    """Room in the memory budget for one body on its way in. Leaving the context gives it back, always.

    Cancellation: nothing here waits, so a door that is cancelled gives its room back by leaving.
    """

    __slots__ = ("_bytes", "_spool")

    def __init__(self, spool: Spool) -> None:
        self._spool, self._bytes = spool, 0

    def hold(self, size_bytes: int) -> Room:
        """Have room for this many bytes in all. What is held already stays held when there is no more."""
        if size_bytes <= self._bytes:
            return "held"
        answer = self._spool._make_room(self._bytes, size_bytes)
        if answer == "held":
            self._spool._reserved += size_bytes - self._bytes
            self._bytes = size_bytes
        return answer

    def release(self) -> None:
        """Give it all back: the body is a batch of the spool now, or is refused."""
        self._spool._reserved -= self._bytes
        self._bytes = 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Spool:
    """The queue behind every mode. A mode says how an offer becomes safe and what freeing it means."""

    mode: ClassVar[str]
    durable: ClassVar[bool]

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._max_bytes, self._clock = max_bytes, clock
        self._waiting: deque[Entry] = deque()
        self._leased: set[Entry] = set()
        self._bytes = self._reserved = 0
        self._closed = False
        self._lot = trio.lowlevel.ParkingLot()
        self._accepted_batches = self._accepted_spans = self._recovered_spans = 0
        self._refused_full = self._refused_never = self._held_spans = 0

    def offer(self, batch: Batch) -> Ticket:
        """Take the batch, or say why not: `full` (come again), `never` (too large), `closed` (stopping).

        Synchronous on purpose: in memory mode a door answers right after it, with no point at which a
        client that hangs up could cancel the handler between the two.
        """
        if batch.size_bytes > self._max_bytes:
            self._refused_never += 1
            return Ticket("never")
        if self._closed:
            return Ticket("closed")
        if self._bytes + self._reserved + batch.size_bytes > self._max_bytes:
            self._refused_full += 1
            return Ticket("full")
        self._bytes += batch.size_bytes
        return self._take(Entry(batch, batch.spans, batch.size_bytes, batch.received_s))

    def pressed(self) -> bool:
        """Whether the budget is used up, so that a door can refuse before it reads a body."""
        return self._closed or self._bytes + self._reserved >= self._max_bytes

    def reservation(self) -> Reservation:
        """Room for a body on its way in, none yet. A door holds it until it offers or refuses."""
        return Reservation(self)

    async def lease(self, max_spans: int, max_bytes: int) -> Lease:
        """Wait for work and take a group: at least one batch, then more while both limits allow, as inflated.

        Batches that failed before come in smaller groups each time, at last alone, and never with fresh ones,
        so that a bad one spoils ever fewer neighbours. Raises `SpoolEmpty` once the spool is closed and
        drained.
        """
        while not self._waiting:
            if self._closed and not self._busy():
                self._lot.unpark_all()
                raise SpoolEmpty
            await self._lot.park()
        first = self._waiting.popleft()
        group, spans, size = [first], first.spans, first.inflated_bytes
        while self._waiting and len(group) != first.together:
            following = self._waiting[0]
            if (
                following.tries != first.tries
                or spans + following.spans > max_spans
                or size + following.inflated_bytes > max_bytes
            ):
                break
            spans, size = spans + following.spans, size + following.inflated_bytes
            group.append(self._waiting.popleft())
        self._leased.update(group)
        try:
            await self._fetch(group)
        except BaseException:
            self._returned(group, done=False)
            raise
        return Lease(self, group)

    def close(self) -> None:
        """Take no more offers; `lease` goes on until nothing is left."""
        self._closed = True
        self._lot.unpark_all()

    @property
    def waiting_spans(self) -> int:
        """Spans that were accepted and are not stored yet; what `state` says of them, without the rest."""
        return self._held_spans

    def state(self) -> SpoolState:
        """A snapshot of depth, bytes, age and counters."""
        now = self._clock()
        oldest = min((entry.received_s for entry in self._leased), default=now)
        for entry in self._waiting:
            oldest = min(oldest, entry.received_s)
            if not entry.tries:
                # Fresh batches wait in their order; groups put back before them may have changed theirs.
                break
        return SpoolState(
            mode=self.mode,
            durable=self.durable,
            depth=len(self._waiting) + len(self._leased),
            bytes=self._bytes,
            max_bytes=self._max_bytes,
            oldest_age_s=max(0.0, now - oldest),
            accepted_batches=self._accepted_batches,
            accepted_spans=self._accepted_spans,
            recovered_spans=self._recovered_spans,
            waiting_spans=self._held_spans,
            refused_full=self._refused_full,
            refused_never=self._refused_never,
            reserved_bytes=self._reserved,
        )

    def _make_room(self, held_bytes: int, size_bytes: int) -> Room:
        """Whether a reservation may grow from what it holds to this size; refusals are counted here."""
        if size_bytes + Batch.OVERHEAD_BYTES > self._max_bytes:
            self._refused_never += 1
            return "never"
        if self._closed:
            return "closed"
        if self._in_memory() - held_bytes + size_bytes > self._memory_bound():
            self._refused_full += 1
            return "full"
        return "held"

    def _in_memory(self) -> int:
        """The bodies that are in memory now, those on their way in included."""
        return self._bytes + self._reserved

    def _memory_bound(self) -> int:
        return self._max_bytes

    def _take(self, entry: Entry) -> Ticket:
        """Make an offer safe; its bytes are counted already."""
        raise NotImplementedError

    def _admit(self, entries: Sequence[Entry]) -> None:
        """These are safe: count them and let drainers have them."""
        for entry in entries:
            self._accepted_batches += 1
            self._accepted_spans += entry.spans
            self._held_spans += entry.spans
            self._waiting.append(entry)
            self._lot.unpark()

    def _busy(self) -> bool:
        """Whether something may still come back or become safe after the spool was closed."""
        return bool(self._leased)

    async def _fetch(self, entries: list[Entry]) -> None:
        """Bring the batches of a lease into memory."""

    def _free(self, entries: list[Entry]) -> None:
        """These are done with for ever."""
        self._bytes -= sum(entry.size_bytes for entry in entries)
        self._held_spans -= sum(entry.spans for entry in entries)

    def _returned(self, entries: list[Entry], *, done: bool) -> None:
        self._leased.difference_update(entries)
        if done:
            self._free(entries)
        else:
            together = max(1, len(entries) // PARTS)
            for entry in reversed(entries):
                entry.tries, entry.together = entry.tries + 1, together
                self._waiting.appendleft(entry)
        # Every waiting drainer looks again: there may be work that came back, or nothing left at all.
        self._lot.unpark_all()


class MemorySpool(Spool):
    """A bounded in-process queue of batches. A restart loses what it holds; a clean stop drains it."""

    mode = "memory"
    durable = False

    def _take(self, entry: Entry) -> Ticket:
        self._admit([entry])
        return Ticket("accepted")
