"""What a filter leaves of the traces that stand in groups: how many began when, and the newest of them.

Reads the tables `trace_group` and `trace_cube` of `svc.store.aggregates.trace_values`: a filter is bits of
each group, one for each trace that it leaves; bits of bounds and of what is each trace's own come from
`svc.store.reads.traces.trace_codes`. Every filter but a text can be told. What the groups do not cover (the
last minutes, what has changed, hours of an earlier release) the caller reads row by row, under the same
snapshot. They say what traces said at their last roll-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs

from svc.domain.calendar import EPOCH, after, hour_of
from svc.store.aggregates.closed_hours import HOUR, SLICE
from svc.store.aggregates.covered import Covered, covered, with_slices
from svc.store.aggregates.cubes import ceil_hour
from svc.store.aggregates.trace_codes import CODED, uncoded_hours
from svc.store.aggregates.trace_slices import FAR_OFF
from svc.store.aggregates.trace_values import HELD, lacking_hours
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection
from svc.store.reads.traces.trace_codes import Sign, meeting
from svc.store.reads.traces.trace_filter import TraceFilter

_STEP: Final = timedelta(microseconds=1)
#: Columns of a group that are no bits.
_LISTS: Final = ("started", "ids")
_NOTHING: Final = TraceFilter()
#: Groups of the newest hours that are looked into first: they fill most pages.
NEWEST_HOURS: Final = 64


async def grouped(connection: Connection, project_id: int, asked: TraceFilter) -> Covered | None:
    """How far the groups go that tell a filter, as of this transaction's snapshot; None when nowhere."""
    built = await grouped_hours(connection, project_id, asked)
    return None if built is None else await with_slices(connection, project_id, TRACES, built)


async def grouped_hours(
    connection: Connection, project_id: int, asked: TraceFilter = _NOTHING
) -> Covered | None:
    """The same, of hours alone."""
    built = await covered(connection, project_id, TRACES, None)
    if built is None:
        return None
    lacking = set(await lacking_hours(connection, project_id))
    if _coded(asked):
        lacking.update(await uncoded_hours(connection, project_id))
    return attrs.evolve(built, dirty=sorted({*built.dirty, *lacking})) if lacking else built


def _coded(asked: TraceFilter) -> list[tuple[str, Sign, object]]:
    """What each trace is asked for itself: the field, how it is compared, and with what."""
    bounds: tuple[tuple[str, Sign, timedelta | Decimal | None], ...] = (
        ("took", ">=", asked.slower_than),
        ("took", "<=", asked.faster_than),
        ("cost", ">=", asked.dearer_than),
        ("cost", "<=", asked.cheaper_than),
    )
    terms: list[tuple[str, Sign, object]] = [
        (field, sign, bound // _STEP if isinstance(bound, timedelta) else bound)
        for field, sign, bound in bounds
        if bound is not None
    ]
    is_: tuple[tuple[str, str | None], ...] = (("user_id", asked.user_id), ("session_id", asked.session_id))
    terms += [(field, "=", value) for field, value in is_ if value is not None]
    return terms + [(field, "<>", value) for field, value in asked.without if field in CODED]


def stretches_of(where: Where, stretches: Sequence[tuple[datetime, datetime]]) -> str:
    """Half-open stretches as a table `stretch (low, high)`."""
    lows, highs = ([stretch[side] for stretch in stretches] for side in (0, 1))
    return (
        f"unnest({where.value(lows)}::timestamptz[], {where.value(highs)}::timestamptz[])"
        " as stretch (low, high)"
    )


def in_groups(where: Where, built: Covered) -> str:
    """That a trace stands in a group."""
    return (
        f"(created_at < {where.value(built.until)}"
        f" and date_trunc('hour', created_at, 'UTC') <> all({where.value(list(built.dirty))}::timestamptz[])"
        f" or date_bin({where.value(SLICE)}::interval, created_at, {where.value(EPOCH)})"
        f" = any({where.value(list(built.slices))}::timestamptz[]))"
    )


def _groups_sql(
    where: Where, filter_: TraceFilter, built: Covered, columns: Sequence[str], most: int | None = None
) -> str:
    """The beginning of a statement: `told`, the groups of a range with `bits` of what a filter leaves.

    With when they began and these columns of them; of the `most` newest hours and groups of the range. The
    parameters are added to those of `where`.
    """
    within = (
        f" and (hour < {where.value(built.until)}"
        f" and hour <> all({where.value(list(built.dirty))}::timestamptz[])"
        f" or hour = any({where.value([slice_ + FAR_OFF for slice_ in built.slices])}::timestamptz[]))"
    )
    if filter_.low is not None:
        within += f" and began >= {where.value(hour_of(filter_.low))}"
    if filter_.high is not None:
        within += f" and began <= {where.value(filter_.high)}"
    newest = ""
    if most is not None:
        newest = (
            "edge as materialized (select coalesce((select began from trace_group where project_id = $1"
            f"{within} order by began desc offset {where.value(most - 1)} limit 1), '-infinity')"
            " as oldest), "
        )
        within += " and began >= (select oldest from edge)"
    positive, unwanted = _parts(where, filter_, within)
    groups = (
        f"select hour, began, part, {_flags(filter_)} as held, 0 as wanted, {', '.join(columns)}"
        f" from trace_group where project_id = $1{within}"
    )
    # Grouped and not joined: what is guessed of their numbers leads to each of a month beside each.
    nulls = ", null" * len(columns)
    parts = "".join(
        f" union all select hour, began, part, {flag}, {count}{nulls} from ({part}) as part_of"
        for group, flag, count in ((positive, "held", 1), (unwanted, "~held", 0))
        for part in group
    )
    # Of each group one row has them and the others null; `any_value` would be of PostgreSQL 16.
    carried = ", ".join(
        f"{'max' if column in _LISTS else 'bit_or'}({column}) as {column}" for column in columns
    )
    return (
        f"{newest}told as materialized (select began, bit_and(held) as bits, {carried}"
        f" from ({groups}{parts}) as parts group by hour, began, part"
        f" having sum(wanted) = {len(positive)} and count({columns[0]}) > 0)"
    )


def _flags(asked: TraceFilter) -> str:
    """What of a filter a group says by itself: its bits of that."""
    flags = {
        "failed": None if asked.status is None else asked.status == "error",
        "failing": True if asked.span_status == "error" else asked.failed_spans,
        "unpriced": asked.unpriced,
    }
    flags_set = [f"{'' if set_ else '~'}{flag}" for flag, set_ in flags.items() if set_ is not None]
    return " & ".join(flags_set) or "~(failed # failed)"


def _parts(where: Where, asked: TraceFilter, within: str) -> tuple[list[str], list[str]]:
    """What of a filter stands beside a group: statements of `hour, began, part, held`.

    First those that name every trace that is left, then those that name none that is. A group that a value
    is not in has no row of it.
    """

    def holding(field: str, value: str) -> str:
        return (
            "select hour, began, part, held from trace_cube where project_id = $1"
            f" and field = {where.value(field)} and value = {where.value(value)}{within}"
        )

    values = {field: getattr(asked, field) for field in HELD}
    positive = [holding(field, value) for field, value in values.items() if value is not None]
    positive += [holding(field, value) for field, value in asked.attributes]
    positive += [meeting(where, *met, within) for met in _coded(asked)]
    return positive, [holding(field, value) for field, value in asked.without if field not in CODED]


async def buckets_left(
    connection: Connection,
    asked: TraceFilter,
    built: Covered,
    raw: tuple[str, Sequence[Any]],
    width: timedelta,
    origin: datetime,
    most: int,
) -> list[Any]:
    """How many traces began in each bucket, how many of them failed, and how many hold a failed span.

    `raw` is the clause over the rows that the groups do not cover, with its parameters; $1 is the project.
    """
    clause, values = raw
    where = Where([], list(values))
    groups = _groups_sql(where, asked, built, ("failed", "failing", "started"))
    bin_by = f"date_bin({where.value(width)}::interval, {{}}, {where.value(origin)})"
    # Hours that the range holds whole are counted by their bits, of the others each trace.
    whole_conditions = ["true" if not width % HOUR else "false"]
    began = ["true"]
    if asked.low is not None:
        whole_conditions.append(f"began >= {where.value(ceil_hour(asked.low))}")
        began.append(f"at >= {where.value(asked.low)}")
    if asked.high is not None:
        whole_conditions.append(f"began < {where.value(hour_of(after(asked.high, _STEP)))}")
        began.append(f"at <= {where.value(asked.high)}")
    whole_hour = " and ".join(whole_conditions)
    # The groups by their key and the bits of each value by its own; the rows by the index on created_at.
    rows: list[Any] = await connection.fetch(
        f"with {groups}, counted as ("
        f"select {bin_by.format('began')} as start, bit_count(bits) as count,"
        " bit_count(bits & failed) as failed, bit_count(bits & failing) as failing from told"
        f" where {whole_hour}"
        f" union all select {bin_by.format('at')}, 1, get_bit(failed, (bit - 1)::integer),"
        " get_bit(failing, (bit - 1)::integer) from told"
        " cross join lateral unnest(started) with ordinality as one (at, bit)"
        f" where not ({whole_hour}) and bit_count(bits) > 0 and get_bit(bits, (bit - 1)::integer) = 1"
        f" and {' and '.join(began)}"
        f" union all select {bin_by.format('started_at')}, 1, (status = 'error')::integer,"
        f" (error_count > 0)::integer from {stretches_of(where, built.raw)}"
        f" cross join lateral (select started_at, status, error_count from trace t where {clause}"
        " and created_at >= stretch.low and created_at < stretch.high offset 0) as rows)"
        " select start, sum(count)::bigint as count, sum(failed)::bigint as failed,"
        " sum(failing)::bigint as failing from counted group by 1"
        f" having sum(count) > 0 order by 1 limit {most}",
        *where.values,
    )
    return rows


async def newest_left(
    connection: Connection,
    project_id: int,
    asked: TraceFilter,
    built: Covered,
    size: int,
    place: Sequence[Any] | None = None,
) -> list[tuple[datetime, bytes]]:
    """The newest traces that a filter leaves, at most so many: when they began and their ids.

    Behind the place of a cursor, if one is given.
    """
    newest: list[tuple[datetime, bytes]] = []
    # The newest hours, which fill most pages, and if they do not, all.
    for most in (NEWEST_HOURS, None):
        where = Where.of(project_id)
        sql = ids_left(where, asked, built, size, place, most)
        newest = [(row["at"], row["id"]) for row in await connection.fetch(sql, *where.values)]
        if len(newest) >= size:
            break
    return newest


def ids_left(
    where: Where,
    filter_: TraceFilter,
    built: Covered,
    size: int,
    place: Sequence[Any] | None = None,
    most: int | None = None,
) -> str:
    """The statement of `newest_left`, over the `most` newest hours; $1 is the project."""
    if place is not None:
        high = place[0] if filter_.high is None else min(filter_.high, place[0])
        filter_ = attrs.evolve(filter_, high=high)
    groups = _groups_sql(where, filter_, built, ("started", "ids"), most)
    limit = where.value(size)
    began, counted = Where(["began >= (select began from cut)"], where.values), "bit_count(bits)"
    began.within("at", filter_.low, filter_.high)
    if place is not None:
        began.after(("at", "id"), place)
    if filter_.high is not None:
        # Of an hour that the range ends in it is not known how many there are.
        counted = f"case when began < {where.value(hour_of(filter_.high))} then {counted} else 0 end"
    # The hours that fill the page, the newest first, and what is left of their traces.
    return (
        f"with {groups}, cut as (select min(began) as began from (select began, sum(n) over (order by began"
        " desc rows between unbounded preceding and 1 preceding) as newer from (select began,"
        f" sum({counted}) as n from told group by began) as hours) as summed"
        f" where coalesce(newer, 0) < {limit})"
        " select at, id from told cross join lateral unnest(started, ids) with ordinality"
        " as one (at, id, bit) where bit_count(bits) > 0 and get_bit(bits, (bit - 1)::integer) = 1"
        f" and {began.sql()}"
        f" order by at desc, id desc limit {limit}"
    )
