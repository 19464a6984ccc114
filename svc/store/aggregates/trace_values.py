"""Traces by the hour: side by side in groups, and which of them hold a model, a kind or a call site.

Owns the tables `trace_group` and `trace_cube`, with `svc.store.reads.traces.trace_groups`, which reads them.
Whoever builds an hour of traces or a slice of the hour under way calls `build_trace_values` in the same
transaction, so that they are right exactly where the cubes and the slices are: as of the last roll-up of each
trace. As in `vitals`, an hour is that of `created_at` and its rows are told apart by the hour in which they
began.

A group is at most `MOST_TRACES` traces in the order in which they began; a value's bits say which of them
hold it. So a filter is a few `and`s over what a month of them has. What each trace took, cost and belongs to
is coded (`svc.store.aggregates.trace_codes`); a release before reads it here, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from svc.store.aggregates.trace_codes import build_trace_codes
from svc.store.postgres.database import Connection, Database

#: What a span can have that its trace is then said to hold: the name of the field, and columns of spans.
HELD: Final = {
    "model": ("model_id", "provided_model_name"),
    "kind": ("kind",),
    "call_site_id": ("call_site_id",),
}
#: The field of the count of all traces; its value is empty too.
ALL: Final = ""
#: Traces of a group: a value that one of them holds costs it an eighth of a byte for each.
MOST_TRACES: Final = 4096

#: Of an hour that was built by a release without groups.
_LACKING: Final = f"field = '{ALL}' and held is null"

#: The attribute fields of a span `s` of project `$1`, as rows of `field` and `value`.
VALUES_OF_SPAN: Final = (
    "string_to_table(s.facets, null) as c (code) join attribute_value v"
    " on v.project_id = $1 and v.code = c.code"
)

_VALUES: Final = ", ".join(
    f"('{field}', s.{column})" for field, columns in HELD.items() for column in columns
)

_BITS: Final = "string_agg(case when {} then '1' else '0' end, '' order by bit)::bit varying"
#: Columns of a group and what they are made of.
_COLUMNS: Final = {
    "failed": _BITS.format("status = 'error'"),
    "failing": _BITS.format("error_count > 0"),
    "unpriced": _BITS.format("unpriced_spans > 0"),
    "started": "array_agg(started_at order by bit)",
    "ids": "array_agg(trace_id order by bit)",
    "took": "array_agg((extract(epoch from ended_at - started_at) * 1000000)::bigint order by bit)",
    "cost": "array_agg(total_cost order by bit)",
    "users": "array_agg(user_id order by bit)",
    "sessions": "array_agg(session_id order by bit)",
}


async def build_trace_values(
    connection: Connection, project_id: int, low: datetime, high: datetime, hour: datetime
) -> None:
    """Count a stretch in the transaction that builds it; its groups bear this as their hour."""
    for table in ("trace_cube", "trace_group"):
        await connection.execute(f"delete from {table} where project_id = $1 and hour = $2", project_id, hour)
    # The traces by the index on created_at, numbered in the order in which they began, then the spans of each
    # by their key; a value's bits are those of the traces that hold it.
    await connection.execute(
        "with placed as (select *, date_trunc('hour', started_at, 'UTC') as began, row_number() over ("
        "partition by date_trunc('hour', started_at, 'UTC') order by started_at, trace_id) - 1 as place"
        " from trace where project_id = $1 and created_at >= $5 and created_at < $3),"
        " told as materialized (select trace_id, began, place / $4 as part, (place % $4)::integer as bit,"
        " status, started_at, ended_at, first_started_at, last_started_at, error_count, unpriced_spans,"
        " total_cost, user_id, session_id from placed),"
        f" grouped as (insert into trace_group (project_id, hour, began, part, coded, {', '.join(_COLUMNS)})"
        f" select $1, $2, began, part, true, {', '.join(_COLUMNS.values())} from told group by began, part),"
        " sizes as materialized (select began, part, repeat('0', count(*)::integer)::bit varying as none"
        " from told group by began, part),"
        " held as (select t.began, t.part, t.bit, t.status, v.field, v.value from told t cross join lateral"
        " (select distinct"
        f" of.field, of.value from span s cross join lateral (values {_VALUES} union all"
        f" select v.field, v.value from {VALUES_OF_SPAN}) as of (field, value)"
        " where s.project_id = $1 and s.trace_id = t.trace_id and s.started_at between t.first_started_at"
        " and t.last_started_at and of.value is not null offset 0) as v"
        f" union all select began, part, bit, status, '{ALL}', '' from told)"
        " insert into trace_cube (project_id, hour, began, part, field, value, n, failed, held)"
        " select $1, $2, began, part, field, value, count(*), count(*) filter (where status = 'error'),"
        " bit_or(set_bit(none, bit, 1)) from held join sizes using (began, part)"
        " group by began, part, field, value",
        *(project_id, hour, high, MOST_TRACES, low),
    )
    await build_trace_codes(connection, project_id, hour)


async def lacking_hours(connection: Connection, project_id: int) -> Sequence[datetime]:
    """The hours that are built without groups, as of this transaction's snapshot."""
    # By an index that holds nothing else.
    rows = await connection.fetch(
        f"select distinct hour from trace_cube where project_id = $1 and {_LACKING} order by hour", project_id
    )
    return [row["hour"] for row in rows]


async def mark_lacking(database: Database, now: datetime) -> None:
    """Have the hours without groups built anew, which a release before built, or builds beside this one."""
    # By the same index.
    await database.fetch(
        "insert into cube_dirty (project_id, dataset, hour, marked_at)"
        f" select distinct project_id, 'traces', hour, $1::timestamptz from trace_cube where {_LACKING}"
        " on conflict do nothing",
        now,
    )
