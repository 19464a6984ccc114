"""Where rare spans lie: the stretches of time that may hold a text or a value, and what is found in them.

Reads the table `search_block` of `svc.store.search_blocks`, and the cubes for values. A block never lies: it
may be looked into in vain, but no text it holds is missed. What the cubes do not cover (the last hour, hours
marked dirty) is looked into row by row.

How: texts and questions are cut into words at white space, after PostgreSQL has put them into lower case. A
text that contains the question contains every word of it inside a word of its own, so all three-letter pieces
of the question's words are among those of the block. Questions without such a piece are answered by walking.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final, NamedTuple

import attrs

from svc.domain.datasets import SPANS
from svc.store.clauses import Where, readable
from svc.store.cubes import HOUR, Split, split_range
from svc.store.database import Connection
from svc.store.search_blocks import grams_of, hashed

#: Stretches looked into at once; four times as many each time, as long as the page is not full.
_FIRST_STRETCHES: Final = 8
_MOST_STRETCHES: Final = 256
#: So few blocks are looked into at once: a look into one costs 0.3 ms, to begin to look 2 ms over thirty days
#: (measured November 2026).
_FEW_BLOCKS: Final = 32

#: Fields of spans that have no index of their own: the cubes tell in which hours a value of them occurs.
BY_HOUR: Final = ("kind", "name", "model_id")

#: Spans of a value that are few enough to name their traces one by one.
RARE: Final = 5_000

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)
_END: Final = datetime(9999, 1, 1, tzinfo=UTC)

_BLOCK: Final = "low, high, first_started_at, last_started_at"
_IN_HOURS: Final = "project_id = $1 and hour >= $2 and hour < $3 and hour <> all($4::timestamptz[])"

#: The blocks that have every piece of a question, and those that cannot tell. The inner clause is kept apart
#: from the outer one, which has an index of its own.
BLOCKS: Final = (
    f"select {_BLOCK} from (select * from search_block where grams @> $5::integer[] offset 0) as matching"
    f" where {_IN_HOURS} and low < $6"
    f" union all select {_BLOCK} from search_block where {_IN_HOURS} and low < $6 and grams is null"
)

#: The newest blocks, and of each whether it may hold the text. To name all blocks of a common word takes
#: 40 ms at a million spans (measured November 2026), and a page of it needs none but these.
NEWEST_BLOCKS: Final = (
    f"select {_BLOCK}, coalesce(grams @> $5::integer[], true) as may from search_block where {_IN_HOURS}"
    " order by hour desc, low desc limit $6"
)
_NEWEST: Final = 16
#: A word is common when one in so many of the newest blocks may hold it.
_COMMON: Final = 4


class Stretch(NamedTuple):
    """A stretch of `created_at`, `[low, high)`, and within which times, both included, its spans started.

    Those name the days to look into: without them a stretch costs a look into each day there is.
    """

    low: datetime
    high: datetime
    first: datetime = _BEGINNING
    last: datetime = _END


#: Reads the rows that lie in stretches.
Look = Callable[[Sequence[Stretch]], Awaitable[list[Any]]]


@attrs.frozen
class Found:
    """Stretches, newest first: the first ones, and how to come by the others, when there may be any.

    `few` are few enough to be looked into at once.
    """

    near: Sequence[Stretch]
    few: int = 0
    rest: Callable[[], Awaitable[Found]] | None = None


async def stretches(
    connection: Connection, project_id: int, q: str, low: datetime | None, high: datetime | None
) -> Found | None:
    """The stretches of `created_at` in `[low, high)` that may hold the text, newest first.

    None when the index cannot narrow the range. Under one snapshot with the reading of the rows.
    """
    split = await split_range(connection, project_id, SPANS, low, high)
    # PostgreSQL's own lower case, as for the texts. And to the end of this transaction no reading of whole
    # tables: the planner does not see how large the pieces of a block are that it would have to bring in for
    # reading the blocks through, which takes a second for a million spans (measured November 2026).
    folded = await connection.fetchval(
        "select lower($1) from set_config('enable_seqscan', 'off', true)", readable(q)
    )
    grams = hashed(project_id, grams_of([folded]))
    if split is None or not grams:
        return None
    asked = (project_id, *split.cubed, list(split.dirty), grams)
    newest: list[Any] = await connection.fetch(NEWEST_BLOCKS, *asked, _NEWEST)
    near = [_block(row) for row in newest if row["may"]]
    if _COMMON * len(near) < len(newest):
        return await _blocks(connection, split, asked, _END)
    # Down to the oldest of these; what lies below it is another look.
    cut = min((row["low"] for row in newest), default=_BEGINNING)
    return Found(
        [stretch for stretch in _beside(split, near) if stretch.low >= cut],
        rest=lambda: _blocks(connection, split, asked, cut),
    )


async def _blocks(connection: Connection, split: Split, asked: Sequence[Any], below: datetime) -> Found:
    rows: list[Any] = await connection.fetch(BLOCKS, *asked, below)
    every = _beside(split, [_block(row) for row in rows])
    return Found([stretch for stretch in every if stretch.low < below], few=_FEW_BLOCKS)


def _block(row: Any) -> Stretch:
    first, last = row["first_started_at"], row["last_started_at"]
    return Stretch(row["low"], row["high"], first or _BEGINNING, last or _END)


async def hours_with(
    connection: Connection,
    project_id: int,
    values: Mapping[str, str],
    low: datetime | None,
    high: datetime | None,
    *,
    enough: int | None = None,
) -> Found | None:
    """The stretches of `created_at` in `[low, high)` that may hold a span with these values of `BY_HOUR`.

    As `stretches`. `enough` rows are wanted and nothing but one value narrows them: that many hours hold
    them, and one more where a page begins within an hour.
    """
    split = await split_range(connection, project_id, SPANS, low, high)
    if split is None:
        return None
    where = Where.of(project_id)
    within = " and ".join(
        (
            f"hour >= {where.value(split.cubed[0])}",
            f"hour < {where.value(split.cubed[1])}",
            f"hour <> all({where.value(list(split.dirty))}::timestamptz[])",
        )
    )
    # The hours that have each of the values, by the index on values; the names of the fields are ours.
    rows: list[Any] = await connection.fetch(
        " intersect ".join(
            f"select hour from cube where project_id = $1 and dataset = 'spans' and field = '{field}'"
            f" and value = {where.value(value)} and {within}"
            for field, value in values.items()
        )
        + ("" if enough is None else f" order by hour desc limit {where.value(enough + 1)}"),
        *where.values,
    )
    return Found(_beside(split, [Stretch(row["hour"], row["hour"] + HOUR) for row in rows]))


async def rare_traces(
    connection: Connection, project_id: int, fields: Sequence[str], value: str, wanted: int
) -> list[bytes] | None:
    """The traces with a span that has this value in one of the fields, of `BY_HOUR` or the model as sent.

    None when they are too many, or when `wanted` of them are found sooner by walking down from the newest.
    Under one snapshot with the reading of the traces.
    """
    split = await split_range(connection, project_id, SPANS, None, None)
    if split is None:
        return None
    values = [project_id, *split.cubed, list(split.dirty)]
    clean = (
        "project_id = $1 and dataset = 'spans' and hour >= $2 and hour < $3"
        " and hour <> all($4::timestamptz[])"
    )
    names = ", ".join(f"'{field}'" for field in fields)
    # How many such spans each hour has, newest first, or null for more than a few; the names are ours. A span
    # with the value in two fields counts twice.
    held: Any = await connection.fetchrow(
        "select case when sum(n) <= $6 then array_agg(hour order by hour desc) else '{}' end as hours,"
        " case when sum(n) <= $6 then array_agg(n order by hour desc) else '{}' end as counts,"
        f" coalesce(sum(n), 0) as n from (select hour, sum(n)::bigint as n from cube where {clean}"
        f" and field in ({names}) and value = $5 group by hour) as hours",
        *values,
        value,
        RARE,
    )
    if held["n"] > RARE:
        return None
    # Twice as many spans as traces are wanted: some share a trace.
    since = _reached(held["hours"], held["counts"], 2 * wanted)
    if since is not None:
        # All spans of the hours that have it, and those that a walk comes by before the page is full.
        cost: Any = await connection.fetchrow(
            "select sum(n) filter (where hour = any($5::timestamptz[])) as looking,"
            f" sum(n) filter (where hour >= $6) as walking from cube where {clean} and field = ''",
            *values,
            held["hours"],
            since,
        )
        if cost["looking"] > cost["walking"]:
            return None
    found = _beside(split, [Stretch(hour, hour + HOUR) for hour in held["hours"]])
    # The spans themselves, by their time.
    rows = await connection.fetch(
        "select found.trace_id from unnest($2::timestamptz[], $3::timestamptz[]) as stretch (low, high)"
        " cross join lateral (select trace_id from span where project_id = $1"
        f" and ({' or '.join(f'{field} = $4' for field in fields)})"
        " and created_at >= stretch.low and created_at < stretch.high offset 0) as found limit $5",
        project_id,
        [stretch.low for stretch in found],
        [stretch.high for stretch in found],
        value,
        RARE + 1,
    )
    return None if len(rows) > RARE else list({row["trace_id"] for row in rows})


def _reached(hours: Sequence[datetime], counts: Sequence[int], wanted: int) -> datetime | None:
    """The hour, of these with their counts, in which the sum comes to what is wanted, or None."""
    for hour, total in zip(hours, accumulate(counts), strict=True):
        if total >= wanted:
            return hour
    return None


def _beside(split: Split, found: list[Stretch]) -> list[Stretch]:
    """What was found in the cubes and what they do not cover, newest first."""
    raw = [Stretch(low or _BEGINNING, high or _END) for low, high in split.raw]
    return sorted(found + raw, reverse=True)


@attrs.frozen
class Page:
    """A page of the newest spans: columns, a clause with its values, an order (all SQL of ours), a size."""

    columns: str
    where: str
    values: Sequence[Any]
    order: str
    size: int

    def sql(self) -> str:
        """The page; the value behind those of the clause is its size."""
        return (
            f"select {self.columns} from span where {self.where}"
            f" order by {self.order} limit ${len(self.values) + 1}"
        )

    def sql_in_stretches(self) -> str:
        """The page in stretches; four more values are the columns of these."""
        limit, *columns = (f"${len(self.values) + place}" for place in range(1, 6))
        return (
            "select found.* from"
            f" unnest({', '.join(f'{column}::timestamptz[]' for column in columns)})"
            " as stretch (low, high, first, last)"
            f" cross join lateral (select {self.columns} from span where {self.where}"
            " and created_at >= stretch.low and created_at < stretch.high"
            " and started_at >= stretch.first and started_at <= stretch.last"
            f" order by {self.order} limit {limit}) as found order by {self.order} limit {limit}"
        )


async def newest_spans(
    connection: Connection,
    found: Found | None,
    page: Page,
    around: Callable[[str], str] = str,
) -> list[Any]:
    """The rows of a page that lie in these stretches; None stands for all there is.

    `around` makes the statement of the page's SQL. Wants one snapshot for all that is read.
    """
    if found is None:
        # The newest rows, one by one, until the page is full.
        return await connection.fetch(around(page.sql()), *page.values, page.size)
    sql = around(page.sql_in_stretches())
    # The same, in the stretches that may hold any.
    return await walked(
        found,
        page.size,
        lambda some: connection.fetch(sql, *page.values, page.size, *map(list, zip(*some, strict=True))),
    )


async def walked(found: Found, wanted: int, look: Look) -> list[Any]:
    """The first `wanted` rows in these stretches, looking into a few of them, then into more at a time."""
    rows: list[Any] = []
    near = found.near
    at, size = 0, len(near) if len(near) <= found.few else _FIRST_STRETCHES
    while at < len(near) and len(rows) < wanted:
        some = near[at : at + size]
        rows += await look(some)
        at, size = at + size, min(size * 4, _MOST_STRETCHES)
    if len(rows) < wanted and found.rest is not None:
        rows += await walked(await found.rest(), wanted - len(rows), look)
    return rows[:wanted]
