"""Aggregates over the datasets: count, timeseries, facets, search.

Owns the answers of the query API, one read-only statement each, bounded in time. What may be asked stands in
`svc.store.reads.questions`, measures in `measures`; groups come from `grouped`. Raises `Refused`
for questions that cannot be answered, `Outage` when the database is away or the time is up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import attrs

from protocol.refusals import (
    BAD_REQUEST,
    INVALID_RANGE,
    SEARCH_UNSUPPORTED,
    UNKNOWN_INTERVAL,
    Refused,
)
from protocol.rest.query import jsonable, timestamp
from protocol.storage import Slow
from svc.domain.calendar import after as later
from svc.domain.columns.totals import COUNTED_IDS
from svc.domain.datasets import EVENT_TIME, METRIC_ROLLUPS, SPANS, Dataset
from svc.domain.measures import COUNT
from svc.domain.quantities import count
from svc.store.aggregates.closed_hours import CUBED
from svc.store.aggregates.values import PLACED
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.keyset import Keyset, KeyType
from svc.store.postgres.rows import call_flag, printed, without_aged_out
from svc.store.reads.attributes import require_fields
from svc.store.reads.buckets import CALENDAR_INTERVALS, INTERVALS, bucket_starts
from svc.store.reads.column_answers import Grouping
from svc.store.reads.cube_counts import GroupKey
from svc.store.reads.event_time import newest_started
from svc.store.reads.grouped import QUERY_TIMEOUT_S, GroupedRows
from svc.store.reads.measures import ESTIMATED, measure_columns
from svc.store.reads.open_rollups import NOT_CLOSED, OPEN_ROWS
from svc.store.reads.questions import Question, field_of, filter_text, stored_value
from svc.store.reads.search import Page, newest_rows, stretches, stretches_with
from svc.store.spans.availability import spans_with_payloads

#: What it may take to find out whether rows that arrived at another time happened in the range.
NOTE_TIMEOUT_S: Final = 0.5
#: Rows counted for such a note; more are said to be more.
NOTE_ROWS: Final = 1_000
OPEN_NOTE: Final = "not closed yet, so still growing: since {since}"
ESTIMATE_NOTE: Final = "more than {most} {name} are estimated, within 2 %"

#: A filter on one of these leaves so few rows that walking them is quicker than any index of texts.
_NARROW: Final = {"trace_id", "span_id", "session_id", "user_id"}

#: Fields of spans that are placed and have an index of their own all the same.
_INDEXED: Final = {(SPANS.name, "call_site_id")}


def _number(value: Decimal | int | None) -> int | float:
    """A sum as JSON shows it: whole when it is whole, with its fraction otherwise."""
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

    def __attrs_post_init__(self) -> None:
        self._groups = GroupedRows(self.database)

    async def count(self, question: Question) -> dict[str, Any]:
        """`{count}`: rows, or the summed values of `metric_rollups`."""
        row = await self._groups.total(question)
        answer = _heading(question) | _measured(question, row)
        return answer | await self._notes(question, [row], answer["count"])

    async def timeseries(
        self, question: Question, interval: str, group_by: str | None = None, top_n: int = 5
    ) -> dict[str, Any]:
        """`{buckets}`, ascending, empty ones present; weeks start on Monday, all in UTC.

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
        raw, by_hour, by_day = (
            f"date_trunc('{interval}', {name}, 'UTC')" for name in (question.time_column, "hour", "day")
        )
        in_cubes = interval in CALENDAR_INTERVALS
        key = GroupKey(raw, by_hour if in_cubes else None, None if interval == "hour" else by_day)
        grouping = Grouping(interval, starts) if in_cubes else None
        if grouped is None:
            rows = await self._groups.by_start(question, key, grouping)
            answer = _heading(question) | {"buckets": _buckets(question, starts, rows)}
        else:
            series = await self._groups.series(question, key, grouping, grouped, top_n)
            rows = series.buckets
            answer = _heading(question) | {
                "buckets": _buckets(question, starts, rows),
                "group_by": grouped.name,
                "series": [
                    {"value": value, "buckets": _buckets(question, starts, by_start)}
                    for value, by_start in series.by_value.items()
                ],
            }
        total = sum(bucket["count"] for bucket in answer["buckets"])
        return answer | await self._notes(question, rows.values(), total)

    async def facets(
        self, question: Question, field: str, top_n: int, *, ascending: bool = False
    ) -> dict[str, Any]:
        """`{field, facets}`: the most frequent values, or those with the most of the measure, then by value.

        Null is a value. Ascending, the least come first, and those without a measure last all the same.
        """
        facet = field_of(question.dataset, field, facet=True)
        rows = await self._groups.largest(question, facet, top_n, ascending=ascending)
        answer = {
            "field": facet.name,
            **_heading(question),
            "facets": [{"value": jsonable(row["key"]), **_measured(question, row)} for row in rows],
        }
        return answer | await self._notes(question, rows, len(rows))

    async def search(
        self, question: Question, q: str | None, mode: str | None, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """`{rows, next_cursor}`, newest first. A cursor that cannot be read starts at the newest row."""
        dataset = question.dataset
        if not dataset.searched:
            raise Refused(SEARCH_UNSUPPORTED.saying(f"dataset '{dataset.name}' does not support search"))
        if mode not in (None, "", "keyword"):
            raise Refused(BAD_REQUEST.saying(f"unknown mode '{mode[:100]}'", allowed=["keyword"]))
        await require_fields(self.database, question.project_id, question.fields)
        where = question.where()
        text = q if q is not None and q.strip() else None
        where.contains(dataset.searched, text)
        newest = _newest(question)
        keys = [name for name, _ in newest.columns]
        position = newest.place(cursor)
        where.after(keys, position)
        columns = ", ".join(
            dict.fromkeys(
                (*keys, dataset.time_column, *dataset.shown, *(["frame"] if dataset is SPANS else []))
            )
        )
        order = ", ".join(f"{key} desc" for key in keys)
        # One page and one row more, which tells whether there is another page.
        narrow = any(field.name in _NARROW for field, _ in question.filters)
        placed = {
            field.name: stored_value(field, filter_text(value))
            for field, value in question.filters
            if field.name in PLACED.get(dataset.name, ())
            and (dataset.name, field.name) not in _INDEXED
            and value is not None
        }
        page = Page(dataset.table, columns, where.sql(), where.values, order, limit + 1)
        if question.by_event_time:
            rows = await self._started(question, position, page)
        elif dataset in CUBED and not narrow and (text is not None or placed):
            rows = await self._found(question, text, placed, position, page)
        else:
            rows = await self.database.fetch(page.sql(), *page.values, page.size, timeout_s=QUERY_TIMEOUT_S)
        page_rows, next_cursor = newest.page(rows, limit)
        available = await self._available(question.project_id, page_rows) if dataset is SPANS else frozenset()
        answer = {
            "rows": [_row_view(row, dataset, available) for row in page_rows],
            "next_cursor": next_cursor,
        }
        # Rows that a text narrows are not looked for twice, and the end of a list is no empty answer.
        if text is not None or position is not None:
            return answer
        return answer | await self._notes(question, (), len(page_rows))

    async def _started(self, question: Question, position: list[Any] | None, page: Page) -> list[Any]:
        """The rows of a page in the order of when they happened."""

        async def work(connection: Connection) -> list[Any]:
            behind = None if position is None else position[0]
            return await newest_started(
                connection, question.project_id, page, question.low, question.high, behind
            )

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=QUERY_TIMEOUT_S)

    async def _available(self, project_id: int, rows: Sequence[Any]) -> Set[tuple[bytes, bytes]]:
        spans = [(row["trace_id"], row["span_id"], row["started_at"], row["frame"]) for row in rows]
        return await self.database.run(
            partial(spans_with_payloads, project_id=project_id, spans=spans),
            transaction=False,
            readonly=True,
            snapshot=True,
            timeout_s=QUERY_TIMEOUT_S,
        )

    async def _found(
        self,
        question: Question,
        text: str | None,
        values: Mapping[str, str],
        position: list[Any] | None,
        page: Page,
    ) -> list[Any]:
        """The rows of a page that is narrowed by a text or by values without an index of their own."""
        low, high, about = question.low, question.high, (question.dataset, question.project_id)
        if position is not None:
            behind = later(position[0], timedelta(microseconds=1))
            high = behind if high is None else min(high, behind)
        enough = page.size if len(values) == len(question.filters) == 1 else None

        async def work(connection: Connection) -> list[Any]:
            if text is not None:
                near = await stretches(connection, *about, text, low, high)
            else:
                near = await stretches_with(connection, *about, values, low, high, enough=enough)
            return await newest_rows(connection, near, page)

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=QUERY_TIMEOUT_S)

    async def _notes(
        self, question: Question, groups: Iterable[Mapping[str, Any]], rows: float
    ) -> dict[str, Any]:
        """What an answer should say beside its numbers: that ids are estimated, or what it misses.

        An answer by arrival without rows misses those that arrived at another time and happened in its range.
        Nothing is said where that cannot be found out in `NOTE_TIMEOUT_S`.
        """
        if question.dataset is METRIC_ROLLUPS:
            return await self._not_closed(question)
        if any(ESTIMATED in group for group in groups):
            return {"notes": [ESTIMATE_NOTE.format(name=question.measure.name, most=count(COUNTED_IDS))]}
        dataset = question.dataset
        bounded = question.low is not None or question.high is not None
        if rows or question.by_event_time or not bounded or not dataset.has_event_time:
            return {}
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
            return {}
        started = found[0]["n"]
        if not started:
            return {}
        shown = f"more than {count(NOTE_ROWS)}" if started > NOTE_ROWS else count(started)
        return {"notes": [f"0 by arrival; {shown} started in this range: by={EVENT_TIME}"]}

    async def _not_closed(self, question: Question) -> dict[str, Any]:
        """Since when hours of the answer are not closed, where there is anything in them."""
        where = question.where()
        sql = NOT_CLOSED.format(rows=OPEN_ROWS, where=where.sql())
        rows = await self.database.fetch(sql, *where.values, timeout_s=QUERY_TIMEOUT_S)
        since = rows[0]["since"]
        return {} if since is None else {"notes": [OPEN_NOTE.format(since=timestamp(since))]}


def _heading(question: Question) -> dict[str, Any]:
    """What an answer says of its measure and its time, where they are not the usual ones."""
    heading: dict[str, Any] = {}
    if question.measure is not COUNT:
        heading |= {"measure": question.measure.name, "unit": question.measure.unit}
    return heading | ({"by": question.time_column} if question.by_event_time else {})


def _measured(question: Question, row: Mapping[str, Any]) -> dict[str, Any]:
    """The count of a group and the value of its measure."""
    columns = measure_columns(question.dataset, question.measure)
    return {"count": _number(row.get("n")), **columns.view(row)}


def _buckets(
    question: Question, starts: Sequence[Any], rows: Mapping[Any, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A bucket for each start, empty where there is no row."""
    return [
        {"bucket_start": timestamp(start), **_measured(question, rows.get(start, {}))} for start in starts
    ]


def _row_view(row: Any, dataset: Dataset, available: Set[tuple[bytes, bytes]]) -> dict[str, Any]:
    fields = {name: _field_value(row, name) for name in dataset.shown}
    if dataset is SPANS:
        has_payload = (row["trace_id"], row["span_id"]) in available
        fields = (
            without_aged_out(fields, available=has_payload)
            | call_flag(row)
            | {"payload_available": has_payload}
        )
    identity = ":".join(str(jsonable(row[name])) for name in dataset.identity)
    return {"id": identity, "created_at": timestamp(row[dataset.time_column]), "fields": fields}


def _field_value(row: Any, name: str) -> Any:
    # Usage that repeats another span's is not shown as this span's own (contract §3).
    if name.endswith("_tokens") and row["usage_repeats"] is not None:
        return None
    return printed(row, name)


def _newest(question: Question) -> Keyset:
    """The order of a search. A cursor of one time is foreign to the other."""
    dataset = question.dataset
    kinds: dict[str, KeyType] = {"index": "integer", "id": "uuid"}
    identity = tuple((column, kinds.get(column, "bytes")) for column in dataset.identity)
    name = f"{dataset.name} by {EVENT_TIME}" if question.by_event_time else dataset.name
    return Keyset(name, ((question.time_column, "moment"), *identity))
