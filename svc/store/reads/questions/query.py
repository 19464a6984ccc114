"""Aggregates over the datasets: count, timeseries, facets, search.

Owns the answers of the query API, one read-only statement each, bounded in time. What may be asked stands in
`svc.store.reads.questions.questions`, measures in `measures`; groups come from `grouped`. Raises `Refused`
for questions that cannot be answered, `Outage` when the database is away or the time is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from msgspec import UNSET, UnsetType

from protocol.refusals import (
    BAD_REQUEST,
    INVALID_RANGE,
    SEARCH_UNSUPPORTED,
    UNKNOWN_INTERVAL,
    Refused,
)
from protocol.rest.answers import (
    Bucket,
    Buckets,
    Counted,
    Facet,
    FoundPage,
    FoundRow,
    Measured,
    Ranked,
    Series,
)
from protocol.rest.query import jsonable, timestamp
from protocol.storage import Slow
from svc.domain.columns.totals import COUNTED_IDS
from svc.domain.quantities import count
from svc.domain.queries.datasets import EVENT_TIME, METRIC_ROLLUPS, SPANS, Dataset
from svc.domain.queries.measures import COUNT
from svc.store.postgres.database import Database
from svc.store.postgres.rows import call_flag, printed, without_aged_out
from svc.store.reads.questions.attributes import require_fields
from svc.store.reads.questions.buckets import CALENDAR_INTERVALS, INTERVALS, bucket_starts
from svc.store.reads.questions.columns.asked import Grouping
from svc.store.reads.questions.cube_counts import GroupKey
from svc.store.reads.questions.grouped import QUERY_TIMEOUT_S, GroupedRows
from svc.store.reads.questions.measures import ESTIMATED, measure_columns
from svc.store.reads.questions.nothing_found import UNPRICED_NOTE, reasons
from svc.store.reads.questions.open_rollups import NOT_CLOSED, OPEN_ROWS
from svc.store.reads.questions.question_pages import QuestionPages, newest_order
from svc.store.reads.questions.questions import Question, field_of
from svc.store.reads.questions.spans_by_payload import SpansByPayload
from svc.store.spans.availability import spans_with_payloads

#: What it may take to find out whether rows that arrived at another time happened in the range.
NOTE_TIMEOUT_S: Final = 0.5
#: Rows counted for such a note; more are said to be more.
NOTE_ROWS: Final = 1_000
OPEN_NOTE: Final = "hours and days since {since} are still open, so these sums grow"
BOTH_NOTE: Final = "hours and days are both counted: filter by granularity, hour or day"
ESTIMATE_NOTE: Final = "more than {most} {name} are estimated, within 2 %"


_Answer = TypeVar("_Answer", Counted, Buckets, Ranked)
_Group = TypeVar("_Group", bound=Measured)

#: A group that nothing is in.
_NO_ROW: Final[Mapping[str, Any]] = {}


def _count(row: Mapping[str, Any]) -> int | float:
    """The count of a group, or its sum as JSON shows it: whole when it is whole, else with its fraction."""
    value: Decimal | int | None = row.get("n")
    if value is None:
        return 0
    return int(value) if value == value.__trunc__() else float(value)


@attrs.define(eq=False)
class QueryStore:
    """Answers questions. One statement each, read-only, bounded in time.

    An answer to a question with a measure names it, with its unit, and has its value beside each count.
    """

    database: Database
    _groups: GroupedRows = attrs.field(init=False)
    _pages: QuestionPages = attrs.field(init=False)
    _by_payload: SpansByPayload = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._groups = GroupedRows(self.database)
        self._pages = QuestionPages(self.database)
        self._by_payload = SpansByPayload(self.database, self._pages)

    async def chosen(self, question: Question) -> tuple[Question, list[str]]:
        """The question with what only payloads tell looked up, for several answers, and what that says."""
        return await self._by_payload.chosen(question)

    async def count(self, question: Question) -> Counted:
        """Rows, or the summed values of `metric_rollups`."""
        question, look_notes = await self._by_payload.chosen(question)
        row = await self._groups.total(question)
        answer = _headed(_measured(Counted(count=_count(row)), question, row), question)
        answer.notes = await self._notes(question, [row], answer.count, look_notes)
        return answer

    async def timeseries(
        self, question: Question, interval: str, group_by: str | None = None, top_n: int = 5
    ) -> Buckets:
        """Ascending, empty ones present; weeks start on Monday, all in UTC.

        With `group_by`, `series` beside them: the same buckets for each of its `top_n` largest values.
        """
        if interval not in INTERVALS:
            raise Refused(
                UNKNOWN_INTERVAL.saying(f"unknown interval '{interval[:100]}'", allowed=list(INTERVALS))
            )
        if question.low is None or question.high is None:
            raise Refused(INVALID_RANGE.saying("'range.from' and 'range.to' are both required"))
        grouped = None if group_by is None else field_of(question.dataset, group_by, facet=True)
        starts = bucket_starts(question.low, question.high, interval)
        question, look_notes = await self._by_payload.chosen(
            question, *(() if grouped is None else (grouped,))
        )
        key, grouping = _buckets_key(question, interval, starts)
        shown = [(start, timestamp(start)) for start in starts]
        if grouped is None:
            rows = await self._groups.by_start(question, key, grouping)
            answer = Buckets(buckets=_buckets(question, shown, rows))
        else:
            series = await self._groups.series(question, key, grouping, grouped, top_n)
            rows = series.buckets
            by_value = [
                Series(value, _buckets(question, shown, by_start))
                for value, by_start in series.by_value.items()
            ]
            buckets = _buckets(question, shown, rows)
            answer = Buckets(buckets=buckets, group_by=grouped.name, series=by_value)
        total = sum(bucket.count for bucket in answer.buckets)
        answer.notes = await self._notes(question, rows.values(), total, look_notes)
        return _headed(answer, question)

    async def durations(
        self, question: Question, interval: str = "hour"
    ) -> Mapping[Any, Mapping[float, int]]:
        """By hour or day: how many spans took about so many milliseconds. The measure is a percentile."""
        assert question.low is not None, "whoever asks gives a range"
        assert question.high is not None, "whoever asks gives a range"
        starts = bucket_starts(question.low, question.high, interval)
        key, grouping = _buckets_key(question, interval, starts)
        assert grouping is not None, "columns know hours and days"
        return await self._groups.durations(question, key, grouping)

    async def facets(self, question: Question, field: str, top_n: int, *, ascending: bool = False) -> Ranked:
        """The most frequent values, or those with the most of the measure, then by value.

        Null is a value. Ascending, the least come first, and those without a measure last all the same.
        """
        facet = field_of(question.dataset, field, facet=True)
        question, look_notes = await self._by_payload.chosen(question, facet)
        rows = await self._groups.largest(question, facet, top_n, ascending=ascending)
        facets = [_facet(question, row) for row in rows]
        answer = _headed(Ranked(field=facet.name, facets=facets), question)
        unnamed = any(group.value is None and group.unpriced_spans for group in facets)
        model_notes = [UNPRICED_NOTE] if facet.name == "model_id" and unnamed else []
        answer.notes = await self._notes(question, rows, len(rows), [*look_notes, *model_notes])
        return answer

    async def ranked(self, question: Question, field: str, top_n: int) -> tuple[Ranked, Counted]:
        """The values of a field with the most of the measure, and everything, without notes."""
        facet = field_of(question.dataset, field, facet=True)
        question, _ = await self._by_payload.chosen(question, facet)
        rows, total = await self._groups.largest_and_total(question, facet, top_n)
        facets = [_facet(question, row) for row in rows]
        return (
            _headed(Ranked(field=facet.name, facets=facets), question),
            _headed(_measured(Counted(count=_count(total)), question, total), question),
        )

    async def search(
        self, question: Question, q: str | None, mode: str | None, limit: int, cursor: str | None
    ) -> FoundPage:
        """A page of rows, newest first. A cursor that cannot be read starts at the newest row."""
        dataset = question.dataset
        if not dataset.searched:
            raise Refused(SEARCH_UNSUPPORTED.saying(f"dataset '{dataset.name}' does not support search"))
        if mode not in (None, "", "keyword"):
            raise Refused(BAD_REQUEST.saying(f"unknown mode '{mode[:100]}'", allowed=["keyword"]))
        text = q if q is not None and q.strip() else None
        columns = (dataset.time_column, *dataset.shown, *(["frame"] if dataset is SPANS else []))
        by_rows, payload_filters = await self._by_payload.asked(question)
        if payload_filters:
            matching = await self._by_payload.page(by_rows, payload_filters, text, columns, limit, cursor)
            answer = await self._listed(question, matching.rows, matching.cursor)
            answer.notes = [matching.note]
            return answer
        await require_fields(self.database, question.project_id, question.fields)
        newest = newest_order(question)
        position = newest.place(cursor)
        # One page and one row more, which tells whether there is another page.
        rows = await self._pages.rows(question, text, columns, position, limit + 1)
        page_rows, next_cursor = newest.page(rows, limit)
        answer = await self._listed(question, page_rows, next_cursor)
        # Rows that a text narrows are not looked for twice, and the end of a list is no empty answer.
        if position is None:
            notes = await self._by_payload.history_notes(question)
            answer.notes = notes or UNSET
            if text is None:
                answer.notes = await self._notes(question, (), len(page_rows), notes)
        return answer

    async def _listed(self, question: Question, rows: Sequence[Any], next_cursor: str | None) -> FoundPage:
        dataset = question.dataset
        available = await self._available(question.project_id, rows) if dataset is SPANS else frozenset()
        return FoundPage([_row_view(row, dataset, available) for row in rows], next_cursor)

    async def _available(self, project_id: int, rows: Sequence[Any]) -> Set[tuple[bytes, bytes]]:
        spans = [(row["trace_id"], row["span_id"], row["started_at"], row["frame"]) for row in rows]
        return await self.database.run(
            partial(spans_with_payloads, project_id=project_id, spans=spans),
            transaction=False,
            readonly=True,
            snapshot=True,
            timeout_s=QUERY_TIMEOUT_S,
        )

    async def _notes(
        self,
        question: Question,
        groups: Iterable[Mapping[str, Any]],
        rows: float,
        look_notes: Sequence[str] = (),
    ) -> list[str] | UnsetType:
        """What an answer should say beside its numbers: how far payloads were looked into, that ids are
        estimated, or what it misses.

        An answer by arrival without rows misses those that arrived at another time and happened in its range.
        Nothing is said where that cannot be found out in `NOTE_TIMEOUT_S`.
        """
        if question.spans is not None:
            # Payloads were looked through, and nothing else is to be said of what they tell.
            return list(look_notes)
        return [*look_notes, *(await self._own_notes(question, groups, rows) or ())] or UNSET

    async def _own_notes(
        self, question: Question, groups: Iterable[Mapping[str, Any]], rows: float
    ) -> list[str] | UnsetType:
        if not rows and (notes := await self._reasons(question)):
            return notes
        if question.dataset is METRIC_ROLLUPS:
            return await self._of_rollups(question, rows)
        if any(ESTIMATED in group for group in groups):
            return [ESTIMATE_NOTE.format(name=question.measure.name, most=count(COUNTED_IDS))]
        dataset = question.dataset
        bounded = question.low is not None or question.high is not None
        if rows or question.by_event_time or not bounded or not dataset.has_event_time:
            return UNSET
        where = attrs.evolve(question, time_column=EVENT_TIME).where()
        try:
            # No more of them than the note tells.
            found = await self.database.fetch(
                f"select count(*) as n from (select from {dataset.table} where {where.sql()}"
                f" limit {NOTE_ROWS + 1}) as started",
                *where.values,
                timeout_s=NOTE_TIMEOUT_S,
            )
        except Slow:
            return UNSET
        started = found[0]["n"]
        if not started:
            return UNSET
        shown = f"more than {count(NOTE_ROWS)}" if started > NOTE_ROWS else count(started)
        return [f"0 by arrival; {shown} started in this range: by={EVENT_TIME}"]

    async def _reasons(self, question: Question) -> list[str]:
        return await reasons(self.database, question.project_id, question.dataset, question.filters)

    async def _of_rollups(self, question: Question, total: float) -> list[str] | UnsetType:
        """Since when hours of the answer are not closed, if any is, and whether days are counted too."""
        where = question.where()
        sql = NOT_CLOSED.format(rows=OPEN_ROWS, where=where.sql())
        rows = await self.database.fetch(sql, *where.values, timeout_s=QUERY_TIMEOUT_S)
        since = rows[0]["since"]
        notes = [] if since is None else [OPEN_NOTE.format(since=timestamp(since))]
        if total and all(field.name != "granularity" for field, _value in question.filters):
            notes.append(BOTH_NOTE)
        return notes or UNSET


def _buckets_key(
    question: Question, interval: str, starts: Sequence[Any]
) -> tuple[GroupKey, Grouping | None]:
    """What rows are grouped by for buckets of an interval; no grouping of columns where those know it not."""
    raw, by_hour, by_day = (
        f"date_trunc('{interval}', {name}, 'UTC')" for name in (question.time_column, "hour", "day")
    )
    in_cubes = interval in CALENDAR_INTERVALS
    key = GroupKey(
        raw, by_hour if in_cubes else None, None if interval == "hour" else by_day, type="timestamptz"
    )
    return key, Grouping(interval, starts) if in_cubes else None


def _headed(answer: _Answer, question: Question) -> _Answer:
    """The answer, saying its measure and its time where they are not the usual ones."""
    if question.measure is not COUNT:
        answer.measure, answer.unit = question.measure.name, question.measure.unit
    if question.by_event_time:
        answer.by = question.time_column
    return answer


def _measured(group: _Group, question: Question, row: Mapping[str, Any]) -> _Group:
    """The group with the values of the measures."""
    for measure in question.measures:
        measure_columns(question.dataset, measure).show(group, row)
    return group


def _facet(question: Question, row: Mapping[str, Any]) -> Facet:
    return _measured(Facet(value=jsonable(row["key"]), count=_count(row)), question, row)


def _buckets(
    question: Question, starts: Sequence[tuple[Any, str]], rows: Mapping[Any, Mapping[str, Any]]
) -> list[Bucket]:
    """A bucket for each start, which comes with its text; empty where there is no row."""
    return [
        _measured(Bucket(bucket_start=text, count=_count(row)), question, row)
        for start, text in starts
        for row in (rows.get(start, _NO_ROW),)
    ]


def _row_view(row: Any, dataset: Dataset, available: Set[tuple[bytes, bytes]]) -> FoundRow:
    fields = {name: _field_value(row, name) for name in dataset.shown}
    if dataset is SPANS:
        has_payload = (row["trace_id"], row["span_id"]) in available
        fields = (
            without_aged_out(fields, available=has_payload)
            | call_flag(row)
            | {"payload_available": has_payload}
        )
    identity = ":".join(str(jsonable(row[name])) for name in dataset.identity)
    return FoundRow(identity, timestamp(row[dataset.time_column]), fields)


def _field_value(row: Any, name: str) -> Any:
    # Usage that repeats another span's is not shown as this span's own (contract §3).
    if name.endswith("_tokens") and row["usage_repeats"] is not None:
        return None
    return printed(row, name)
