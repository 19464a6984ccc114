"""Sums of what failed, beside those of all rows: of each hour and day, by each value of each facet field.

Called by `svc.store.aggregates.cubes`, which builds them with the others and in the same transaction. Owns
how they are named, and which hours have none: those that an earlier release built.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from svc.domain.queries.datasets import Dataset
from svc.store.postgres.clauses import by_each
from svc.store.postgres.database import Connection

#: Before the name of a field: the same sums of what failed alone, with a total of its own. An hour has all of
#: them or, built by an earlier release, none: then it has no such total either, and is counted row by row.
FAILED: Final = "failed:"

# The built hours of a stretch without the sums of what failed.
WITHOUT_FAILED: Final = (
    "select c.hour from cube c where c.project_id = $1 and c.dataset = $2 and c.field = '' and c.hour >= $3"
    " and c.hour < $4 and not exists (select from cube f where f.project_id = $1 and f.dataset = $2"
    " and f.field = $5 and f.hour = c.hour)"
)

# The same, and not within a day that has them as a whole.
LACKING_FAILED: Final = (
    f"{WITHOUT_FAILED} and date_trunc('day', c.hour, 'UTC') <> all(array(select day from cube_day"
    " where project_id = $1 and dataset = $2 and field = $5 and day >= $3 - interval '1 day' and day < $4))"
)


async def count_failed(
    connection: Connection, project_id: int, dataset: Dataset, hour: datetime, end: datetime
) -> None:
    """Count the hour that ends then; the total stands there even when nothing failed."""
    name, value, sets = by_each([field.name for field in dataset.fields if field.counted_ahead])
    # By the index on what failed.
    await connection.execute(
        "insert into cube (project_id, dataset, field, hour, value, n)"
        f" select $1, $2, $5 || {name}, $3, {value}, count(*) from {dataset.table}"
        " where project_id = $1 and created_at >= $3 and created_at < $4 and status = 'error'"
        f" group by grouping sets ((), {sets})",
        project_id,
        dataset.name,
        hour,
        end,
        FAILED,
    )
