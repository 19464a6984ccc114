"""Drainers: lease batches from the spool, decode them, write them, bury what cannot be written.

Owns nothing but the group in its hands. The wiring runs several of them over one spool. A drainer never
answers a client: whatever happens here happens after the acknowledgement.

Ordering: spans of one trace may pass through several drainers at once; the store's identity rule makes
the order irrelevant.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from traceback import extract_tb
from typing import Final, TypeVar

import attrs
import trio

from actors.ports import Batch, Decode, Graveyard, Letter, Outage, Row, SpanSink, Split, StoreRefused, Written
from actors.spool import MAX_TRIES, Lease, Spool, SpoolEmpty
from actors.supervision import Vitals
from protocol.text import clean

log = logging.getLogger(__name__)

T = TypeVar("T")

#: One transaction takes up to this much: enough to share its fixed costs; more makes acknowledged spans
#: wait longer to be queryable and gains little.
GROUP_SPANS: Final = 1500
GROUP_BYTES: Final = 16 * 1024 * 1024

#: Rows decoded between two checkpoints: about 5 ms of work, so that requests are answered meanwhile.
BREATH_ROWS: Final = 50

OUTAGE_PAUSE_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)


@attrs.define
class Tally:
    """What the drainers did since the start. Shared by all of them; only they write it."""

    stored: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    groups: int = 0


class Drainer:
    """One lane from the spool to the store."""

    def __init__(
        self,
        *,
        spool: Spool,
        decode: Decode,
        split: Split,
        sink: SpanSink,
        graveyard: Graveyard,
        tally: Tally,
        vitals: Vitals,
        on_stored: Callable[[Batch], None],
    ) -> None:
        self._spool, self._decode, self._split, self._sink = spool, decode, split, sink
        self._graveyard = graveyard
        self._tally, self._vitals, self._on_stored = tally, vitals, on_stored

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Drain until the spool is closed and empty."""
        task_status.started()
        while True:
            try:
                lease = await self._spool.lease(GROUP_SPANS, GROUP_BYTES)
            except SpoolEmpty:
                return
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S[-1])
                continue
            with lease:
                await self._settle(lease)
                lease.done()

    async def _settle(self, lease: Lease) -> None:
        """Make sure that every span of the lease is stored or buried."""
        if lease.tries >= MAX_TRIES:
            for batch in lease.batches:
                await self._take_apart(batch)
            return
        try:
            rows = [row for batch in lease.batches for row in await self._rows(batch)]
            written = await self._through_outages(lambda: self._sink.write(rows))
        except Outage:
            raise
        except Exception as error:
            # The group is bad somewhere. Batch by batch, then span by span, finds where, and what is good
            # is stored. A bug in a mapping ends here as well: it must cost a span, not the service.
            log.warning("a group of %d batches could not be written: %s", len(lease.batches), _kind(error))
            for batch in lease.batches:
                await self._take_apart(batch)
            return
        self._count(written, lease.batches)

    async def _rows(self, batch: Batch) -> list[Row]:
        rows: list[Row] = []
        for row in self._decode(batch):
            rows.append(row)
            if not len(rows) % BREATH_ROWS:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        return rows

    async def _take_apart(self, batch: Batch) -> None:
        """Write a batch alone; if it is refused, span by span, and bury the spans that are refused again."""
        try:
            written = await self._write_alone(batch)
        except StoreRefused:
            pass
        except Outage:
            raise
        except Exception as error:
            log.error("a batch of %d spans cannot be stored as a whole: %s", batch.spans, _kind(error))
        else:
            self._count(written, [batch])
            return
        letters: list[Letter] = []
        for single in self._split_or_whole(batch):
            try:
                self._count(await self._write_alone(single), ())
            except Outage:
                raise
            except Exception as error:
                letters.append(
                    Letter(batch.project_id, _reason(error), single.body, batch.received_at, single.spans)
                )
        if letters:
            await self._through_outages(lambda: self._graveyard.bury(letters))
            buried = sum(letter.spans for letter in letters)
            self._tally.dead_lettered += buried
            log.error("dead-lettered %d spans; `trace-svc dead-letters list` says why", buried)
        self._on_stored(batch)

    async def _write_alone(self, batch: Batch) -> Written:
        rows = await self._rows(batch)
        return await self._through_outages(lambda: self._sink.write(rows))

    def _split_or_whole(self, batch: Batch) -> Sequence[Batch]:
        try:
            return self._split(batch)
        except Exception as error:
            log.error("a batch of %d spans cannot be taken apart: %s", batch.spans, _kind(error))
            return [batch]

    async def _through_outages(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do it, waiting through outages for as long as they last: an outage is no try of the batch."""
        outages = 0
        while True:
            try:
                result = await attempt()
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S[min(outages, len(OUTAGE_PAUSE_S) - 1)])
                outages += 1
            else:
                self._vitals.works()
                return result

    def _count(self, written: Written, batches: Sequence[Batch]) -> None:
        self._tally.stored += written.stored
        self._tally.duplicates += written.duplicates
        self._tally.groups += 1
        for batch in batches:
            self._on_stored(batch)


def _kind(error: Exception) -> str:
    """What may be logged of an error whose text may quote a payload: our own, else type and place."""
    if isinstance(error, StoreRefused):
        return str(error)
    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} ({place.filename}:{place.lineno})"


def _reason(error: Exception) -> str:
    """The error as PostgreSQL can hold it. It may quote any character, and burying must not fail of that."""
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    return clean(text)[:500]
