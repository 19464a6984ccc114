"""Answers from spans by column: any measure, filters, buckets and group, by arrival or by event time.

Called by `svc.store.reads.questions.query` where the cubes do not know the answer. Columns serve whole hours
of arrival (`column_segments`); what they do not cover, and the hours that a range cuts, are read from the
rows under the same snapshot, and both are added up as cells (`svc.domain.columns`). Never answers what needs
the id of a trace or span, minutes, or fewer spans than a look at the rows is quick for.

Durations are counted by bin then: a percentile is within one per cent; from rows alone it is exact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs

from svc.domain.calendar import EPOCH, hour_of
from svc.domain.columns.encoding import TEXTS, TOKENS
from svc.domain.columns.scan import DISTINCT, DURATIONS, Scan, SegmentColumns, read_together
from svc.domain.columns.totals import Cell, DistinctIds, Key, cost_units, text_hash, trace_hash
from svc.domain.queries.datasets import SPANS, Field
from svc.domain.queries.measures import MeasureName
from svc.store.aggregates.cubes import ceil_hour
from svc.store.aggregates.span_columns import DURATION_BIN, TRACE_SQL
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.threads import in_thread, work_through
from svc.store.reads.questions.attributes import dictionary_of
from svc.store.reads.questions.column_segments import (
    Cover,
    hours_by_column,
    hours_since_epoch,
    segments_of,
)
from svc.store.reads.questions.questions import Question, filter_text, stored_value

if TYPE_CHECKING:
    from svc.domain.columns.segment_sums import SegmentSums

#: Parts of an answer that are read from rows at most, and cells that it may have, likewise.
MOST_PARTS: Final = 200_000
MOST_CELLS: Final = 100_000

_HOUR: Final = timedelta(hours=1)
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)
#: A filter on this leaves so few rows that its index is quicker.
_NARROW: Final = frozenset({"session_id"})

_OWN: Final = "usage_repeats is null"
#: What is read of rows for a measure, in parts that add up, and what parts each is split by beside the
#: groups.
_PARTS: Final[Mapping[MeasureName, str]] = {
    "errors": "count(*) filter (where status = 'error') as errors",
    "error_rate": "count(*) filter (where status = 'error') as errors",
    "cost": f"sum(total_cost) filter (where {_OWN}) as cost,"
    f" count(total_cost) filter (where {_OWN}) as priced,"
    f" count(*) filter (where {_OWN} and span_priced_by(cost_source, total_cost, price_book) = 'unpriced')"
    " as unpriced",
    "tokens": ", ".join(f"sum({name}) filter (where {_OWN})::text as {name}" for name in TOKENS),
}
_SPLIT: Final[Mapping[MeasureName, str]] = {
    **{name: TRACE_SQL if name == "traces" else column for name, column in DISTINCT.items()},
    **{
        name: f"case when ended_at is not null then {DURATION_BIN} end"
        for name in ("duration_p50", "duration_p95", "duration_p99")
    },
}


@attrs.frozen
class Grouping:
    """What an answer is split by: buckets of an interval by their beginnings, a field, or both.

    `values` are those of the field that are wanted, None for all.
    """

    interval: str | None = None
    starts: Sequence[datetime] = ()
    field: Field | None = None
    values: frozenset[str | None] | None = None


def columns_know(question: Question, field: Field | None) -> bool:
    """Whether columns hold all that a question needs."""
    if question.spans is not None:
        return False
    if question.dataset is not SPANS or any(asked.name in _NARROW for asked in question.fields):
        return False
    fields = (*question.fields, *(() if field is None else (field,)))
    return all(asked.type == "attribute" or asked.name in TEXTS for asked in fields)


async def column_cells(
    database: Database, question: Question, grouping: Grouping, timeout_s: float
) -> dict[tuple[datetime | None, str | None], Cell] | None:
    """The cells of an answer by bucket and value; None where the rows are to be asked instead.

    The question is one that `columns_know`. Raises `Outage`.
    """
    asked = await asked_of_columns(database, question, grouping)

    async def work(connection: Connection) -> dict[Key, Cell] | None:
        cells: dict[Key, Cell] = {}
        for measures in read_together(asked.measures):
            of_measures = await _cells(connection, attrs.evolve(asked, measures=measures))
            if of_measures is None:
                return None
            # One snapshot for all, so all have the same cells.
            for key, cell in of_measures.items():
                cells[key] = cells[key].beside(cell) if key in cells else cell
        return cells

    cells = await database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
    if cells is None:
        return None
    moments = {bucket: None if bucket is None else EPOCH + bucket * _HOUR for bucket, _value in cells}
    return {(moments[bucket], value): cell for (bucket, value), cell in cells.items()}


async def _cells(connection: Connection, asked: AskedColumns) -> dict[Key, Cell] | None:
    """The cells of measures that are read together; None where the rows are to be asked instead."""
    added = _Added(asked.scan)
    rows = await worked_through(connection, asked, added.add)
    if rows is None:
        return None
    cells = _row_cells(asked, rows)
    await in_thread(added.give_to, cells)
    return cells if len(cells) <= MOST_CELLS else None


async def asked_of_columns(database: Database, question: Question, grouping: Grouping) -> AskedColumns:
    """The question with the dictionaries of its attributes. Raises `Outage`."""
    fields = (*question.fields, *(() if grouping.field is None else (grouping.field,)))
    dictionaries = {
        field.name: await dictionary_of(database, question.project_id, field.name)
        for field in fields
        if field.type == "attribute"
    }
    return AskedColumns(question, grouping, dictionaries, [measure.name for measure in question.measures])


async def worked_through(
    connection: Connection, asked: AskedColumns, add: Callable[[list[SegmentColumns]], bool]
) -> list[Any] | None:
    """Give all segments of a question to `add`, in a thread; return the parts that rows beside them tell.

    None where the rows are to be asked instead: columns know too little, `add` says that it is enough, or
    there are too many parts.
    """
    question = asked.question
    stretch = (None, None) if question.by_event_time else (question.low, question.high)
    cover = await hours_by_column(connection, question.project_id, stretch, asked.scan)
    if cover is None or (segments := await segments_of(connection, cover)) is None:
        return None
    rows: list[Any] = []

    async def batches() -> AsyncIterator[list[SegmentColumns]]:
        async for batch in segments:
            yield batch
        # While the last of them are added up: each takes a few hundredths of a second at ten million.
        rows.extend(await _rows(connection, asked, cover))

    return rows if await work_through(batches(), add) and len(rows) <= MOST_PARTS else None


@attrs.define(eq=False)
class _Added:
    """What segments come to. numpy takes 9 MB and a tenth of a second, so it is loaded with the first one."""

    question: Scan
    _segment_sums: SegmentSums | None = attrs.field(default=None, init=False)

    def add(self, segments: Sequence[SegmentColumns]) -> bool:
        """Add these. Whether the answer may have so many cells."""
        from svc.domain.columns.scanning import scan
        from svc.domain.columns.segment_sums import SegmentSums

        if self._segment_sums is None:
            self._segment_sums = SegmentSums(self.question)
        return scan(segments, self._segment_sums) <= MOST_CELLS

    def give_to(self, cells: dict[Key, Cell]) -> None:
        """Add all of it to the cells."""
        if self._segment_sums is not None:
            self._segment_sums.add_to(cells)


@attrs.frozen
class AskedColumns:
    """A question with the dictionaries of its attributes: what columns and rows are both asked by.

    `measures` are all of the question, or those that are read together.
    """

    question: Question
    grouping: Grouping
    dictionaries: Mapping[str, Mapping[str, str | None]]
    measures: Sequence[MeasureName]

    @property
    def group(self) -> str | None:
        """The column that the answer is split by."""
        return None if self.grouping.field is None else _column(self.grouping.field)

    @property
    def scan(self) -> Scan:
        """The same as it is asked of columns: whole hours only."""
        question = self.question
        low = EPOCH if question.low is None else max(EPOCH, ceil_hour(question.low))
        high = _END if question.high is None else max(low, hour_of(question.high))
        return Scan(
            measures=self.measures,
            by_event_time=question.by_event_time,
            hours=(hours_since_epoch(low), hours_since_epoch(high)),
            filters=self._filters(),
            starts=[hours_since_epoch(start) for start in self.grouping.starts],
            group=self.group,
            groups_of=self.groups_of,
        )

    def groups_of(self, value: str | None) -> Sequence[str | None]:
        """The groups of a value of the column: itself, or those of an attribute, None for none."""
        groups: Sequence[str | None] = (value,)
        field, values = self.grouping.field, self.grouping.values
        if field is not None and field.type == "attribute":
            codes = self.dictionaries[field.name]
            groups = [codes[code] for code in value or "" if code in codes] or (None,)
        return groups if values is None else [group for group in groups if group in values]

    def _filters(self) -> dict[str, Callable[[str | None], bool]]:
        tests: dict[str, list[Callable[[str | None], bool]]] = {}
        for field, value in self.question.filters:
            test = self._test(field, None if value is None else filter_text(value))
            tests.setdefault(_column(field), []).append(test)
        return {column: _all_of(several) for column, several in tests.items()}

    def _test(self, field: Field, text: str | None) -> Callable[[str | None], bool]:
        if field.type != "attribute":
            stored = None if text is None else stored_value(field, text)
            return lambda value: value == stored
        codes = self.dictionaries[field.name]
        if text is None:
            return lambda value: not any(code in codes for code in value or "")
        fitting = {code for code, shown in codes.items() if shown == text}
        return lambda value: any(code in fitting for code in value or "")


def _column(field: Field) -> str:
    return "facets" if field.type == "attribute" else field.name


def _all_of(tests: Sequence[Callable[[str | None], bool]]) -> Callable[[str | None], bool]:
    return lambda value: all(test(value) for test in tests)


async def _rows(connection: Connection, asked: AskedColumns, cover: Cover) -> Sequence[Any]:
    """What the rows that columns do not cover come to, in parts; more than `MOST_PARTS` are too many."""
    question = asked.question
    # Measures that are read together have one of these at most.
    split = next((_SPLIT[measure] for measure in asked.measures if measure in _SPLIT), "null")
    where = question.where()
    raw = (
        f"unnest({where.value([low for low, _ in cover.raw])}::timestamptz[],"
        f" {where.value([high for _, high in cover.raw])}::timestamptz[]) as stretch (low, high)"
    )
    interval = asked.grouping.interval
    bucket = "null" if interval is None else f"date_trunc('{interval}', {question.time_column}, 'UTC')"
    columns = (
        f"{bucket}::timestamptz as bucket, {asked.group or 'null'}::text as value, ({split})::text as split"
    )
    # Rows of each uncovered stretch by the index on when they arrived.
    lists = [
        f"select beside.* from {raw} cross join lateral (select * from span where {where.sql()}"
        " and created_at >= stretch.low and created_at < stretch.high order by created_at) as beside"
    ]
    if question.by_event_time:
        # Those of the hours that the range cuts; what arrived in the stretches above is counted there.
        for low, high in _edges(question):
            lists.append(
                f"select * from span where {where.sql()} and started_at >= {where.value(low)}"
                f" and started_at < {where.value(high)} and not exists (select from {raw}"
                " where created_at >= stretch.low and created_at < stretch.high)"
            )
    parts = "".join(
        f", {sql}" for sql in dict.fromkeys(_PARTS.get(name, "") for name in asked.measures) if sql
    )
    return await connection.fetch(
        f"select {columns}, count(*) as n{parts} from ({' union all '.join(lists)}) as span"
        f" group by 1, 2, 3 limit {MOST_PARTS + 1}",
        *where.values,
    )


def _row_cells(asked: AskedColumns, rows: Sequence[Any]) -> dict[Key, Cell]:
    cells: dict[Key, Cell] = {}
    for row in rows:
        bucket_hour = None if row["bucket"] is None else hours_since_epoch(row["bucket"])
        for value in asked.groups_of(row["value"]):
            cells.setdefault((bucket_hour, value), Cell()).add(_row_cell(row, asked.measures))
    return cells


def _edges(question: Question) -> list[tuple[datetime, datetime]]:
    """The pieces of a range that are no whole hours."""
    low, high = question.low, question.high
    if low is not None and high is not None and ceil_hour(low) > hour_of(high):
        return [(low, high)]
    edges: list[tuple[datetime, datetime]] = []
    if low is not None and low < ceil_hour(low):
        edges.append((low, ceil_hour(low)))
    if high is not None and hour_of(high) < high:
        edges.append((hour_of(high), high))
    return edges


def _row_cell(row: Any, measures: Sequence[MeasureName]) -> Cell:
    cell = Cell(spans=row["n"])
    if "errors" in measures or "error_rate" in measures:
        cell.errors = row["errors"]
    if "cost" in measures:
        cell.cost = cost_units(row["cost"]) if row["priced"] else 0
        cell.priced, cell.unpriced = row["priced"], row["unpriced"]
    if "tokens" in measures:
        cell.tokens = [None if row[name] is None else int(row[name]) for name in TOKENS]
    if (split := row["split"]) is None:
        return cell
    if DURATIONS.isdisjoint(measures):
        cell.distinct = DistinctIds({trace_hash(split) if "traces" in measures else text_hash(split)})
    else:
        cell.durations = {int(split): row["n"]}
    return cell
