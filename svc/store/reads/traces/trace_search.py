"""Pages of traces that are narrowed to what few of them have: a text, a model, a kind, a call site.

Called by `svc.store.reads.traces.traces`, within one snapshot. The newest traces fill the page of anything
common. Else the spans that have what is asked for are looked up where they lie, and their traces by key. A
trace that lost its first days is known by what is left of its spans.

Ordering: no trace begins later than any of its spans, as of its roll-up. Spans that began latest are looked
up first, and the page stands when it begins later than all that are still to be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import after
from svc.domain.queries.datasets import SPANS
from svc.domain.queries.id_pieces import ID_BYTES
from svc.store.aggregates.covered import Covered
from svc.store.aggregates.cubes import Split, split_range
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection
from svc.store.reads.search import (
    FEW_BLOCKS,
    PLACES,
    PLAN_ONCE,
    Stretch,
    batches,
    beside,
    columns,
    every_stretch,
    fetch_in_stretches,
    places,
)
from svc.store.reads.traces.trace_filter import TEXTS, HeldValue, TraceFilter, both, held_clause, on_one_span
from svc.store.reads.traces.trace_groups import grouped, in_groups, newest_left, stretches_of
from svc.store.reads.traces.trace_ids import (
    PART_OF_AN_ID,
    IdPart,
    ids_in_blocks,
    ids_in_rows,
    named_ids,
    packed,
)

#: Traces looked through before anything is looked up: 2 ms with a look at the spans of each.
NEAR: Final = 128
#: Spans that are few enough to name their traces one by one.
RARE: Final = 5_000
#: Hours of a value that are read first: all seven hundred of a month take 6 ms (measured November 2026).
NEWEST_HOURS: Final = 64
#: What lies in more blocks or hours than these is walked to.
MOST_STRETCHES: Final = 128
#: Looked into at once: what the cubes do not cover, which is mostly two stretches.
FIRST_STRETCHES: Final = 2
#: So many times a page is asked for when some of it had changed since it was counted.
_MORE: Final = 8
#: With more hours marked dirty, or with the builder so far behind, it is not worth looking anything up.
_MOST_DIRTY: Final = 24
_MOST_UNCOVERED: Final = timedelta(hours=4)


@attrs.frozen
class Search:
    """What is asked for, and the page of it.

    `near` is the clause of what an index on traces narrows, `said` the one of `q`, if any; with `held` they
    take `values`. `columns`, `order`: of the page, SQL of ours.
    """

    project_id: int
    near: str
    said: str
    q: str | None
    held: Sequence[HeldValue]
    values: Sequence[Any]
    columns: str
    order: str
    size: int
    #: How many of the values `near` takes.
    narrowed: int
    asked: TraceFilter
    #: Where the page begins, by its order; None at the newest.
    place: Sequence[Any] | None
    #: When the traces of the page began, both included, as far as `near` says.
    low: datetime | None
    high: datetime | None

    def where(self, known: HeldValue | None = None) -> str:
        """The whole clause; what is known of the traces is not asked again, and its parameter only named."""
        held = held_clause(self.held, one_span=self.asked.one_span, known=known)
        return both(self.near, self.said, held)


@attrs.frozen
class Lead:
    """A condition on spans, with its values from $6 on, and stretches that hold those that meet it."""

    condition: str
    values: Sequence[Any]
    near: Sequence[Stretch]
    #: Stretches looked into at once.
    first: int
    #: When the spans began, at the latest, that meet it and lie elsewhere; None when there are none.
    beyond: datetime | None = None
    #: What a trace with such a span is known to hold.
    known: HeldValue | None = None


async def newest_traces(connection: Connection, search: Search) -> list[Any] | None:
    """The rows of the page; None where only walking is left. Wants one snapshot for all that is read."""
    await connection.execute(PLAN_ONCE)
    page = f"order by {search.order} limit ${len(search.values) + 1}"
    # The newest that an index gives.
    rows: list[Any] = await connection.fetch(
        f"select {search.columns} from (select * from trace where {search.near} order by {search.order}"
        f" limit {NEAR}) t where {search.where()} {page}",
        *search.values,
        search.size,
    )
    if len(rows) == search.size:
        return rows
    # Whether there are more than these.
    has_more = await connection.fetchval(
        f"select true from trace where {search.near} order by {search.order} offset {NEAR} limit 1",
        *search.values[: search.narrowed],
    )
    if not has_more:
        return rows
    split = None
    if search.q is not None or search.held:
        split = await _split(connection, search.project_id)
    if split is not None and (lead_rows := await _lead_of_text(connection, search, split)) is not None:
        return lead_rows
    if (lead_rows := await _lead_of_groups(connection, search)) is not None:
        return lead_rows
    return None if split is None else await _lead_of_values(connection, search, split)


async def _split(connection: Connection, project_id: int) -> Split | None:
    """What the cubes cover of all spans; None when it leaves so much that walking is quicker."""
    split = await split_range(connection, project_id, SPANS, None, None)
    if split is None or len(split.dirty) > _MOST_DIRTY:
        return None
    # The newest span, by the index on created_at.
    newest = await connection.fetchval(
        "select created_at from span where project_id = $1 order by created_at desc limit 1", project_id
    )
    return None if newest is None or newest > after(split.cubed[1], _MOST_UNCOVERED) else split


async def _lead_of_text(connection: Connection, search: Search, split: Split) -> list[Any] | None:
    if search.q is None:
        return None
    near = await every_stretch(connection, SPANS, search.project_id, search.q, split, MOST_STRETCHES)
    if near is None:
        return None
    spoken = Where([], [None] * 5)
    spoken.contains(TEXTS, search.q)
    first = len(near) if len(near) <= FEW_BLOCKS else FIRST_STRETCHES
    found = await followed(connection, search, Lead(spoken.sql(), spoken.values[5:], near, first))
    if found is None or PART_OF_AN_ID.fullmatch(search.q) is None:
        return None if found is None else found.rows
    by_id = await _rows_by_id_part(connection, search, search.q.lower(), split)
    return _first(search, list({row["trace_id"]: row for row in (*found.rows, *by_id)}.values()))


async def speaking(connection: Connection, project_id: int, q: str) -> list[bytes] | None:
    """The traces that may have a text, by their spans or their own id; None when they are not few."""
    split = await _split(connection, project_id)
    if split is None:
        return None
    near = await every_stretch(connection, SPANS, project_id, q, split, MOST_STRETCHES)
    if near is None:
        return None
    spoken = Where([], [None] * 5)
    spoken.contains(TEXTS, q)
    lead = Lead(spoken.sql(), spoken.values[5:], near, len(near))
    ids = set(await _holding(connection, project_id, lead, near, RARE + 1))
    if len(ids) <= RARE and PART_OF_AN_ID.fullmatch(q) is not None:
        ids |= await named_ids(connection, project_id, q.lower(), split.cubed[1], RARE + 1 - len(ids))
    return None if len(ids) > RARE else sorted(ids)


async def _rows_by_id_part(connection: Connection, search: Search, part: str, split: Split) -> list[Any]:
    """The traces of the page whose id has this part; by the blocks of ids where they tell."""
    built = await packed(connection, search.project_id, part, split.cubed[1])
    if built is None:
        return await _named_in_index(connection, search, part)
    about = (connection, search.project_id, IdPart(part, search.low, search.high), built)
    rows: list[Any] = []
    ids = await ids_in_rows(*about)
    async with aclosing(ids_in_blocks(*about)) as blocks:
        async for last_at, batch in blocks:
            if len(ids) >= search.size:
                rows += await _by_key(connection, search, ids)
                ids = set()
            if sum(row["started_at"] > last_at for row in rows) >= search.size:
                break
            ids |= batch
    return rows + await _by_key(connection, search, ids)


async def _named_in_index(connection: Connection, search: Search, part: str) -> list[Any]:
    """The same, one by one; the index alone tells which."""
    size, placeholder = len(search.values) + 1, len(search.values) + 2
    is_whole = len(part) == 2 * ID_BYTES
    has = f"trace_id = ${placeholder}" if is_whole else f"encode(trace_id, 'hex') like ${placeholder}"
    rows: list[Any] = await connection.fetch(
        f"select {search.columns} from (select started_at as began, trace_id as id from trace"
        f" where {search.near} and {has} order by {search.order} offset 0) as named"
        f" cross join lateral (select * from trace where project_id = $1 and trace_id = id) t"
        f" where {search.where()} order by began desc, id desc limit ${size}",
        *search.values,
        search.size,
        bytes.fromhex(part) if is_whole else f"%{part}%",
    )
    return rows


async def _lead_of_groups(connection: Connection, search: Search) -> list[Any] | None:
    """The page by way of what the groups say that all of the filter but its text leaves."""
    if not search.asked.by_value or search.asked.by_index:
        return None
    built = await worth_grouping(connection, search.project_id, search.asked)
    if built is None:
        return None
    # Where a page of them holds few that have it all on one span, eight pages hold few as well.
    sizes = (search.size, *(() if search.asked.conjoined else (_MORE * search.size,)))
    if search.q is not None:
        # With a text, all that are left are asked for it, if they are few.
        sizes = (RARE + 1,)
    for size in sizes:
        newest = await newest_left(connection, search.project_id, search.asked, built, size, search.place)
        if search.q is not None and len(newest) > RARE:
            return None
        rows = await _rows_left(connection, search, built, [trace_id for _, trace_id in newest])
        if len(newest) < size:
            return rows
        # One that has changed since its hour was counted may not be among them: then it takes more.
        if len(rows) == search.size and (rows[-1]["started_at"], rows[-1]["trace_id"]) >= newest[-1]:
            return rows
    return None


async def _rows_left(
    connection: Connection, search: Search, built: Covered, ids: Sequence[bytes]
) -> list[Any]:
    """The page of these traces, of those that no group tells of, and of those that are not settled."""
    where = Where([], list(search.values))
    ids_value = where.value(ids)
    # By their keys; those that are not covered by the index on created_at; and those that may have changed by
    # the index that holds nothing else.
    rows: list[Any] = await connection.fetch(
        f"select {search.columns} from (select * from (select * from trace where project_id = $1"
        f" and trace_id = any({ids_value}::bytea[]) offset 0) as named where {search.near}"
        f" union all select those.* from {stretches_of(where, built.raw)}"
        f" cross join lateral (select * from trace where {search.near} and created_at >= stretch.low"
        " and created_at < stretch.high offset 0) as those"
        f" union all select * from (select * from trace where {search.near} and next_at is not null"
        f" and {in_groups(where, built)}"
        f" and trace_id <> all({ids_value}::bytea[]) offset 0) as changing) t"
        f" where {search.where()} order by {search.order} limit {where.value(search.size)}",
        *where.values,
    )
    return rows


async def worth_grouping(connection: Connection, project_id: int, asked: TraceFilter) -> Covered | None:
    """How far the groups tell a filter; None when they leave so much that walking is quicker."""
    built = await grouped(connection, project_id, asked)
    if built is None or len(built.dirty) > _MOST_DIRTY:
        return None
    # The newest trace, by the index on created_at.
    newest = await connection.fetchval(
        "select created_at from trace where project_id = $1 order by created_at desc limit 1", project_id
    )
    return None if newest is None or newest > after(built.until, _MOST_UNCOVERED) else built


async def _lead_of_values(connection: Connection, search: Search, split: Split) -> list[Any] | None:
    conjoined = search.asked.conjoined
    for value in filter(lambda each: each.is_placed, search.held):
        condition, values = on_one_span(search.held if conjoined else [value], 6)
        # The newest hours, which fill most pages, and if they do not, all.
        for most in (NEWEST_HOURS, None):
            near, beyond = await _placed(connection, search.project_id, value, split, most)
            if conjoined and sum(not stretch.few for stretch in near) > FEW_BLOCKS:
                # Columns know the hours of all of them together (`trace_hours`).
                break
            lead = Lead(condition, values, near, FIRST_STRETCHES, beyond, None if conjoined else value)
            page = await followed(connection, search, lead)
            if page is None:
                break
            if page.whole:
                return page.rows
    return None


async def _placed(
    connection: Connection, project_id: int, value: HeldValue, split: Split, most: int | None
) -> tuple[list[Stretch], datetime | None]:
    """The stretches with spans that have the value in one of the fields, of its `most` newest hours; and when
    the spans of its other hours began, at the latest.
    """
    condition = (
        "project_id = $1 and dataset = $2 and field = any($3::text[]) and value = $4 and hour >= $5"
        " and hour < $6 and hour <> all($7::timestamptz[])"
    )
    # By the key; the names of the fields are ours.
    rows: list[Any] = await connection.fetch(
        f"with newest as materialized (select {PLACES} from search_value where {condition}"
        " order by hour desc limit $8)"
        " select *, (select max(last_started_at) from search_value"
        f" where {condition} and hour <= (select min(hour) from newest)) as beyond from newest",
        project_id,
        SPANS.name,
        list(value.fields),
        value.value,
        *split.cubed,
        list(split.dirty),
        most,
    )
    beyond = rows[0]["beyond"] if len(rows) == most else None
    return beside(split, [stretch for row in rows for stretch in places(row)]), beyond


@attrs.frozen
class Found:
    """The first rows of what was looked into; `whole` when nothing beyond it can be among them."""

    rows: list[Any]
    whole: bool


async def followed(connection: Connection, search: Search, lead: Lead) -> Found | None:
    """The page by way of the spans that meet a condition; None when there are too many of them."""
    near = sorted(lead.near, key=lambda stretch: stretch.last, reverse=True)
    loaded: set[bytes] = set()
    rows: list[Any] = []
    index = many = spans = 0
    for batch in batches(near, lead.first, growth=2):
        index += len(batch)
        many += sum(not stretch.few for stretch in batch)
        if many > MOST_STRETCHES + _MOST_DIRTY:
            return None
        matches = await _holding(connection, search.project_id, lead, batch, RARE + 1 - spans)
        spans += len(matches)
        if spans > RARE:
            return None
        rows += await _by_key(connection, search, set(matches) - loaded, lead.known)
        loaded.update(matches)
        bounds = [*(stretch.last for stretch in near[index : index + 1]), lead.beyond]
        later = max((bound for bound in bounds if bound is not None), default=None)
        if later is not None and sum(row["started_at"] > later for row in rows) >= search.size:
            return Found(_first(search, rows), whole=True)
    return Found(_first(search, rows), whole=lead.beyond is None)


async def _holding(
    connection: Connection, project_id: int, lead: Lead, batch: Sequence[Stretch], most: int
) -> list[bytes]:
    """The traces of the spans that meet the condition in these stretches, one for each of at most so many."""
    sql = (
        "select trace_id from unnest($2::timestamptz[], $3::timestamptz[], $4::timestamptz[],"
        " $5::timestamptz[]) as stretch (low, high, first, last)"
        f" cross join lateral (select trace_id from span where project_id = $1 and {lead.condition}"
        " and created_at >= stretch.low and created_at < stretch.high"
        " and started_at >= stretch.first and started_at <= stretch.last offset 0) as held"
        f" limit ${6 + len(lead.values)}"
    )
    rows = await fetch_in_stretches(connection, sql, project_id, *columns(batch), *lead.values, most)
    return [row["trace_id"] for row in rows]


async def _by_key(
    connection: Connection, search: Search, ids: set[bytes], known: HeldValue | None = None
) -> list[Any]:
    """Those of these traces that the page is about, the first ones; `offset 0` keeps to their keys."""
    if not ids:
        return []
    size, keys = len(search.values) + 1, len(search.values) + 2
    return await connection.fetch(
        f"select {search.columns} from (select * from trace where project_id = $1"
        f" and trace_id = any(${keys}::bytea[]) offset 0) t where {search.where(known)}"
        f" order by {search.order} limit ${size}",
        *search.values,
        search.size,
        sorted(ids),
    )


def _first(search: Search, rows: list[Any]) -> list[Any]:
    """The page of these rows."""
    return sorted(rows, key=lambda row: (row["started_at"], row["trace_id"]), reverse=True)[: search.size]
