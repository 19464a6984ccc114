"""Spans by column: written for each hour that the cube builder counts, and for each day that is over.

Owns the tables `span_column`, with `span_slices`, and `span_column_day`, which are read by
`svc.store.reads.questions.columns.segments`. An hour's bit in `span_column_day` says that its columns are
right as far as the cubes are, whose marks of changed hours hold here too. A changed hour of a day that stands
as a whole loses its bit and is read row by row until the day is written anew, which waits for an hour without
changes: a duplicate now and then shall not write a day each time. A day that is over is added up as well
(`span_sums`). When the last span of a day began is known where `latest_at` is `changed_at`: the release
before changes a day and does not say it.

Bounded: rows come in batches of `BATCH_ROWS`, which the event loop takes in a few milliseconds, and a segment
ends at `MOST_ROWS` spans: building an hour of 400,000 spans takes 22 MB (November 2026). An hour with a cost
that no column can hold has no bit, so its rows are read.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from svc.domain.calendar import EPOCH
from svc.domain.columns.encoding import (
    ARRIVED,
    BEGAN,
    COLUMNS,
    COST,
    COST_DIGITS,
    COST_REST,
    COST_REST_DIGITS,
    DURATION,
    DURATION_RATIO,
    DURATION_UNIT_MS,
    MOST_ROWS,
    TEXTS,
    TOKENS,
    TRACE,
    UNPRICED,
    Segment,
)
from svc.store.aggregates.closed_hours import BUILD_TIMEOUT_S
from svc.store.aggregates.projects import lock_builder
from svc.store.aggregates.span_sums import FEW_SPANS, DaySums, store_segment
from svc.store.postgres.database import Connection, Database

BATCH_ROWS: Final = 2_048
#: A day whose hours changed is written anew once it has been left alone for so long.
DAY_QUIET: Final = timedelta(hours=1)
ALL_HOURS: Final = (1 << 24) - 1
#: The hour of columns that hold a whole day.
WHOLE: Final = -1
#: Hours from here on are slices of five minutes, from midnight on (`span_slices`).
FIRST_SLICE: Final = 100

#: Stands for a change that never was long enough ago.
NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)

_DAY: Final = timedelta(days=1)

#: What the columns of numbers hold, in SQL over `span`. Usage that repeats another span's is none.
_OWN: Final = "usage_repeats is null"
_HOUR_OF: Final = "extract(hour from {} at time zone 'UTC')::bigint"
DURATION_BIN: Final = (
    f"floor(ln(greatest(extract(epoch from ended_at - started_at)::float8 * 1000, {DURATION_UNIT_MS!r})"
    f" / {DURATION_UNIT_MS!r}) / ln({DURATION_RATIO!r}::float8) + 1e-9)::bigint"
)
#: The largest cost of a span that a column holds; rows with more have none of it.
_MOST_COST: Final = "9e6"
_COST: Final = f"case when {_OWN} and total_cost >= 0 and total_cost < {_MOST_COST} then total_cost end"
_COST_WHOLE: Final = f"trunc({_COST} * 1e{COST_DIGITS})"
NUMBERS_SQL: Final[dict[str, str]] = {
    ARRIVED: _HOUR_OF.format("created_at"),
    BEGAN: _HOUR_OF.format("started_at"),
    DURATION: DURATION_BIN,
    COST: f"({_COST_WHOLE})::bigint",
    COST_REST: f"coalesce((({_COST} * 1e{COST_DIGITS} - {_COST_WHOLE})"
    f" * 1e{COST_REST_DIGITS - COST_DIGITS})::bigint, 0)",
    UNPRICED: f"case when {_OWN} and span_priced_by(cost_source, total_cost, price_book) = 'unpriced'"
    " then 1 else 0 end",
    **{name: f"case when {_OWN} then {name} end" for name in TOKENS},
}
TRACE_SQL: Final = "encode(substring(trace_id from 9), 'hex')"

#: That a row can be held: a cost of a sane size and so many digits, and no tokens below nothing.
_HOLDS: Final = (
    f"(total_cost is null or total_cost >= 0 and total_cost < {_MOST_COST}"
    f" and scale(trim_scale(total_cost)) <= {COST_REST_DIGITS})"
    f" and coalesce(least({', '.join(TOKENS)}), 0) >= 0"
)

_SQL_OF: Final = {name: name for name in TEXTS} | {TRACE: TRACE_SQL} | NUMBERS_SQL
#: Rows of a stretch by the day on which they began, like ones side by side, in batches.
_ROWS: Final = (
    f"select day_began, count(*)::integer as n, bool_and(holds) as holds, max(started_at) as latest,"
    f" {', '.join(f'array_agg(c_{name}) as c_{name}' for name in COLUMNS)} from (select started_at,"
    f" date_trunc('day', started_at, 'UTC') as day_began, {_HOLDS} as holds,"
    f" {', '.join(f'{_SQL_OF[name]} as c_{name}' for name in COLUMNS)}, (row_number() over ("
    " partition by date_trunc('day', started_at, 'UTC')"
    " order by date_trunc('hour', started_at, 'UTC'), kind, name, call_site_id, status) - 1)"
    " / $4::bigint as batch from span where project_id = $1 and created_at >= $2 and created_at < $3)"
    " as listed group by day_began, batch order by day_began, batch"
)


async def build_hour_columns(
    connection: Connection, project_id: int, hour: datetime, end: datetime, now: datetime
) -> None:
    """Write the columns of the hour that ends then, in the transaction that builds its cube."""
    day, number = hour.replace(hour=0), hour.hour
    whole = await connection.fetchval(
        "select whole from span_column_day where project_id = $1 and day = $2", project_id, day
    )
    if whole:
        # Read row by row from here on, until the day is quiet.
        await connection.execute(
            "update span_column_day set hours = hours & ~$3::integer, changed_at = $4::timestamptz,"
            " latest_at = case when latest_at = changed_at then $4::timestamptz end"
            " where project_id = $1 and day = $2",
            *(project_id, day, 1 << number, now),
        )
        return
    written = await write_columns(connection, project_id, (hour, end), (day, number))
    bit = 0 if written is None else 1 << number
    spans, latest = (0, EPOCH) if written is None else (written.spans, written.latest)
    await connection.execute(
        "insert into span_column_day as d (project_id, day, hours, whole, spans, changed_at, latest,"
        " latest_at) values ($1, $2, $3, false, $5, $6, $7, $6) on conflict (project_id, day) do update set"
        " hours = (d.hours & ~$4::integer) | $3, spans = d.spans + excluded.spans,"
        " changed_at = excluded.changed_at, latest = greatest(d.latest, excluded.latest),"
        " latest_at = case when d.latest_at = d.changed_at then excluded.changed_at end",
        *(project_id, day, bit, 1 << number, spans, now, latest),
    )


@attrs.define(eq=False)
class DayColumns:
    """Writes the columns of days that are over, the newest first. Called in turns with the cube builder."""

    database: Database

    async def build(self, now: datetime, limit: int) -> int:
        """Write up to `limit` days of all projects. Returns how many. Raises `Outage`."""
        # Days without a span left.
        await self.database.fetch(
            "with gone as (delete from span_column_day d where not exists (select from cube_day c"
            " where c.project_id = d.project_id and c.dataset = 'spans' and c.field = '' and c.day = d.day)"
            " and d.changed_at < $1 returning project_id, day)"
            " delete from span_column s using gone where s.project_id = gone.project_id"
            f" and s.day = gone.day and s.hour < {FIRST_SLICE}",
            now - DAY_QUIET,
        )
        # Days of spans that the cubes have whole, without a changed hour: those whose columns lack hours, or
        # stand hour by hour; and those of a release before.
        rows = await self.database.fetch(
            "select c.project_id, c.day, c.n from cube_day c"
            " join cube_progress p on p.project_id = c.project_id and p.dataset = 'spans'"
            " and p.built_until >= c.day + interval '1 day'"
            " left join span_column_day d on d.project_id = c.project_id and d.day = c.day"
            " where c.dataset = 'spans' and c.field = '' and (d.day is null or not d.whole"
            " or d.summed is null or (d.hours <> $1 and d.changed_at < $2)) and not exists"
            " (select from cube_dirty x where x.project_id = c.project_id and x.dataset = 'spans'"
            " and x.hour >= c.day and x.hour < c.day + interval '1 day')"
            " order by c.day desc, c.project_id limit $3",
            *(ALL_HOURS, now - DAY_QUIET, limit),
        )
        for row in rows:
            await self._build(row["project_id"], row["day"], now, summed=row["n"] >= FEW_SPANS)
        return len(rows)

    async def _build(self, project_id: int, day: datetime, now: datetime, *, summed: bool) -> None:
        async def work(connection: Connection) -> None:
            # No hour of the day is written meanwhile.
            await lock_builder(connection, project_id)
            await connection.execute(
                "delete from span_column where project_id = $1 and day = $2", project_id, day
            )
            sums = DaySums(project_id, day) if summed else None
            written = await write_columns(connection, project_id, (day, day + _DAY), (day, WHOLE), sums)
            spans, latest = (0, EPOCH) if written is None else (written.spans, written.latest)
            levels = 0 if sums is None else await sums.finish(connection, spans)
            await connection.execute(
                "insert into span_column_day (project_id, day, hours, whole, spans, changed_at, summed,"
                " latest, latest_at) values ($1, $2, $3, true, $4, $5, $6, $7, $5)"
                " on conflict (project_id, day) do update set hours = excluded.hours, whole = true,"
                " spans = excluded.spans, latest = excluded.latest, changed_at = excluded.changed_at,"
                " summed = excluded.summed, latest_at = excluded.latest_at",
                # What cannot be held is not tried again before something of it changes.
                *(project_id, day, 0 if written is None else ALL_HOURS, spans),
                *(NEVER if written is None else now, levels, latest),
            )

        await self.database.run(work, timeout_s=BUILD_TIMEOUT_S)


@attrs.frozen
class WrittenColumns:
    """How many spans columns hold, and when the last of them began."""

    spans: int
    latest: datetime


async def write_columns(
    connection: Connection,
    project_id: int,
    stretch: tuple[datetime, datetime],
    place: tuple[datetime, int],
    sums: DaySums | None = None,
) -> WrittenColumns | None:
    """Write the columns of a stretch of arrival, in the transaction of a builder who has the project's lock.

    `place` is the day and what its segments bear as their hour. None when a row cannot be held.
    """
    await connection.execute(
        "delete from span_column where project_id = $1 and day = $2 and hour = $3", project_id, *place
    )
    spans, part, latest = 0, 0, EPOCH

    async def store(began: datetime, segment: Segment) -> None:
        await store_segment(connection, (project_id, *place), began, part, segment)
        if sums is not None:
            await sums.add(connection, began, part, segment)

    began: datetime | None = None
    segment = Segment()
    async for row in connection.cursor(_ROWS, project_id, *stretch, BATCH_ROWS, prefetch=1):
        if not row["holds"]:
            await connection.execute(
                "delete from span_column where project_id = $1 and day = $2 and hour = $3",
                project_id,
                *place,
            )
            return None
        if began is not None and (row["day_began"] != began or segment.rows + row["n"] > MOST_ROWS):
            await store(began, segment)
            part = part + 1 if row["day_began"] == began else 0
            segment = Segment()
        began = row["day_began"]
        segment.extend(row["n"], [row[f"c_{name}"] for name in COLUMNS])
        spans, latest = spans + row["n"], max(latest, row["latest"])
    if began is not None:
        await store(began, segment)
    return WrittenColumns(spans, latest)
