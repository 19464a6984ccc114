"""Which keys the spans of a project have, what was counted of them, and which of them are fields.

Owns the table `attribute_key`. Decoders add what they counted every few seconds and hear which keys are
promoted; people promote and hide (`svc.store.reads.questions.attributes` lists them). Keeps hashes of values,
never values, and at most `MOST_KEPT` keys of a project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import attrs

from svc.domain.attributes.census import KeyCount, Unfit
from svc.domain.attributes.conventions import CONVENTION_FIELDS, KEY_CHARS, MOST_KEYS, PREFIX
from svc.domain.attributes.reading import Promoted
from svc.store.accounts.audit import SYSTEM, Action, record
from svc.store.aggregates.projects import lock_builder
from svc.store.postgres.database import Connection, Database
from svc.store.spans.attribute_codes import lock_counter

#: Keys of a project that are counted; of further ones nothing is known.
MOST_KEPT: Final = 1_000
_HASH_BYTES: Final = 8
_LOCK: Final = 0x6174_7472

#: What people may call a field.
_NAME: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{KEY_CHARS - 1}}}")
NO_NAME: Final = f"A name is a letter and up to {KEY_CHARS - 1} letters, digits, dots, dashes or underscores."
#: Where the values of a field lie, by the keys of these tables.
_TABLES: Final = {
    "attribute_value": "project_id = $1 and field = $2",
    "search_value": "project_id = $1 and dataset = 'spans' and field = $2",
    "trace_cube": "project_id = $1 and field = $2",
}

KeyState = Literal["seen", "promoted", "hidden"]
#: What may never be a field.
NEVER: Final[frozenset[Unfit]] = frozenset({"secret", "person"})


@attrs.frozen
class FieldStates:
    """What a decoder goes by: promoted keys by project with what their fields are called, and hidden fields
    each with its project."""

    promoted: Mapping[int, Promoted]
    hidden: frozenset[tuple[int, str]]


@attrs.define(eq=False)
class AttributeKeys:
    """Counts keys and says what becomes of them. All verbs raise `Outage`."""

    database: Database

    async def add(self, counted: Mapping[int, Mapping[str, KeyCount]], now: datetime) -> None:
        """Add what was counted, and promote what is worth it."""
        for project_id, counts in counted.items():
            if counts:
                await self.database.run(partial(_add, project_id=project_id, counts=counts, now=now))

    async def states(self) -> FieldStates:
        """Of all projects."""
        rows = await self.database.fetch(
            "select project_id, field, state, coalesce(called, field) as called from attribute_key"
            " where state <> 'seen' order by 1, 2"
        )
        promoted: dict[int, dict[str, str]] = {}
        for row in rows:
            if row["state"] == "promoted":
                names = promoted.setdefault(row["project_id"], {})
                names[row["field"].removeprefix(PREFIX)] = row["called"]
        hidden = frozenset((row["project_id"], row["field"]) for row in rows if row["state"] == "hidden")
        return FieldStates(promoted, hidden)

    async def promote(self, project_id: int, field: str, now: datetime, actor: str = SYSTEM) -> str | None:
        """Make a field of a key. Returns why not, as the page says it."""

        async def work(connection: Connection) -> str | None:
            reason = await _promote(connection, project_id, field, now)
            if reason is None:
                await _note(connection, "attribute.promote", project_id, field, actor)
            return reason

        return await self.database.run(work)

    async def rename(self, project_id: int, field: str, typed: str, actor: str = SYSTEM) -> str | None:
        """Call the field of a promoted key otherwise: `plan`, or a convention that nothing says so far.

        Its values come along; an empty name gives the key's own back. Returns why not, as the page says it.
        """

        async def work(connection: Connection) -> str | None:
            called, reason = await _rename(connection, project_id, field, typed.strip())
            if reason is None:
                about: dict[str, Any] = {"called": called}
                await _note(connection, "attribute.rename", project_id, field, actor, about)
            return reason

        return await self.database.run(work)

    async def have_history(self, project_id: int, fields: Iterable[str]) -> None:
        """All stored spans have their values of these fields now, each by what it is called."""
        await self.database.fetch(
            "update attribute_key set promoted_at = null"
            " where project_id = $1 and coalesce(called, field) = any($2::text[])",
            project_id,
            list(fields),
        )

    async def hide(self, project_id: int, field: str, now: datetime, actor: str = SYSTEM) -> bool:
        """No field any more: its values are deleted. False where there is no such key."""

        async def work(connection: Connection) -> bool:
            hidden = await _hide(connection, project_id, field, now)
            if hidden:
                await _note(connection, "attribute.hide", project_id, field, actor)
            return hidden

        return await self.database.run(work)


async def _note(
    connection: Connection,
    action: Action,
    project_id: int,
    field: str,
    actor: str,
    details: Mapping[str, Any] | None = None,
) -> None:
    subject = ("attribute", field)
    await record(
        connection, action, actor=actor, project_id=project_id, subject=subject, details=details or {}
    )


async def _lock(connection: Connection, project_id: int) -> None:
    await connection.execute("select pg_advisory_xact_lock($1, $2)", _LOCK, project_id % 2**31)


async def _add(
    connection: Connection, project_id: int, counts: Mapping[str, KeyCount], now: datetime
) -> None:
    await _lock(connection, project_id)
    rows = await connection.fetch(
        "select field, state, spans, hashes, unfit from attribute_key where project_id = $1"
        " and field = any($2::text[])",
        project_id,
        [PREFIX + name for name in counts],
    )
    kept = {row["field"]: row for row in rows}
    totals: Any = await connection.fetchrow(
        "select count(*) as keys, count(*) filter (where state = 'promoted') as promoted"
        " from attribute_key where project_id = $1",
        project_id,
    )
    room, promotable = MOST_KEPT - totals["keys"], MOST_KEYS - totals["promoted"]
    changed: list[tuple[str, str, KeyCount]] = []
    for name, count in sorted(counts.items()):
        row = kept.get(PREFIX + name)
        state = "seen"
        if row is not None:
            state = row["state"]
            count.merge(_counted(row))
        elif room <= 0:
            continue
        else:
            room -= 1
        if state == "seen" and promotable > 0 and count.worth_a_field:
            state, promotable = "promoted", promotable - 1
        changed.append((PREFIX + name, state, count))
    await connection.execute(
        "insert into attribute_key as k"
        " (project_id, field, state, spans, hashes, unfit, last_seen_at, promoted_at)"
        " select $1, f, s, n, h, u, $7::timestamptz, case s when 'promoted' then $7::timestamptz end"
        " from unnest($2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::text[]) as c (f, s, n, h, u)"
        " on conflict (project_id, field) do update"
        " set state = excluded.state, spans = excluded.spans, hashes = excluded.hashes,"
        " unfit = excluded.unfit, last_seen_at = excluded.last_seen_at,"
        " promoted_at = case when k.state = excluded.state then k.promoted_at else excluded.promoted_at end",
        project_id,
        [field for field, _, _ in changed],
        [state for _, state, _ in changed],
        [count.spans for _, _, count in changed],
        [b"".join(sorted(count.values)) for _, _, count in changed],
        [count.unfit for _, _, count in changed],
        now,
    )


def _counted(row: Any) -> KeyCount:
    hashes: bytes = row["hashes"]
    values = {hashes[at : at + _HASH_BYTES] for at in range(0, len(hashes), _HASH_BYTES)}
    return KeyCount(row["spans"], values, row["unfit"])


async def _promote(connection: Connection, project_id: int, field: str, now: datetime) -> str | None:
    await _lock(connection, project_id)
    if field in CONVENTION_FIELDS:
        # Every project has these but the hidden ones.
        await connection.execute(
            "delete from attribute_key where project_id = $1 and field = $2", project_id, field
        )
        return None
    row: Any = await connection.fetchrow(
        "select state, unfit from attribute_key where project_id = $1 and field = $2", project_id, field
    )
    if row is None:
        return "No span has this attribute."
    if row["unfit"] in NEVER:
        return "Attributes that may hold secrets or personal data are never made fields."
    if row["state"] == "promoted":
        return None
    promoted = await connection.fetchval(
        "select count(*) from attribute_key where project_id = $1 and state = 'promoted'", project_id
    )
    if promoted >= MOST_KEYS:
        return f"There are {MOST_KEYS} fields already; hide one of them first."
    await _set_state(connection, project_id, field, "promoted", now)
    return None


async def _hide(connection: Connection, project_id: int, field: str, now: datetime) -> bool:
    # Nobody is building what is called by the field.
    await lock_builder(connection, project_id)
    await _lock(connection, project_id)
    if field in CONVENTION_FIELDS:
        await connection.execute(
            "insert into attribute_key (project_id, field, state, spans, hashes, last_seen_at)"
            " values ($1, $2, 'hidden', 0, '', $3) on conflict do nothing",
            project_id,
            field,
            now,
        )
    elif not await _set_state(connection, project_id, field, "hidden", now):
        return False
    # Nobody is giving out one of them.
    await lock_counter(connection, project_id)
    called = await connection.fetchval(
        "select coalesce(called, field) from attribute_key where project_id = $1 and field = $2",
        project_id,
        field,
    )
    for table, of_field in _TABLES.items():
        await connection.execute(f"delete from {table} where {of_field}", project_id, called)
    return True


async def _rename(
    connection: Connection, project_id: int, field: str, typed: str
) -> tuple[str | None, str | None]:
    """What the field is called now, or why not."""
    if typed and not _NAME.fullmatch(typed):
        return None, NO_NAME
    await lock_builder(connection, project_id)
    await _lock(connection, project_id)
    before = await connection.fetchval(
        "select coalesce(called, field) from attribute_key where project_id = $1 and field = $2"
        " and state = 'promoted'",
        project_id,
        field,
    )
    if before is None:
        return None, "Only attributes that are fields of yours have a name to change."
    called = field
    if typed:
        called = typed if typed in CONVENTION_FIELDS else PREFIX + typed.removeprefix(PREFIX)
    if called == before:
        return called, None
    # Nobody is giving out a value of either.
    await lock_counter(connection, project_id)
    if await connection.fetchval(
        "select exists (select from attribute_value where project_id = $1 and field = $2) or exists"
        " (select from attribute_key where project_id = $1 and field <> $3 and (field = $2 or called = $2))",
        *(project_id, called, field),
    ):
        return None, f"Something else is called {called} here; choose a name that is free."
    await connection.execute(
        "update attribute_key set called = nullif($3, field) where project_id = $1 and field = $2",
        *(project_id, field, called),
    )
    for table, of_field in _TABLES.items():
        await connection.execute(
            f"update {table} set field = $3 where {of_field}", project_id, before, called
        )
    return called, None


async def _set_state(
    connection: Connection, project_id: int, field: str, state: KeyState, now: datetime
) -> bool:
    status: str = await connection.execute(
        "update attribute_key set state = $3, last_seen_at = greatest(last_seen_at, $4::timestamptz),"
        " promoted_at = case $3 when 'promoted' then $4::timestamptz end"
        " where project_id = $1 and field = $2",
        project_id,
        field,
        state,
        now,
    )
    return status == "UPDATE 1"
