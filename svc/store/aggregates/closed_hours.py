"""When an hour is closed, and the marks of those whose rows changed since, which `cubes` counts anew.

Owns the marks in the table `cube_dirty`. Whoever replaces, dates anew or takes away rows of a dataset with
hours calls `mark_dirty` in the same transaction. Never builds an hour, and so never needs what building does.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS, TOOL_CALLS, Dataset
from svc.store.postgres.database import Connection

HOUR: Final = timedelta(hours=1)

#: An hour is closed this long after its end: longer than any write group may take (`WORK_TIMEOUT_S`), so
#: that none of its rows is still on the way.
GRACE: Final = timedelta(minutes=2)

BUILD_TIMEOUT_S: Final = 600.0

#: The datasets that grow with traffic.
CUBED: Final = (SPANS, TOOL_CALLS)


async def mark_dirty(
    connection: Connection, marks: Iterable[tuple[int, datetime]], dataset: Dataset, now: datetime
) -> None:
    """Rows created at these moments change in this transaction: count their hours anew.

    Hours that are not closed yet need no mark: they are not in the cube.
    """
    hours = {(project_id, hour_of(moment)) for project_id, moment in marks}
    closed = sorted((project_id, hour) for project_id, hour in hours if hour + HOUR <= now)
    if not closed:
        return
    # The update takes the lock that a build of the same hour waits for.
    await connection.execute(
        "insert into cube_dirty (project_id, dataset, hour, marked_at)"
        " select p, $3, h, $4 from unnest($1::bigint[], $2::timestamptz[]) as marks (p, h)"
        " on conflict (project_id, dataset, hour) do update set marked_at = excluded.marked_at",
        [project_id for project_id, _ in closed],
        [hour for _, hour in closed],
        dataset.name,
        now,
    )
