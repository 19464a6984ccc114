"""The segments of spans by column that a question needs: which hours they serve, and what is read of them.

Called by `svc.store.reads.questions.column_answers` under one snapshot; `svc.store.aggregates` writes them.
Where a day is added up by the fields of the question (`span_sums`), its sums are read instead. Never reads
more than `MOST_BYTES` for one answer, and unpacks nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import EPOCH, day_of
from svc.domain.columns.encoding import PackedColumn
from svc.domain.columns.scan import Scan, SegmentColumns
from svc.domain.queries.datasets import SPANS
from svc.store.aggregates.cubes import Split, split_range
from svc.store.aggregates.span_columns import WHOLE
from svc.store.aggregates.span_sums import hour_of_level
from svc.store.postgres.database import Connection

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

    `spans` are all that the days have. `summed` are the days of which sums know the answer, each with what
    their segments bear as their hour; `whole` is the stretch of days of event time for which they do, columns
    serve the others.
    """

    project_id: int
    scan: Scan
    spans: int
    hours: Mapping[datetime, Sequence[int]]
    summed: Mapping[datetime, int]
    whole: tuple[datetime, datetime]
    raw: Sequence[tuple[datetime, datetime]]


def hours_since_epoch(moment: datetime) -> int:
    """The number of an hour, as columns count them."""
    return (moment - EPOCH) // _HOUR


async def hours_by_column(
    connection: Connection,
    project_id: int,
    arrived: tuple[datetime | None, datetime | None],
    scan: Scan,
) -> Cover | None:
    """Which hours of arrival columns serve; None where there are so few spans that rows are as quick."""
    low, high = arrived
    split = await split_range(connection, project_id, SPANS, low, high)
    if split is None:
        return None
    start, end = split.cubed
    # Days of arrival with columns.
    days = await connection.fetch(
        "select day, hours, spans, whole, summed from span_column_day where project_id = $1 and day > $2"
        " and day < $3 order by day",
        *(project_id, start - _DAY, end),
    )
    spans = sum(row["spans"] for row in days)
    if spans < FEW_SPANS:
        return None
    hours = {row["day"]: _hours_of(row["day"], row["hours"], split) for row in days}
    levels, of_whole_days = scan.levels, scan.of_whole_days
    # Of several selections the last has the fewest rows.
    summed = {
        row["day"]: hour_of_level(level)
        for row in days
        if row["whole"] and row["summed"]
        if not of_whole_days or _is_whole(scan, row["day"], hours[row["day"]])
        for level in levels
        if row["summed"] >> level & 1
    }
    raw = _uncovered(hours, low or EPOCH, high or _END)
    return Cover(project_id, scan, spans, hours, summed, _whole_days(scan), raw)


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


def _uncovered(
    hours: Mapping[datetime, Sequence[int]], low: datetime, high: datetime
) -> list[tuple[datetime, datetime]]:
    """The stretches of a half-open range beside these hours, each as long as it can be."""
    stretches: list[tuple[datetime, datetime]] = []
    since = low
    for hour in (day + number * _HOUR for day, numbers in hours.items() for number in numbers):
        if hour > since:
            stretches.append((since, hour))
        since = hour + _HOUR
    return [*stretches, (since, high)] if since < high else stretches


#: The columns of segments and, of days that are added up, those of their sums.
_COLUMNS: Final = (
    "(select day, hour, began, part, field, spans, texts, codes from span_column where project_id = $1"
    " and field = any($2::text[]) and day = any($3::timestamptz[]) and hour >= -1 and began >= $4"
    " and began < $5 and not (day = any($6::timestamptz[]) and began >= $9 and began < $10)"
    " union all select c.day, c.hour, c.began, c.part, c.field, c.spans, c.texts, c.codes"
    " from unnest($6::timestamptz[], $7::smallint[]) as s (day, hour) join span_column c on c.project_id = $1"
    " and c.field = any($8::text[]) and c.day = s.day and c.hour = s.hour and c.began >= $4 and c.began < $5"
    " and c.began >= $9 and c.began < $10)"
    " as columns"
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


def _values(cover: Cover) -> Sequence[Any]:
    scan, low, high = cover.scan, EPOCH, _END
    if scan.by_event_time:
        first, end = scan.hours
        low, high = day_of(EPOCH + first * _HOUR), EPOCH + end * _HOUR
    return (
        *(cover.project_id, scan.columns, list(cover.hours), low, high),
        *(list(cover.summed), list(cover.summed.values()), scan.summed_columns, *cover.whole),
    )


async def segments_of(connection: Connection, cover: Cover) -> AsyncIterator[list[SegmentColumns]] | None:
    """The segments that the question touches with the columns it needs, some at a time; None where these are
    too many bytes.
    """
    is_small = cover.spans * len(cover.scan.columns) <= FEW_VALUES
    prefetch = ALL_COLUMNS if is_small else PREFETCH_COLUMNS
    rows = aiter(connection.cursor(_BOUNDED, *_values(cover), MOST_BYTES, prefetch=prefetch))
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
            right = cover.hours[row["day"]]
            hours = right if row["hour"] <= WHOLE else [number for number in right if number == row["hour"]]
            columns = {}
            if hours:
                arrived, began = hours_since_epoch(row["day"]), hours_since_epoch(row["began"])
                batch.append(SegmentColumns(row["spans"], arrived, began, hours, columns))
        column = columns[row["field"]] = PackedColumn(row["texts"], row["codes"])
        batch_bytes += len(column.codes) + len(column.values or b"")
        row = await anext(rows, None)
    yield batch
