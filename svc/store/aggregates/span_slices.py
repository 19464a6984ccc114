"""The hour under way by column, a slice of five minutes at a time: what is asked most is what has just come.

Owns the table `span_slice`, with `closed_hours` that of the marks, and the columns of slices;
`svc.store.reads.questions.columns.segments` reads them. A row is 0.9 KB wide and its columns 11 bytes: with
60,000 spans in its hour Overview of a week took 0.6 s from rows (November 2026).

A slice is written once it is closed and nobody has changed a span of it for a while, which happens to many in
the minutes after they came: traces are rolled up, agents get their paths. A changed slice is read row by row
until it is written anew. When its hour is closed, the slice gives way to the hour. The release before marks
no slices: what it changes beside this one counts as it was until the hour is closed.

Ordering: building deletes the marks that it sees, and reads the rows with a later snapshot. Whoever changes a
row adds the mark in the same transaction, so one that is not seen stands behind the build.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs

from svc.domain.calendar import day_of, hour_of
from svc.store.aggregates.closed_hours import BUILD_TIMEOUT_S, GRACE, SLICE, slice_of
from svc.store.aggregates.projects import lock_builder
from svc.store.aggregates.span_columns import FIRST_SLICE, write_columns
from svc.store.postgres.database import Connection, Database

#: A slice waits so long after the last change.
QUIET: Final = timedelta(minutes=2)
#: Rows of a smaller slice are read as quickly.
FEW_SPANS: Final = 500

_SLICES_OF_HOUR: Final = timedelta(hours=1) // SLICE

#: Slices of hours that the cubes have, with their marks and columns.
_CLEAR: Final = (
    "with built as (select project_id, built_until from cube_progress where dataset = 'spans'),"
    " marks as (delete from span_slice_mark m using built b where m.project_id = b.project_id"
    " and m.slice < b.built_until),"
    " gone as (delete from span_slice s using built b where s.project_id = b.project_id"
    " and s.slice < b.built_until returning s.project_id, date_trunc('day', s.slice, 'UTC') as day,"
    " ($1 + extract(epoch from s.slice - date_trunc('day', s.slice, 'UTC')) / $2)::smallint as place)"
    " delete from span_column c using gone where c.project_id = gone.project_id and c.day = gone.day"
    " and c.hour = gone.place"
)
#: Projects of which all earlier hours are built, and that have so many spans since the last of them. Each is
#: a look into the index of every day, so they are looked for once a slice and not once a round.
_BUSY: Final = (
    "select project_id from cube_progress p where dataset = 'spans' and built_until = $1 and exists"
    " (select from span where project_id = p.project_id and created_at >= $1 and created_at < $2 offset $3)"
)
#: Closed slices of these that are not written, or were changed and are quiet again; whether each is large.
_WANTED: Final = (
    "select project_id, slice.slice, exists (select from span where project_id = p.project_id"
    " and created_at >= slice.slice and created_at < slice.slice + $3 offset $7) as is_large"
    " from unnest($4::bigint[]) as p (project_id)"
    " cross join generate_series($1::timestamptz, $2::timestamptz, $3::interval) as slice (slice)"
    " where not exists (select from unnest($5::bigint[], $6::timestamptz[]) as few (project_id, slice)"
    " where few.project_id = p.project_id and few.slice = slice.slice)"
    " and (exists (select from span_slice_mark m where m.project_id = p.project_id and m.slice = slice.slice)"
    " or not exists (select from span_slice s where s.project_id = p.project_id and s.slice = slice.slice))"
    " and not exists (select from span_slice_mark m where m.project_id = p.project_id"
    " and m.slice = slice.slice and m.marked_at > $8) order by slice.slice, project_id"
)


def place_of(slice_: datetime) -> int:
    """What the segments of a slice bear as their hour."""
    return FIRST_SLICE + (slice_ - day_of(slice_)) // SLICE


def hour_of_place(place: int) -> int:
    """The hour of the day in which the spans of such segments arrived."""
    return (place - FIRST_SLICE) // _SLICES_OF_HOUR


@attrs.define(eq=False)
class SliceColumns:
    """Writes the slices of the hour under way. Called in turns with the cube builder."""

    database: Database
    #: Projects with spans enough in the closed slices, and the end of the last of these.
    _busy: Sequence[int] = attrs.field(default=(), init=False)
    _closed_until: datetime | None = attrs.field(default=None, init=False)
    #: Closed slices with so few spans, or with such that columns cannot hold, that their rows are read.
    _few: set[tuple[int, datetime]] = attrs.field(factory=set, init=False)

    async def build(self, now: datetime, limit: int) -> int:
        """Write up to `limit` slices of all projects. Returns how many. Raises `Outage`."""
        await self.database.fetch(_CLEAR, FIRST_SLICE, SLICE.total_seconds())
        hour, closed_until = hour_of(now - GRACE), slice_of(now - GRACE)
        if closed_until != self._closed_until:
            rows = await self.database.fetch(_BUSY, hour, closed_until, FEW_SPANS - 1)
            self._busy, self._closed_until = [row["project_id"] for row in rows], closed_until
            self._few = {few for few in self._few if few[1] >= hour}
        if closed_until == hour or not self._busy:
            return 0
        missing = await self.database.fetch(
            _WANTED,
            *(hour, closed_until - SLICE, SLICE, self._busy),
            *([project_id for project_id, _ in self._few], [slice_ for _, slice_ in self._few]),
            *(FEW_SPANS - 1, now - QUIET),
        )
        self._few.update((row["project_id"], row["slice"]) for row in missing if not row["is_large"])
        large = [row for row in missing if row["is_large"]][:limit]
        for row in large:
            await self._build(row["project_id"], row["slice"])
        return len(large)

    async def _build(self, project_id: int, slice_: datetime) -> None:
        stretch = (slice_, slice_ + SLICE)

        async def work(connection: Connection) -> bool:
            await lock_builder(connection, project_id)
            # Whether another replica has closed the hour meanwhile.
            if await connection.fetchval(
                "select built_until > $2 from cube_progress where project_id = $1 and dataset = 'spans'",
                *(project_id, slice_),
            ):
                return True
            await connection.execute(
                "delete from span_slice_mark where project_id = $1 and slice = $2", project_id, slice_
            )
            day_and_place = (day_of(slice_), place_of(slice_))
            written = await write_columns(connection, project_id, stretch, day_and_place)
            if written is None:
                await connection.execute(
                    "delete from span_slice where project_id = $1 and slice = $2", project_id, slice_
                )
                return False
            await connection.execute(
                "insert into span_slice (project_id, slice, spans, latest) values ($1, $2, $3, $4)"
                " on conflict (project_id, slice) do update set spans = excluded.spans,"
                " latest = excluded.latest",
                *(project_id, slice_, written.spans, written.latest),
            )
            return True

        if not await self.database.run(work, timeout_s=BUILD_TIMEOUT_S):
            self._few.add((project_id, slice_))


async def drop_slices(connection: Connection, project_id: int, days: Sequence[datetime]) -> None:
    """Take away what slices of these days hold, in a transaction of the caller's who has the builder's lock.

    Quiet ones are written anew.
    """
    await connection.execute(
        "with gone as (delete from span_slice where project_id = $1"
        " and date_trunc('day', slice, 'UTC') = any($2::timestamptz[]))"
        " delete from span_column where project_id = $1 and day = any($2::timestamptz[]) and hour >= $3",
        *(project_id, days, FIRST_SLICE),
    )
