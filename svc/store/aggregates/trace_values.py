"""How many traces began when that hold a span of a model, a kind or a call site, and how many of them failed.

Owns the table `trace_cube`, with `svc.store.reads.trace_counts`, which reads it. The cube builder calls
`build_trace_values` for each hour of traces it builds, in the same transaction, so that it is right exactly
where the cubes are. As in `vitals`, an hour is that of `created_at` and its rows are told apart by the hour
in which they began.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from svc.store.postgres.database import Connection

#: What a span can have that its trace is then said to hold: the name of the field, and columns of spans.
HELD: Final = {
    "model": ("model_id", "provided_model_name"),
    "kind": ("kind",),
    "call_site_id": ("call_site_id",),
}
#: The field of the count of all traces; its value is empty too.
ALL: Final = ""

_VALUES: Final = ", ".join(
    f"('{field}', s.{column})" for field, columns in HELD.items() for column in columns
)


async def build_trace_values(connection: Connection, project_id: int, hour: datetime, end: datetime) -> None:
    """Count the hour that ends then, in the transaction that builds its cube."""
    # What the hour had.
    await connection.execute("delete from trace_cube where project_id = $1 and hour = $2", project_id, hour)
    # The traces by the index on created_at, then the spans of each by their key.
    await connection.execute(
        "with told as materialized (select trace_id, date_trunc('hour', started_at, 'UTC') as began, status,"
        " first_started_at, last_started_at from trace where project_id = $1 and created_at >= $2"
        " and created_at < $3),"
        " held as (select t.began, t.status, v.field, v.value from told t cross join lateral (select distinct"
        f" of.field, of.value from span s cross join lateral (values {_VALUES}) as of (field, value)"
        " where s.project_id = $1 and s.trace_id = t.trace_id and s.started_at between t.first_started_at"
        " and t.last_started_at and of.value is not null offset 0) as v"
        f" union all select began, status, '{ALL}', '' from told)"
        " insert into trace_cube (project_id, hour, began, field, value, n, failed)"
        " select $1, $2, began, field, value, count(*), count(*) filter (where status = 'error') from held"
        " group by began, field, value",
        project_id,
        hour,
        end,
    )
