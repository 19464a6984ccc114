"""The traces that have a span of a question, by the ends of their ids, as spans by column know them.

Called by `svc.store.reads.usage.compared_traces`, which looks for such ids in packed blocks: an end is half
an id, so a trace or two more may have it. Never needs a span's row but of hours that columns do not cover.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from svc.domain.columns.scan import Scan, SegmentColumns
from svc.store.postgres.database import Connection
from svc.store.postgres.threads import in_thread
from svc.store.reads.questions.columns.answers import ColumnReading
from svc.store.reads.questions.columns.asked import AskedColumns

if TYPE_CHECKING:
    from svc.domain.columns.smallest_ends import SmallestEnds


@attrs.frozen
class TraceEnds:
    """Ends of ids of traces, eight bytes each, in order: all below the limit, None for all there are."""

    ends: Sequence[bytes]
    limit: bytes | None


async def trace_ends(connection: Connection, asked: AskedColumns, most: int) -> TraceEnds | None:
    """Of the traces that have such a span the smallest `most` ends; None where columns do not know.

    The question's measure is `traces`.
    """
    reading = await ColumnReading.begin(connection, asked)
    if reading is None:
        return None
    added = _Added(reading.asked.scan, most)
    if not await reading.work_through(added.question, added.add, with_rows=True):
        return None
    ends = [end for _, rows in reading.rows for row in rows for end in row["splits"] or ()]
    return await in_thread(added.with_rows, ends)


@attrs.define(eq=False)
class _Added:
    """The ends of segments and rows. numpy is loaded with the first of them."""

    question: Scan
    most: int
    _smallest: SmallestEnds | None = attrs.field(default=None, init=False)

    def add(self, segments: list[SegmentColumns]) -> bool:
        from svc.domain.columns.scanning import add_ends

        add_ends(segments, self.question, self._ends())
        return True

    def with_rows(self, ends: Iterable[str]) -> TraceEnds:
        smallest = self._ends()
        smallest.add_texts(ends)
        return TraceEnds(*smallest.smallest())

    def _ends(self) -> SmallestEnds:
        from svc.domain.columns.smallest_ends import SmallestEnds

        if self._smallest is None:
            self._smallest = SmallestEnds(self.most)
        return self._smallest
