"""Where rows with a value lie: the index behind pages that are narrowed to a value without an index.

Owns the table `search_value`, with `svc.store.reads.search`, which reads it. The cube builder calls
`build_values` for each hour it builds, in the same transaction, so that it is current exactly where the cubes
are.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from svc.domain.queries.datasets import SPANS, TOOL_CALLS, Dataset
from svc.store.postgres.clauses import by_each
from svc.store.postgres.database import Connection

#: The fields of each dataset whose values are placed. Closed: they are named in SQL.
PLACED: Final[dict[str, tuple[str, ...]]] = {
    SPANS.name: ("kind", "name", "model_id", "provided_model_name", "call_site_id"),
    TOOL_CALLS.name: ("name", "error_type", "call_site_id"),
}

#: So many rows of a value in an hour are placed one by one; of more, the hour is looked through.
FEW_ROWS: Final = 16


# The same of attributes: a field by its name, as a column would be.
_ATTRIBUTES: Final = f"""
with told as materialized (
    select c.code, s.created_at, s.started_at from span s
    cross join lateral string_to_table(s.facets, null) as c (code)
    where s.project_id = $1 and s.created_at >= $2 and s.created_at < $3 and s.facets is not null
), counted as materialized (
    select code, count(*) as n, max(started_at) as last_started_at from told group by code
), few as (
    select code, array_agg(created_at) as created_at, array_agg(started_at) as started_at
    from told join counted using (code) where n <= $4 group by code
)
insert into search_value (project_id, dataset, field, value, hour, n, last_started_at, created_at, started_at)
select $1, '{SPANS.name}', v.field, v.value, $2, c.n, c.last_started_at, few.created_at, few.started_at
from counted c join attribute_value v on v.project_id = $1 and v.code = c.code
left join few on few.code = c.code
"""


async def build_values(
    connection: Connection, dataset: Dataset, project_id: int, hour: datetime, end: datetime
) -> None:
    """Place the values of the hour that ends then, in the transaction that builds its cube."""
    fields = PLACED[dataset.name]
    name, value, sets = by_each(fields)
    pairs = ", ".join(f"('{field}', {field})" for field in fields)
    await connection.execute(
        "delete from search_value where project_id = $1 and dataset = $2 and hour = $3",
        project_id,
        dataset.name,
        hour,
    )
    # One pass counts every value, and a second one picks the rows of those that are few: their moments are
    # never more than so many a value, however many rows the hour has.
    await connection.execute(
        f"with told as materialized (select created_at, started_at, {', '.join(fields)} from {dataset.table}"
        " where project_id = $1 and created_at >= $3 and created_at < $4),"
        f" counted as materialized (select {name} as field, {value} as value,"
        " count(*) as n, max(started_at) as last_started_at from told"
        f" group by grouping sets ({sets})),"
        " few as (select field, value, array_agg(created_at) as created_at,"
        f" array_agg(started_at) as started_at from told cross join lateral (values {pairs})"
        " as said (field, value) join counted using (field, value) where n <= $5 group by field, value)"
        " insert into search_value (project_id, dataset, field, value, hour, n, last_started_at, created_at,"
        " started_at) select $1, $2, field, value, $3, n, last_started_at, created_at, started_at"
        " from counted left join few using (field, value) where value is not null",
        project_id,
        dataset.name,
        hour,
        end,
        FEW_ROWS,
    )
    if dataset is SPANS:
        await connection.execute(_ATTRIBUTES, project_id, hour, end, FEW_ROWS)
