"""Aggregates over the datasets: count, timeseries, facets, search.

Owns the SQL of the query API. Every identifier comes from `svc.domain.datasets`; every value is a
parameter. Raises `Refused` for questions that cannot be answered, `Outage` when the database is away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import attrs

from protocol.refusals import (
    BAD_REQUEST,
    INVALID_RANGE,
    SEARCH_UNSUPPORTED,
    UNKNOWN_DATASET,
    UNKNOWN_FIELD,
    UNKNOWN_INTERVAL,
    Refused,
)
from protocol.rest.query import FilterValue, jsonable, timestamp
from svc.domain.calendar import after as later
from svc.domain.datasets import DATASETS, SPANS, Dataset, Field
from svc.domain.values import identifier
from svc.store.aggregates.closed_hours import CUBED
from svc.store.aggregates.cubes import Split, split_range
from svc.store.aggregates.failed import FAILED
from svc.store.aggregates.sums import ONLY_HOURS
from svc.store.aggregates.values import PLACED
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.keyset import Keyset, KeyType
from svc.store.postgres.rows import call_flag, printed, without_aged_out
from svc.store.reads.buckets import INTERVALS, bucket_starts
from svc.store.reads.search import Page, newest_rows, stretches, stretches_with
from svc.store.spans.availability import spans_with_payloads

QUERY_TIMEOUT_S: Final = 30.0

_IDENTIFIERS: Final = {"session_id", "user_id", "call_site_id", "subject_session_id"}

#: A filter on one of these leaves so few rows that walking them is quicker than any index of texts.
_NARROW: Final = {"trace_id", "span_id", "session_id", "user_id"}

#: Fields of spans that are placed and have an index of their own all the same.
_INDEXED: Final = {(SPANS.name, "call_site_id")}

#: Open ends of a range; no row was created beyond them.
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)


@attrs.frozen
class Question:
    """What every question has: project, dataset, range and filters, checked."""

    project_id: int
    dataset: Dataset
    low: datetime | None
    high: datetime | None
    filters: tuple[tuple[Field, FilterValue], ...]

    def where(self) -> Where:
        """The clause of the question itself."""
        where = Where(["project_id = $1"], [self.project_id])
        if self.low is not None:
            where.clauses.append(f"{self.dataset.time_column} >= {where.value(self.low)}")
        if self.high is not None:
            where.clauses.append(f"{self.dataset.time_column} < {where.value(self.high)}")
        for field, value in self.filters:
            where.clauses.append(_equals(where, field, value))
        return where


def _equals(where: Where, field: Field, value: FilterValue) -> str:
    if value is None:
        return f"{field.name} is null"
    text = _text(value)
    if field.name == "status" and text == "error":
        # In so many words, not as a parameter, so that the indexes on what failed serve.
        return "status = 'error'"
    if field.type == "text":
        return f"{field.name} = {where.value(_stored(field, text))}"
    try:
        return f"{field.name} = {where.value(bytes.fromhex(text))}"
    except ValueError:
        # No id looks like this, so no row has it.
        return "false"


def _text(value: FilterValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\x00", "\ufffd")


def _stored(field: Field, text: str) -> str:
    """The form in which a value stands in its column: long identifiers are stored cut."""
    return identifier(text) if field.name in _IDENTIFIERS else text


def ask(
    project_id: int,
    dataset: str,
    bounds: tuple[datetime | None, datetime | None],
    filters: Mapping[str, FilterValue] | None,
) -> Question:
    """Check the parts that all questions share. Raises `Refused` naming the offender."""
    source = DATASETS.get(dataset)
    if source is None:
        raise Refused(UNKNOWN_DATASET.saying(f"unknown dataset '{dataset[:100]}'", allowed=list(DATASETS)))
    checked = tuple((_field(source, name), value) for name, value in (filters or {}).items())
    low, high = bounds
    if low is not None and high is not None and low > high:
        raise Refused(INVALID_RANGE.saying("'range.from' is after 'range.to'"))
    return Question(project_id, source, low, high, checked)


def _field(dataset: Dataset, name: str, *, facet: bool = False) -> Field:
    field = dataset.field(name)
    if field is None or (facet and not field.facetable):
        raise Refused(
            UNKNOWN_FIELD.saying(
                f"unknown field '{name[:100]}' for dataset '{dataset.name}'",
                allowed=[f.name for f in dataset.fields if f.facetable or not facet],
            )
        )
    return field


def _number(value: Decimal | int | None) -> int | float:
    """A sum as JSON shows it: whole when it is whole, with its fraction otherwise."""
    if value is None:
        return 0
    return int(value) if value == value.__trunc__() else float(value)


@attrs.define(eq=False)
class QueryStore:
    """Answers questions. One statement each, read-only, bounded in time."""

    database: Database

    async def count(self, question: Question) -> dict[str, Any]:
        """`{count}`: rows, or the summed measure."""
        rows = await self._aggregate(question, _Key("null::text", "null::text", "null::text"), None)
        return {"count": _number(rows[0]["n"] if rows else None)}

    async def timeseries(self, question: Question, interval: str) -> dict[str, Any]:
        """`{buckets}`, ascending, empty ones present; weeks start on Monday, all in UTC."""
        if interval not in INTERVALS:
            raise Refused(
                UNKNOWN_INTERVAL.saying(f"unknown interval '{interval[:100]}'", allowed=list(INTERVALS))
            )
        if question.low is None or question.high is None:
            raise Refused(INVALID_RANGE.saying("'range.from' and 'range.to' are both required"))
        starts = bucket_starts(question.low, question.high, interval)
        column = question.dataset.time_column
        time, by_hour, by_day = (
            f"date_trunc('{interval}', {name}, 'UTC')" for name in (column, "hour", "day")
        )
        key = _Key(time, by_hour, None if interval == "hour" else by_day)
        counted = {row["key"]: row["n"] for row in await self._aggregate(question, key, None)}
        return {
            "buckets": [
                {"bucket_start": timestamp(start), "count": _number(counted.get(start))} for start in starts
            ]
        }

    async def facets(self, question: Question, field: str, top_n: int) -> dict[str, Any]:
        """`{field, facets}`: the most frequent values, then by value; null is a value."""
        facet = _field(question.dataset, field, facet=True)
        rows = await self._aggregate(question, _Key(facet.name, "value", "value", facet.name), top_n)
        return {
            "field": facet.name,
            "facets": [{"value": jsonable(row["key"]), "count": _number(row["n"])} for row in rows],
        }

    async def search(
        self, question: Question, q: str | None, mode: str | None, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """`{rows, next_cursor}`, newest first. A cursor that cannot be read starts at the newest row."""
        dataset = question.dataset
        if not dataset.searched:
            raise Refused(SEARCH_UNSUPPORTED.saying(f"dataset '{dataset.name}' does not support search"))
        if mode not in (None, "", "keyword"):
            raise Refused(BAD_REQUEST.saying(f"unknown mode '{mode[:100]}'", allowed=["keyword"]))
        where = question.where()
        text = q if q is not None and q.strip() else None
        where.contains(dataset.searched, text)
        newest = _newest(dataset)
        keys = [name for name, _ in newest.columns]
        position = newest.place(cursor)
        where.after(keys, position)
        columns = ", ".join(dict.fromkeys((*keys, *dataset.shown, *(["frame"] if dataset is SPANS else []))))
        order = ", ".join(f"{key} desc" for key in keys)
        # One page and one row more, which tells whether there is another page.
        narrow = any(field.name in _NARROW for field, _ in question.filters)
        placed = {
            field.name: _stored(field, _text(value))
            for field, value in question.filters
            if field.name in PLACED.get(dataset.name, ())
            and (dataset.name, field.name) not in _INDEXED
            and value is not None
        }
        page = Page(dataset.table, columns, where.sql(), where.values, order, limit + 1)
        if dataset in CUBED and not narrow and (text is not None or placed):
            rows = await self._found(question, text, placed, position, page)
        else:
            rows = await self.database.fetch(page.sql(), *page.values, page.size, timeout_s=QUERY_TIMEOUT_S)
        page_rows, next_cursor = newest.page(rows, limit)
        available = await self._available(question.project_id, page_rows) if dataset is SPANS else frozenset()
        return {"rows": [_row_view(row, dataset, available) for row in page_rows], "next_cursor": next_cursor}

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

    async def _aggregate(self, question: Question, key: _Key, top_n: int | None) -> list[Any]:
        """Rows of `key` and `n`: from the cubes as far as they go, from the raw rows otherwise."""
        order = "" if top_n is None else f" order by 2 desc nulls last, 1 nulls last limit {top_n}"
        where = question.where()
        # Rows (or their sum) by key, counted one by one.
        raw = (
            f"select {key.raw} as key, {_measure(question)} as n from {question.dataset.table}"
            f" where {where.sql()} group by 1{order}"
        )
        field = _cube_field(question, key)
        if field is None:
            return await self.database.fetch(raw, *where.values, timeout_s=QUERY_TIMEOUT_S)

        async def work(connection: Connection) -> list[Any]:
            about = question.project_id, question.dataset, question.low, question.high
            split = await split_range(connection, *about, failed=field.startswith(FAILED))
            if split is None:
                return await connection.fetch(raw, *where.values)
            sql, values = _cubed(question, key, field, split)
            return await connection.fetch(f"{sql}{order}", *values)

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=QUERY_TIMEOUT_S)


@attrs.frozen
class _Key:
    """What an aggregate is grouped by: over raw rows, the cube's hours, and its days if they can tell.

    `facet` is the field, if it is one.
    """

    raw: str
    hour: str
    day: str | None
    facet: str | None = None


def _cube_field(question: Question, key: _Key) -> str | None:
    """The field of the cube that answers the question, '' for the total, None when none does."""
    if question.dataset not in CUBED:
        return None
    kept_filters = _but_failed(question)
    # One filter on a facet is answered by the facet itself, what failed as well.
    kind = (
        FAILED
        if len(kept_filters) < len(question.filters) and (kept_filters or key.facet is not None)
        else ""
    )
    filters = kept_filters if kind else question.filters
    if key.facet is not None:
        return None if filters else kind + key.facet
    if not filters:
        return kind
    ((field, _value), *other_filters) = filters
    return kind + field.name if field.facetable and not other_filters else None


def _but_failed(question: Question) -> tuple[tuple[Field, FilterValue], ...]:
    """The filters without the one for what failed, if that is one of them."""
    return tuple(pair for pair in question.filters if (pair[0].name, pair[1]) != ("status", "error"))


def _cubed(question: Question, key: _Key, field: str, split: Split) -> tuple[str, list[Any]]:
    """One statement over the cube's days and hours and the raw stretches that it does not cover."""
    base = Question(question.project_id, question.dataset, None, None, question.filters)
    where = base.where()
    dataset, name = where.value(question.dataset.name), where.value(field)
    cubed = f"project_id = $1 and dataset = {dataset} and field = {name}"
    filters = _but_failed(question) if field.startswith(FAILED) else question.filters
    if filters:
        ((field_asked, filter_value),) = filters
        if filter_value is None:
            cubed += " and value is null"
        else:
            cubed += f" and value = {where.value(_stored(field_asked, _text(filter_value)))}"
    first, last_day, partly = split.days()
    by_day = key.day if first < last_day and field.removeprefix(FAILED) not in ONLY_HOURS else None
    parts = []
    if by_day is not None:
        # Whole days.
        low, high, without = where.value(first), where.value(last_day), where.value(list(partly))
        parts.append(
            f"select {by_day} as key, n from cube_day where {cubed}"
            f" and day >= {low} and day < {high} and day <> all({without}::timestamptz[])"
        )
    # The hours beside them.
    hours = _stretches(where, split.hours() if by_day is not None else [split.cubed])
    dirty = where.value(list(split.dirty))
    parts.append(
        f"select {key.hour} as key, n from {hours} cross join lateral (select hour, value, n from cube"
        f" where {cubed} and hour >= stretch.low and hour < stretch.high"
        f" and hour <> all({dirty}::timestamptz[])) as beside"
    )
    # Rows of the stretches beside those, one index probe each. Ordered by created_at, and counted by a column
    # that no other index has, so that the planner takes the index on created_at: it hopped through the one on
    # call sites, site by site in each day (30 ms instead of 6, measured November 2026).
    counted = "count(*)" if key.facet is None else f"count({question.dataset.identity[0]})"
    raw = _stretches(where, [(low or _BEGINNING, high or _END) for low, high in split.raw])
    parts.append(
        f"select {key.raw} as key, {counted} as n from {raw}"
        f" cross join lateral (select * from {question.dataset.table} where {where.sql()}"
        " and created_at >= stretch.low and created_at < stretch.high order by created_at) as beside"
        " group by 1"
    )
    return (
        f"select key, sum(n)::bigint as n from ({' union all '.join(parts)}) as parts group by 1",
        where.values,
    )


def _stretches(where: Where, stretches: Sequence[tuple[datetime, datetime]]) -> str:
    """Half-open stretches of time as rows of two columns."""
    lows, highs = where.value([low for low, _ in stretches]), where.value([high for _, high in stretches])
    return f"unnest({lows}::timestamptz[], {highs}::timestamptz[]) as stretch (low, high)"


def _measure(question: Question) -> str:
    return "sum(value)" if question.dataset.measure == "sum" else "count(*)"


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


def _newest(dataset: Dataset) -> Keyset:
    """The order of a search over the dataset."""
    kinds: dict[str, KeyType] = {"index": "integer", "id": "uuid"}
    identity = tuple((column, kinds.get(column, "bytes")) for column in dataset.identity)
    return Keyset(dataset.name, ((dataset.time_column, "moment"), *identity))
