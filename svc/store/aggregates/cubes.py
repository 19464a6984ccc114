"""Hourly cubes over closed hours and their sums by day: built off the hot path, read by every aggregate.

Owns the tables `cube`, `cube_day`, `cube_progress` and, with `closed_hours`, `cube_dirty`; what searches
look up is built along with them (`blocks`, `values`), the vitals of what ran (`vitals`), the models that were
called (`models`), ids of spans (`span_ids`), spans by column (`span_columns`), and traces, their codes and
ids (`trace_values`, `trace_codes`, `trace_ids`), which have hours as well. A closed hour of `created_at`
changes only when a span in it is replaced, expires, or loses a repeated tool call; whoever does that calls
`mark_dirty` in the same transaction.

Questions that the cube cannot answer go to the raw rows (`svc.store.reads.questions.query`).

Ordering: building an hour first deletes its mark, which waits for whoever is marking it, and then counts with
a later snapshot. A mark made meanwhile waits for the build and stands behind it. So a clean hour is right,
and so is a day whose hours are all built and clean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import attrs

from protocol.storage import Built
from svc.domain.calendar import EPOCH, after, day_of, hour_of
from svc.domain.queries.datasets import SPANS, Dataset
from svc.store.aggregates.blocks import LACKING_ERRORS, build_blocks, renew_blocks
from svc.store.aggregates.closed_hours import BUILD_TIMEOUT_S, CUBED, GRACE, HOUR
from svc.store.aggregates.counts import fold
from svc.store.aggregates.failed import FAILED, LACKING_FAILED, WITHOUT_FAILED, count_failed
from svc.store.aggregates.feedback_sums import fold_feedback
from svc.store.aggregates.models import build_models
from svc.store.aggregates.projects import every_project, lock_builder
from svc.store.aggregates.slices import Slices, drop_slices
from svc.store.aggregates.span_columns import DayColumns, build_hour_columns
from svc.store.aggregates.span_ids import build_span_ids
from svc.store.aggregates.span_slices import SPAN_SLICES
from svc.store.aggregates.sums import count_all, sum_up
from svc.store.aggregates.trace_codes import UNCODED, code_lacking
from svc.store.aggregates.trace_ids import build_trace_ids
from svc.store.aggregates.trace_slices import TRACE_SLICES
from svc.store.aggregates.trace_values import build_trace_values, mark_lacking
from svc.store.aggregates.values import build_values
from svc.store.aggregates.vitals import TRACES, build_vitals
from svc.store.postgres.database import Connection, Database

DAY: Final = timedelta(days=1)

_END: Final = datetime(9999, 12, 31, tzinfo=UTC)

#: What has hours that are built: those, and traces, of which only the vitals are.
BUILT: Final = {dataset.name: dataset for dataset in (*CUBED, TRACES)}

#: Days that one round writes by column: a large one takes seconds.
DAYS_AT_ONCE: Final = 4
#: Hours of which one round makes blocks of search anew.
RENEWED_AT_ONCE: Final = 2
#: Slices of one dataset, of all projects.
SLICES_AT_ONCE: Final = 200
#: What the hour under way has slices of.
SLICED: Final = (SPAN_SLICES, TRACE_SLICES)

#: Completes an hour of a project in a transaction; False where that has been done meanwhile.
_Complete = Callable[[Connection, int, datetime], Awaitable[bool]]


@attrs.define(eq=False)
class CubeStore:
    """Implements the `Hours` port."""

    database: Database
    #: Whether there may be hours of an earlier release, without the sums of what failed.
    _earlier: bool = attrs.field(default=True, init=False)
    _slices: Sequence[Slices] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._slices = [Slices(self.database, kind) for kind in SLICED]

    async def build(self, now: datetime, limit: int) -> Built:
        """Build what is closed and not built, and what is dirty, up to `limit` hours; and fold the counts."""
        await fold(self.database)
        await fold_feedback(self.database)
        hours = 0
        for project_id in await every_project(self.database):
            for dataset in BUILT.values():
                hours += await self._catch_up(project_id, dataset, now, limit - hours)
                if hours >= limit:
                    return Built(hours, more=True)
        await mark_lacking(self.database, now)
        for project_id, name, hour in await self._dirty(limit - hours):
            await self._build(project_id, BUILT[name], hour, until=None, now=now)
            hours += 1
        if self._earlier and hours < limit:
            hours += await self._make_up(limit - hours)
        if hours < limit:
            hours += await self._complete(UNCODED, limit - hours, code_lacking)
        if hours >= limit:
            return Built(hours, more=True)
        built_slices = max([await slices.build(now, SLICES_AT_ONCE) for slices in self._slices])
        days = await DayColumns(self.database).build(now, DAYS_AT_ONCE)
        # A few a round: what comes now is not kept waiting by what was built long ago.
        at_once = min(limit - hours, RENEWED_AT_ONCE)
        renewed = await self._complete(LACKING_ERRORS, at_once, renew_blocks)
        more = built_slices == SLICES_AT_ONCE or days == DAYS_AT_ONCE or renewed > 0
        return Built(hours + days + renewed, more=more)

    async def renew(self, project_id: int, now: datetime, limit: int) -> int:
        """Build up to so many dirty hours of one project. Returns how many there were. Raises `Outage`."""
        rows = await self.database.fetch(
            "select dataset, hour from cube_dirty where project_id = $1"
            " order by marked_at, hour desc limit $2",
            *(project_id, limit),
        )
        for row in rows:
            await self._build(project_id, BUILT[row["dataset"]], row["hour"], until=None, now=now)
        return len(rows)

    async def _complete(self, lacking: str, limit: int, complete: _Complete) -> int:
        """Do for hours what a release before did not, or does not beside this one. Returns for how many.

        `lacking` is the statement that names up to `limit` of them with their projects.
        """
        rows = await self.database.fetch(lacking, limit)

        async def work(connection: Connection, project_id: int, hour: datetime) -> bool:
            await lock_builder(connection, project_id)
            return await complete(connection, project_id, hour)

        return sum(
            [
                await self.database.run(
                    partial(work, project_id=row["project_id"], hour=row["hour"]), timeout_s=BUILD_TIMEOUT_S
                )
                for row in rows
            ]
        )

    async def _make_up(self, limit: int) -> int:
        """Count what failed in the hours that an earlier release built. Returns how many there were."""
        hours = 0
        for project_id in await every_project(self.database):
            for dataset in CUBED:
                rows = await self.database.fetch(
                    f"{LACKING_FAILED} order by 1 desc limit $6",
                    *(project_id, dataset.name, EPOCH, _END, FAILED, limit - hours),
                )
                for row in rows:
                    await self._build_failed(project_id, dataset, row["hour"])
                hours += len(rows)
        self._earlier = hours >= limit
        return hours

    async def _build_failed(self, project_id: int, dataset: Dataset, hour: datetime) -> None:
        """As `_build`, of what failed alone. A dirty hour is left alone: it will be built as a whole."""

        async def work(connection: Connection) -> None:
            await lock_builder(connection, project_id)
            # Whether somebody else has done it meanwhile, or will. Who marks the hour from now on makes it
            # dirty, and dirty hours are not read.
            if await connection.fetchval(
                "select exists (select from cube_dirty where project_id = $1 and dataset = $2 and hour = $3)"
                f" or not exists ({WITHOUT_FAILED})",
                *(project_id, dataset.name, hour, hour + HOUR, FAILED),
            ):
                return
            await count_failed(connection, project_id, dataset, hour, hour + HOUR)
            await sum_up(connection, project_id, dataset, day_of(hour))

        await self.database.run(work, timeout_s=BUILD_TIMEOUT_S)

    async def _dirty(self, limit: int) -> list[tuple[int, str, datetime]]:
        # Marked hours, oldest mark first; of those that were marked at once the newest.
        rows = await self.database.fetch(
            "select project_id, dataset, hour from cube_dirty order by marked_at, hour desc limit $1", limit
        )
        return [(row["project_id"], row["dataset"], row["hour"]) for row in rows]

    async def _catch_up(self, project_id: int, dataset: Dataset, now: datetime, limit: int) -> int:
        closed_until = hour_of(now - GRACE)
        hours = 0
        while hours < limit:
            hour = await self._next_hour(project_id, dataset, closed_until)
            if hour is None:
                break
            await self._build(project_id, dataset, hour, until=hour + HOUR, now=now)
            hours += 1
        return hours

    async def _next_hour(self, project_id: int, dataset: Dataset, closed_until: datetime) -> datetime | None:
        """The next closed hour with rows; hours without any are passed over at once."""

        async def work(connection: Connection) -> datetime | None:
            until = await connection.fetchval(
                "select built_until from cube_progress where project_id = $1 and dataset = $2",
                project_id,
                dataset.name,
            )
            if until is not None and until >= closed_until:
                return None
            first = await connection.fetchval(first_row(dataset), project_id, until or EPOCH)
            if first is not None and first < closed_until:
                return hour_of(first)
            if first is not None or until is not None:
                await _progress(connection, project_id, dataset, closed_until)
            return None

        return await self.database.run(work)

    async def _build(
        self, project_id: int, dataset: Dataset, hour: datetime, *, until: datetime | None, now: datetime
    ) -> None:
        async def work(connection: Connection) -> None:
            await lock_builder(connection, project_id)
            # What another one has built meanwhile is not built again.
            if until is not None and await connection.fetchval(
                "select exists (select from cube_progress where project_id = $1 and dataset = $2"
                " and built_until >= $3)",
                *(project_id, dataset.name, until),
            ):
                return
            # Waits for whoever is marking this hour; see Ordering above.
            await connection.execute(
                "delete from cube_dirty where project_id = $1 and dataset = $2 and hour = $3",
                project_id,
                dataset.name,
                hour,
            )
            if dataset is not TRACES:
                await count_all(connection, project_id, dataset, hour, hour + HOUR)
                await count_failed(connection, project_id, dataset, hour, hour + HOUR)
                await sum_up(connection, project_id, dataset, day_of(hour))
                await build_values(connection, dataset, project_id, hour, hour + HOUR)
                await build_blocks(connection, dataset, project_id, hour, hour + HOUR)
            await build_vitals(connection, dataset, project_id, hour, hour + HOUR)
            if dataset is SPANS:
                await build_models(connection, project_id, hour, hour + HOUR)
                await build_span_ids(connection, project_id, hour, hour + HOUR)
                await build_hour_columns(connection, project_id, hour, hour + HOUR, now)
            if dataset is TRACES:
                await build_trace_values(connection, project_id, hour, hour + HOUR, hour)
                await build_trace_ids(connection, project_id, hour, hour + HOUR)
            if until is not None:
                await _progress(connection, project_id, dataset, until)

        await self.database.run(work, timeout_s=BUILD_TIMEOUT_S)


async def drop_day_columns(connection: Connection, project_id: int, days: Sequence[datetime]) -> None:
    """Take away the columns of days that stand as a whole, and what there is of slices, in a transaction of
    the caller's: what changed would stand in them until the day is quiet. They are written anew.
    """
    # No builder is at work on one of them.
    await lock_builder(connection, project_id)
    await connection.execute(
        "with gone as (delete from span_column_day where project_id = $1 and whole"
        " and day = any($2::timestamptz[]) returning day)"
        " delete from span_column c using gone where c.project_id = $1 and c.day = gone.day",
        *(project_id, days),
    )
    for kind in SLICED:
        await drop_slices(connection, kind, project_id, days)


async def _progress(connection: Connection, project_id: int, dataset: Dataset, until: datetime) -> None:
    # Never backwards: another replica may be further.
    await connection.execute(
        "insert into cube_progress (project_id, dataset, built_until) values ($1, $2, $3)"
        " on conflict (project_id, dataset) do update"
        " set built_until = greatest(cube_progress.built_until, excluded.built_until)",
        project_id,
        dataset.name,
        until,
    )


def first_row(dataset: Dataset) -> str:
    """The statement that finds the first row of a project that was created at a moment or later."""
    # By the index on created_at. With "$2 is null or" in it, a prepared plan walked through all rows before
    # the moment: the longest of all statements when two million spans were counted anew (November 2026).
    return f"select min(created_at) from {dataset.table} where project_id = $1 and created_at >= $2"


@attrs.frozen
class Split:
    """A range cut into what the cube covers and what must be counted from raw rows.

    `cubed` is one stretch of whole hours, without the `dirty` ones; `raw` are half-open stretches. So many
    spans are `in_slices` of the hour under way, if it is about spans.
    """

    cubed: tuple[datetime, datetime]
    dirty: tuple[datetime, ...]
    raw: tuple[tuple[datetime | None, datetime | None], ...]
    in_slices: int = 0

    def days(self) -> tuple[datetime, datetime, tuple[datetime, ...]]:
        """One stretch of whole days within `cubed`, perhaps empty, and those of them with dirty hours."""
        start, end = self.cubed
        first = day_of(start) if start == day_of(start) else day_of(start) + DAY
        end_day = max(first, day_of(end))
        dirty = {day_of(hour) for hour in self.dirty}
        return first, end_day, tuple(sorted(day for day in dirty if first <= day < end_day))

    def hours(self) -> tuple[tuple[datetime, datetime], ...]:
        """What of `cubed` lies outside of the clean whole days."""
        start, end = self.cubed
        first, end_day, dirty = self.days()
        if first == end_day:
            return (self.cubed,)
        return ((start, first), *((day, day + DAY) for day in dirty), (end_day, end))


async def split_range(
    connection: Connection,
    project_id: int,
    dataset: Dataset,
    low: datetime | None,
    high: datetime | None,
    *,
    failed: bool = False,
) -> Split | None:
    """How much of a range the cube covers, as of this transaction's snapshot; None when nothing of it.

    `failed` is for the sums of what failed, which hours of an earlier release do not have.

    Ordering: the caller reads the cube and the raw rows under the same snapshot (`repeatable read`).
    """
    # How far the cube is, its first hour, and the marked hours.
    row: Any = await connection.fetchrow(
        "select p.built_until, (select min(hour) from cube where project_id = $1 and dataset = $2"
        " and field = '') as first, array(select hour from cube_dirty where project_id = $1 and dataset = $2"
        " order by hour) as dirty, case when $2 = 'spans' then (select sum(spans) from span_slice"
        " where project_id = $1) end as in_slices"
        " from cube_progress p where project_id = $1 and dataset = $2",
        project_id,
        dataset.name,
    )
    if row is None or row["first"] is None:
        return None
    start = row["first"] if low is None else max(row["first"], ceil_hour(low))
    end = row["built_until"] if high is None else min(row["built_until"], hour_of(high))
    if start >= end:
        return None
    hours = tuple(hour for hour in row["dirty"] if start <= hour < end)
    if failed:
        lacking = await connection.fetch(LACKING_FAILED, project_id, dataset.name, start, end, FAILED)
        hours = tuple(sorted({*hours, *(row["hour"] for row in lacking)}))
    raw: list[tuple[datetime | None, datetime | None]] = [(hour, hour + HOUR) for hour in hours]
    if low is None or low < start:
        raw.append((low, start))
    if high is None or high > end:
        raw.append((end, high))
    return Split((start, end), hours, tuple(raw), row["in_slices"] or 0)


def ceil_hour(moment: datetime) -> datetime:
    """The first full hour that is no earlier."""
    hour = hour_of(moment)
    return hour if hour == moment else after(hour, HOUR)
