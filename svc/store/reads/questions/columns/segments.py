"""The segments of spans by column that a question needs: which hours they serve, and what is read of them.

Called by `answers` and `traces` under one snapshot; `svc.store.aggregates` writes them. Where a day is added
up by the fields of the question (`span_sums`), its sums are read instead. Never reads more than `MOST_BYTES`
for one answer, and unpacks nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import EPOCH, day_of, gaps
from svc.domain.columns.encoding import PackedColumn
from svc.domain.columns.scan import Scan, SegmentColumns
from svc.domain.queries.datasets import SPANS
from svc.store.aggregates.closed_hours import SLICE
from svc.store.aggregates.cubes import Split, split_range
from svc.store.aggregates.slices import is_read
from svc.store.aggregates.span_columns import FIRST_SLICE, WHOLE
from svc.store.aggregates.span_slices import hour_of_place, place_of
from svc.store.aggregates.span_sums import hour_of_level
from svc.store.postgres.database import Connection
from svc.store.reads.questions.columns.asked import hours_since_epoch

#: Fewer spans are counted from their rows: exact, and as quick.
FEW_SPANS: Final = 20_000
#: Bytes of columns that one answer reads at most. A larger question goes to the rows and has its time there.
MOST_BYTES: Final = 128 * 1024 * 1024
#: Columns are read and added up in batches of about so many bytes.
BATCH_BYTES: Final = 4 * 1024 * 1024
#: Columns that are fetched at once; all of them where so few spans have them.
PREFETCH_COLUMNS: Final = 64
FEW_VALUES: Final = 4_000_000
ALL_COLUMNS: Final = 10_000

_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_DAY_HOURS: Final = 24
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)


@attrs.frozen
class Cover:
    """The hours of each day of arrival that columns serve, and the stretches of arrival that rows serve.

    `spans` are all that the days have. `levels` are the days that stand as a whole, each with a bit for
    every sum that there is of it. `slices` are those of the hour under way. No span that columns hold began
    after `latest`.
    """

    project_id: int
    spans: int
    hours: Mapping[datetime, Sequence[int]]
    levels: Mapping[datetime, int]
    slices: Sequence[datetime]
    latest: datetime
    raw: Sequence[tuple[datetime, datetime]]

    def summed(self, scan: Scan) -> dict[datetime, int]:
        """The days of which sums know the answer, each with what their segments bear as their hour."""
        levels, of_whole_days = scan.levels, scan.of_whole_days
        # Of several selections the last has the fewest rows.
        return {
            day: hour_of_level(level)
            for day, summed in self.levels.items()
            if not of_whole_days or _is_whole(scan, day, self.hours[day])
            for level in levels
            if summed >> level & 1
        }

    def hours_of(self, day: datetime, place: int) -> Sequence[int]:
        """The hours of arrival in which a segment is right that bears this as its hour."""
        if place >= FIRST_SLICE:
            return [hour_of_place(place)]
        right = self.hours.get(day, ())
        return right if place <= WHOLE else [number for number in right if number == place]


#: The days of arrival with columns; and slices that nobody has changed since, of hours that are not closed.
_PIECES: Final = (
    "select true as is_day, day as low, hours, spans, whole, summed,"
    " case when latest_at = changed_at then latest end as latest from span_column_day"
    " where project_id = $1 and day > $2 and day < $3"
    " union all select false, slice, 0, spans, false, null, latest from span_slice s where project_id = $1"
    f" and slice >= $3 and slice >= $4 and slice + $6 <= $5 and {is_read(SPANS)} order by 2"
)


async def hours_by_column(
    connection: Connection,
    project_id: int,
    arrived: tuple[datetime | None, datetime | None],
    began_before: datetime | None,
) -> Cover | None:
    """Which hours of arrival columns serve; None where there are so few spans that rows are as quick.

    Slices with a span that did not begin before a moment are left to rows.
    """
    low, high = max(EPOCH, arrived[0] or EPOCH), arrived[1] or _END
    split = await split_range(connection, project_id, SPANS, *arrived)
    # Where all of it lies in the hour under way there are but slices.
    split = split or Split((low, low), (), ())
    start, end = split.cubed
    pieces = await connection.fetch(_PIECES, project_id, start - _DAY, end, low, high, SLICE)
    hours, days, slices = {}, [], []
    for piece in pieces:
        if not piece["is_day"]:
            if began_before is None or piece["latest"] < began_before:
                slices.append(piece)
        elif numbers := _hours_of(piece["low"], piece["hours"], split):
            days.append(piece)
            hours[piece["low"]] = numbers
    spans = sum(piece["spans"] for piece in (*days, *slices))
    if spans < FEW_SPANS:
        return None
    covered = [
        (hour := day + number * _HOUR, hour + _HOUR) for day, numbers in hours.items() for number in numbers
    ]
    covered += [(row["low"], row["low"] + SLICE) for row in slices]
    return Cover(
        project_id,
        spans,
        hours,
        {row["low"]: row["summed"] for row in days if row["whole"] and row["summed"]},
        [row["low"] for row in slices],
        max(row["latest"] or _END for row in (*days, *slices)),
        gaps(covered, low, high),
    )


def _hours_of(day: datetime, with_columns: int, split: Split) -> list[int]:
    """The hours of a day that have columns, a bit each, and are clean and within the range."""
    start, end = split.cubed
    hours = [number for number in range(_DAY_HOURS) if with_columns >> number & 1]
    if start <= day and day + _DAY <= end and not split.dirty:
        return hours
    dirty = set(split.dirty)
    return [number for number in hours if start <= (hour := day + number * _HOUR) < end and hour not in dirty]


def _is_whole(scan: Scan, day: datetime, hours: Sequence[int]) -> bool:
    """Whether all of a day of arrival is asked, as sums without hours need it."""
    first = hours_since_epoch(day)
    inside = scan.hours[0] <= first and first + _DAY_HOURS <= scan.hours[1]
    return len(hours) == _DAY_HOURS and (scan.by_event_time or inside)


def _whole_days(scan: Scan) -> tuple[datetime, datetime]:
    """The days of event time that sums answer for: those without hours only where all of a day is asked."""
    if not (scan.of_whole_days and scan.by_event_time):
        return EPOCH, _END
    first, last = -(-scan.hours[0] // _DAY_HOURS), scan.hours[1] // _DAY_HOURS
    return min(_END, EPOCH + first * _DAY), EPOCH + last * _DAY


#: The columns of segments and, of days that are added up, those of their sums.
_COLUMNS: Final = (
    "(select day, hour, began, part, field, spans, texts, codes from span_column where project_id = $1"
    " and field = any($2::text[]) and day = any($3::timestamptz[]) and hour >= -1"
    f" and hour < {FIRST_SLICE} and began >= $4 and began < $5"
    " and not (day = any($6::timestamptz[]) and began >= $9 and began < $10)"
    " union all select c.day, c.hour, c.began, c.part, c.field, c.spans, c.texts, c.codes"
    " from unnest($6::timestamptz[], $7::smallint[]) as s (day, hour) join span_column c on c.project_id = $1"
    " and c.field = any($8::text[]) and c.day = s.day and c.hour = s.hour and c.began >= $4 and c.began < $5"
    " and c.began >= $9 and c.began < $10"
    " union all select c.day, c.hour, c.began, c.part, c.field, c.spans, c.texts, c.codes"
    " from unnest($12::timestamptz[], $13::smallint[]) as s (day, hour) join span_column c on"
    " c.project_id = $1 and c.field = any($2::text[]) and c.day = s.day and c.hour = s.hour"
    " and c.began >= $4 and c.began < $5) as columns"
)
#: With what all of them take, which needs no look into them; nothing of any where that is too much.
_BOUNDED: Final = (
    "select day, hour, began, part, field, spans, all_bytes,"
    " case when all_bytes <= $11 then texts end as texts,"
    " case when all_bytes <= $11 then codes end as codes from (select *,"
    f" sum(octet_length(codes) + coalesce(octet_length(texts), 0)) over () as all_bytes from {_COLUMNS})"
    # All columns of a segment come one after the other.
    " as bounded order by day, hour, began, part"
)


def _values(cover: Cover, scan: Scan) -> Sequence[Any]:
    low, high, summed = EPOCH, _END, cover.summed(scan)
    if scan.by_event_time:
        first, end = scan.hours
        low, high = day_of(EPOCH + first * _HOUR), EPOCH + end * _HOUR
    return (
        *(cover.project_id, scan.columns, list(cover.hours), low, high),
        *(list(summed), list(summed.values()), scan.summed_columns, *_whole_days(scan)),
    )


async def segments_of(
    connection: Connection, cover: Cover, scan: Scan
) -> AsyncIterator[list[SegmentColumns]] | None:
    """The segments that the question touches with the columns it needs, some at a time; None where these are
    too many bytes.
    """
    is_small = cover.spans * len(scan.columns) <= FEW_VALUES
    prefetch = ALL_COLUMNS if is_small else PREFETCH_COLUMNS
    slices = [day_of(slice_) for slice_ in cover.slices], [place_of(slice_) for slice_ in cover.slices]
    values = (*_values(cover, scan), MOST_BYTES, *slices)
    rows = aiter(connection.cursor(_BOUNDED, *values, prefetch=prefetch))
    first = await anext(rows, None)
    if first is not None and first["all_bytes"] > MOST_BYTES:
        return None
    return _batches(cover, first, rows)


async def _batches(cover: Cover, first: Any, rows: AsyncIterator[Any]) -> AsyncIterator[list[SegmentColumns]]:
    batch: list[SegmentColumns] = []
    key: tuple[Any, ...] | None = None
    columns: dict[str, PackedColumn] = {}
    batch_bytes = 0
    row = first
    while row is not None:
        if (row_key := (row["day"], row["hour"], row["began"], row["part"])) != key:
            if batch_bytes > BATCH_BYTES:
                yield batch
                batch, batch_bytes = [], 0
            key = row_key
            hours, columns = cover.hours_of(row["day"], row["hour"]), {}
            if hours:
                arrived, began = hours_since_epoch(row["day"]), hours_since_epoch(row["began"])
                batch.append(SegmentColumns(row["spans"], arrived, began, hours, columns))
        column = columns[row["field"]] = PackedColumn(row["texts"], row["codes"])
        batch_bytes += len(column.codes) + len(column.values or b"")
        row = await anext(rows, None)
    yield batch
