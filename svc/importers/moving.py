"""Moving a history in: page by page through the door's own checks, into the store, and counted at the end.

Called by `trace-svc import`. One page is in hand at a time, and one group of its spans is written at a time,
so memory is bounded by a page, and a service that runs beside it keeps its share of the database. Never
fetches, never prints.

Cancellation: between two pages, and within one the page is read again by the next run; what it had stored
already is met and left as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeVar

import attrs
import trio

from protocol.importing import StoredSums
from protocol.inflate import Unreadable
from protocol.otlp.admission import admit
from protocol.otlp.limits import Limits, OverLimit
from protocol.storage import Batch, Outage, StoreRefused, WriteFailed, Written
from svc.domain.intake.batches import StoredSpan
from svc.importers.journal import Journal, SourceSums
from svc.importers.source import Identity, ImportPage, ImportWindow, Source

#: Spans of one transaction: what a drainer takes together, so that ingest never waits for more.
GROUP_SPANS: Final = 500
#: How long a database that is away is waited for before the run gives up; the next one goes on.
PATIENCE_S: Final = 600.0
_PAUSE_S: Final = 2.0
#: Spans that are looked up at once when everything is counted.
_CHECKED_SPANS: Final = 2_000

TOO_LARGE: Final = "a request of the source is larger than the limits of ingest allow"
BY_DATABASE: Final = "the database refused it"

_T = TypeVar("_T")


class ImportStore(Protocol):
    """Where spans are stored, dated back, and found again. All verbs raise `Outage`."""

    async def write(self, spans: Sequence[StoredSpan], came: Callable[[StoredSpan], datetime]) -> Written:
        """Store them in one transaction. Raises `StoreRefused`, `WriteFailed`."""
        ...

    async def found(self, project_id: int, ids: Sequence[Identity], last_trace: bytes) -> StoredSums:
        """Those that are stored. `last_trace` was counted before."""
        ...


@attrs.frozen
class HistoryMove:
    """What a run needs. `expired_before` is when the project's term of retention begins, None for never.

    `store` is None for a run that only looks. `spans_a_s` bounds the speed; 0 is as fast as the store takes.
    """

    project_id: int
    source: Source
    decode: Callable[[Batch], Iterator[list[StoredSpan]]]
    store: ImportStore | None
    limits: Limits
    expired_before: datetime | None
    now: Callable[[], datetime]
    spans_a_s: float = 0.0
    #: Asked before each group: raises `OperatorError` when the disk must take no more.
    room: Callable[[], Awaitable[None]] | None = None
    #: Hears what is waited for.
    tell: Callable[[str], object] = lambda _line: None

    async def run(self, journal: Journal, tell: Callable[[str], object]) -> None:
        """Move everything behind the journal's cursor. Raises what the source raises, and `Outage`."""
        while True:
            page = await self.source.page(journal.window, journal.cursor)
            await self._take(page, journal)
            journal.moved.pages += 1
            journal.note(page.cursor, page.told)
            tell(_line(journal))
            if page.cursor is None:
                return

    async def compare(self, journal: Journal) -> tuple[SourceSums, StoredSums]:
        """What the source gave, and what of it is stored."""
        source_sums, stored_sums = journal.told(), StoredSums()
        if self.store is None:
            return source_sums, stored_sums
        for ids in journal.seen(_CHECKED_SPANS):
            group_sums = await self._patiently(
                partial(self.store.found, self.project_id, ids, stored_sums.last_trace)
            )
            stored_sums = StoredSums(
                stored_sums.spans + group_sums.spans,
                stored_sums.traces + group_sums.traces,
                stored_sums.tokens + group_sums.tokens,
                stored_sums.again + group_sums.again,
                stored_sums.unpriced + group_sums.unpriced,
                group_sums.last_trace,
            )
        return source_sums, stored_sums

    async def _take(self, page: ImportPage, journal: Journal) -> None:
        journal.moved.refuse(page.unread)
        spans = (span for body in page.bodies for span in self._decoded(*body, journal))
        while group := list(islice(spans, GROUP_SPANS)):
            began_s = trio.current_time()
            storable = [span for span in group if self._is_wanted(span, journal)]
            if storable and self.store is not None:
                if self.room is not None:
                    await self._patiently(self.room)
                await self._store(self.store, storable, page, journal)
            await trio.lowlevel.checkpoint()
            if self.spans_a_s:
                await trio.sleep_until(began_s + len(group) / self.spans_a_s)

    def _decoded(self, form: str, body: bytes, journal: Journal) -> Iterator[StoredSpan]:
        try:
            clean, screening = admit(body, form, self.limits, inline=False)  # type: ignore[arg-type]
        except OverLimit as over:
            journal.moved.refuse({f"{TOO_LARGE} ({over.limit})": 1})
            return
        except Unreadable as error:
            journal.moved.refuse({str(error): 1})
            return
        journal.moved.refuse(dict(screening.reasons))
        if screening.accepted:
            batch = Batch(self.project_id, clean, screening.accepted, self.now(), 0.0)
            for group in self.decode(batch):
                yield from group

    def _is_wanted(self, span: StoredSpan, journal: Journal) -> bool:
        """Whether to store it; whatever is read is counted."""
        moved, row = journal.moved, span.row
        moved.read += 1
        if not journal.window.holds(row.started_at):
            moved.outside += 1
            return False
        if self.expired_before is not None and row.started_at < self.expired_before:
            moved.expired += 1
            return False
        if row.kind == "llm" and row.provided_model_name is None:
            moved.without_model += 1
        if row.session_id is None:
            moved.without_session += 1
        moment = row.started_at.isoformat()
        moved.oldest = moment if moved.oldest is None else min(moved.oldest, moment)
        moved.newest = moment if moved.newest is None else max(moved.newest, moment)
        return True

    async def _store(
        self, store: ImportStore, spans: list[StoredSpan], page: ImportPage, journal: Journal
    ) -> None:
        def arrival_of(span: StoredSpan) -> datetime:
            arrived_at = page.came.get(span.row.trace_id + span.row.span_id)
            return arrived_at or span.row.ended_at or span.row.started_at

        try:
            written = await self._patiently(partial(store.write, spans, arrival_of))
        except (StoreRefused, WriteFailed):
            if len(spans) == 1:
                journal.moved.refuse({BY_DATABASE: 1})
                return
            # One of them is at fault: halves, until it stands alone.
            half = len(spans) // 2
            await self._store(store, spans[:half], page, journal)
            await self._store(store, spans[half:], page, journal)
            return
        journal.moved.stored += written.stored
        journal.moved.known += written.duplicates

    async def _patiently(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do it, waiting through an outage and saying so. Raises `Outage` when patience is at its end."""
        give_up_s = trio.current_time() + PATIENCE_S
        while True:
            try:
                return await work()
            except Outage as outage:
                left_s = give_up_s - trio.current_time()
                if left_s < 0:
                    raise
                self.tell(f"{outage}; trying again for {left_s:.0f} s")
                await trio.sleep(_PAUSE_S if outage.pause_s is None else outage.pause_s)


def _line(journal: Journal) -> str:
    moved = journal.moved
    summary = f"{moved.read:,} spans read, {moved.stored:,} stored, {moved.known:,} there already"
    return f"page {moved.pages:,}: {summary}"


def window_of(low: datetime | None, high: datetime | None, now: datetime) -> ImportWindow:
    """The window of an import that begins now; without an end it ends now, so that pages do not move."""
    return ImportWindow(low, now if high is None else min(high, now))
