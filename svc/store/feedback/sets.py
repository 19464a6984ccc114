"""Sets: traces and spans that people keep together under a name, to look at, to review and to export.

Owns the tables `trace_set` and `trace_set_entry`. Called by the pages; retention asks which traces they hold.
Bounded: a project has at most `MOST_SETS`, a set at most `MOST_ENTRIES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

MOST_SETS: Final = 100
MOST_ENTRIES: Final = 1_000
NAME_CHARS: Final = 100

# A set of this name, made while there is room; the caller holds the project.
_MAKE: Final = f"""
insert into trace_set (project_id, name, made_by)
select $1, $2, $3 where (select count(*) from trace_set where project_id = $1) < {MOST_SETS}
on conflict (project_id, name) do nothing
"""

# Those of these traces and spans that are there and not in the set yet, while there is room.
_ADD: Final = f"""
insert into trace_set_entry (project_id, set_id, trace_id, span_id, added_by)
select $1, $2, new.trace_id, new.span_id, $5
from unnest($3::bytea[], $4::bytea[]) with ordinality as new (trace_id, span_id, place)
join trace t on t.project_id = $1 and t.trace_id = new.trace_id
where not exists (select from trace_set_entry e where e.project_id = $1 and e.set_id = $2
    and e.trace_id = new.trace_id and e.span_id = new.span_id)
order by new.place
limit {MOST_ENTRIES} - (select count(*) from trace_set_entry where project_id = $1 and set_id = $2)
"""

# Sets by name, with how many entries each has.
_LIST: Final = """
select s.id, s.name, s.made_by, s.made_at, count(e.trace_id) as entries
from trace_set s left join trace_set_entry e on e.project_id = s.project_id and e.set_id = s.id
where s.project_id = $1 and ($2::uuid is null or s.id = $2)
group by s.project_id, s.id order by s.name
"""

# The entries of a set in the order in which they were added, with the traces as far as they are there.
_ENTRIES: Final = """
select e.trace_id, e.span_id, e.added_by, e.added_at, t.name, t.status, t.started_at, t.call_site_id
from trace_set_entry e left join trace t on t.project_id = e.project_id and t.trace_id = e.trace_id
where e.project_id = $1 and e.set_id = $2 order by e.added_at, e.trace_id, e.span_id
"""


@attrs.frozen
class TraceSet:
    """A set, and how many entries it has."""

    id: UUID
    name: str
    made_by: str
    made_at: datetime
    entries: int


@attrs.frozen
class SetEntry:
    """A trace, or a span of it, in a set; the trace's row as far as it is there."""

    trace_id: bytes
    span_id: bytes | None
    added_by: str
    added_at: datetime
    name: str | None
    status: str | None
    started_at: datetime | None
    call_site_id: str | None

    @property
    def is_there(self) -> bool:
        """Whether its trace is."""
        return self.started_at is not None

    @property
    def key(self) -> str:
        """Its name within the set: the id of the trace, and of the span if it is one."""
        return self.trace_id.hex() + ("" if self.span_id is None else f"-{self.span_id.hex()}")


@attrs.frozen
class NoRoomForSets:
    """The project has as many sets as it may have."""


Subject = tuple[bytes, bytes | None]


@attrs.define(eq=False)
class SetStore:
    """All verbs raise `Outage`."""

    database: Database

    async def list(self, project_id: int) -> Sequence[TraceSet]:
        """All sets of a project, by name."""
        rows = await self.database.fetch(_LIST, project_id, None, timeout_s=READ_TIMEOUT_S)
        return [TraceSet(**dict(row.items())) for row in rows]

    async def one(self, project_id: int, set_id: UUID) -> TraceSet | None:
        """One set."""
        rows = await self.database.fetch(_LIST, project_id, set_id, timeout_s=READ_TIMEOUT_S)
        return TraceSet(**dict(rows[0].items())) if rows else None

    async def entries(self, project_id: int, set_id: UUID) -> Sequence[SetEntry]:
        """What a set holds, in the order in which it was added."""
        rows = await self.database.fetch(_ENTRIES, project_id, set_id, timeout_s=READ_TIMEOUT_S)
        return [_entry(row) for row in rows]

    async def add(
        self, project_id: int, name: str, subjects: Sequence[Subject], added_by: str
    ) -> tuple[TraceSet, int] | NoRoomForSets:
        """Add traces and spans to the set of this name, which is made where there is none.

        Returns the set and how many were added: what is there already, or is no trace, is not.
        """
        unique = list(dict.fromkeys((trace_id, span_id or b"") for trace_id, span_id in subjects))

        async def work(connection: Connection) -> tuple[UUID, int] | None:
            # Those who change sets of a project take turns, so that none is counted past.
            await connection.execute("select from project where id = $1 for update", project_id)
            await connection.execute(_MAKE, project_id, name, added_by)
            # The set of the name, if there was room for it.
            set_id = await connection.fetchval(
                "select id from trace_set where project_id = $1 and name = $2", project_id, name
            )
            if set_id is None:
                return None
            status: str = await connection.execute(
                _ADD,
                project_id,
                set_id,
                [trace_id for trace_id, _ in unique],
                [span_id for _, span_id in unique],
                added_by,
            )
            return set_id, int(status.rpartition(" ")[2])

        done = await self.database.run(work)
        if done is None:
            return NoRoomForSets()
        trace_set = await self.one(project_id, done[0])
        return NoRoomForSets() if trace_set is None else (trace_set, done[1])

    async def remove(self, project_id: int, set_id: UUID, subject: Subject) -> None:
        """Take one entry out of a set; one that is gone already is no matter."""
        await self.database.fetch(
            "delete from trace_set_entry where project_id = $1 and set_id = $2 and trace_id = $3"
            " and span_id = $4",
            project_id,
            set_id,
            subject[0],
            subject[1] or b"",
            timeout_s=READ_TIMEOUT_S,
        )

    async def forget(self, project_id: int, set_id: UUID) -> None:
        """Remove a set with its entries; traces stay as long as their term."""

        async def work(connection: Connection) -> None:
            # An entry without a set would keep its trace for ever, so nobody adds one meanwhile.
            await connection.execute("select from project where id = $1 for update", project_id)
            # The entries, then the set.
            await connection.execute(
                "delete from trace_set_entry where project_id = $1 and set_id = $2", project_id, set_id
            )
            await connection.execute(
                "delete from trace_set where project_id = $1 and id = $2", project_id, set_id
            )

        await self.database.run(work)


def _entry(row: Any) -> SetEntry:
    fields = dict(row.items())
    return SetEntry(**(fields | {"span_id": fields["span_id"] or None}))
