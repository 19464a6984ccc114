"""Sums of a day of spans: one row for all that are alike in the fields it keeps, as segments of columns.

Called by `svc.store.aggregates.span_columns` when it writes a day, in the same transaction; read by
`svc.store.reads.column_segments` where a question asks for nothing else. Sums are kept where they have fewer
rows than a fourth of what they are made from: a day whose spans all differ has none. Never says anything
that the columns of the day do not: what they cannot hold is not summed either.

Measured November 2026 over 333,000 spans a day: see deploy/BENCHMARKS.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

from svc.domain.columns.encoding import (
    ARRIVED,
    BEGAN,
    COST,
    COST_REST,
    COUNTED,
    MOST,
    MOST_ROWS,
    PRICED,
    SUMMED_FIELDS,
    SUMS,
    TOKENS,
    UNPRICED,
    Segment,
)
from svc.store.postgres.database import Connection

#: The hour of the first selection of fields; the others follow below it.
SUMMED: Final = -2
#: Sums are kept where there are so many fewer of them than of what they are made from.
FEWER: Final = 4
#: A day of fewer spans is added up as quickly as its sums are.
FEW_SPANS: Final = 2_000
BATCH_ROWS: Final = 8_192

#: What a row adds up, over the columns of numbers of its spans. What the column of
#: each span holds may be too large in the sum.
_SUMS_SQL: Final[Mapping[str, str]] = {
    COUNTED: "count(*)",
    COST: f"sum(c_{COST})",
    COST_REST: f"coalesce(sum(c_{COST_REST}), 0)",
    PRICED: f"count(c_{COST})",
    UNPRICED: f"coalesce(sum(c_{UNPRICED}), 0)",
    **{name: f"sum(c_{name})" for name in TOKENS},
}
assert tuple(_SUMS_SQL) == SUMS


def hour_of_level(level: int) -> int:
    """What segments of a selection of fields bear as their hour."""
    return SUMMED - level


async def write_sums(
    connection: Connection,
    project_id: int,
    day: datetime,
    until: datetime,
    spans: int,
    columns_sql: Mapping[str, str],
) -> int:
    """Write the sums of a day whose columns are written. Returns which selections it has, a bit each."""
    levels, rows_before = 0, spans
    if spans < FEW_SPANS:
        return 0
    for level in range(len(SUMMED_FIELDS)):
        rows = await _write(connection, (project_id, day, until), level, rows_before // FEWER, columns_sql)
        if rows is not None:
            levels |= 1 << level
            rows_before = rows
    return levels


async def _write(
    connection: Connection,
    stretch: tuple[int, datetime, datetime],
    level: int,
    most: int,
    columns_sql: Mapping[str, str],
) -> int | None:
    """Write one selection. Returns how many rows it has; None where those are too many, or cannot be held."""
    project_id, day, _ = stretch
    names = (*SUMMED_FIELDS[level], ARRIVED, BEGAN, *SUMS)
    place = project_id, day, hour_of_level(level)
    rows = part = 0
    began: datetime | None = None
    segment = Segment(names)
    async for row in _batches(connection, stretch, level, most, columns_sql):
        rows += row["n"]
        if rows > most or not row["holds"]:
            await connection.execute(
                "delete from span_column where project_id = $1 and day = $2 and hour = $3", *place
            )
            return None
        if began is not None and (row["day_began"] != began or segment.rows + row["n"] > MOST_ROWS):
            await store_segment(connection, place, began, part, segment)
            part = part + 1 if row["day_began"] == began else 0
            segment = Segment(names)
        began = row["day_began"]
        segment.extend(row["n"], [row[f"c_{name}"] for name in names])
    if began is not None:
        await store_segment(connection, place, began, part, segment)
    return rows


async def _batches(
    connection: Connection,
    stretch: tuple[int, datetime, datetime],
    level: int,
    most: int,
    columns_sql: Mapping[str, str],
) -> AsyncIterator[Any]:
    """The rows of a selection by the day on which their spans began, in batches; one too many at most."""
    keys = (*SUMMED_FIELDS[level], ARRIVED, BEGAN)
    # The columns of each span, what is alike among them, and batches of that.
    plain = ", ".join(
        f"{columns_sql[name]} as c_{name}" for name in (*keys, COST, COST_REST, UNPRICED, *TOKENS)
    )
    grouped = ", ".join(f"c_{name}" for name in keys)
    sums = ", ".join(f"{sql} as s_{name}" for name, sql in _SUMS_SQL.items())
    listed = ", ".join(
        [f"array_agg(c_{name}) as c_{name}" for name in keys]
        + [
            f"array_agg((case when s_{name} <= {MOST} then s_{name} end)::bigint) as c_{name}"
            for name in SUMS
        ]
    )
    holds = " and ".join(f"coalesce(max(s_{name}), 0) <= {MOST}" for name in SUMS)
    rows = connection.cursor(
        f"select day_began, count(*)::integer as n, {holds} as holds, {listed} from ("
        f" select *, (row_number() over (partition by day_began order by {grouped}) - 1) / {BATCH_ROWS}"
        f" as batch from (select day_began, {grouped}, {sums} from (select"
        f" date_trunc('day', started_at, 'UTC') as day_began, {plain} from span"
        " where project_id = $1 and created_at >= $2 and created_at < $3"
        f") as listed group by day_began, {grouped} limit {most + 1}) as summed) as batched"
        " group by day_began, batch order by day_began, batch",
        *stretch,
        prefetch=1,
    )
    async for row in rows:
        yield row


async def store_segment(
    connection: Connection,
    place: tuple[int, datetime, int],
    began: datetime,
    part: int,
    segment: Segment,
) -> None:
    """Store a segment of a project, day and hour, and of the day on which its spans began."""
    # One column at a time: packing a million codes takes a few hundredths of a second.
    for field, column in segment.packed():
        await connection.execute(
            "insert into span_column (project_id, day, hour, began, part, field, spans, texts, codes)"
            " values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *(*place, began, part, field, segment.rows, column.values, column.codes),
        )
