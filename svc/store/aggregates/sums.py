"""Sums of all rows: of each hour and day, by each value of each facet field; those of days are of the hours.

Called by `svc.store.aggregates.cubes`, which builds them in one transaction and says where they are right.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from svc.domain.queries.datasets import Dataset
from svc.store.aggregates.failed import FAILED, WITHOUT_FAILED
from svc.store.postgres.clauses import by_each
from svc.store.postgres.database import Connection

#: Fields without sums by day: their values hardly outlive an hour.
ONLY_HOURS: Final = frozenset({"session_id"})


async def count_all(
    connection: Connection, project_id: int, dataset: Dataset, hour: datetime, end: datetime
) -> None:
    """Count every value of every facet field in the hour that ends then, and its rows."""
    name, value, sets = by_each([field.name for field in dataset.fields if field.counted_ahead])
    await connection.execute(
        "delete from cube where project_id = $1 and dataset = $2 and hour = $3",
        project_id,
        dataset.name,
        hour,
    )
    # One pass over the hour counts every value of every field, and the total.
    await connection.execute(
        "insert into cube (project_id, dataset, field, hour, value, n)"
        f" select $1, $2, {name}, $3, {value}, count(*)"
        f" from {dataset.table} where project_id = $1 and created_at >= $3 and created_at < $4"
        f" group by grouping sets ((), {sets}) having count(*) > 0",
        project_id,
        dataset.name,
        hour,
        end,
    )


async def sum_up(connection: Connection, project_id: int, dataset: Dataset, day: datetime) -> None:
    """Add up what is built of a day."""
    end = day + timedelta(days=1)
    await connection.execute(
        "delete from cube_day where project_id = $1 and dataset = $2 and day = $3",
        project_id,
        dataset.name,
        day,
    )
    fields = ["", *(f.name for f in dataset.fields if f.counted_ahead and f.name not in ONLY_HOURS)]
    # Whether all of them have the sums of what failed.
    if not await connection.fetchval(
        f"select exists ({WITHOUT_FAILED})", project_id, dataset.name, day, end, FAILED
    ):
        fields += [FAILED + name for name in fields]
    # The hours of the day that are built so far, field by field.
    await connection.execute(
        "insert into cube_day (project_id, dataset, field, day, value, n)"
        " select project_id, dataset, field, $3, value, sum(n) from cube where project_id = $1"
        " and dataset = $2 and field = any($5) and hour >= $3 and hour < $4"
        " group by project_id, dataset, field, value",
        project_id,
        dataset.name,
        day,
        end,
        fields,
    )
