"""How an hour is counted into a cube, and how its day is summed up.

Owns the statements that write `cube` and `cube_day`. `cubes` calls them in its transaction, once it has the
hour to itself; never decides which hour.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from svc.domain.datasets import Dataset
from svc.store.postgres.clauses import by_each
from svc.store.postgres.database import Connection

_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
#: Fields without sums by day: their values hardly outlive an hour.
ONLY_HOURS: Final = frozenset({"session_id"})
#: Before the name of a field: the same sums of what failed alone, with a total of its own. An hour has all of
#: them or, built by an earlier release, none: then it has no such total either, and is counted row by row.
FAILED: Final = "failed:"

# The built hours of a stretch without the sums of what failed.
WITHOUT_FAILED: Final = (
    "select c.hour from cube c where c.project_id = $1 and c.dataset = $2 and c.field = '' and c.hour >= $3"
    " and c.hour < $4 and not exists (select from cube f where f.project_id = $1 and f.dataset = $2"
    " and f.field = $5 and f.hour = c.hour)"
)


async def count(connection: Connection, project_id: int, dataset: Dataset, hour: datetime) -> None:
    """Count an hour anew: every value of every field, and the total."""
    name, value, sets = by_each([field.name for field in dataset.fields if field.facetable])
    # What the hour had.
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
        hour + _HOUR,
    )


async def count_failed(connection: Connection, project_id: int, dataset: Dataset, hour: datetime) -> None:
    """The same of what failed; the total stands there even when nothing has."""
    name, value, sets = by_each([field.name for field in dataset.fields if field.facetable])
    # By the index on what failed.
    await connection.execute(
        "insert into cube (project_id, dataset, field, hour, value, n)"
        f" select $1, $2, $5 || {name}, $3, {value}, count(*) from {dataset.table}"
        " where project_id = $1 and created_at >= $3 and created_at < $4 and status = 'error'"
        f" group by grouping sets ((), {sets})",
        project_id,
        dataset.name,
        hour,
        hour + _HOUR,
        FAILED,
    )


async def sum_up(connection: Connection, project_id: int, dataset: Dataset, day: datetime) -> None:
    """Sum up the hours of a day that are built so far."""
    await connection.execute(
        "delete from cube_day where project_id = $1 and dataset = $2 and day = $3",
        project_id,
        dataset.name,
        day,
    )
    fields = ["", *(f.name for f in dataset.fields if f.facetable and f.name not in ONLY_HOURS)]
    # Whether all of them have the sums of what failed.
    if not await connection.fetchval(
        f"select exists ({WITHOUT_FAILED})", project_id, dataset.name, day, day + _DAY, FAILED
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
        day + _DAY,
        fields,
    )
