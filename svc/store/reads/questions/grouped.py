"""Counts and measures by group: by bucket of time, by value of a field, or both.

Called by `svc.store.reads.questions.query`. Answers come from the cubes (`cube_counts`) as far as they know,
else from columns (`columns`), else from the rows, which know everything; all three agree. Every
statement is read-only and bounded in time. Raises `Outage` when the database is away or the time is up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from svc.domain.columns.totals import Cell, bin_middle_ms
from svc.domain.queries.datasets import METRIC_ROLLUPS, Field
from svc.store.aggregates.cubes import Split, split_range
from svc.store.aggregates.failed import FAILED
from svc.store.aggregates.span_columns import DURATION_BIN
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.attributes import dictionary_of, held_codes, require_fields
from svc.store.reads.questions.columns import segments
from svc.store.reads.questions.columns.answers import cells_within, column_cells
from svc.store.reads.questions.columns.asked import AskedColumns, Grouping, columns_know
from svc.store.reads.questions.cube_counts import GroupKey, cube_field, cube_sql
from svc.store.reads.questions.measures import ESTIMATED, measure_columns
from svc.store.reads.questions.open_rollups import ALL_ROWS
from svc.store.reads.questions.questions import Question

QUERY_TIMEOUT_S: Final = 30.0

#: More cells are added up in a thread: a month of hours by user has 15,000, which took 51 ms of the loop
#: (November 2026).
_CELLS_AT_ONCE: Final = 1_000

#: A group: its `key`, its count `n` and the columns of the measure.
Row = Mapping[str, Any]


@attrs.frozen
class GroupedSeries:
    """The rows of each bucket by its start, and those of each of the largest values, largest first."""

    buckets: Mapping[Any, Row]
    by_value: Mapping[str | None, Mapping[Any, Row]]


@attrs.define(eq=False)
class GroupedRows:
    """Reads groups of rows of a dataset."""

    database: Database

    async def total(self, question: Question) -> Row:
        """One row of everything; empty where there is none."""
        rows = await self._rows(question, GroupKey("null::text", "null::text", "null::text"), Grouping())
        return rows[0] if rows else {}

    async def by_start(
        self, question: Question, key: GroupKey, grouping: Grouping | None
    ) -> Mapping[Any, Row]:
        """The row of each bucket that has any, by its start. Without a grouping columns do not know it."""
        return {row["key"]: row for row in await self._rows(question, key, grouping)}

    async def durations(
        self, question: Question, key: GroupKey, grouping: Grouping
    ) -> Mapping[Any, Mapping[float, int]]:
        """By the start of each bucket that has any: how many spans took about so many milliseconds.

        The question is one of a percentile.
        """
        await require_fields(self.database, question.project_id, question.fields)
        cells = await self._cells(question, grouping)
        if cells is not None:
            return {
                start: {bin_middle_ms(each): n for each, n in (cell.durations or {}).items()}
                for (start, _value), cell in cells.items()
            }
        where = question.where()
        where.add("ended_at is not null")
        rows = await self.database.fetch(
            f"select {key.raw} as key, {DURATION_BIN} as bin, count(*) as n from {_source(question)}"
            f" where {where.sql()} group by 1, 2",
            *where.values,
            timeout_s=QUERY_TIMEOUT_S,
        )
        by_start: dict[Any, dict[float, int]] = {}
        for row in rows:
            by_start.setdefault(row["key"], {})[bin_middle_ms(row["bin"])] = row["n"]
        return by_start

    async def series(
        self, question: Question, key: GroupKey, grouping: Grouping | None, field: Field, top_n: int
    ) -> GroupedSeries:
        """Buckets, and those of the largest values of a field."""
        await require_fields(self.database, question.project_id, (field, *question.fields))
        if grouping is not None and field.type != "attribute":
            # One pass for all three, since what a span says of the field puts it into one group.
            cells = await self._cells(question, attrs.evolve(grouping, field=field))
            if cells is not None:
                if len(cells) <= _CELLS_AT_ONCE:
                    return _series_of(question, cells, top_n)
                return await trio.to_thread.run_sync(_series_of, question, cells, top_n)
        buckets = await self.by_start(question, key, grouping)
        values = [row["key"] for row in await self.largest(question, field, top_n)]
        if grouping is not None:
            cells = await self._cells(question, attrs.evolve(grouping, field=field, values=frozenset(values)))
            if cells is not None:
                return GroupedSeries(buckets, _by_value(question, cells, values))
        return GroupedSeries(buckets, await self._value_rows(question, key.raw, field, values))

    async def _value_rows(
        self, question: Question, time: str, field: Field, values: Sequence[str | None]
    ) -> Mapping[str | None, Mapping[Any, Row]]:
        """The rows of each bucket and one of these values, from rows alone."""
        where, source, column = question.where(), _source(question), field.name
        stored = [value for value in values if value is not None]
        dictionary: Mapping[str, str | None] = {}
        if field.type == "attribute":
            dictionary = await dictionary_of(self.database, question.project_id, field.name)
            stored = [code for code, value in dictionary.items() if value in stored]
            source, column = f"{source} {held_codes(where, field, dictionary)}", "held.code"
        one_of = f"{column} = any({where.value(stored)}::text[])"
        where.add(f"({one_of} or {column} is null)" if None in values else one_of)
        rows = await self.database.fetch(
            f"select {time} as key, {column} as value, {_sums(question)} from {source}"
            f" where {where.sql()} group by 1, 2",
            *where.values,
            timeout_s=QUERY_TIMEOUT_S,
        )
        by_value: dict[str | None, dict[Any, Row]] = {value: {} for value in values}
        for row in rows:
            by_value[dictionary.get(row["value"], row["value"])][row["key"]] = row
        return by_value

    async def largest(
        self, question: Question, field: Field, top_n: int, *, ascending: bool = False
    ) -> list[Row]:
        """The values with the most of the measure (or the least), null among them, then by value."""
        if field.type == "attribute":
            return await self._largest_attribute_values(question, field, top_n, ascending=ascending)
        key = GroupKey(field.name, "value", "value", field.name)
        return await self._rows(question, key, Grouping(field=field), top_n, ascending=ascending)

    async def largest_and_total(self, question: Question, field: Field, top_n: int) -> tuple[list[Row], Row]:
        """The values with the most of the measure, and the row of everything."""
        await require_fields(self.database, question.project_id, (field, *question.fields))
        # A span may have several values of an attribute, so they do not add up to all spans.
        cells = None if field.type == "attribute" else await self._cells(question, Grouping(field=field))
        if cells is None:
            return await self.largest(question, field, top_n), await self.total(question)
        total = Cell()
        for cell in cells.values():
            total.add(cell)
        by_value = {value: cell for (_start, value), cell in cells.items()}
        ranked = _ranked_cells(question, by_value, top_n, ascending=False)
        return ranked, _row(question, total, None) if cells else {}

    async def _largest_attribute_values(
        self, question: Question, field: Field, top_n: int, *, ascending: bool
    ) -> list[Row]:
        """The same of an attribute; a span with several values counts for each."""
        await require_fields(self.database, question.project_id, (field, *question.fields))
        cells = await self._cells(question, Grouping(field=field))
        if cells is None:
            dictionary = await dictionary_of(self.database, question.project_id, field.name)
            where = question.where()
            rows = await self.database.fetch(
                f"select held.code as key, {_sums(question)} from {question.dataset.table}"
                f" {held_codes(where, field, dictionary)} where {where.sql()} group by 1",
                *where.values,
                timeout_s=QUERY_TIMEOUT_S,
            )
            groups: list[Row] = [{**dict(row.items()), "key": dictionary.get(row["key"])} for row in rows]
            return _ranked(question, groups, top_n, ascending=ascending)
        by_value = {value: cell for (_start, value), cell in cells.items()}
        return _ranked_cells(question, by_value, top_n, ascending=ascending)

    async def _cells(self, question: Question, grouping: Grouping) -> Mapping[Any, Cell] | None:
        """The cells of an answer from columns; None where they do not know it."""
        if not columns_know(question, grouping.field):
            return None
        return await column_cells(self.database, question, grouping, QUERY_TIMEOUT_S)

    async def _rows(
        self,
        question: Question,
        key: GroupKey,
        grouping: Grouping | None,
        top_n: int | None = None,
        *,
        ascending: bool = False,
    ) -> list[Row]:
        """Rows of a key: from cubes or columns as far as they go, else from the rows."""
        await require_fields(self.database, question.project_id, question.fields)
        cube = cube_field(question, key)
        if cube is None and grouping is not None:
            cells = await self._cells(question, grouping)
            if cells is not None:
                by_key = {value if start is None else start: cell for (start, value), cell in cells.items()}
                if top_n is None:
                    return [_row(question, cell, key_) for key_, cell in by_key.items()]
                return _ranked_cells(question, by_key, top_n, ascending=ascending)
        order = ""
        if top_n is not None:
            ranking = measure_columns(question.dataset, question.measure).ranking
            order = (
                f" order by {ranking} {'asc' if ascending else 'desc'} nulls last, 1 nulls last limit {top_n}"
            )
        where = question.where()
        # Rows (or their sum) by key, counted one by one.
        raw = (
            f"select {key.raw} as key, {_sums(question)} from {_source(question)}"
            f" where {where.sql()} group by 1{order}"
        )
        if cube is None:
            return await self.database.fetch(raw, *where.values, timeout_s=QUERY_TIMEOUT_S)

        async def work(connection: Connection) -> list[Any]:
            about = question.project_id, question.dataset, question.low, question.high
            split = await split_range(connection, *about, failed=cube.startswith(FAILED))
            if split is None:
                return await connection.fetch(raw, *where.values)
            counted: Mapping[Any, int] = {}
            if grouping is not None and split.in_slices >= segments.FEW_SPANS:
                split, counted = await _from_slices(connection, question, grouping, split)
            sql, values = cube_sql(question, key, cube, split, counted)
            return await connection.fetch(f"{sql}{order}", *values)

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=QUERY_TIMEOUT_S)


async def _from_slices(
    connection: Connection, question: Question, grouping: Grouping, split: Split
) -> tuple[Split, Mapping[Any, int]]:
    """How many rows of what is not closed there are by key, and the split without it, where columns know."""
    since = split.cubed[1]
    if not columns_know(question, grouping.field) or (since, question.high) not in split.raw:
        return split, {}
    asked = AskedColumns(attrs.evolve(question, low=since), grouping, {}, ["count"])
    cells = await cells_within(connection, asked)
    if cells is None:
        return split, {}
    counted = {value if start is None else start: cell.spans for (start, value), cell in cells.items()}
    raw = tuple(stretch for stretch in split.raw if stretch[0] != since)
    return attrs.evolve(split, raw=raw), counted


def _source(question: Question) -> str:
    """Where the rows of a question are."""
    return ALL_ROWS if question.dataset is METRIC_ROLLUPS else question.dataset.table


def _sums(question: Question) -> str:
    """The count of a group, and the columns of its measures."""
    columns = {"n": "sum(value)" if question.dataset.counted_as == "sum" else "count(*)"}
    for measure in question.measures:
        columns |= measure_columns(question.dataset, measure).columns
    return ", ".join(f"{sql} as {name}" for name, sql in columns.items())


def _row(question: Question, cell: Cell, key: Any) -> Row:
    row = cell.row(measure.name for measure in question.measures)
    row["key"] = key
    if cell.estimated:
        row[ESTIMATED] = True
    return row


def _series_of(question: Question, cells: Mapping[Any, Cell], top_n: int) -> GroupedSeries:
    """The buckets, the largest values and their buckets, from the cells of each bucket and value."""
    by_start: defaultdict[Any, Cell] = defaultdict(Cell)
    by_value: defaultdict[str | None, Cell] = defaultdict(Cell)
    for (start, value), cell in cells.items():
        by_start[start].add(cell)
        by_value[value].add(cell)
    values = [row["key"] for row in _ranked_cells(question, by_value, top_n, ascending=False)]
    buckets = {start: _row(question, cell, start) for start, cell in by_start.items()}
    return GroupedSeries(buckets, _by_value(question, cells, values))


def _by_value(
    question: Question, cells: Mapping[Any, Cell], values: Sequence[str | None]
) -> Mapping[str | None, Mapping[Any, Row]]:
    rows: dict[str | None, dict[Any, Row]] = {value: {} for value in values}
    for (start, value), cell in cells.items():
        if value in rows:
            rows[value][start] = _row(question, cell, start)
    return rows


def _ranked(question: Question, groups: Sequence[Row], top_n: int, *, ascending: bool) -> list[Row]:
    """The groups with the most of the measure, then by value; those without any come last."""
    ranking = measure_columns(question.dataset, question.measure).ranking
    sign = 1 if ascending else -1
    ranked = sorted(
        groups,
        key=lambda row: (
            *((True, 0) if row[ranking] is None else (False, sign * row[ranking])),
            row["key"] is None,
            row["key"] or "",
        ),
    )
    return ranked[:top_n]


def _ranked_cells(question: Question, cells: Mapping[Any, Cell], top_n: int, *, ascending: bool) -> list[Row]:
    """The same of cells. What is not asked of the order is worked out for those that stay."""
    groups = [{**cell.row((question.measure.name,)), "key": key} for key, cell in cells.items()]
    ranked = _ranked(question, groups, top_n, ascending=ascending)
    return [_row(question, cells[row["key"]], row["key"]) for row in ranked]
