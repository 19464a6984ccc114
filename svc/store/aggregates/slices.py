"""The hour under way in slices of five minutes: which of them are written, and when.

What is asked most is what has just come, and hours are built once they are closed. Owns the order in which
slices come and go, for `span_slices` and `trace_slices`, which say what is written of each; with
`closed_hours` it owns the marks of those that changed. The cube builder calls `Slices` in turns.

A slice is written once it is closed and nobody has changed a row of it for a while, which happens to many in
the minutes after they came: traces are rolled up, agents get their paths. A changed slice is read row by row
until it is written anew. When its hour is closed, the slice gives way to the hour.

Ordering: building deletes the marks that it sees, none of them young, and reads the rows with a later
snapshot. Whoever changes a row adds a mark in the same transaction, unless it sees a young one, which
outlasts it. So what a build does not see is marked behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import attrs

from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import Dataset
from svc.store.aggregates.closed_hours import BUILD_TIMEOUT_S, GRACE, SLICE, SLICE_QUIET, slice_of
from svc.store.aggregates.projects import lock_builder
from svc.store.postgres.database import Connection, Database


@attrs.frozen
class SliceKind:
    """What is written of the slices of a dataset, from `few` rows up: fewer are read as quickly.

    Those that are written stand in a table called as the dataset's with `_slice`. `write` adds one to it and
    writes it; False where it cannot. `clear` deletes what was written of those that are `gone` from it.
    """

    dataset: Dataset
    few: int
    write: Callable[[Connection, int, datetime], Awaitable[bool]]
    clear: Sequence[str]

    def drop(self, condition: str) -> str:
        """The statement that takes away the slices `s` of a condition, with a row for each."""
        cleared = "".join(f", cleared_{number} as ({sql})" for number, sql in enumerate(self.clear))
        return (
            f"with gone as (delete from {self.dataset.table}_slice s where {condition}"
            f" returning s.project_id, s.slice){cleared} select from gone"
        )


def is_read(dataset: Dataset) -> str:
    """That of a slice `s` of the project $1 nobody has changed a row since, and its hour is not closed."""
    return (
        "s.slice >= (select built_until from cube_progress where project_id = $1"
        f" and dataset = '{dataset.name}') and not exists (select from {dataset.table}_slice_mark m"
        " where m.project_id = $1 and m.slice = s.slice)"
    )


@attrs.define(eq=False)
class Slices:
    """Writes the slices of one dataset."""

    database: Database
    kind: SliceKind
    #: Projects with rows enough in the closed slices, and the end of the last of these.
    _busy: Sequence[int] = attrs.field(default=(), init=False)
    _closed_until: datetime | None = attrs.field(default=None, init=False)
    #: Closed slices with so few rows, or with such that cannot be written, that their rows are read.
    _few: set[tuple[int, datetime]] = attrs.field(factory=set, init=False)

    async def build(self, now: datetime, limit: int) -> int:
        """Write up to `limit` slices of all projects, and take away as many of closed hours.

        Returns how many of one or the other. Raises `Outage`.
        """
        cleared = await self._clear(limit)
        hour, closed_until = hour_of(now - GRACE), slice_of(now - GRACE)
        if closed_until != self._closed_until:
            self._busy, self._closed_until = await self._find_busy(hour, closed_until), closed_until
            self._few = {few for few in self._few if few[1] >= hour}
        if closed_until == hour or not self._busy:
            return cleared
        pending = await self._find_pending(hour, closed_until, now)
        self._few.update((project_id, slice_) for project_id, slice_, is_large in pending if not is_large)
        large = [(project_id, slice_) for project_id, slice_, is_large in pending if is_large][:limit]
        for project_id, slice_ in large:
            await self._build(project_id, slice_, now)
        return max(cleared, len(large))

    async def _clear(self, limit: int) -> int:
        """Take away marks of hours that the cubes have, and so many of their slices. Returns how many."""
        dataset = self.kind.dataset
        built = f"select project_id, built_until from cube_progress where dataset = '{dataset.name}'"
        await self.database.fetch(
            f"delete from {dataset.table}_slice_mark m using ({built}) b where m.project_id = b.project_id"
            " and m.slice < b.built_until"
        )
        # Nobody reads them any more, so they may go in turns; one that another replica takes is left to it.
        rows = await self.database.fetch(
            self.kind.drop(
                f"(s.project_id, s.slice) in (select project_id, slice from {dataset.table}_slice"
                f" join ({built}) b using (project_id) where slice < b.built_until order by 1, 2 limit $1"
                f" for update of {dataset.table}_slice skip locked)"
            ),
            limit,
        )
        return len(rows)

    async def _find_busy(self, hour: datetime, closed_until: datetime) -> list[int]:
        """Projects of which all earlier hours are built, and that have so many rows since the last of them.

        Each is a look into the index on created_at, so they are looked for once a slice and not once a round.
        """
        dataset = self.kind.dataset
        rows = await self.database.fetch(
            f"select project_id from cube_progress p where dataset = '{dataset.name}' and built_until = $1"
            f" and exists (select from {dataset.table} where project_id = p.project_id"
            " and created_at >= $1 and created_at < $2 offset $3)",
            *(hour, closed_until, self.kind.few - 1),
        )
        return [row["project_id"] for row in rows]

    async def _find_pending(
        self, hour: datetime, closed_until: datetime, now: datetime
    ) -> list[tuple[int, datetime, bool]]:
        """Closed slices of these that are not written, or were changed and are quiet again; whether each is
        large.
        """
        table = self.kind.dataset.table
        rows = await self.database.fetch(
            f"select project_id, slice.slice, exists (select from {table} where project_id = p.project_id"
            " and created_at >= slice.slice and created_at < slice.slice + $3 offset $7) as is_large"
            " from unnest($4::bigint[]) as p (project_id)"
            " cross join generate_series($1::timestamptz, $2::timestamptz, $3::interval) as slice (slice)"
            " where not exists (select from unnest($5::bigint[], $6::timestamptz[])"
            " as few (project_id, slice) where few.project_id = p.project_id and few.slice = slice.slice)"
            f" and (exists (select from {table}_slice_mark m where m.project_id = p.project_id"
            " and m.slice = slice.slice)"
            f" or not exists (select from {table}_slice s where s.project_id = p.project_id"
            " and s.slice = slice.slice))"
            f" and not exists (select from {table}_slice_mark m where m.project_id = p.project_id"
            " and m.slice = slice.slice and m.marked_at > $8) order by slice.slice, project_id",
            *(hour, closed_until - SLICE, SLICE, self._busy),
            *([project_id for project_id, _ in self._few], [slice_ for _, slice_ in self._few]),
            *(self.kind.few - 1, now - SLICE_QUIET),
        )
        return [(row["project_id"], row["slice"], row["is_large"]) for row in rows]

    async def _build(self, project_id: int, slice_: datetime, now: datetime) -> None:
        dataset = self.kind.dataset
        marks = f"{dataset.table}_slice_mark where project_id = $1 and slice = $2"

        async def work(connection: Connection) -> bool:
            await lock_builder(connection, project_id)
            # Whether another replica has closed the hour meanwhile.
            if await connection.fetchval(
                "select built_until > $2 from cube_progress where project_id = $1 and dataset = $3",
                *(project_id, slice_, dataset.name),
            ):
                return True
            quiet: str = await connection.execute(
                f"delete from {marks} and marked_at <= $3", *(project_id, slice_, now - SLICE_QUIET)
            )
            # Somebody is changing it again, or another replica has written it meanwhile.
            if await connection.fetchval(
                f"select exists (select from {marks}) or $3 and exists (select from {dataset.table}_slice"
                " where project_id = $1 and slice = $2)",
                *(project_id, slice_, quiet == "DELETE 0"),
            ):
                return True
            await connection.execute(self.kind.drop("s.project_id = $1 and s.slice = $2"), project_id, slice_)
            return await self.kind.write(connection, project_id, slice_)

        if not await self.database.run(work, timeout_s=BUILD_TIMEOUT_S):
            self._few.add((project_id, slice_))


async def drop_slices(
    connection: Connection, kind: SliceKind, project_id: int, days: Sequence[datetime]
) -> None:
    """Take away what slices of these days hold, in a transaction of the caller's who has the builder's lock.

    Quiet ones are written anew.
    """
    await connection.execute(
        kind.drop("s.project_id = $1 and date_trunc('day', s.slice, 'UTC') = any($2::timestamptz[])"),
        *(project_id, days),
    )
