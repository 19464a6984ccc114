"""The memory spool: accepted batches between the fronts and the drainers.

Owns the queue, its byte budget and its counters. Both fronts call `offer`, drainers call `lease`; it is a
passive object without a task of its own. It never decodes a batch and never waits for anything outside.

The budget counts a batch from the moment it is accepted until it is stored (contract §2): a leased batch
still counts, so the promise "full means 503" holds for what the drainers have in hand as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

import attrs
import trio

from actors.ports import Batch, Offered

#: A batch that was put back this often is not tried again as a whole; it is taken apart.
MAX_TRIES: Final = 3


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
    refused_full: int
    refused_never: int


@attrs.define(eq=False)
class _Entry:
    batch: Batch
    tries: int = 0


class Lease:
    """A group of batches in a drainer's hands. `done()` frees them; leaving without it puts them back.

    Cancellation: leaving by a cancellation or a crash puts the batches back at the head of the queue, in
    their old order, with one try more.
    """

    def __init__(self, spool: MemorySpool, entries: list[_Entry]) -> None:
        self._spool, self._entries, self._done = spool, entries, False

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The leased batches, oldest first."""
        return tuple(entry.batch for entry in self._entries)

    @property
    def tries(self) -> int:
        """How often the group failed before; a group with a try behind it holds one batch."""
        return max(entry.tries for entry in self._entries)

    def done(self) -> None:
        """Everything in the lease is stored, rejected or buried: free its bytes."""
        self._done = True

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool._returned(self._entries, done=self._done)


class MemorySpool:
    """A bounded in-process queue of batches. A restart loses what it holds; a clean stop drains it."""

    mode: Final = "memory"
    durable: Final = False

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._max_bytes, self._clock = max_bytes, clock
        self._waiting: deque[_Entry] = deque()
        self._leased: set[_Entry] = set()
        self._bytes = 0
        self._closed = False
        self._lot = trio.lowlevel.ParkingLot()
        self._accepted_batches = self._accepted_spans = self._refused_full = self._refused_never = 0

    def offer(self, batch: Batch) -> Offered:
        """Take the batch, or say why not: `full` (come again), `never` (too large), `closed` (stopping).

        Synchronous on purpose: a front answers right after it, with no point at which a client that hangs
        up could cancel the handler between the two.
        """
        if batch.size_bytes > self._max_bytes:
            self._refused_never += 1
            return "never"
        if self._closed:
            return "closed"
        if self._bytes + batch.size_bytes > self._max_bytes:
            self._refused_full += 1
            return "full"
        self._bytes += batch.size_bytes
        self._accepted_batches += 1
        self._accepted_spans += batch.spans
        self._waiting.append(_Entry(batch))
        self._lot.unpark()
        return "accepted"

    def pressed(self) -> bool:
        """Whether the budget is used up, so that a front can refuse before it reads a body."""
        return self._closed or self._bytes >= self._max_bytes

    async def lease(self, max_spans: int, max_bytes: int) -> Lease:
        """Wait for work and take a group: at least one batch, then more while both limits allow.

        A batch that failed before is leased alone, so that it cannot spoil its neighbours. Raises
        `SpoolEmpty` once the spool is closed and drained.
        """
        while not self._waiting:
            if self._closed and not self._leased:
                self._lot.unpark_all()
                raise SpoolEmpty
            await self._lot.park()
        group = [self._waiting.popleft()]
        spans, size = group[0].batch.spans, group[0].batch.size_bytes
        while self._waiting and not group[0].tries and not self._waiting[0].tries:
            following = self._waiting[0].batch
            if spans + following.spans > max_spans or size + following.size_bytes > max_bytes:
                break
            spans, size = spans + following.spans, size + following.size_bytes
            group.append(self._waiting.popleft())
        self._leased.update(group)
        return Lease(self, group)

    def close(self) -> None:
        """Take no more offers; `lease` goes on until nothing is left."""
        self._closed = True
        self._lot.unpark_all()

    def state(self) -> SpoolState:
        """A snapshot of depth, bytes, age and counters."""
        now = self._clock()
        oldest = min((e.batch.received_s for e in self._leased), default=now)
        for entry in self._waiting:
            oldest = min(oldest, entry.batch.received_s)
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
            refused_full=self._refused_full,
            refused_never=self._refused_never,
        )

    def _returned(self, entries: list[_Entry], *, done: bool) -> None:
        self._leased.difference_update(entries)
        if done:
            self._bytes -= sum(entry.batch.size_bytes for entry in entries)
        else:
            for entry in reversed(entries):
                entry.tries += 1
                self._waiting.appendleft(entry)
        # Every waiting drainer looks again: there may be work that came back, or nothing left at all.
        self._lot.unpark_all()
