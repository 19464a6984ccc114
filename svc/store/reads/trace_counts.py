"""What a list of traces is made of: how many over time, how many by value, and the nearest to an empty range.

The same filters as the page of traces (`svc.store.reads.traces`), so that they say the same. Over whole hours
the cubes tell how many began when, of all traces or of those that hold one value
(`svc.store.aggregates.trace_values`); what these do not cover is counted under the same snapshot. Facets are
counted over the newest traces that a filter leaves, and say so when there are more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import hour_of
from svc.store.aggregates.cubes import FAR, HOUR, Covered, ceil_hour, covered
from svc.store.aggregates.trace_values import ALL, HELD
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.clauses import Where, by_each
from svc.store.postgres.database import Connection, Database
from svc.store.reads.trace_search import HeldValue, asked_for
from svc.store.reads.traces import (
    TraceFilter,
    both,
    held_by_spans,
    narrowed_by_index,
    of_its_own,
)

_MOST_BUCKETS: Final = 2000
#: Where buckets begin to be counted from; a Monday.
_ORIGIN: Final = datetime(1970, 1, 5, tzinfo=UTC)
#: Newest traces over which facets are counted, and those whose spans are asked for their models.
FACETED: Final = 5000
MODELLED: Final = 1000
VALUES_SHOWN: Final = 10
#: Fields of a trace that are counted. Closed: they are named in SQL.
_FIELDS: Final = ("status", "call_site_id", "name", "session_id", "user_id")


@attrs.frozen
class TraceBucket:
    """Traces that began in a stretch of time."""

    start: datetime
    count: int
    failed: int


@attrs.frozen
class TraceHistogram:
    """Buckets in order, empty ones left out, and what they add up to."""

    width: timedelta
    buckets: Sequence[TraceBucket]

    @property
    def count(self) -> int:
        """All of them."""
        return sum(bucket.count for bucket in self.buckets)

    @property
    def failed(self) -> int:
        """Those that failed."""
        return sum(bucket.failed for bucket in self.buckets)


@attrs.frozen
class TraceFacets:
    """By field, its most frequent values with their counts; over how many of the newest traces."""

    fields: Mapping[str, Sequence[tuple[str | None, int]]]
    over: int

    @property
    def whole(self) -> bool:
        """Whether all traces of the filter were counted."""
        return self.over < FACETED


@attrs.define(eq=False)
class TraceCounts:
    """Counts traces of one project at a time."""

    database: Database

    async def histogram(
        self, project_id: int, asked: TraceFilter, width: timedelta, *, timeout_s: float
    ) -> TraceHistogram:
        """How many traces began when, by the cubes where they can tell. Raises `Slow`."""
        where, clause = _clause(project_id, asked)
        cell = _cell(asked, width)

        async def work(connection: Connection) -> list[Any]:
            if cell is not None:
                built = await covered(connection, project_id, TRACES, None)
                if built is not None:
                    return await _cubed(connection, project_id, asked, cell, built, width)
            # The range by the index on started_at; what the filter leaves is counted by its bucket.
            return await connection.fetch(
                f"select date_bin(${len(where.values) + 1}::interval, t.started_at, ${len(where.values) + 2})"
                " as start, count(*) as count, count(*) filter (where t.status = 'error') as failed"
                f" from trace t where {clause} group by 1 order by 1 limit {_MOST_BUCKETS}",
                *where.values,
                width,
                _ORIGIN,
            )

        rows = await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
        return TraceHistogram(width, [TraceBucket(**dict(row.items())) for row in rows])

    async def facets(self, project_id: int, asked: TraceFilter, *, timeout_s: float) -> TraceFacets:
        """The most frequent values of each field, over the newest traces. Raises `Slow`."""
        where, clause = _clause(project_id, asked)
        name, value, sets = by_each(_FIELDS)
        columns = ", ".join(_FIELDS)

        async def work(connection: Connection) -> tuple[list[Any], list[Any]]:
            # The newest by the index on started_at, counted by each field apart, the most frequent kept.
            counted = await connection.fetch(
                f"with t as materialized (select {columns} from trace t where {clause}"
                f" order by started_at desc limit {FACETED}), counted as (select {name} as field,"
                f" {value} as value, count(*) as n from t group by grouping sets ({sets}, ()))"
                " select field, value, n from (select *, row_number() over (partition by field"
                " order by n desc, value) as place from counted) as ranked"
                f" where place <= {VALUES_SHOWN} order by field, place",
                *where.values,
            )
            # The models of the newest, by the keys of their spans; `offset 0` keeps it a look-up for each.
            models = await connection.fetch(
                "with t as materialized (select trace_id, first_started_at, last_started_at from trace t"
                f" where {clause} order by started_at desc limit {MODELLED})"
                " select model as value, count(*) as n from t cross join lateral (select distinct"
                " coalesce(s.model_id, s.provided_model_name) as model from span s where s.project_id = $1"
                " and s.trace_id = t.trace_id and s.started_at between t.first_started_at"
                " and t.last_started_at and s.provided_model_name is not null offset 0) as used"
                f" group by 1 order by 2 desc, 1 limit {VALUES_SHOWN}",
                *where.values,
            )
            return counted, models

        counted, models = await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
        fields: dict[str, list[tuple[str | None, int]]] = {field: [] for field in _FIELDS}
        over = 0
        for row in counted:
            if row["field"]:
                fields[row["field"]].append((row["value"], row["n"]))
            else:
                over = row["n"]
        fields["model"] = [(row["value"], row["n"]) for row in models]
        return TraceFacets(fields, over)

    async def nearest(
        self, project_id: int, low: datetime, high: datetime
    ) -> tuple[datetime | None, datetime | None]:
        """When the last trace before a range began, and the first one after it."""
        rows = await self.database.fetch(
            # Two rows by the index on started_at.
            "select (select started_at from trace where project_id = $1 and started_at < $2"
            " order by started_at desc limit 1) as before, (select started_at from trace"
            " where project_id = $1 and started_at > $3 order by started_at limit 1) as after",
            project_id,
            low,
            high,
        )
        return rows[0]["before"], rows[0]["after"]

    async def ends(self, project_id: int) -> tuple[datetime, datetime] | None:
        """When the oldest and the newest trace began; None without any."""
        rows = await self.database.fetch(
            # Both ends of the index on started_at.
            "select (select started_at from trace where project_id = $1 order by started_at limit 1)"
            " as first, (select started_at from trace where project_id = $1"
            " order by started_at desc limit 1) as last",
            project_id,
        )
        return None if rows[0]["first"] is None else (rows[0]["first"], rows[0]["last"])


def _clause(project_id: int, asked: TraceFilter) -> tuple[Where, str]:
    """The whole clause over a trace `t`, and its parameters."""
    where = narrowed_by_index(project_id, asked)
    near = where.sql()
    said, held = asked_for(where, asked.q, held_by_spans(asked))
    own = of_its_own(where, asked)
    return where, both(near, said, own, *(value.clause() for value in held))


def _cell(asked: TraceFilter, width: timedelta) -> tuple[str, str] | None:
    """The field and value under which the cube counts what a filter leaves; None when it does not."""
    if width % HOUR:
        return None
    held = [(name, getattr(asked, name)) for name in HELD if getattr(asked, name) is not None]
    if len(held) > 1 or asked != TraceFilter(
        status=asked.status, low=asked.low, high=asked.high, **dict(held)
    ):
        return None
    return held[0] if held else (ALL, "")


#: What of a cell a filter of status leaves: how many, and how many failed.
_LEFT: Final[Mapping[str | None, tuple[str, str]]] = {
    None: ("n", "failed"),
    "error": ("failed", "failed"),
    "ok": ("n - failed", "0"),
}


async def _cubed(
    connection: Connection,
    project_id: int,
    asked: TraceFilter,
    cell: tuple[str, str],
    built: Covered,
    width: timedelta,
) -> list[Any]:
    """The histogram by whole hours, its ends and what is not built yet by their rows."""
    low, high = asked.low, asked.high
    first = None if low is None else ceil_hour(low)
    last = FAR if high is None else max(hour_of(high), first or hour_of(high))
    ends = []
    # The bounds of a range are inclusive.
    until = FAR if high is None else high + timedelta(microseconds=1)
    if low is not None and first is not None:
        ends.append((low, min(first, until)))
    if high is not None:
        ends.append((last, until))
    count, failed = _LEFT[asked.status]
    where = Where.of(project_id)
    field, value = where.value(cell[0]), where.value(cell[1])
    bin_by = f"date_bin({where.value(width)}::interval, {{}}, {where.value(_ORIGIN)})"
    begun = f"{{0}} < {where.value(last)}"
    if first is not None:
        begun += f" and {{0}} >= {where.value(first)}"
    rows = "project_id = $1"
    if asked.status is not None:
        rows += f" and status = '{'error' if asked.status == 'error' else 'ok'}'"
    if cell[0] != ALL:
        rows += f" and {HeldValue(HELD[cell[0]], cell[1], value).clause()}"
    stored, began = _stretches(where, built.raw), _stretches(where, ends)
    # The cube's cells by their key; the traces that it does not cover by the index on created_at, those at
    # the ends of the range by the one on started_at.
    return await connection.fetch(
        f"with counted as (select {bin_by.format('began')} as start, {count} as count, {failed} as failed"
        f" from trace_cube where project_id = $1 and field = {field} and value = {value}"
        f" and {begun.format('began')} and hour < {where.value(built.until)}"
        f" and hour <> all({where.value(built.dirty)}::timestamptz[])"
        f" union all select {bin_by.format('started_at')}, 1, (status = 'error')::int from {stored}"
        f" cross join lateral (select started_at, status from trace t where {rows}"
        f" and created_at >= stretch.low and created_at < stretch.high and {begun.format('started_at')}"
        " offset 0) as raw"
        f" union all select {bin_by.format('started_at')}, 1, (status = 'error')::int from {began}"
        f" cross join lateral (select started_at, status from trace t where {rows}"
        " and started_at >= stretch.low and started_at < stretch.high offset 0) as raw)"
        " select start, sum(count)::bigint as count, sum(failed)::bigint as failed from counted group by 1"
        f" having sum(count) > 0 order by 1 limit {_MOST_BUCKETS}",
        *where.values,
    )


def _stretches(where: Where, stretches: Sequence[tuple[datetime, datetime]]) -> str:
    lows, highs = ([stretch[side] for stretch in stretches] for side in (0, 1))
    return (
        f"unnest({where.value(lows)}::timestamptz[], {where.value(highs)}::timestamptz[])"
        " as stretch (low, high)"
    )
