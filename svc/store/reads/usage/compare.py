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
#: So many times the traces of a sample are put in order: by chance some ends are larger.
_SPARE: Final = 1.3
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
    if side.filters or (without is not None and without.filters):
        matched, ids = await _sampled_at_once(connection, where)
    else:
        matched, ids = await _sampled(connection, where)
    # Each by its key.
    traces = await connection.fetch(
        "select t.trace_id, t.first_started_at, t.last_started_at from trace t"
        f" where t.project_id = $1 and t.trace_id = any($2::bytea[]) order by {_END}, t.trace_id",
        project_id,
        ids,
    )
    figures = await connection.fetchrow(_FIGURES, project_id, ids)
    assert figures is not None
    newest = sorted(traces, key=lambda row: row["first_started_at"], reverse=True)
    return TracePopulation(
        matched=matched,
        sampled=len(ids),
        shares={"error_rate": figures["failed"], "failed_spans_rate": figures["with_failed_spans"]},
        means={
            name: Mean(figures[f"{name}_traces"], figures[f"{name}_mean"], figures[f"{name}_deviation"])
            for name in _AVERAGED
        },
        quantiles={"duration_p95": figures["duration_p95"]},
        values=await _values(connection, project_id, traces),
        examples=[row["trace_id"].hex() for row in newest],
    )


#: Traces are taken by the ends of their ids, which are random whoever makes them: some begin with the time.
_END: Final = "substring(t.trace_id from 9)"


async def _sampled_at_once(connection: Connection, where: Where) -> tuple[int, list[bytes]]:
    """How many traces match, and the ids of the sample. For sides whose spans have to be looked at."""
    rows = await connection.fetch(
        f"select t.trace_id, count(*) over () as matched from trace t where {where.sql()}"
        f" order by {_END}, t.trace_id limit {where.value(SAMPLED_TRACES)}",
        *where.values,
    )
    return rows[0]["matched"] if rows else 0, [row["trace_id"] for row in rows]


async def _sampled(connection: Connection, where: Where) -> tuple[int, list[bytes]]:
    """The same, for sides that a trace tells by itself.

    Only as many are put in order as are likely to be enough: half a million took 80 ms instead of 530
    (measured November 2026).
    """
    # Down the index on started_at, alone where only a range is asked for.
    matched: int = await connection.fetchval(
        f"select count(*) from trace t where {where.sql()}", *where.values
    )
    size = SAMPLED_TRACES
    part = _SPARE * size / max(matched, 1)
    for most in (part, 1.0):
        few = where.copy()
        if most < 1:
            few.add(f"{_END} < {few.value(int(most * 2**64).to_bytes(8, 'big'))}")
        rows = await connection.fetch(
            f"select t.trace_id from trace t where {few.sql()} order by {_END}, t.trace_id"
            f" limit {few.value(size)}",
            *few.values,
        )
        if most >= 1 or len(rows) == size:
            break
    return matched, [row["trace_id"] for row in rows]


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
    rows = await connection.fetch(_VALUES, *asked)
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
_EACH_FIELD: Final = " union all ".join(
    f"select '{field}' as field, {field} as value, n from told where {field} is not null group by 2, 3"
    for field in COMPARED_FIELDS
)
#: In how many traces each value stands, and each attribute, which is put into words once it is counted. A
#: trace is looked into once, within its own days, and what its spans have in common is told once.
_VALUES: Final = f"""
with told as materialized (
    select chosen.n, s.* from unnest($2::bytea[], $3::timestamptz[], $4::timestamptz[]) with ordinality
        as chosen (id, low, high, n)
    cross join lateral (
        select distinct {", ".join(COMPARED_FIELDS)}, facets from span where project_id = $1
            and trace_id = chosen.id and started_at between chosen.low and chosen.high offset 0
    ) as s
), attributes as (
    select code, count(*) as traces from (
        select c.code, n from told cross join lateral string_to_table(facets, null) as c (code) group by 1, 2
    ) as held group by 1
)
(select field, value, count(*) as traces from ({_EACH_FIELD}) as each group by 1, 2 order by 3 desc, 1, 2
    limit $5)
union all
(select v.field, v.value, each.traces from attributes as each
    join attribute_value v on v.project_id = $1 and v.code = each.code and v.value <> ''
    order by 3 desc, 1, 2 limit $5)
"""
