"""Answers from spans by column: any measure, filters, buckets and group, by arrival or by event time.

Called by `svc.store.reads.questions.query` where the cubes do not know the answer. Columns serve whole hours
of arrival (`segments`); what they do not cover, and the hours that a range cuts, are read from the rows under
the same snapshot (`rows`), and both are added up as cells (`svc.domain.columns`). Never answers what needs
the id of a trace or span, minutes, or fewer spans than a look at the rows is quick for.

Durations are counted by bin then: a percentile is within one per cent; from rows alone it is exact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs

from svc.domain.calendar import EPOCH
from svc.domain.columns.scan import Scan, SegmentColumns, read_together
from svc.domain.columns.totals import Cell, Key
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.threads import in_thread, work_through
from svc.store.reads.questions.columns.asked import AskedColumns, Grouping, asked_of_columns
from svc.store.reads.questions.columns.rows import read_alike, read_rows, row_cells
from svc.store.reads.questions.columns.segments import Cover, hours_by_column, segments_of
from svc.store.reads.questions.questions import Question

if TYPE_CHECKING:
    from svc.domain.columns.segment_sums import SegmentSums

#: The cells of an answer, by the beginning of their bucket and by value.
Cells = Mapping[tuple[datetime | None, str | None], Cell]

#: Cells that an answer may have.
MOST_CELLS: Final = 100_000

_HOUR: Final = timedelta(hours=1)


async def column_cells(
    database: Database, question: Question, grouping: Grouping, timeout_s: float
) -> Cells | None:
    """The cells of an answer; None where the rows are to be asked instead.

    The question is one that `columns_know`. Raises `Outage`.
    """
    asked = await asked_of_columns(database, question, grouping)
    return await database.run(
        lambda connection: cells_within(connection, asked), readonly=True, snapshot=True, timeout_s=timeout_s
    )


async def cells_within(connection: Connection, asked: AskedColumns) -> Cells | None:
    """The same under the snapshot of the caller."""
    reading = await ColumnReading.begin(connection, asked)
    cells = None if reading is None else await _cells(reading)
    if cells is None:
        return None
    moments = {bucket: None if bucket is None else EPOCH + bucket * _HOUR for bucket, _value in cells}
    return {(moments[bucket], value): cell for (bucket, value), cell in cells.items()}


async def _cells(reading: ColumnReading) -> dict[Key, Cell] | None:
    """The cells of all measures; None where the rows are to be asked instead."""
    groups = read_together(reading.asked.measures)
    added = [_Added(attrs.evolve(reading.asked, measures=measures).scan) for measures in groups]
    for adder in added[:-1]:
        if not await reading.work_through(adder.question, adder.add):
            return None
    if not await reading.work_through(added[-1].question, added[-1].add, with_rows=True):
        return None

    def put_together() -> dict[Key, Cell]:
        # One snapshot for all, so all have the same cells.
        cells = _beside(adder.cells() for adder in added)
        rows = (row_cells(*of_measures) for of_measures in reading.rows)
        for key, cell in _beside(rows).items():
            cells.setdefault(key, Cell()).add(cell)
        return cells

    cells = await in_thread(put_together)
    return cells if len(cells) <= MOST_CELLS else None


def _beside(parts: Iterable[Mapping[Key, Cell]]) -> dict[Key, Cell]:
    """Cells of the same spans, each part with other measures."""
    cells: dict[Key, Cell] = {}
    for part in parts:
        for key, cell in part.items():
            cells[key] = cells[key].beside(cell) if key in cells else cell
    return cells


@attrs.define(eq=False)
class ColumnReading:
    """One question read under one snapshot: what columns serve of it, and the rows beside them.

    `rows` are those that were read, with what each statement of them was asked for.
    """

    connection: Connection
    asked: AskedColumns
    cover: Cover
    rows: list[tuple[AskedColumns, Sequence[Any]]] = attrs.field(factory=list, init=False)

    @classmethod
    async def begin(cls, connection: Connection, asked: AskedColumns) -> ColumnReading | None:
        """None where rows are as quick."""
        question = asked.question
        by_event_time, high = question.by_event_time, question.high
        stretch = (None, None) if by_event_time else (question.low, high)
        began_before = high if by_event_time else None
        cover = await hours_by_column(connection, question.project_id, stretch, began_before)
        if cover is None:
            return None
        # A range of event time that ends now: nothing in columns began later, so its last hour need not be
        # looked for in rows a second time by when it began.
        to_end_of_hour = began_before is not None and cover.latest < began_before
        return cls(connection, attrs.evolve(asked, to_end_of_hour=to_end_of_hour), cover)

    async def work_through(
        self, scan: Scan, add: Callable[[list[SegmentColumns]], bool], *, with_rows: bool = False
    ) -> bool:
        """Give all segments of a scan to `add`, in a thread, and read the rows beside them where it is said.

        False where the rows are to be asked instead: columns know too little, `add` says that it is enough,
        or there are too many parts.
        """
        segments = await segments_of(self.connection, self.cover, scan)
        if segments is None:
            return False
        few_parts = True

        async def batches() -> AsyncIterator[list[SegmentColumns]]:
            nonlocal few_parts
            async for batch in segments:
                yield batch
            # While the last of them are added up: each takes a few hundredths of a second at ten million.
            if with_rows:
                few_parts = await self._read_rows()

        return await work_through(batches(), add) and few_parts

    async def _read_rows(self) -> bool:
        for measures in read_alike(self.asked.measures):
            asked = attrs.evolve(self.asked, measures=measures)
            rows = await read_rows(self.connection, asked, self.cover)
            if rows is None:
                return False
            self.rows.append((asked, rows))
        return True


@attrs.define(eq=False)
class _Added:
    """What segments come to. numpy takes 9 MB and a tenth of a second, so it is loaded with the first one."""

    question: Scan
    _segment_sums: SegmentSums | None = attrs.field(default=None, init=False)

    def add(self, segments: Sequence[SegmentColumns]) -> bool:
        """Add these. Whether the answer may have so many cells."""
        from svc.domain.columns.scanning import scan
        from svc.domain.columns.segment_sums import SegmentSums

        if self._segment_sums is None:
            self._segment_sums = SegmentSums(self.question)
        return scan(segments, self._segment_sums) <= MOST_CELLS

    def cells(self) -> dict[Key, Cell]:
        """All of it."""
        cells: dict[Key, Cell] = {}
        if self._segment_sums is not None:
            self._segment_sums.add_to(cells)
        return cells
