"""Comparing two populations of traces: which traces they are, and what their spans say.

Called by the query API and the tool `compare`. Reads a bounded sample of each side by a fixed rule, in SQL;
`svc.domain.queries.population_comparison` does the statistics. Raises `Refused` for what cannot be asked,
`Outage` when the database is away or the time is up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.rest.answers import Compared
from protocol.rest.query import FilterValue
from svc.domain.queries.datasets import SPANS, Field
from svc.domain.queries.population_comparison import Mean, TracePopulation, compared
from svc.domain.spans.span import Status
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.attributes import require_fields
from svc.store.reads.questions.questions import checked_filters, equals, in_order
from svc.store.reads.traces.trace_filter import holding

COMPARE_TIMEOUT_S: Final = 30.0
#: Traces looked at on each side.
SAMPLED_TRACES: Final = 5_000
#: Values of all fields read of a side, the most frequent.
VALUES_READ: Final = 2_000
#: What the sides are compared by: fields of spans with few enough values to be told apart.
COMPARED_FIELDS: Final = (
    "kind",
    "name",
    "call_site_id",
    "model_id",
    "provided_model_name",
    "provider",
    "error_type",
    "user_id",
)


@attrs.frozen
class Side:
    """What makes a trace part of a population: when it began, its status, and one span with all values."""

    low: datetime | None
    high: datetime | None
    filters: tuple[tuple[Field, FilterValue], ...] = ()
    status: Status | None = None
    failed_spans: bool | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its filters."""
        return tuple(field for field, _ in self.filters)

    @property
    def split_by(self) -> set[str]:
        """The fields that choose its traces; what failed chooses by kind of error as well."""
        names = {field.name for field, _ in self.filters}
        failure = self.status is not None or self.failed_spans is not None or "status" in names
        return names | ({"error_type"} if failure else set())


def side_of(
    low: datetime | None,
    high: datetime | None,
    filters: Mapping[str, FilterValue] | None,
    status: Status | None,
    failed_spans: bool | None,
) -> Side:
    """A side with its parts checked. Raises `Refused` naming the offender."""
    return Side(*in_order(low, high), checked_filters(SPANS, filters), status, failed_spans)


@attrs.define(eq=False)
class CompareStore:
    """Compares two populations of one project."""

    database: Database

    async def compare(self, project_id: int, baseline: Side, comparison: Side) -> Compared:
        """Sizes, measures, values that moved most, examples. A trace of both sides is one of comparison."""

        async def work(connection: Connection) -> tuple[TracePopulation, TracePopulation]:
            return (
                await _population(connection, project_id, baseline, without=comparison),
                await _population(connection, project_id, comparison),
            )

        await require_fields(self.database, project_id, (*baseline.fields, *comparison.fields))
        populations = await self.database.run(work, readonly=True, snapshot=True, timeout_s=COMPARE_TIMEOUT_S)
        return compared(*populations, baseline.split_by | comparison.split_by)


def _clause(where: Where, side: Side) -> str:
    """That a trace `t` is part of the side."""
    clauses = []
    if side.low is not None:
        clauses.append(f"t.started_at >= {where.value(side.low)}")
    if side.high is not None:
        clauses.append(f"t.started_at < {where.value(side.high)}")
    if side.status is not None:
        clauses.append(f"t.status = {where.value(side.status)}")
    if side.failed_spans is not None:
        clauses.append("t.error_count > 0" if side.failed_spans else "t.error_count = 0")
    if side.filters:
        conditions = " and ".join(equals(where, field, value) for field, value in side.filters)
        clauses.append(holding(conditions))
    return " and ".join(clauses) or "true"


async def _population(
    connection: Connection, project_id: int, side: Side, *, without: Side | None = None
) -> TracePopulation:
    where = Where.of(project_id, "t.")
    where.add(_clause(where, side))
    if without is not None:
        where.add(f"not ({_clause(where, without)})")
    # The end of an id is random whoever makes it: some begin ids with the time.
    traces = await connection.fetch(
        "select t.trace_id, t.first_started_at, t.last_started_at, count(*) over () as matched from trace t"
        f" where {where.sql()} order by substring(t.trace_id from 9), t.trace_id"
        f" limit {where.value(SAMPLED_TRACES)}",
        *where.values,
    )
    ids = [row["trace_id"] for row in traces]
    figures = await connection.fetchrow(_FIGURES, project_id, ids)
    assert figures is not None
    newest = sorted(traces, key=lambda row: row["first_started_at"], reverse=True)
    return TracePopulation(
        matched=traces[0]["matched"] if traces else 0,
        sampled=len(traces),
        shares={"error_rate": figures["failed"], "failed_spans_rate": figures["with_failed_spans"]},
        means={
            name: Mean(figures[f"{name}_traces"], figures[f"{name}_mean"], figures[f"{name}_deviation"])
            for name in _AVERAGED
        },
        quantiles={"duration_p95": figures["duration_p95"]},
        values=await _values(connection, project_id, traces),
        examples=[row["trace_id"].hex() for row in newest],
    )


async def _values(
    connection: Connection, project_id: int, traces: Sequence[Any]
) -> dict[tuple[str, str], int]:
    """In how many of the traces each value stands."""
    asked = (
        project_id,
        [row["trace_id"] for row in traces],
        [row["first_started_at"] for row in traces],
        [row["last_started_at"] for row in traces],
        VALUES_READ,
    )
    rows = [*await connection.fetch(_VALUES, *asked), *await connection.fetch(_ATTRIBUTE_VALUES, *asked)]
    return {(row["field"], row["value"]): row["traces"] for row in rows}


#: What is averaged over traces, as SQL over their rows.
_AVERAGED: Final = {
    "duration": "extract(epoch from t.ended_at - t.started_at)::float8 * 1000",
    "cost": "t.total_cost::float8",
    "tokens": "t.total_tokens::float8",
    "spans": "t.span_count::float8",
}
_FIGURES: Final = (
    "select count(*) filter (where t.status = 'error') as failed,"
    " count(*) filter (where t.error_count > 0) as with_failed_spans,"
    f" percentile_disc(0.95) within group (order by {_AVERAGED['duration']}) as duration_p95,"
    + ",".join(
        f" count({sql}) as {name}_traces, avg({sql}) as {name}_mean, stddev_samp({sql}) as {name}_deviation"
        for name, sql in _AVERAGED.items()
    )
    + " from trace t where t.project_id = $1 and t.trace_id = any($2::bytea[])"
)
_FIELD_VALUES: Final = ", ".join(f"('{field}', s.{field})" for field in COMPARED_FIELDS)
#: Values by the traces that have them; each trace is looked into once, within its own days.
_VALUES: Final = f"""
select field, value, count(*) as traces from (
    select distinct chosen.id, pair.field, pair.value
    from unnest($2::bytea[], $3::timestamptz[], $4::timestamptz[]) as chosen (id, low, high)
    cross join lateral (
        select * from span where project_id = $1 and trace_id = chosen.id
            and started_at between chosen.low and chosen.high offset 0
    ) as s
    cross join lateral (values {_FIELD_VALUES}) as pair (field, value)
    where pair.value is not null
) as each group by 1, 2 order by 3 desc, 1, 2 limit $5
"""

#: The same of attributes, which are put into words once they are counted.
_ATTRIBUTE_VALUES: Final = """
select v.field, v.value, each.traces from (
    select code, count(*) as traces from (
        select distinct chosen.id, c.code
        from unnest($2::bytea[], $3::timestamptz[], $4::timestamptz[]) as chosen (id, low, high)
        cross join lateral (
            select facets from span where project_id = $1 and trace_id = chosen.id
                and started_at between chosen.low and chosen.high offset 0
        ) as s
        cross join lateral string_to_table(s.facets, null) as c (code)
    ) as held group by 1
) as each join attribute_value v on v.project_id = $1 and v.code = each.code and v.value <> ''
order by 3 desc, 1, 2 limit $5
"""
