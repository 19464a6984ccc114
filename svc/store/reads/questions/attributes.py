"""Attribute fields read back: which a project has, their values, and how spans are asked for them in SQL.

Called by whatever asks spans for a field of `svc.domain.attributes`. A field's name is always a parameter;
its values are characters of the project's dictionary (`svc.store.spans.attribute_codes`). Never writes.

Measured November 2026 over a million spans with six values each: a count filtered by an attribute takes 1.4
times one filtered by a column, facets of an attribute 1.3 times those of a column; seven bytes a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.refusals import BAD_REQUEST, UNKNOWN_FIELD, Refused
from protocol.rest.query import timestamp
from svc.domain.attributes.census import MOST_DISTINCT, UNFIT
from svc.domain.attributes.conventions import CONVENTIONS, PAYLOAD, PREFIX, may_need_payloads
from svc.domain.queries.datasets import Field
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.spans.attribute_codes import OTHER

#: How the values beyond the most are shown and asked for; no attribute is called so.
OTHER_SHOWN: Final = "(other values)"
COMPLETIONS: Final = 20
_HISTORY_NOTE: Final = (
    "{fields}: spans stored before have no value of {it} until `trace-svc remap --apply` has read them again"
)
#: Fields that one note names.
_NOTED: Final = 5
#: What fields cost is left out of the page after so long.
COST_TIMEOUT_S: Final = 2.0


def shown_value(value: str | None) -> str | None:
    """A value as people read it."""
    return OTHER_SHOWN if value == OTHER else value


def stored_attribute(value: str) -> str:
    """The same the other way round."""
    return OTHER if value == OTHER_SHOWN else value


# The characters of the span that a tool call belongs to: 3 µs a call, and nothing is stored twice (measured
# November 2026, 100,000 calls of seven days: facets in 0.33 s, a count in 0.25 s).
_OF_CALL: Final = (
    "(select s.facets from span s where s.project_id = $1 and s.trace_id = tool_call.trace_id"
    " and s.span_id = tool_call.span_id and s.started_at = tool_call.started_at)"
)


def _facets(field: Field) -> str:
    """Where the characters are that say a field of a row."""
    return _OF_CALL if field.of_span else "facets"


def has_value(field: str, value: str, facets: str = "facets") -> str:
    """That a span has a value of a field: both as they stand in SQL, parameters of the caller's."""
    return (
        f"strpos({facets}, (select code from attribute_value where project_id = $1"
        f" and field = {field} and value = {value})) > 0"
    )


def attribute_equals(where: Where, field: Field, text: str | None) -> str:
    """That a span has this value of a field; with None, that it has none."""
    name, facets = where.value(field.name), _facets(field)
    if text is not None:
        return has_value(name, where.value(stored_attribute(text)), facets)
    codes = f"array(select code from attribute_value where project_id = $1 and field = {name})"
    return f"(not coalesce(string_to_array({facets}, null) && {codes}, false))"


async def dictionary_of(database: Database, project_id: int, field: str) -> dict[str, str | None]:
    """The values of a field by their characters, as people read them."""
    rows = await database.fetch(
        "select code, value from attribute_value where project_id = $1 and field = $2",
        project_id,
        field,
        timeout_s=READ_TIMEOUT_S,
    )
    return {row["code"]: shown_value(row["value"]) for row in rows}


def held_codes(where: Where, field: Field, codes: Iterable[str]) -> str:
    """What joins each row with its characters among these of a field, as `held.code`; null for none."""
    return (
        f"left join lateral (select c.code from string_to_table({_facets(field)}, null) as c (code)"
        f" where c.code = any({where.value(list(codes))}::text[])) as held on true"
    )


async def require_fields(
    database: Database, project_id: int, fields: Iterable[Field], *, filtered: bool = False
) -> None:
    """Raises `Refused` for an attribute that is no field of the project: nothing is silently empty.

    What is only `filtered` by is refused where it has another name by now: payloads tell the rest.
    """
    names = sorted({field.name for field in fields if may_need_payloads(field.name)})
    if not names:
        return
    promoted = await promoted_fields(database, project_id)
    for name in names:
        if name not in promoted:
            called = await database.fetch(
                "select called from attribute_key where project_id = $1 and field = $2"
                " and state = 'promoted'",
                *(project_id, name),
                timeout_s=READ_TIMEOUT_S,
            )
            if called and called[0]["called"]:
                now_called = f"'{name[:120]}' is called '{called[0]['called']}' in this project"
                raise Refused(UNKNOWN_FIELD.saying(now_called, allowed=[called[0]["called"]]))
            if filtered:
                continue
            if name == PAYLOAD:
                raise Refused(BAD_REQUEST.saying(f"only lists and counts can be filtered by '{name}'"))
            raise Refused(
                UNKNOWN_FIELD.saying(
                    f"'{name[:120]}' is not a field of this project: attributes become fields when they have"
                    " few values, or by hand on Settings, Attributes; filters of queries and alerts take any",
                    allowed=[*(convention.name for convention in CONVENTIONS), *promoted],
                )
            )


async def promoted_fields(database: Database, project_id: int) -> list[str]:
    """The fields that a project has beside the conventions."""
    rows = await database.fetch(
        "select distinct coalesce(called, field) as called from attribute_key where project_id = $1"
        " and state = 'promoted' order by 1",
        project_id,
        timeout_s=READ_TIMEOUT_S,
    )
    return [row["called"] for row in rows if row["called"].startswith(PREFIX)]


async def history_notes(
    database: Database, project_id: int, names: Iterable[str], low: datetime | None
) -> list[str]:
    """What to say of fields of which spans in a range from `low` on may have no value yet.

    An attribute becomes a field while spans with it arrive; those that were stored before have no value.
    """
    young = await young_fields(database, project_id, (name for name in names if name.startswith(PREFIX)), low)
    return [history_note({name: since}) for name, since in young.items()]


async def young_fields(
    database: Database, project_id: int, names: Iterable[str], low: datetime | None
) -> dict[str, datetime]:
    """Which of these became fields after `low`, without their history, and when; in the order of names."""
    if not (attributes := sorted(set(names))):
        return {}
    rows = await database.fetch(
        "select coalesce(called, field) as called, promoted_at from attribute_key where project_id = $1"
        " and state = 'promoted' and coalesce(called, field) = any($2::text[])"
        " and promoted_at > coalesce($3::timestamptz, '-infinity') order by 1",
        *(project_id, attributes, low),
        timeout_s=READ_TIMEOUT_S,
    )
    return {row["called"]: row["promoted_at"] for row in rows}


def history_note(young: Mapping[str, datetime]) -> str:
    """What to say of fields that became so at these times."""
    (name, since), *more_fields = young.items()
    parts = [f"{name} has been a field since {timestamp(since)}"]
    parts += [f"{field} since {timestamp(moment)}" for field, moment in more_fields[: _NOTED - 1]]
    if len(young) > _NOTED:
        parts.append(f"and {len(young) - _NOTED} more")
    return _HISTORY_NOTE.format(fields=", ".join(parts), it="them" if more_fields else "it")


@attrs.frozen
class AttributeField:
    """A field or a key that might be one, as people see it.

    `state` is `convention`, `promoted`, `hidden` or `seen`; `values` how many it has, None where that is not
    known; `called` what people call it instead of
    `field`; `spans` how many of those that were looked into had it; `reason` why it is no field by itself.
    """

    field: str
    state: str
    meaning: str
    values: int | None
    spans: int | None
    reason: str | None
    may_promote: bool
    called: str = ""

    @property
    def name(self) -> str:
        """As filters call it."""
        return self.called or self.field


@attrs.frozen
class FieldCost:
    """What a field takes on disk: its values with where they lie, and at most so much on a span with one."""

    disk_bytes: int
    span_bytes: int


@attrs.define(eq=False)
class AttributeReads:
    """Reads the fields of one project at a time. All verbs raise `Outage`."""

    database: Database

    async def fields(self, project_id: int) -> list[AttributeField]:
        """Conventions first, then promoted keys, then all others that were seen, the most frequent first."""

        async def work(connection: Connection) -> tuple[list[Any], list[Any]]:
            keys = await connection.fetch(
                "select field, state, spans, length(hashes) / 8 as seen, unfit, called from attribute_key"
                " where project_id = $1 order by state = 'promoted' desc, spans desc, field",
                project_id,
            )
            counts = await connection.fetch(
                "select field, count(*) as n from attribute_value where project_id = $1 group by 1",
                project_id,
            )
            return keys, counts

        keys, counts = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        values = {row["field"]: row["n"] for row in counts}
        return _conventions(keys, values) + [
            _key(row, values) for row in keys if row["field"].startswith(PREFIX)
        ]

    async def costs(self, project_id: int) -> dict[str, FieldCost]:
        """What each field that has values costs, by what it is called. Raises `Slow` where it takes long."""
        rows = await self.database.fetch(
            "select field, sum(bytes)::bigint as disk_bytes, max(code_bytes) as span_bytes from ("
            " select field, pg_column_size(v.*) as bytes, octet_length(code) as code_bytes"
            " from attribute_value v where project_id = $1"
            " union all select field, pg_column_size(field) + pg_column_size(value) + 24"
            " + coalesce(pg_column_size(created_at), 0) + coalesce(pg_column_size(started_at), 0), 0"
            " from search_value where project_id = $1 and dataset = 'spans'"
            " union all select field, pg_column_size(t.*), 0 from trace_cube t where project_id = $1"
            ") as parts where field in (select distinct field from attribute_value where project_id = $1)"
            " group by 1",
            project_id,
            timeout_s=COST_TIMEOUT_S,
        )
        return {row["field"]: FieldCost(row["disk_bytes"], row["span_bytes"]) for row in rows}

    async def names(self, project_id: int) -> list[str]:
        """The fields that have a value, conventions first."""
        rows = await self.database.fetch(
            "select distinct field from attribute_value where project_id = $1", project_id
        )
        stored = {row["field"] for row in rows}
        conventions = [convention.name for convention in CONVENTIONS]
        return [name for name in conventions if name in stored] + sorted(stored - set(conventions))

    async def values(self, project_id: int, field: str, typed: str) -> list[str]:
        """Some values of a field that hold a text, in the order of their names."""
        where = Where.of(project_id)
        where.equal("field", field)
        where.add("value <> ''")
        where.contains(["value"], typed or None)
        rows = await self.database.fetch(
            f"select value from attribute_value where {where.sql()} order by value limit {COMPLETIONS}",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        return [row["value"] for row in rows]


def _conventions(keys: Sequence[Any], values: Mapping[str, int]) -> list[AttributeField]:
    hidden = {row["field"] for row in keys if row["state"] == "hidden"}
    # What people call a key of theirs stands with that key.
    own_names = {row["called"] for row in keys if row["state"] == "promoted"}
    return [
        AttributeField(
            convention.name,
            "hidden" if convention.name in hidden else "convention",
            convention.meaning,
            values.get(convention.name, 0),
            None,
            None,
            may_promote=convention.name in hidden,
        )
        for convention in CONVENTIONS
        if convention.name not in own_names
    ]


def _key(row: Any, values: Mapping[str, int]) -> AttributeField:
    reason, state, called = row["unfit"], row["state"], row["called"] or row["field"]
    seen = None if reason is not None and row["seen"] <= MOST_DISTINCT else row["seen"]
    return AttributeField(
        row["field"],
        state,
        "",
        values.get(called, 0) if state == "promoted" else seen,
        row["spans"],
        UNFIT.get(reason) if reason is not None else None,
        may_promote=state != "promoted" and reason not in ("secret", "person"),
        called=row["called"] or "",
    )
