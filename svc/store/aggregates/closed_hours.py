"""When an hour is closed, and the marks of those whose rows changed since, which `cubes` counts anew.

Owns the marks in the tables `cube_dirty` and, of slices of the hour under way, `span_slice_mark` and
`trace_slice_mark`. Whoever replaces, dates anew or takes away rows of a dataset with hours calls `mark_dirty`
in the same transaction. Never builds an hour or a slice, and so never needs what building does.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS, TOOL_CALLS, Dataset
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection

HOUR: Final = timedelta(hours=1)

#: What is written of the hour under way at once.
SLICE: Final = timedelta(minutes=5)
SLICES_OF_HOUR: Final = HOUR // SLICE

#: An hour or a slice is closed this long after its end: longer than any write group or round of roll-ups may
#: take (`WORK_TIMEOUT_S`), so that none of its rows is still on the way.
GRACE: Final = timedelta(minutes=2)

BUILD_TIMEOUT_S: Final = 600.0

#: A slice of a later moment may be being built right now, where nobody else sees it yet.
_MAY_BE_BUILDING: Final = 2 * HOUR

#: A slice waits so long after the last change before it is written.
SLICE_QUIET: Final = timedelta(minutes=2)
#: A mark so young stands for another: nobody builds the slice before it is `SLICE_QUIET`, and by then any
#: work is done (`WORK_TIMEOUT_S`). Traces that go on for long are rolled up every few seconds.
_YOUNG: Final = timedelta(seconds=30)

#: The datasets that grow with traffic.
CUBED: Final = (SPANS, TOOL_CALLS)
#: The tables of the datasets of which slices are written.
_SLICED: Final = ("span", "trace")


async def mark_dirty(
    connection: Connection,
    marks: Iterable[tuple[int, datetime]],
    dataset: Dataset,
    now: datetime,
    *,
    slow: bool = False,
) -> None:
    """Rows created at these moments change in this transaction: count their hours anew, and their slices.

    A full hour stands for all of its moments. Hours and slices that are not over yet need no mark: they are
    not in the cube, nor in columns. Work that began at `now` and may take longer than `GRACE` is `slow`: it
    asks the server's clock, and marks slices that may be written before it ends.
    """
    marks = set(marks)
    if slow and marks:
        now = max(now, await server_clock(connection))
    if dataset.table in _SLICED:
        await _mark_slices(connection, dataset, marks, now, slow=slow)
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


async def _mark_slices(
    connection: Connection,
    dataset: Dataset,
    marks: Iterable[tuple[int, datetime]],
    now: datetime,
    *,
    slow: bool,
) -> None:
    slices = {(project_id, slice_) for project_id, moment in marks for slice_ in _slices(moment)}
    marked = sorted((project_id, slice_) for project_id, slice_ in slices if slow or slice_ + SLICE <= now)
    if not marked:
        return
    await connection.execute(
        f"insert into {dataset.table}_slice_mark (project_id, slice, marked_at) select p, s, $3"
        " from unnest($1::bigint[], $2::timestamptz[]) as marks (p, s) where (s > $4"
        f" or exists (select from {dataset.table}_slice where project_id = p and slice = s))"
        f" and ($5 or not exists (select from {dataset.table}_slice_mark m where m.project_id = p"
        " and m.slice = s and m.marked_at > $6))",
        [project_id for project_id, _ in marked],
        [slice_ for _, slice_ in marked],
        *(now, now - _MAY_BE_BUILDING, slow, now - _YOUNG),
    )


def slice_of(moment: datetime) -> datetime:
    """The beginning of the slice that an aware moment lies in."""
    hour = hour_of(moment)
    return hour + (moment - hour) // SLICE * SLICE


def _slices(moment: datetime) -> list[datetime]:
    """Those that a mark is about."""
    hour = hour_of(moment)
    if moment == hour:
        return [hour + number * SLICE for number in range(SLICES_OF_HOUR)]
    return [slice_of(moment)]
