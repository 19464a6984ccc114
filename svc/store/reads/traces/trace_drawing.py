"""How many traces began when, and how many of them failed: the drawing above a list, and its newest part.

Called by `svc.store.reads.traces.trace_counts`. What no group and no index tells (a text that many traces
say) is read row by row, the newest first, for as long as it may take: then the drawing says since when it
counts, and counts exactly from then on. Nothing is estimated. Where groups tell all of the filter but its
text, only the traces that they leave are read, by their keys.

Bounded: a look is as large as there is time for at the pace of the one before. One that takes half as long
again (older rows may have to come from the disk) is ended by the server; what was counted before it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

import attrs
from asyncpg import QueryCanceledError

from svc.domain.calendar import after
from svc.store.aggregates.covered import Covered
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection
from svc.store.postgres.transactions import one_transaction
from svc.store.reads.traces.trace_filter import TraceFilter, both
from svc.store.reads.traces.trace_groups import ids_left, stretches_of

MOST_BUCKETS: Final = 2000
#: Where buckets begin to be counted from; a Monday.
ORIGIN: Final = datetime(1970, 1, 5, tzinfo=UTC)
#: So many times the rows of the last look are read next, as long as there is time.
_GROWTH: Final = 3
#: A trace by its key takes as long as so many in a row.
_FEW_LEFT: Final = 4
#: A look may take so many times what is left.
_LONGEST: Final = 1.5
#: The step of when counting begins.
_STEP: Final = timedelta(seconds=1)
_MOMENT: Final = timedelta(microseconds=1)


@attrs.frozen
class TraceBucket:
    """Traces that began in a stretch of time; `failing` hold a failed span, whatever became of them."""

    start: datetime
    count: int
    failed: int
    failing: int

    @classmethod
    def of(cls, row: Any) -> TraceBucket:
        """From a row that has columns of these names."""
        return cls(row["start"], row["count"], row["failed"], row["failing"])


@attrs.frozen
class TraceHistogram:
    """Buckets in order, empty ones left out, and what they add up to."""

    width: timedelta
    buckets: Sequence[TraceBucket]
    #: Traces that began before this are not counted; None when all of the range are.
    since: datetime | None = None

    @property
    def count(self) -> int:
        """All of them."""
        return sum(bucket.count for bucket in self.buckets)

    @property
    def failed(self) -> int:
        """Those that failed."""
        return sum(bucket.failed for bucket in self.buckets)

    @property
    def failing(self) -> int:
        """Those that hold a failed span, which those that failed do as well."""
        return sum(bucket.failing for bucket in self.buckets)


@attrs.frozen
class CountedRange:
    """Traces that are to be read one by one: of a range that an index narrows, those of a clause over `t`.

    `first` are read, however long that takes; then more, until about `until_s`, a monotonic moment.
    """

    asked: TraceFilter
    near: Where
    clause: str
    #: That of its text alone, and how far groups tell the rest, if they do.
    said: str
    built: Covered | None
    #: The parameters of both clauses.
    values: Sequence[Any]
    width: timedelta
    first: int
    until_s: float


async def all_counted(connection: Connection, wanted: CountedRange) -> TraceHistogram:
    """The drawing of traces that the clause itself names."""
    return TraceHistogram(wanted.width, list(reversed(await _counted(connection, wanted, None, None))))


async def newest_counted(connection: Connection, wanted: CountedRange) -> TraceHistogram:
    """The drawing, of all or of the newest. Wants one snapshot for all that is read."""
    by_start: dict[datetime, TraceBucket] = {}
    since, size, left_s = None, wanted.first, 0.0
    while size >= wanted.first:
        began_s = monotonic()
        try:
            low, buckets = await _step(connection, wanted, since, size, left_s)
        except QueryCanceledError:
            if since is None:
                raise
            break
        for bucket in buckets:
            by_start[bucket.start] = _sum(by_start.get(bucket.start), bucket)
        since = low
        if since is None:
            break
        if wanted.built is not None and size == wanted.first and await _many_left(connection, wanted, since):
            wanted = attrs.evolve(wanted, built=None)
        ended_s = monotonic()
        left_s = wanted.until_s - ended_s
        size = min(_GROWTH * size, int(size * left_s / max(ended_s - began_s, 1e-6)))
    return TraceHistogram(wanted.width, [by_start[start] for start in sorted(by_start)], since)


async def _many_left(connection: Connection, wanted: CountedRange, since: datetime) -> bool:
    """Whether what the groups left, in the first look since then, is so many that walking is quicker."""
    if wanted.asked.by_span:
        return False
    edge = await edge_of(connection, wanted.near, None, _FEW_LEFT * wanted.first)
    return edge is None or edge < since


async def _step(
    connection: Connection, wanted: CountedRange, high: datetime | None, size: int, left_s: float
) -> tuple[datetime | None, list[TraceBucket]]:
    """The buckets of at most so many of the newest rows before `high`, and since when these are counted."""
    async with one_transaction(connection):
        # The first look may take as long as any question.
        if high is not None:
            limit_ms = max(1, round(_LONGEST * left_s * 1000))
            await connection.execute(f"set local statement_timeout = {limit_ms}")
        if wanted.built is not None:
            return await _group_ids(connection, wanted, wanted.built, high, size)
        edge = await edge_of(connection, wanted.near, high, size)
        # At a whole second, which can be named, and none of those that are left out began then.
        low = None if edge is None else after(edge.replace(microsecond=0), _STEP)
        if low is not None and high is not None and low >= high:
            # More began within a second than are read at once.
            return high, []
        return low, await _counted(connection, wanted, low, high)


async def edge_of(connection: Connection, near: Where, high: datetime | None, size: int) -> datetime | None:
    """When the newest trace began that so many of a range leave out; None when they are all of them."""
    where = near.copy()
    if high is not None:
        where.add(f"started_at < {where.value(high)}")
    # Down the index on started_at, or that on sessions or what failed, alone.
    edge: datetime | None = await connection.fetchval(
        f"select started_at from trace where {where.sql()} order by started_at desc"
        f" offset {where.value(size)} limit 1",
        *where.values,
    )
    return edge


async def _group_ids(
    connection: Connection, wanted: CountedRange, built: Covered, high: datetime | None, size: int
) -> tuple[datetime | None, list[TraceBucket]]:
    """The same of those that the groups leave, and of those that no group tells of."""
    where = Where([], list(wanted.values))
    filter_, limit = wanted.asked, where.value(size)
    if high is not None:
        filter_ = attrs.evolve(filter_, high=high - _MOMENT)
        where.add(f"t.started_at < {where.value(high)}")
    newest = ids_left(where, filter_, built, size)
    # The bits of the groups; their traces by key, the others by the index on created_at; `offset 0` keeps
    # these look-ups.
    rows: list[Any] = await connection.fetch(
        f"with newest as materialized ({newest}), edge as materialized (select case when count(*) = {limit}"
        " then date_trunc('second', min(at), 'UTC') + interval '1 second' end as low from newest),"
        " picked as (select t.* from newest cross join lateral (select * from trace t where t.project_id = $1"
        f" and t.trace_id = newest.id and {both(wanted.said, *where.clauses)} offset 0) as t union all"
        f" select t.* from {stretches_of(where, built.raw)} cross join lateral (select * from trace t where"
        f" {both(wanted.clause, *where.clauses)} and t.created_at >= stretch.low"
        " and t.created_at < stretch.high offset 0) as t)"
        f" select low, counted.* from edge left join (select {_sums(where, wanted.width)} from picked t"
        " where t.started_at >= coalesce((select low from edge), '-infinity')"
        f" group by 1 order by 1 desc limit {MOST_BUCKETS}) as counted on true",
        *where.values,
    )
    low: datetime | None = rows[0]["low"]
    if low is not None and high is not None and low >= high:
        return high, []
    return low, [TraceBucket.of(row) for row in rows if row["start"] is not None]


async def _counted(
    connection: Connection, wanted: CountedRange, low: datetime | None, high: datetime | None
) -> list[TraceBucket]:
    where = Where([wanted.clause], list(wanted.values))
    if low is not None:
        where.add(f"t.started_at >= {where.value(low)}")
    if high is not None:
        where.add(f"t.started_at < {where.value(high)}")
    # The stretch by the index on started_at; what the filter leaves of it is counted by its bucket.
    rows: list[Any] = await connection.fetch(
        f"select {_sums(where, wanted.width)} from trace t where {where.sql()}"
        f" group by 1 order by 1 desc limit {MOST_BUCKETS}",
        *where.values,
    )
    return [TraceBucket.of(row) for row in rows]


def _sums(where: Where, width: timedelta) -> str:
    """What is read of each bucket of traces `t`."""
    return (
        f"date_bin({where.value(width)}::interval, t.started_at, {where.value(ORIGIN)}) as start,"
        " count(*) as count, count(*) filter (where t.status = 'error') as failed,"
        " count(*) filter (where t.error_count > 0) as failing"
    )


def _sum(first: TraceBucket | None, second: TraceBucket) -> TraceBucket:
    """A bucket that two looks have a part of."""
    if first is None:
        return second
    return TraceBucket(
        first.start, first.count + second.count, first.failed + second.failed, first.failing + second.failing
    )
