"""What the traces of each group took, cost and belong to, as codes of a dictionary, cut into bits.

Owns the tables `trace_code` and `trace_code_page`, with `svc.store.reads.traces.trace_codes`, which reads
them. They are made of the groups of traces (`svc.store.aggregates.trace_values`), in the same transaction, so
that they are right exactly where the groups are. Groups of an earlier release get theirs by the cube builder;
until then their traces are read row by row where codes are needed.

The values of a group are numbered in order, and of the numbers bit by bit is kept, each as a string of bits
with one for each trace: which of them lie above a bound is then told by an operation or two for each of
these strings, however many traces there are. Where a bound lies among the values is looked up in one page of
the dictionary.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from svc.store.postgres.database import Connection


class CodedField(NamedTuple):
    """The column of the groups that is coded, and whether it is a number."""

    column: str
    number: bool


#: The fields that have codes.
CODED: Final = {
    "took": CodedField("took", number=True),
    "cost": CodedField("cost", number=True),
    "user_id": CodedField("users", number=False),
    "session_id": CodedField("sessions", number=False),
}
#: Bits of a code: a group of 4096 traces has no more values.
PLANES: Final = 13
#: So many values of a group are kept beside its bits; of more they are cut into pages of so many.
MOST_BESIDE: Final = 256
PAGE_VALUES: Final = 64

# Hours of any project whose groups have no codes, the newest first, by the index that holds nothing else.
UNCODED: Final = (
    "select distinct project_id, hour from trace_group where not coded"
    " order by hour desc, project_id limit $1"
)

_COLUMNS: Final = ", ".join(field.column for field in CODED.values())
_OF_ONE: Final = ", ".join(f"one.{field.column}" for field in CODED.values())
_OF_GROUP: Final = ", ".join(f"g.{field.column}" for field in CODED.values())
#: In the order of bytes, whatever the database's own is.
BYTEWISE: Final = 'collate "C"'
_ARMS: Final = " union all ".join(
    f"select '{name}' as field, began, part, bit,"
    f" {f'{column}::numeric' if number else 'null::numeric'} as number,"
    f" {'null' if number else column}::text as said,"
    f" case when {column} is null then 0 else dense_rank() over (partition by began, part"
    f" order by {column} {'' if number else BYTEWISE}) end::integer as code from told"
    for name, (column, number) in CODED.items()
)
# Sixty-four traces at once: a string for each of them costs three times as much (measured November 2026).
_BIT: Final = "bit_or(({})::bigint << (63 - bit % 64))"
_WORDS: Final = ", ".join(
    (
        f"{_BIT.format('(code > 0)::integer')} as known",
        *(f"{_BIT.format(f'(code >> {plane}) & 1')} as word_{plane}" for plane in range(PLANES)),
    )
)
_STRING: Final = "substring(string_agg({}::bit(64)::text, '' order by block) for traces)::bit varying"
_STRINGS: Final = ", ".join(_STRING.format(f"word_{plane}") for plane in range(PLANES))
_GROUP: Final = "field, began, part"


def _values(condition: str) -> str:
    """Both arrays of values in order, the one that the field is not of empty."""
    return ", ".join(
        f"coalesce(array_agg({column} order by code) filter (where {condition}{column} is not null), '{{}}')"
        f" as {name}"
        for column, name in (("number", "numbers"), ("said", "texts"))
    )


async def build_trace_codes(connection: Connection, project_id: int, hour: datetime) -> None:
    """Code the groups of an hour, in the transaction that makes them or finds them without."""
    for table in ("trace_code", "trace_code_page"):
        await connection.execute(f"delete from {table} where project_id = $1 and hour = $2", project_id, hour)
    # The groups by the index on their hour, their values numbered in order, each by itself.
    await connection.execute(
        "with told as materialized (select g.began, g.part, (one.place - 1)::integer as bit,"
        f" {_OF_ONE} from trace_group g cross join lateral unnest({_OF_GROUP}) with ordinality"
        f" as one ({_COLUMNS}, place) where g.project_id = $1 and g.hour = $2),"
        f" own as materialized ({_ARMS}),"
        f" sized as materialized (select {_GROUP}, count(*)::integer as traces, max(code) as most,"
        f" case when max(code) > $3 then $4::integer else 1 end as stride from own group by {_GROUP}),"
        f" said as materialized (select distinct on ({_GROUP}, code) {_GROUP}, code, number, said from own"
        f" where code > 0 order by {_GROUP}, code),"
        f" paged as (insert into trace_code_page ({_GROUP}, project_id, hour, place, numbers, texts)"
        f" select {_GROUP}, $1, $2, (code - 1) / stride as place, {_values('')}"
        f" from said join sized using ({_GROUP}) where stride > 1 group by {_GROUP}, place),"
        f" words as (select {_GROUP}, bit / 64 as block, {_WORDS} from own group by {_GROUP}, block),"
        f" bits as (select {_GROUP}, {_STRING.format('known')} as known, array[{_STRINGS}] as planes"
        f" from words join sized using ({_GROUP}) group by {_GROUP}, traces),"
        f" marks as (select {_GROUP}, {_values('(code - 1) % stride = 0 and ')}"
        f" from said join sized using ({_GROUP}) group by {_GROUP})"
        f" insert into trace_code ({_GROUP}, project_id, hour, most, known, planes, stride, numbers, texts)"
        f" select {_GROUP}, $1, $2, most, known, planes[1:ceil(log(2, most + 1))::integer], stride,"
        " coalesce(numbers, '{}'), coalesce(texts, '{}')"
        f" from sized join bits using ({_GROUP}) left join marks using ({_GROUP})",
        project_id,
        hour,
        MOST_BESIDE,
        PAGE_VALUES,
    )


async def code_lacking(connection: Connection, project_id: int, hour: datetime) -> bool:
    """Code the groups of an hour that a release before made; False when that has been done meanwhile."""
    # By the index that holds nothing else.
    lacking = await connection.fetchval(
        "select exists (select from trace_group where project_id = $1 and hour = $2 and not coded)",
        project_id,
        hour,
    )
    if lacking:
        await build_trace_codes(connection, project_id, hour)
        # By the same.
        await connection.execute(
            "update trace_group set coded = true where project_id = $1 and hour = $2 and not coded",
            project_id,
            hour,
        )
    return bool(lacking)


async def uncoded_hours(connection: Connection, project_id: int) -> list[datetime]:
    """The hours whose groups have no codes, the newest first, as of this transaction's snapshot."""
    # By an index that holds nothing else.
    rows = await connection.fetch(
        "select distinct hour from trace_group where project_id = $1 and not coded order by hour desc",
        project_id,
    )
    return [row["hour"] for row in rows]
