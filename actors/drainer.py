"""Drainers: lease batches from the spool, have them written, bury what cannot be written.

Owns nothing but the group in its hands. The wiring runs several of them over one spool. A drainer never
answers a client: whatever happens here happens after the acknowledgement.

Ordering: spans of one trace may pass through several drainers at once; the store's identity rule makes
the order irrelevant.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import attrs
import trio

from actors.ports import (
    Batch,
    BatchSink,
    Graveyard,
    Letter,
    Outage,
    SinkLost,
    Split,
    StoreRefused,
    WriteFailed,
    Written,
)
from actors.rounds import through_outages
from actors.spool.memory import MAX_TRIES, Lease, Spool, SpoolEmpty
from actors.supervision import Vitals

log = logging.getLogger(__name__)

T = TypeVar("T")


@attrs.frozen
class GroupSize:
    """What one transaction takes at most."""

    spans: int
    bytes: int


#: Enough to share the fixed costs of a transaction; more makes acknowledged spans wait longer to be queryable
#: and gains little.
GROUP: Final = GroupSize(1500, 16 * 1024 * 1024)
#: Where memory is short: in a flood a decoder held 70 MB instead of 103 (November 2026).
SMALL_GROUP: Final = GroupSize(400, 4 * 1024 * 1024)

#: A group of so many batches that is not even half full is one of small requests that come quickly. The next
#: is not begun before `PACE_S` after it, so that more of them share a transaction: with a request for each
#: span a group held 16 of them, and 80 this way, for half of the decoders' time a span (measured 2026-11-28).
MANY_BATCHES: Final = 8
PACE_S: Final = 0.1

#: Shorter at first: a spool fills meanwhile.
OUTAGE_PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)


@attrs.define
class Tally:
    """What the drainers did since the start. Shared by all of them; only they write it."""

    stored: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    groups: int = 0


@attrs.define(eq=False, repr=False, kw_only=True)
class Drainer:
    """One lane from the spool to the store."""

    _spool: Spool
    _split: Split
    _sink: BatchSink
    _graveyard: Graveyard
    _tally: Tally
    _vitals: Vitals
    _on_stored: Callable[[Batch], None]
    _group: GroupSize = GROUP

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Drain until the spool is closed and empty."""
        task_status.started()
        while True:
            try:
                lease = await self._spool.lease(self._group.spans, self._group.bytes)
            except SpoolEmpty:
                return
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSES_S[-1])
                continue
            began_s = trio.current_time()
            with lease:
                try:
                    await self._settle(lease)
                except SinkLost as lost:
                    # Without `done` the batches go back, to come again in smaller groups: one of them may be
                    # to blame.
                    log.warning("retrying %d batches: %s", len(lease.batches), lost)
                else:
                    lease.done()
            if self._is_crowded(lease):
                await trio.sleep_until(began_s + PACE_S)

    def _is_crowded(self, lease: Lease) -> bool:
        """Whether many batches make a small group."""
        return (
            len(lease.batches) >= MANY_BATCHES
            and 2 * sum(batch.spans for batch in lease.batches) < self._group.spans
            and 2 * lease.inflated_bytes < self._group.bytes
        )

    async def _settle(self, lease: Lease) -> None:
        """Make sure that every span of the lease is stored or buried."""
        if lease.letters:
            await self._bury(lease.letters)
            lease.buried()
            if not lease.batches:
                return
        if lease.tries >= MAX_TRIES:
            for batch in lease.batches:
                await self._take_apart(batch)
            return
        try:
            written = await self._through_outages(lambda: self._sink.write(lease.batches))
        except (Outage, SinkLost):
            raise
        except Exception as error:
            # The group is bad somewhere. Batch by batch, then span by span, finds where, and what is good
            # is stored. A bug in a mapping ends here as well: it must cost a span, not the service.
            log.warning(
                "a group of %d batches could not be written: %s", len(lease.batches), _loggable(error)
            )
            for batch in lease.batches:
                await self._take_apart(batch)
            return
        self._count(written, lease.batches)

    async def _take_apart(self, batch: Batch) -> None:
        """Write a batch alone; if it is refused, span by span, and bury the spans that are refused again."""
        try:
            written = await self._write_alone(batch)
        except StoreRefused:
            pass
        except Outage:
            raise
        except Exception as error:
            log.error("a batch of %d spans cannot be stored as a whole: %s", batch.spans, _loggable(error))
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
                    Letter(
                        batch.project_id,
                        _reason(_loggable(error)),
                        single.body,
                        batch.received_at,
                        single.spans,
                    )
                )
        if letters:
            await self._bury(letters)
        self._on_stored(batch)

    async def _bury(self, letters: Sequence[Letter]) -> None:
        await self._through_outages(lambda: self._graveyard.bury(letters))
        buried = sum(letter.spans for letter in letters)
        self._tally.dead_lettered += buried
        log.error("dead-lettered %d spans; see `trace-svc dead-letters list`", buried)

    async def _write_alone(self, batch: Batch) -> Written:
        for _ in range(MAX_TRIES - 1):
            # A writer that died may have died of its neighbour's data.
            with suppress(SinkLost):
                return await self._through_outages(lambda: self._sink.write([batch]))
        return await self._through_outages(lambda: self._sink.write([batch]))

    def _split_or_whole(self, batch: Batch) -> Sequence[Batch]:
        try:
            return self._split(batch)
        except Exception as error:
            log.error("a batch of %d spans cannot be split: %s", batch.spans, _loggable(error))
            return [batch]

    async def _through_outages(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do it, waiting through outages for as long as they last: an outage is no try of the batch."""
        return await through_outages(attempt, self._vitals, pauses_s=OUTAGE_PAUSES_S)

    def _count(self, written: Written, batches: Sequence[Batch]) -> None:
        self._tally.stored += written.stored
        self._tally.duplicates += written.duplicates
        self._tally.groups += 1
        for batch in batches:
            self._on_stored(batch)


def _loggable(error: Exception) -> StoreRefused | SinkLost | WriteFailed:
    """The error as one whose text may be logged."""
    return error if isinstance(error, StoreRefused | SinkLost | WriteFailed) else WriteFailed.of(error)


def _reason(error: StoreRefused | SinkLost | WriteFailed) -> str:
    """The error as its dead letter tells it."""
    return error.reason if isinstance(error, WriteFailed) else f"{type(error).__name__}: {error}"
