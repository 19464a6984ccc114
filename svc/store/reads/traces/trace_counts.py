"""What a list of traces is made of: how many over time, how many by value, and the nearest to an empty range.

The same filters as the page of traces (`svc.store.reads.traces.traces`), so that they say the same. Groups
of traces tell what a filter leaves of them (`svc.store.reads.traces.trace_groups`); traces that stand in none
are counted under the same snapshot, and what neither groups nor an index tell is read newest first
(`svc.store.reads.traces.trace_drawing`). Facets are counted over the newest traces that a filter leaves, and
say so when there are more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

import attrs

from svc.domain.marks.table import MARK_NAMES
from svc.store.postgres.clauses import Where, by_each
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.reads.questions.attributes import shown_value
from svc.store.reads.search import PLAN_ONCE
from svc.store.reads.traces.trace_drawing import (
    MOST_BUCKETS,
    ORIGIN,
    CountedRange,
    TraceBucket,
    TraceHistogram,
    all_counted,
    edge_of,
    newest_counted,
)
from svc.store.reads.traces.trace_filter import (
    TraceFilter,
    asked_for,
    both,
    held_by_spans,
    held_clause,
    narrowed_by_index,
    of_its_own,
)
from svc.store.reads.traces.trace_groups import buckets_left, grouped, ids_left, stretches_of
from svc.store.reads.traces.trace_search import RARE, speaking, worth_grouping

#: Newest traces over which facets are counted, and those whose spans are asked for their models.
FACETED: Final = 5000
MODELLED: Final = 1000
#: Traces that are read one by one at first, for a drawing.
FIRST_ROWS: Final = 1000
VALUES_SHOWN: Final = 10
#: Newest traces among which the slowest one is looked for.
SLOWEST_OF: Final = 20_000
#: Fields of a trace that are counted. Closed: they are named in SQL.
_FIELDS: Final = ("status", "call_site_id", "name", "session_id", "user_id")
_MARKS: Final = ", ".join(f"'{name}'" for name in MARK_NAMES)


@attrs.frozen
class TraceFacets:
    """By field, its most frequent values with their counts; over how many of the newest traces.

    Fields of attributes are among them where any of these traces has one.
    """

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
        self, project_id: int, asked: TraceFilter, width: timedelta, *, timeout_s: float, budget_s: float
    ) -> TraceHistogram:
        """How many traces began when, by their groups where these can tell. Raises `Slow`.

        Where neither these nor an index tell, the newest are read for about `budget_s`.
        """
        histogram = await self._histogram(project_id, asked, width, timeout_s, budget_s, walks=True)
        assert histogram is not None, "reading them counts anything"
        return histogram

    async def quick_histogram(
        self, project_id: int, asked: TraceFilter, width: timedelta, *, timeout_s: float, budget_s: float
    ) -> TraceHistogram | None:
        """The same; None when texts or spans of more than a few thousand traces would be looked through."""
        return await self._histogram(project_id, asked, width, timeout_s, budget_s, walks=False)

    async def _histogram(
        self,
        project_id: int,
        asked: TraceFilter,
        width: timedelta,
        timeout_s: float,
        budget_s: float,
        *,
        walks: bool,
    ) -> TraceHistogram | None:
        async def work(connection: Connection) -> TraceHistogram | None:
            until_s = monotonic() + budget_s
            await connection.execute(PLAN_ONCE)
            if asked.q is None and not asked.by_index and not asked.conjoined:
                built = await grouped(connection, project_id, asked)
                if built is not None:
                    where, clause, _ = _clause(project_id, asked)
                    raw = clause, where.values
                    rows = await buckets_left(connection, asked, built, raw, width, ORIGIN, MOST_BUCKETS)
                    return TraceHistogram(width, [TraceBucket.of(row) for row in rows])
            return await _read_histogram(connection, project_id, asked, width, until_s, walks=walks)

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)

    async def facets(self, project_id: int, asked: TraceFilter, *, timeout_s: float) -> TraceFacets:
        """The most frequent values of each field, over the newest traces. Raises `Slow`."""
        name, value, sets = by_each(_FIELDS)
        columns = ", ".join(_FIELDS)

        async def work(connection: Connection) -> list[Any]:
            await connection.execute(PLAN_ONCE)
            condition, values = await _selection(connection, project_id, asked, FACETED)
            # The newest by the index on started_at or by their keys, counted by each field apart, the most
            # frequent kept; of the very newest the models, by the keys of their spans: `offset 0` keeps it a
            # look-up for each.
            return await connection.fetch(
                f"with t as materialized (select {columns}, trace_id, started_at, first_started_at,"
                f" last_started_at from trace t where {condition} order by started_at desc limit {FACETED}),"
                f" counted as (select {name} as field, {value} as value, count(*) as n from t"
                f" group by grouping sets ({sets}, ()) union all select 'model', model, count(*) from"
                f" (select * from t order by started_at desc limit {MODELLED}) as t cross join lateral"
                " (select distinct coalesce(s.model_id, s.provided_model_name) as model from span s"
                " where s.project_id = $1 and s.trace_id = t.trace_id and s.started_at between"
                " t.first_started_at and t.last_started_at and s.provided_model_name is not null offset 0)"
                " as used group by model union all select 'mark', classifier_id, count(*) from"
                f" (select * from t order by started_at desc limit {MODELLED}) as t cross join lateral"
                " (select distinct e.classifier_id from classifier_event e where e.project_id = $1"
                f" and e.subject_trace_id = t.trace_id and e.classifier_id in ({_MARKS}) offset 0)"
                " as stated group by classifier_id union all select 'feedback', given.name, count(*)"
                f" from (select * from t order by started_at desc limit {MODELLED}) as t cross join lateral"
                " (select distinct f.name from feedback f where f.project_id = $1"
                " and f.trace_id = t.trace_id offset 0) as given group by given.name"
                " union all select v.field, v.value, held.n from"
                " (select code, count(*) as n from"
                f" (select * from t order by started_at desc limit {MODELLED}) as t cross join lateral"
                " (select distinct c.code from span s cross join lateral string_to_table(s.facets, null)"
                " as c (code) where s.project_id = $1 and s.trace_id = t.trace_id and s.started_at between"
                " t.first_started_at and t.last_started_at offset 0) as each group by code) as held"
                " cross join lateral (select field, value from attribute_value where project_id = $1"
                " and code = held.code offset 0) as v)"
                " select field, value, n from (select *, row_number() over (partition by field"
                " order by n desc, value) as place from counted) as ranked"
                f" where place <= {VALUES_SHOWN} order by field, place",
                *values,
            )

        counted = await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
        fields: dict[str, list[tuple[str | None, int]]] = {
            field: [] for field in (*_FIELDS, "model", "mark", "feedback")
        }
        over = 0
        for row in counted:
            if row["field"]:
                fields.setdefault(row["field"], []).append((shown_value(row["value"]), row["n"]))
            else:
                over = row["n"]
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

    async def slowest(self, project_id: int, low: datetime | None, high: datetime) -> bytes | None:
        """The trace that took longest of the newest `SLOWEST_OF` that began in a range."""
        where = Where.of(project_id)
        where.within("started_at", low, high)
        rows = await self.database.fetch(
            # Down the index on their start.
            "select trace_id from (select trace_id, ended_at - started_at as took from trace"
            f" where {where.sql()} order by started_at desc, trace_id desc limit {where.value(SLOWEST_OF)})"
            " newest where took is not null order by took desc, trace_id limit 1",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        return rows[0]["trace_id"] if rows else None

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


def _clause(project_id: int, asked: TraceFilter) -> tuple[Where, str, str]:
    """The whole clause over a trace `t`, that of what no group tells, and the parameters of both."""
    where = narrowed_by_index(project_id, asked)
    near = where.sql()
    text, values = asked_for(where, asked.q, held_by_spans(asked))
    own = of_its_own(where, asked)
    held = held_clause(values, one_span=asked.one_span)
    # What no group tells: the text, and several things of one span.
    return where, both(near, text, own, held), both(text, held if asked.conjoined else "")


async def _read_histogram(
    connection: Connection,
    project_id: int,
    asked: TraceFilter,
    width: timedelta,
    until_s: float,
    *,
    walks: bool,
) -> TraceHistogram | None:
    """The drawing of what groups alone do not tell.

    Of a text, or of several things of one span, without `walks` only if one look does.
    """
    where, clause, text = _clause(project_id, asked)
    near, built = narrowed_by_index(project_id, asked), None
    one_look = (asked.q is not None or asked.conjoined) and not walks
    ids = None if asked.q is None else await speaking(connection, project_id, asked.q)
    if ids is not None:
        clause = both(clause, f"t.trace_id = any({where.value(ids)}::bytea[])")
    elif asked.by_value and not asked.by_index:
        built = await worth_grouping(connection, project_id, asked)
    # To ask the groups takes as long as to read thousands of rows.
    first = FACETED if one_look and built is None else FIRST_ROWS
    until_s = 0.0 if one_look else until_s
    counted_range = CountedRange(asked, near, clause, text, built, where.values, width, first, until_s)
    if ids is not None:
        return await all_counted(connection, counted_range)
    if one_look and built is None and await edge_of(connection, near, None, first) is not None:
        return None
    histogram = await newest_counted(connection, counted_range)
    return None if one_look and histogram.since is not None else histogram


async def _selection(
    connection: Connection, project_id: int, asked: TraceFilter, most: int
) -> tuple[str, Sequence[Any]]:
    """A clause over traces `t` and its parameters: the newest `most` of a filter, and more.

    They are named by their keys where that is quicker.
    """
    where, clause, _ = _clause(project_id, asked)
    by_id = None
    if asked.q is not None:
        ids = await speaking(connection, project_id, asked.q)
        if (
            ids is None
            and (narrowed := await _group_selection(connection, project_id, asked, RARE + 1)) is not None
        ):
            # Those that all but the text leaves, if they are few.
            rows = await connection.fetch(f"select t.trace_id from trace t where {narrowed[0]}", *narrowed[1])
            ids = [row["trace_id"] for row in rows] if len(rows) <= RARE else None
        if ids is not None:
            by_id = f"t.trace_id = any({where.value(ids)}::bytea[])"
    elif (narrowed := await _group_selection(connection, project_id, asked, most)) is not None:
        # Nothing more is asked of them.
        return narrowed
    return (clause if by_id is None else both(clause, by_id)), where.values


async def _group_selection(
    connection: Connection, project_id: int, asked: TraceFilter, most: int
) -> tuple[str, Sequence[Any]] | None:
    """A clause that names the newest traces that all of a filter but its text leaves, `most` and more.

    None where no group tells.
    """
    if not asked.by_value or asked.by_index or asked.conjoined:
        return None
    built = await worth_grouping(connection, project_id, asked)
    if built is None:
        return None
    raw, clause, _ = _clause(project_id, attrs.evolve(asked, q=None))
    # Those that no group tells of, by the index on created_at.
    rows = await connection.fetch(
        f"select trace_id from {stretches_of(raw, built.raw)} cross join lateral (select trace_id,"
        f" started_at from trace t where {clause} and created_at >= stretch.low and created_at < stretch.high"
        f" offset 0) as raw order by started_at desc limit {raw.value(most)}",
        *raw.values,
    )
    where = Where.of(project_id, "t.")
    ids = ids_left(where, asked, built, most)
    raw_ids = where.value([row["trace_id"] for row in rows])
    where.add(f"t.trace_id = any(array(select id from ({ids}) as newest) || {raw_ids}::bytea[])")
    return where.sql(), where.values
