"""Comparing two populations of traces: which traces they are, and what their spans say.

Called by the query API and the tool `compare`. Reads in SQL what a bounded sample of each side says, which
`svc.store.reads.usage.compared_traces` chooses; `svc.domain.queries.population_comparison` does the
statistics. Raises `Refused` for what cannot be asked, `Outage` when the database is away or the time is up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from datetime import datetime
from typing import Final

import attrs
import trio

from protocol.rest.answers import Compared
from svc.domain.queries.population_comparison import Mean, TracePopulation, compared
from svc.store.postgres.database import Connection, Database, left_s
from svc.store.reads.questions.attributes import history_note, require_fields, young_fields
from svc.store.reads.usage.compared_sides import Side
from svc.store.reads.usage.compared_traces import ComparedTraces, SampledTraces

COMPARE_TIMEOUT_S: Final = 30.0
#: Values of all fields read of a side, the most frequent.
VALUES_READ: Final = 2_000
#: A field is compared where no more than this share of either side was stored before it became one.
MOST_BEFORE: Final = 0.05
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


@attrs.define(eq=False)
class CompareStore:
    """Compares two populations of one project."""

    database: Database

    async def compare(self, project_id: int, baseline: Side, comparison: Side) -> Compared:
        """Sizes, measures, values that moved most, examples. A trace of both sides is one of comparison."""
        await require_fields(self.database, project_id, (*baseline.fields, *comparison.fields))
        until_s = trio.current_time() + COMPARE_TIMEOUT_S
        traces = ComparedTraces(project_id, baseline, comparison, _FIGURES)
        await traces.prepare(self.database, until_s)

        async def before(connection: Connection) -> _Read:
            return await _read(connection, project_id, await traces.of_baseline(connection))

        async def since(connection: Connection) -> _Read:
            return await _read(connection, project_id, await traces.of_comparison(connection))

        # Side by side: nearly all of their time is the database's.
        sides = await self.database.run_all((before, since), timeout_s=left_s(until_s))
        split_by = baseline.split_by | comparison.split_by
        young = await self._young(project_id, sides, split_by)
        answer = compared(
            _population(sides[0], sides[0].sample.without(sides[1].sample)),
            _population(sides[1], sides[1].sample),
            split_by | young.keys(),
        )
        answer.notes += [history_note({name: young.pop(name)}) for name in sorted(young.keys() & split_by)]
        if young and answer.baseline.sampled and answer.comparison.sampled:
            answer.notes.append(f"not compared: {history_note(young)}")
        return answer

    async def _young(
        self, project_id: int, sides: Collection[_Read], split_by: Set[str]
    ) -> dict[str, datetime]:
        """The fields with values here that became so after many traces of a side were stored.

        Those may have had a value of them, so a share of all is too small.
        """
        arrivals = [moments for side in sides if (moments := side.sample.row["arrivals"])]
        if not arrivals:
            return {}
        names = (split_by | {field for side in sides for field, _ in side.values}) - {*COMPARED_FIELDS}
        young = await young_fields(self.database, project_id, names, min(map(min, arrivals)))
        return {
            name: since
            for name, since in young.items()
            if any(
                sum(moment < since for moment in moments) > MOST_BEFORE * len(moments) for moments in arrivals
            )
        }


@attrs.frozen
class _Read:
    """A sample, and in how many of its traces each value stands."""

    sample: SampledTraces
    values: Mapping[tuple[str, str], int]


async def _read(connection: Connection, project_id: int, sample: SampledTraces) -> _Read:
    bounds = [sample.row[name] or [] for name in ("ids", "firsts", "lasts")]
    rows = await connection.fetch(_VALUES, project_id, *bounds, VALUES_READ)
    return _Read(sample, {(row["field"], row["value"]): row["traces"] for row in rows})


def _population(read: _Read, sample: SampledTraces) -> TracePopulation:
    figures = sample.row
    newest = sorted(zip(figures["firsts"] or [], figures["ids"] or [], strict=True), reverse=True)
    return TracePopulation(
        # Of an estimate less another, which may come to less than was seen.
        matched=max(sample.matched, figures["sampled"]),
        estimated=sample.estimated,
        sampled=figures["sampled"],
        shares={"error_rate": figures["failed"], "failed_spans_rate": figures["with_failed_spans"]},
        means={
            name: Mean(figures[f"{name}_traces"], figures[f"{name}_mean"], figures[f"{name}_deviation"])
            for name in _AVERAGED
        },
        quantiles={"duration_p95": figures["duration_p95"]},
        values=read.values,
        examples=[trace_id.hex() for _, trace_id in newest],
    )


#: What is averaged over traces, as SQL over their rows.
_AVERAGED: Final = {
    "duration": "extract(epoch from t.ended_at - t.started_at)::float8 * 1000",
    "cost": "t.total_cost::float8",
    "tokens": "t.total_tokens::float8",
    "spans": "t.span_count::float8",
}
_FIGURES: Final = (
    "count(*) filter (where t.status = 'error') as failed,"
    " count(*) filter (where t.error_count > 0) as with_failed_spans,"
    f" percentile_disc(0.95) within group (order by {_AVERAGED['duration']}) as duration_p95,"
    + ",".join(
        f" count({sql}) as {name}_traces, avg({sql}) as {name}_mean, stddev_samp({sql}) as {name}_deviation"
        for name, sql in _AVERAGED.items()
    )
    + ", array_agg(t.created_at) as arrivals, array_agg(t.trace_id) as ids,"
    " array_agg(t.first_started_at) as firsts, array_agg(t.last_started_at) as lasts"
)
#: Fields of which a few values tell all spans of a sample apart; each person has a trace or two.
_SHARED_FIELDS: Final = ", ".join(field for field in COMPARED_FIELDS if field != "user_id")
_EACH_FIELD: Final = " union all ".join(
    f"select '{field}' as field, {field} as value, bit_count(bit_or(traces)) as traces from alike"
    f" where {field} is not null group by 2"
    for field in COMPARED_FIELDS
    if field != "user_id"
)
#: In how many traces each value stands, and each attribute, which is put into words once it is counted. A
#: trace is looked into once, within its own days, and what its spans have in common is told once. What many
#: spans have in common is counted by a bit for each trace: by a row for each value of each trace that took
#: 150 ms of 250 (November 2026).
_VALUES: Final = f"""
with told as materialized (
    select chosen.n, s.* from unnest($2::bytea[], $3::timestamptz[], $4::timestamptz[]) with ordinality
        as chosen (id, low, high, n)
    cross join lateral (
        select distinct {", ".join(COMPARED_FIELDS)}, facets from span where project_id = $1
            and trace_id = chosen.id and started_at between chosen.low and chosen.high offset 0
    ) as s
), none as materialized (
    select repeat('0', cardinality($2))::bit varying as traces
), alike as materialized (
    select {_SHARED_FIELDS}, bit_or(set_bit((select traces from none), n::integer - 1, 1)) as traces from told
    group by {_SHARED_FIELDS}
), people as (
    select user_id, count(*) as traces from (
        select user_id, n from told where user_id is not null group by 1, 2
    ) as each group by 1
), attributes as (
    select code, count(*) as traces from (
        select c.code, n from told cross join lateral string_to_table(facets, null) as c (code) group by 1, 2
    ) as held group by 1
)
(select field, value, traces from ({_EACH_FIELD} union all select 'user_id', user_id, traces from people)
    as each order by 3 desc, 1, 2 limit $5)
union all
(select v.field, v.value, each.traces from attributes as each
    join attribute_value v on v.project_id = $1 and v.code = each.code and v.value <> ''
    order by 3 desc, 1, 2 limit $5)
"""
