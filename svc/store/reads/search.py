"""Where rare rows lie: the stretches of time that may hold a text or a value, and the pages found in them.

Reads the tables `search_block` of `svc.store.aggregates.blocks` and `search_value` of
`svc.store.aggregates.values`. Neither lies: a stretch may be looked into in vain, but nothing it holds is
missed. Only what failures said in hours that an earlier release built is, until their blocks are new. What
the cubes do not cover (the last hour, hours marked dirty) is looked into row by row. Pages of spans and tool
calls are read here, those of traces in `svc.store.reads.traces.trace_search`.

How: texts and questions are cut into words at white space, after PostgreSQL has put them into lower case. A
text that contains the question contains every word of it inside a word of its own, so all three-letter pieces
of the question's words are among those of the block. Questions without such a piece are answered by walking.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple

import attrs

from svc.domain.calendar import BEGINNING
from svc.domain.queries.datasets import Dataset
from svc.store.aggregates.blocks import grams_of, hashed
from svc.store.aggregates.closed_hours import HOUR
from svc.store.aggregates.cubes import Split, split_range
from svc.store.postgres.clauses import Where, readable
from svc.store.postgres.database import Connection

#: To the end of the transaction, no new plan for each value: over the partitions of thirty days it takes 6 ms
#: a statement (measured November 2026).
PLAN_ONCE: Final = "set local plan_cache_mode = force_generic_plan"

#: Stretches looked into at once; more each time, as long as the page is not full.
_FIRST_STRETCHES: Final = 8
_MOST_STRETCHES: Final = 256
#: So many stretches with no more than a few rows are looked into in place of another one.
_FEW_FOR_ONE: Final = 16
#: So few blocks are looked into at once: a look into one costs 0.3 ms, to begin to look 2 ms over thirty days
#: (measured November 2026).
FEW_BLOCKS: Final = 32

_END: Final = datetime(9999, 1, 1, tzinfo=UTC)
_STEP: Final = timedelta(microseconds=1)

_BLOCK: Final = "low, high, first_started_at, last_started_at"
_IN_HOURS: Final = (
    "project_id = $1 and dataset = $2 and hour >= $3 and hour < $4 and hour <> all($5::timestamptz[])"
)

#: The blocks that have every piece of a question, and those that cannot tell. The inner clause is kept apart
#: from the outer one, which has an index of its own.
BLOCKS: Final = (
    f"select {_BLOCK} from (select * from search_block where grams @> $6::integer[] offset 0) as matching"
    f" where {_IN_HOURS} and low < $7"
    f" union all select {_BLOCK} from search_block where {_IN_HOURS} and low < $7 and grams is null"
)

#: The same for a text that may stand in an id, and no more than are wanted.
BLOCKS_WITH_IDS: Final = (
    f"{BLOCKS} union all select {_BLOCK} from search_block where {_IN_HOURS} and low < $7"
    " and grams is not null and not ids limit $8"
)

#: The newest blocks, and of each whether it may hold the text. To name all blocks of a common word takes
#: 40 ms at a million spans (measured November 2026), and a page of it needs none but these.
NEWEST_BLOCKS: Final = (
    f"select {_BLOCK}, coalesce(grams @> $6::integer[], true) as may from search_block where {_IN_HOURS}"
    " order by hour desc, low desc limit $7"
)
_NEWEST: Final = 16
#: A word is common when one in so many of the newest blocks may hold it.
_COMMON: Final = 4


class Stretch(NamedTuple):
    """A stretch of `created_at`, `[low, high)`, and within which times, both included, its rows started.

    Those name the days to look into: without them a stretch costs a look into each day there is.
    """

    low: datetime
    high: datetime
    first: datetime = BEGINNING
    last: datetime = _END
    #: Whether it is known to hold no more than a few rows.
    few: bool = False

    @classmethod
    def began(cls, low: datetime | None, high: datetime | None) -> Stretch:
        """What began in `[low, high)`, whenever it arrived; None is no bound."""
        return cls(BEGINNING, _END, low or BEGINNING, high - timedelta(microseconds=1) if high else _END)


#: Reads the rows that lie in stretches.
Look = Callable[[Sequence[Stretch]], Awaitable[list[Any]]]


@attrs.frozen
class Stretches:
    """Stretches, newest first: the first ones, and how to come by the others, when there may be any.

    `few` are few enough to be looked into at once.
    """

    near: Sequence[Stretch]
    few: int = 0
    rest: Callable[[], Awaitable[Stretches]] | None = None


async def stretches(
    connection: Connection,
    dataset: Dataset,
    project_id: int,
    q: str,
    low: datetime | None,
    high: datetime | None,
) -> Stretches | None:
    """The stretches of `created_at` in `[low, high)` that may hold the text, newest first.

    None when the index cannot narrow the range. Under one snapshot with the reading of the rows.
    """
    split = await split_range(connection, project_id, dataset, low, high)
    values = None if split is None else await _block_arguments(connection, dataset, project_id, q, split)
    if split is None or values is None:
        return None
    newest: list[Any] = await connection.fetch(NEWEST_BLOCKS, *values, _NEWEST)
    near = [_block(row) for row in newest if row["may"]]
    if _COMMON * len(near) < len(newest):
        return await _blocks(connection, split, values, _END)
    # Down to the oldest of these; what lies below it is another look.
    cut = min((row["low"] for row in newest), default=BEGINNING)
    return Stretches(
        [stretch for stretch in beside(split, near) if stretch.low >= cut],
        rest=lambda: _blocks(connection, split, values, cut),
    )


async def every_stretch(
    connection: Connection, dataset: Dataset, project_id: int, q: str, split: Split, most_blocks: int
) -> list[Stretch] | None:
    """All stretches that may hold the text, in an id as well; None when they are more, or cannot be told.

    As `stretches`.
    """
    values = await _block_arguments(connection, dataset, project_id, q, split)
    if values is None:
        return None
    rows: list[Any] = await connection.fetch(BLOCKS_WITH_IDS, *values, _END, most_blocks + 1)
    return None if len(rows) > most_blocks else beside(split, [_block(row) for row in rows])


async def _block_arguments(
    connection: Connection, dataset: Dataset, project_id: int, q: str, split: Split
) -> tuple[Any, ...] | None:
    """What the statements over blocks take; None for a question without a piece."""
    # PostgreSQL's own lower case, as for the texts.
    folded = await connection.fetchval("select lower($1)", readable(q))
    grams = hashed(project_id, dataset.name, grams_of([folded]))
    if not grams:
        return None
    # To the end of this transaction no reading of whole tables: the planner does not see how large the pieces
    # of a block are that it would have to bring in for reading the blocks through, which takes a second for a
    # million spans (measured November 2026).
    await connection.execute(f"set local enable_seqscan = off; {PLAN_ONCE}")
    return project_id, dataset.name, *split.cubed, list(split.dirty), grams


async def _blocks(connection: Connection, split: Split, values: Sequence[Any], below: datetime) -> Stretches:
    rows: list[Any] = await connection.fetch(BLOCKS, *values, below)
    blocks = beside(split, [_block(row) for row in rows])
    return Stretches([stretch for stretch in blocks if stretch.low < below], few=FEW_BLOCKS)


def _block(row: Any) -> Stretch:
    first, last_at = row["first_started_at"], row["last_started_at"]
    return Stretch(row["low"], row["high"], first or BEGINNING, last_at or _END)


async def stretches_with(
    connection: Connection,
    dataset: Dataset,
    project_id: int,
    values: Mapping[str, str],
    low: datetime | None,
    high: datetime | None,
    *,
    enough: int | None = None,
) -> Stretches | None:
    """The stretches of `created_at` in `[low, high)` that may hold a row with these values of placed fields.

    As `stretches`. `enough` rows are wanted and nothing but one value narrows them: the newest hours that
    hold as many, and one more where a page begins within an hour.
    """
    split = await split_range(connection, project_id, dataset, low, high)
    if split is None:
        return None
    await connection.execute(PLAN_ONCE)
    where = Where.of(project_id)
    where.equal("dataset", dataset.name)
    where.add(f"hour >= {where.value(split.cubed[0])}")
    where.add(f"hour < {where.value(split.cubed[1])}")
    where.add(f"hour <> all({where.value(list(split.dirty))}::timestamptz[])")
    # The hours that have each of the values, with the rarest of these; the names of the fields are ours.
    parts = " union all ".join(
        f"(select n, {PLACES} from search_value where {where.sql()} and field = '{field}'"
        f" and value = {where.value(value)} order by hour desc"
        + ("" if enough is None else f" limit {where.value(enough + 1)}")
        + ")"
        for field, value in values.items()
    )
    rows: list[Any] = await connection.fetch(
        f"select distinct on (hour) n, {PLACES} from"
        f" (select *, count(*) over (partition by hour) as fields from ({parts}) as held) as each"
        f" where fields = {where.value(len(values))} order by hour desc, n",
        *where.values,
    )
    if enough is not None:
        rows = list(_until(enough, rows, high))
    return Stretches(beside(split, [stretch for row in rows for stretch in places(row)]))


def _until(enough: int, rows: Iterable[Any], high: datetime | None) -> Iterator[Any]:
    """The first hours that hold so many rows. The one that the range ends with does not count."""
    count = 0
    for row in rows:
        if count >= enough:
            return
        yield row
        if high is None or row["hour"] + HOUR < high:
            count += row["n"]


def in_hours(stretches_: Stretches, has: Callable[[datetime], bool]) -> Stretches:
    """Of what values place, what lies in hours of which that is true; all of what the cubes do not cover."""
    near = [stretch for stretch in stretches_.near if stretch.last == _END or has(stretch.low)]
    return Stretches(near, stretches_.few)


#: What `places` wants of `search_value`.
PLACES: Final = "hour, last_started_at, created_at, started_at"


def places(row: Any) -> list[Stretch]:
    """Where the rows of a value lie in an hour: the moments of a few, newest first, or the hour."""
    hour: datetime = row["hour"]
    if row["created_at"] is None:
        return [Stretch(hour, hour + HOUR, BEGINNING, row["last_started_at"])]
    pairs = sorted(zip(row["created_at"], row["started_at"], strict=True), reverse=True)
    moments = ((moment, [started for _, started in group]) for moment, group in groupby(pairs, _moment))
    return [Stretch(moment, moment + _STEP, min(starts), max(starts), few=True) for moment, starts in moments]


def _moment(pair: tuple[datetime, datetime]) -> datetime:
    return pair[0]


def beside(split: Split, stretches_: list[Stretch]) -> list[Stretch]:
    """What was found in the cubes and what they do not cover, newest first."""
    raw = [Stretch(low or BEGINNING, high or _END) for low, high in split.raw]
    return sorted(stretches_ + raw, reverse=True)


@attrs.frozen
class Page:
    """A page of the newest rows: table, columns, a clause with its values, an order (all ours), a size."""

    table: str
    columns: str
    where: str
    values: Sequence[Any]
    order: str
    size: int

    def sql(self) -> str:
        """The page; the value behind those of the clause is its size."""
        return (
            f"select {self.columns} from {self.table} where {self.where}"
            f" order by {self.order} limit ${len(self.values) + 1}"
        )

    def sql_in_stretches(self) -> str:
        """The page in stretches; four more values are the columns of these."""
        limit, *columns = (f"${len(self.values) + offset}" for offset in range(1, 6))
        return (
            "select found.* from"
            f" unnest({', '.join(f'{column}::timestamptz[]' for column in columns)})"
            " as stretch (low, high, first, last)"
            f" cross join lateral (select {self.columns} from {self.table} where {self.where}"
            " and created_at >= stretch.low and created_at < stretch.high"
            " and started_at >= stretch.first and started_at <= stretch.last"
            f" order by {self.order} limit {limit}) as found order by {self.order} limit {limit}"
        )


async def newest_rows(
    connection: Connection,
    found: Stretches | None,
    page: Page,
    around: Callable[[str], str] = str,
) -> list[Any]:
    """The rows of a page that lie in these stretches; None stands for all there is.

    `around` makes the statement of the page's SQL. Wants one snapshot for all that is read.
    """
    if found is None:
        # The newest rows, one by one, until the page is full.
        return await connection.fetch(around(page.sql()), *page.values, page.size)
    # The same, in the stretches that may hold any.
    sql = around(page.sql_in_stretches())
    return await walked(
        found,
        page.size,
        lambda batch: fetch_in_stretches(connection, sql, *page.values, page.size, *columns(batch)),
    )


async def fetch_in_stretches(connection: Connection, sql: str, *values: Any) -> list[Any]:
    """The rows of a statement that joins rows to stretches: the newest of each come down an index.

    The planner does not see how long a stretch is. It asked the index of each day's pages for one that may
    lie in any day: 40 ms for each stretch at fifty million spans (measured November 2026).
    """
    await connection.execute("set local enable_bitmapscan = off")
    rows: list[Any] = await connection.fetch(sql, *values)
    # Blocks of texts are found by an index that knows no other way.
    await connection.execute("set local enable_bitmapscan = on")
    return rows


async def walked(stretches_: Stretches, size: int, look: Look) -> list[Any]:
    """The first `size` rows in these stretches, looking into a few of them, then into more at a time."""
    rows: list[Any] = []
    first = len(stretches_.near) if len(stretches_.near) <= stretches_.few else _FIRST_STRETCHES
    for batch in batches(stretches_.near, first):
        if len(rows) >= size:
            break
        rows += await look(batch)
    if len(rows) < size and stretches_.rest is not None:
        rows += await walked(await stretches_.rest(), size - len(rows), look)
    return rows[:size]


def columns(stretches_: Sequence[Stretch]) -> list[list[datetime]]:
    """The stretches as four columns: low, high, first, last."""
    return [
        [stretch.low for stretch in stretches_],
        [stretch.high for stretch in stretches_],
        [stretch.first for stretch in stretches_],
        [stretch.last for stretch in stretches_],
    ]


def batches(near: Sequence[Stretch], first: int, growth: int = 4) -> Iterator[Sequence[Stretch]]:
    """The stretches, `first` of them, then more each time; those of few rows count for less."""
    start, size = 0, first
    while start < len(near):
        end, cost = start, 0
        while end < len(near) and cost < size * _FEW_FOR_ONE:
            cost += 1 if near[end].few else _FEW_FOR_ONE
            end += 1
        yield near[start:end]
        start, size = end, min(size * growth, _MOST_STRETCHES)
