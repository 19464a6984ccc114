"""Sets: traces and spans that people keep together under a name, to look at, to review and to export.

Owns the tables `trace_set` and `trace_set_entry`. Called by pages and REST; retention asks which traces they
hold. Bounded: a project has at most `MOST_SETS`, a set at most `MOST_ENTRIES`. Every change is audited in its
own transaction; a note's text is not part of that row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from svc.store.accounts.audit import Action, record
from svc.store.accounts.projects import lock_project
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

MOST_SETS: Final = 100
MOST_ENTRIES: Final = 1_000
NAME_CHARS: Final = 100
NOTE_CHARS: Final = 2_000

# A set of this name, made while there is room; the caller holds the project.
_MAKE: Final = f"""
insert into trace_set (project_id, name, made_by)
select $1, $2, $3 where (select count(*) from trace_set where project_id = $1) < {MOST_SETS}
on conflict (project_id, name) do nothing returning true
"""

# Those of these traces and spans that are there and not in the set yet, while there is room.
_ADD: Final = f"""
insert into trace_set_entry (project_id, set_id, trace_id, span_id, added_by)
select $1, $2, new.trace_id, new.span_id, $5
from unnest($3::bytea[], $4::bytea[]) with ordinality as new (trace_id, span_id, place)
join trace t on t.project_id = $1 and t.trace_id = new.trace_id
where (new.span_id = '' or exists (select from span s where s.project_id = $1
    and s.trace_id = new.trace_id and s.span_id = new.span_id
    and s.started_at between t.first_started_at and t.last_started_at))
  and not exists (select from trace_set_entry e where e.project_id = $1 and e.set_id = $2
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
select e.trace_id, e.span_id, e.added_by, e.added_at, e.note, t.name, t.status, t.started_at, t.call_site_id
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
    note: str | None = attrs.field(repr=False)
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
        return entry_key(self.trace_id, self.span_id)


def entry_key(trace_id: bytes, span_id: bytes | None) -> str:
    """What a trace, or a span of it, is called within a set."""
    return trace_id.hex() + ("" if span_id is None else f"-{span_id.hex()}")


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
        self, project_id: int, name: str, subjects: Sequence[Subject], actor: str
    ) -> tuple[TraceSet, int] | NoRoomForSets:
        """Add traces and spans to the set of this name, which is made where there is none.

        Returns the set and how many were added: what is there already, or does not exist, is not.
        """
        unique = list(dict.fromkeys((trace_id, span_id or b"") for trace_id, span_id in subjects))

        async def work(connection: Connection) -> tuple[UUID, int] | None:
            await lock_project(connection, project_id)
            made = await connection.fetchval(_MAKE, project_id, name, actor)
            # The set of the name, if there was room for it.
            set_id = await connection.fetchval(
                "select id from trace_set where project_id = $1 and name = $2", project_id, name
            )
            if set_id is None:
                return None
            if made is not None:
                await _note(connection, "set.create", project_id, set_id, actor, {"name": name})
            status: str = await connection.execute(
                _ADD,
                project_id,
                set_id,
                [trace_id for trace_id, _ in unique],
                [span_id for _, span_id in unique],
                actor,
            )
            added = int(status.rpartition(" ")[2])
            if added:
                await _note(connection, "set.add", project_id, set_id, actor, {"entries": added})
            return set_id, added

        done = await self.database.run(work)
        if done is None:
            return NoRoomForSets()
        trace_set = await self.one(project_id, done[0])
        return NoRoomForSets() if trace_set is None else (trace_set, done[1])

    async def annotate(
        self, project_id: int, set_id: UUID, subject: Subject, note: str | None, actor: str
    ) -> bool:
        """Keep what somebody writes about an entry, or nothing. Whether the entry is there."""

        async def work(connection: Connection) -> bool:
            # The entry, by its key.
            status: str = await connection.execute(
                "update trace_set_entry set note = $5 where project_id = $1 and set_id = $2"
                " and trace_id = $3 and span_id = $4",
                project_id,
                set_id,
                subject[0],
                subject[1] or b"",
                note,
            )
            is_there = status.rpartition(" ")[2] != "0"
            if is_there:
                about = {"entry": entry_key(*subject), "written": note is not None}
                await _note(connection, "set.note", project_id, set_id, actor, about)
            return is_there

        return await self.database.run(work)

    async def remove(self, project_id: int, set_id: UUID, subjects: Sequence[Subject], actor: str) -> int:
        """Take entries out of a set; what is gone already is no matter. How many went."""

        async def work(connection: Connection) -> int:
            # The entries, by their keys.
            status: str = await connection.execute(
                "delete from trace_set_entry e"
                " using unnest($3::bytea[], $4::bytea[]) as gone (trace_id, span_id)"
                " where e.project_id = $1 and e.set_id = $2 and e.trace_id = gone.trace_id"
                " and e.span_id = gone.span_id",
                project_id,
                set_id,
                [trace_id for trace_id, _ in subjects],
                [span_id or b"" for _, span_id in subjects],
            )
            removed = int(status.rpartition(" ")[2])
            if removed:
                await _note(connection, "set.remove", project_id, set_id, actor, {"entries": removed})
            return removed

        return await self.database.run(work)

    async def forget(self, project_id: int, set_id: UUID, actor: str) -> None:
        """Remove a set with its entries; traces stay as long as their term."""

        async def work(connection: Connection) -> None:
            # An entry without a set would keep its trace for ever, so nobody adds one meanwhile.
            await lock_project(connection, project_id)
            # The entries, then the set.
            await connection.execute(
                "delete from trace_set_entry where project_id = $1 and set_id = $2", project_id, set_id
            )
            name = await connection.fetchval(
                "delete from trace_set where project_id = $1 and id = $2 returning name", project_id, set_id
            )
            if name is not None:
                await _note(connection, "set.delete", project_id, set_id, actor, {"name": name})

        await self.database.run(work)


async def _note(
    connection: Connection,
    action: Action,
    project_id: int,
    set_id: UUID,
    actor: str,
    details: Mapping[str, Any],
) -> None:
    await record(
        connection, action, actor=actor, project_id=project_id, subject=("set", str(set_id)), details=details
    )


def _entry(row: Any) -> SetEntry:
    fields = dict(row.items())
    return SetEntry(**(fields | {"span_id": fields["span_id"] or None}))
