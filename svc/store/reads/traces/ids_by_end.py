"""The ids of the traces of a range by their ends, from where ids stand side by side.

Reads the table `trace_id_block` of `svc.store.aggregates.trace_ids`, for `svc.store.reads.usage`. Half a
million ids take 10 ms, down the index on when traces began 50 (measured November 2026). A block that a range
cuts is read whole, so what began beside the range is to be told by its row. What the blocks do not cover is
read from the rows, under the same snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import attrs

from svc.domain.calendar import BEGINNING
from svc.store.aggregates.covered import FAR
from svc.store.postgres.database import Connection
from svc.store.postgres.threads import in_thread, work_through
from svc.store.reads.traces.trace_groups import grouped_hours

if TYPE_CHECKING:
    from svc.domain.queries.ids_by_end import IdsByEnd

#: Blocks of 32 KB that are fetched at once.
_BLOCKS: Final = 64


@attrs.frozen
class AskedIds:
    """Which ids are wanted: of traces that began in the half-open range, with such an end.

    `failed` are alone those of traces that failed. `most` are kept, those with the smallest ends.
    """

    low: datetime | None
    high: datetime | None
    most: int
    failed: bool = False
    limit: bytes | None = None
    ends: Sequence[bytes] | None = None


async def ids_by_end(connection: Connection, project_id: int, asked: AskedIds) -> IdsByEnd:
    """The ids, and how many there are; of traces that began near the range some more."""
    added = _Added(asked)
    low, high = asked.low or BEGINNING, asked.high or FAR
    built = None if asked.failed else await grouped_hours(connection, project_id)

    async def batches() -> AsyncIterator[list[bytes]]:
        if built is None:
            # In the index on when traces began, or that of those that failed, alone.
            failed = " and status = 'error'" if asked.failed else ""
            rows = await connection.fetch(
                "select string_agg(trace_id, '') as ids from trace where project_id = $1"
                f" and started_at >= $2 and started_at < $3{failed}",
                *(project_id, low, high),
            )
            yield [rows[0]["ids"] or b""]
            return
        # By the index on created_at.
        rows = await connection.fetch(
            "select string_agg(trace_id, '') as ids from unnest($4::timestamptz[], $5::timestamptz[])"
            " as stretch (low, high) cross join lateral (select trace_id from trace where project_id = $1"
            " and created_at >= stretch.low and created_at < stretch.high and started_at >= $2"
            " and started_at < $3 offset 0) as beside",
            *(project_id, low, high, [low for low, _ in built.raw], [high for _, high in built.raw]),
        )
        batch = [rows[0]["ids"] or b""]
        blocks = connection.cursor(
            "select ids from trace_id_block where project_id = $1 and last_started_at >= $2"
            " and first_started_at < $3 and hour < $4 and hour <> all($5::timestamptz[])",
            *(project_id, low, high, built.until, list(built.dirty)),
            prefetch=_BLOCKS,
        )
        async for block in blocks:
            batch.append(block["ids"])
            if len(batch) >= _BLOCKS:
                yield batch
                batch = []
        yield batch

    await work_through(batches(), added.add)
    return await in_thread(added.ids)


@attrs.define(eq=False)
class _Added:
    """The ids of all batches. numpy is loaded with the first of them."""

    asked: AskedIds
    _ids: IdsByEnd | None = attrs.field(default=None, init=False)

    def add(self, batch: list[bytes]) -> bool:
        self.ids().add(b"".join(batch))
        return True

    def ids(self) -> IdsByEnd:
        from svc.domain.queries.ids_by_end import IdsByEnd, ends_of

        if self._ids is None:
            asked = self.asked
            limit = None if asked.limit is None else int.from_bytes(asked.limit)
            self._ids = IdsByEnd(asked.most, limit, None if asked.ends is None else ends_of(asked.ends))
        return self._ids
