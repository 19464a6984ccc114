"""The dictionary of attribute values: one character for each value of a field, project by project.

Owns the tables `attribute_value` and `attribute_counter`. The writer of spans calls `AttributeCodes.encode`
before its transaction; what a process remembers only saves looking up. `MOST_VALUES` of a field have a
character of their own, all others share one; values of hidden fields have none.

Ordering: characters are given out in a transaction of their own, under the lock of the project's counter, and
committed before any span has them. One that no span has harms nobody, and none is given out twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from svc.domain.attributes.conventions import MOST_VALUES
from svc.domain.attributes.reading import Pairs
from svc.domain.intake.batches import StoredSpan
from svc.domain.spans.span import SpanRow
from svc.store.postgres.database import Connection, Database

#: The value that stands for all beyond the most; no attribute has an empty one.
OTHER: Final = ""
#: Values, and values that stand together on a span, that a process remembers; then all are forgotten.
_REMEMBERED_VALUES: Final = 200_000
_REMEMBERED_TOGETHER: Final = 50_000

#: UTF-16 keeps these numbers for itself, so they are no characters.
_SURROGATES: Final = range(0xD800, 0xE000)
#: How many characters there are.
_MOST_CODES: Final = 0x10FFFF - len(_SURROGATES) - 1
#: Given to nobody: it is the last of all.
_NEW: Final = chr(0x10FFFF)

_Value = tuple[int, str, str]


def character(number: int) -> str:
    """The character of a number from 0 on: those first given out take one byte. Zero is no text."""
    point = number + 1
    return chr(point if point < _SURROGATES.start else point + len(_SURROGATES))


@attrs.define(eq=False)
class AttributeCodes:
    """The characters of values. Shared by all that write in a process."""

    database: Database
    _codes: dict[_Value, str] = attrs.field(factory=dict)
    _together: dict[tuple[int, Pairs], str | None] = attrs.field(factory=dict)
    #: Fields with the most values there may be, of which all are remembered: what stands for any other.
    _full: dict[tuple[int, str], str] = attrs.field(factory=dict)
    _hidden: frozenset[tuple[int, str]] = frozenset()
    #: How often everything was forgotten: what was asked before that is not remembered after it.
    _forgotten: int = 0

    def adopt(self, hidden: frozenset[tuple[int, str]]) -> None:
        """From now on these fields are hidden, each with its project."""
        if hidden != self._hidden:
            self._hidden = hidden
            self.forget()

    def hiding(self, field: str) -> frozenset[int]:
        """The projects in which this field is hidden."""
        return frozenset(project_id for project_id, name in self._hidden if name == field)

    async def encode(self, spans: Sequence[StoredSpan]) -> None:
        """Set `facets` of each row from its attributes. Raises `Outage`."""
        facets: dict[tuple[int, Pairs], str | None] = {}
        new: list[tuple[int, Pairs]] = []
        for span in spans:
            key = span.project_id, span.row.attributes
            if key not in facets:
                facets[key] = self._together.get(key, _NEW)
                if facets[key] is _NEW:
                    new.append(key)
        if new:
            facets |= await self._encoded(new)
        for span in spans:
            span.row.facets = facets[span.project_id, span.row.attributes]

    async def _encoded(self, new: Sequence[tuple[int, Pairs]]) -> dict[tuple[int, Pairs], str | None]:
        forgotten = self._forgotten
        values = {(project_id, *pair) for project_id, pairs in new for pair in _by_two(pairs)}
        # What is remembered may change meanwhile; this group goes by its own.
        codes = {value: code for value in values if (code := self._remembered(value)) is not None}
        if unknown := values - codes.keys():
            codes |= await self._given_out(unknown)
        facets = {
            (project_id, pairs): _joined(codes[project_id, *pair] for pair in _by_two(pairs))
            for project_id, pairs in new
        }
        if len(self._together) + len(facets) > _REMEMBERED_TOGETHER:
            self._together.clear()
        if forgotten == self._forgotten:
            self._together |= facets
        return facets

    def _remembered(self, value: _Value) -> str | None:
        code = self._codes.get(value)
        return self._full.get(value[:2]) if code is None else code

    async def _given_out(self, unknown: set[_Value]) -> dict[_Value, str]:
        by_project: dict[int, list[tuple[str, str]]] = {}
        for project_id, field, value in sorted(unknown):
            by_project.setdefault(project_id, []).append((field, value))
        codes_by_value: dict[_Value, str] = {}
        forgotten = self._forgotten
        for project_id, values in by_project.items():
            codes = await self.database.run(partial(_given_out, project_id=project_id, values=values))
            codes_by_value |= {
                (project_id, field, value): code for (field, value), code in zip(values, codes, strict=True)
            }
            if forgotten != self._forgotten:
                continue
            self._remember(project_id, dict(zip(values, codes, strict=True)))
            await self._learn_full(project_id, sorted({field for field, _ in values}))
        return codes_by_value

    async def _learn_full(self, project_id: int, fields: Sequence[str]) -> None:
        """Remember fields that have no room as a whole, so that a new value asks nothing of the database."""
        fields = [field for field in fields if (project_id, field) not in self._full]
        forgotten = self._forgotten
        rows = await self.database.fetch(
            "select v.field, v.value, v.code from attribute_value full_field join attribute_value v"
            " using (project_id, field) where full_field.project_id = $1"
            " and full_field.field = any($2::text[]) and full_field.value = $3",
            project_id,
            fields,
            OTHER,
        )
        if forgotten != self._forgotten:
            return
        self._remember(project_id, {(row["field"], row["value"]): row["code"] for row in rows})
        self._full |= {(project_id, row["field"]): row["code"] for row in rows if row["value"] == OTHER}

    def _remember(self, project_id: int, codes: Mapping[tuple[str, str], str]) -> None:
        if len(self._codes) + len(codes) > _REMEMBERED_VALUES:
            self.forget()
        self._codes |= {(project_id, *pair): code for pair, code in codes.items()}

    def forget(self) -> None:
        """Look everything up anew."""
        self._forgotten += 1
        self._codes.clear()
        self._full.clear()
        self._together.clear()


async def encode_within(
    connection: Connection, project_id: int, rows: Sequence[SpanRow], *, readonly: bool = False
) -> None:
    """Set `facets` of these rows within a transaction of the caller's; `readonly`, as they would become."""
    values = sorted({pair for row in rows for pair in _by_two(row.attributes)})
    if not values:
        return
    look_up = _stored if readonly else _given_out
    codes = dict(zip(values, await look_up(connection, project_id, values), strict=True))
    for row in rows:
        row.facets = _joined(codes[pair] for pair in _by_two(row.attributes))


async def codes_within(
    connection: Connection, project_id: int, field: str, values: Iterable[str]
) -> dict[str, str]:
    """The character of each value of a field, given out where it is new, in a transaction of the caller's;
    without those of a hidden field.
    """
    pairs = [(field, value) for value in sorted(set(values))]
    if not pairs:
        return {}
    codes = await _codes_of(connection, project_id, pairs)
    if len(codes) < len(pairs):
        codes = dict(zip(pairs, await _given_out(connection, project_id, pairs), strict=True))
    return {value: code for (_, value), code in codes.items() if code}


def _by_two(pairs: Pairs) -> Iterable[tuple[str, str]]:
    return zip(pairs[::2], pairs[1::2], strict=True)


def _joined(codes: Iterable[str]) -> str | None:
    # Two values of one field may both be beyond the most.
    return "".join(dict.fromkeys(code for code in codes if code)) or None


async def _stored(connection: Connection, project_id: int, values: Sequence[tuple[str, str]]) -> list[str]:
    """The character of each value, and one that nobody has for those that are new."""
    codes = await _codes_of(connection, project_id, values)
    return [codes.get(pair, _NEW) for pair in values]


async def _codes_of(
    connection: Connection, project_id: int, values: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    rows = await connection.fetch(
        "select v.field, v.value, v.code from unnest($2::text[], $3::text[]) as a (field, value)"
        " join attribute_value v on v.project_id = $1 and v.field = a.field and v.value = a.value",
        project_id,
        [field for field, _ in values],
        [value for _, value in values],
    )
    return {(row["field"], row["value"]): row["code"] for row in rows}


async def lock_counter(connection: Connection, project_id: int) -> int:
    """How many characters the project has given out; nobody else gives one out until the end."""
    await connection.execute(
        "insert into attribute_counter (project_id, given) values ($1, 0) on conflict do nothing", project_id
    )
    count: int = await connection.fetchval(
        "select given from attribute_counter where project_id = $1 for update", project_id
    )
    return count


async def _given_out(connection: Connection, project_id: int, values: Sequence[tuple[str, str]]) -> list[str]:
    """The character of each value, new ones for those that are new; empty for those of hidden fields."""
    count = await lock_counter(connection, project_id)
    fields = sorted({field for field, _ in values})
    hidden = {
        row["field"]
        for row in await connection.fetch(
            "select field from attribute_key where project_id = $1 and field = any($2::text[])"
            " and state = 'hidden'",
            project_id,
            fields,
        )
    }
    wanted = [pair for pair in values if pair[0] not in hidden]
    # What stands for all others is looked up with them.
    asked = [*wanted, *((field, OTHER) for field in fields if field not in hidden)]
    codes = await _codes_of(connection, project_id, asked)
    counts = await connection.fetch(
        "select field, count(*) as n from attribute_value where project_id = $1 and field = any($2::text[])"
        " group by 1",
        project_id,
        fields,
    )
    room = {row["field"]: MOST_VALUES - row["n"] for row in counts}
    new: dict[tuple[str, str], str] = {}
    for field, value in wanted:
        if (field, value) in codes:
            continue
        left = room.get(field, MOST_VALUES)
        pair = (field, value if left > 0 else OTHER)
        if pair not in codes and count < _MOST_CODES:
            room[field] = left - 1
            codes[pair] = new[pair] = character(count)
            count += 1
        codes[field, value] = codes.get(pair, "")
    if new:
        await connection.execute(
            "insert into attribute_value (project_id, field, value, code)"
            " select $1, f, v, c from unnest($2::text[], $3::text[], $4::text[]) as new (f, v, c)",
            project_id,
            [field for field, _ in new],
            [value for _, value in new],
            list(new.values()),
        )
        await connection.execute(
            "update attribute_counter set given = $2 where project_id = $1", project_id, count
        )
    return [codes.get(pair, "") for pair in values]
