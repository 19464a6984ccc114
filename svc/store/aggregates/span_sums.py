"""Sums of a day of spans: one row for all that are alike in the fields it keeps, as segments of columns.

Called by `svc.store.aggregates.span_columns` while it writes a day, in the same transaction; read by
`svc.store.reads.questions.columns.segments` where a question asks for nothing else. Sums are kept where a day
has fewer of them than a fourth of what they are made from: a day whose spans all differ has none. Never says
anything that the columns of the day do not: what they cannot hold is not summed either.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import attrs

from svc.domain.columns.encoding import SELECTIONS, PackedColumn, Segment
from svc.store.postgres.database import Connection
from svc.store.postgres.threads import in_thread

#: The hour of the first selection; the others follow below it.
SUMMED: Final = -2
#: Sums are kept where there are so many fewer of them than of what they are made from.
FEWER: Final = 4
#: A day of fewer spans is added up as quickly as its sums are, and numpy stays unloaded.
FEW_SPANS: Final = 20_000

#: A project, a day of arrival, and its hour or what stands for one.
Place = tuple[int, datetime, int]


def hour_of_level(level: int) -> int:
    """What segments of a selection bear as their hour."""
    return SUMMED - level


@attrs.define
class DaySums:
    """The sums of one day that is being written, a segment after the other."""

    project_id: int
    day: datetime
    _rows: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(range(len(SELECTIONS)), 0))

    async def add(self, connection: Connection, began: datetime, part: int, segment: Segment) -> None:
        """Add up a segment of the day."""
        for level, sums in (await in_thread(_summed, segment, list(self._rows))).items():
            if sums is None:
                del self._rows[level]
                continue
            self._rows[level] += sums.rows
            await store_segment(
                connection, (self.project_id, self.day, hour_of_level(level)), began, part, sums
            )

    async def finish(self, connection: Connection, spans: int) -> int:
        """Keep the sums that are worth it for so many spans. Returns which selections, a bit each."""
        levels = 0
        before: dict[tuple[str, ...], int] = {}
        for level, selection in enumerate(SELECTIONS):
            rows = self._rows.get(level)
            if rows is not None and rows <= before.get(selection.keys, spans) // FEWER:
                levels |= 1 << level
                before[selection.keys] = rows
        dropped = [hour_of_level(level) for level in range(len(SELECTIONS)) if not levels >> level & 1]
        await connection.execute(
            "delete from span_column where project_id = $1 and day = $2 and hour = any($3::smallint[])",
            self.project_id,
            self.day,
            dropped,
        )
        return levels


def _summed(segment: Segment, levels: list[int]) -> dict[int, Segment | None]:
    """The sums of a segment by selection; None where they cannot be held, or are hardly fewer."""
    # numpy takes 9 MB and a tenth of a second, which a service without that many spans never needs.
    from svc.domain.columns.summing import summed

    sources: dict[tuple[str, ...], Segment] = {}
    sums: dict[int, Segment | None] = {}
    for level in levels:
        keys = SELECTIONS[level].keys
        # Few spans that came late are no reason to give the day up.
        most = segment.rows // FEWER if segment.rows >= FEW_SPANS else None
        sums[level] = summed(sources.get(keys, segment), level, most)
        # The next selection of the same keys is made from this one, which has fewer rows.
        sources[keys] = sums[level] or sources.get(keys, segment)
    return sums


async def store_segment(
    connection: Connection, place: Place, began: datetime, part: int, segment: Segment
) -> None:
    """Store a segment of a project, day and hour, and of the day on which its spans began."""
    for field, column in await in_thread(_packed, segment):
        await connection.execute(
            "insert into span_column (project_id, day, hour, began, part, field, spans, texts, codes)"
            " values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *(*place, began, part, field, segment.rows, column.values, column.codes),
        )


def _packed(segment: Segment) -> list[tuple[str, PackedColumn]]:
    # In a thread: packing a hundred thousand codes of all columns takes a few tenths of a second.
    return list(segment.packed())
