"""Spans read back: a page of them, one of them, and the payload behind each.

Raises `Outage` when the database is away. Every statement is read-only and bounded in time, every payload by
the room that its answer has (`svc.store.reads.payloads`), which is told as `room_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import after
from svc.domain.queries.datasets import SPANS
from svc.domain.spans.span import Kind, Status
from svc.store.aggregates.closed_hours import HOUR
from svc.store.aggregates.cubes import split_range
from svc.store.aggregates.span_ids import hours_with
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import STORED_SPAN, span_row
from svc.store.reads.payloads import ROOM_BYTES, Opening, PayloadRows, openable_bytes
from svc.store.reads.questions.event_time import newest_started
from svc.store.reads.search import (
    PLAN_ONCE,
    Page,
    Stretch,
    beside,
    columns,
    newest_rows,
    stretches,
    stretches_with,
)
from svc.store.spans.availability import SPAN_AVAILABLE, key_of
from svc.store.spans.payloads import Envelopes, read_envelopes

NEWEST_SPANS: Final = Keyset("spans", (("created_at", "moment"), ("trace_id", "bytes"), ("span_id", "bytes")))

#: The same by when they ran; a cursor of the one order is foreign to the other.
LATEST_SPANS: Final = Keyset(
    "spans by started_at", (("started_at", "moment"), ("trace_id", "bytes"), ("span_id", "bytes"))
)

#: Filters without an index of their own, whose values are placed.
_BY_PLACE: Final = ("kind", "name", "model_id")

_COLUMNS: Final = ", ".join(STORED_SPAN)
_STEP: Final = timedelta(microseconds=1)

#: Of a trace of more spans the keys are read first: of a million spans they answer in a fourth of the time
#: that the rows take (measured November 2026).
LARGE_SPANS: Final = 10_000

# The oldest spans of a trace, whose bounds name the days to look into.
_OF_TRACE: Final = "project_id = $1 and trace_id = $2 and started_at between $3 and $4"
_OLDEST: Final = (
    f"select s.*, {SPAN_AVAILABLE} from (select {_COLUMNS} from span where {_OF_TRACE}"
    " order by started_at, span_id limit $5) s order by started_at, span_id"
)
# The same by their keys, from the index alone, and then each by its key.
_OLDEST_OF_LARGE: Final = (
    f"select s.*, {SPAN_AVAILABLE} from (select started_at, span_id from span where {_OF_TRACE}"
    f" order by started_at, span_id limit $5) as oldest cross join lateral (select {_COLUMNS} from span"
    " where project_id = $1 and trace_id = $2 and started_at = oldest.started_at"
    " and span_id = oldest.span_id) s order by s.started_at, s.span_id"
)

# Of each trace the span of an id, or, where none is asked for, the first root among its earliest spans.
_OF_SUBJECTS: Final = f"""
select held.*, wanted.span_id as wanted_span_id
from unnest($2::bytea[], $3::bytea[]) as wanted (trace_id, span_id)
join trace t on t.project_id = $1 and t.trace_id = wanted.trace_id
cross join lateral (
    (select {_COLUMNS} from span where project_id = $1 and trace_id = wanted.trace_id
        and span_id = wanted.span_id and wanted.span_id <> ''
        and started_at between t.first_started_at and t.last_started_at limit 1)
    union all
    (select * from (select {_COLUMNS} from span where project_id = $1 and trace_id = wanted.trace_id
        and wanted.span_id = '' and started_at between t.first_started_at and t.last_started_at
        order by started_at, span_id limit 200) early
        where parent_span_id is null order by started_at, span_id limit 1)
) held
"""
#: Hours that are looked into for an id, before the keys of all traces are.
_MOST_HOURS: Final = 24


@attrs.frozen
class SpanFilter:
    """What a page of spans is narrowed to; None asks for nothing.

    The range, inclusive, and the order of the page are on `created_at`, or on `started_at` by event time.
    """

    trace_id: bytes | None = None
    call_site_id: str | None = None
    kind: Kind | None = None
    name: str | None = None
    status: Status | None = None
    model_id: str | None = None
    session_id: str | None = None
    low: datetime | None = None
    high: datetime | None = None
    q: str | None = None
    by_event_time: bool = False

    @property
    def keyset(self) -> Keyset:
        """The order of its pages."""
        return LATEST_SPANS if self.by_event_time else NEWEST_SPANS


@attrs.frozen
class SpanPage:
    """Rows as they were read, and their payloads where those were wanted and have not aged out."""

    rows: Sequence[Any]
    envelopes: Envelopes | None

    @classmethod
    async def read(
        cls, connection: Connection, project_id: int, rows: Sequence[Any], room_bytes: int | None
    ) -> SpanPage:
        """These rows, and their payloads when there is room for them."""
        if room_bytes is None:
            return cls(rows, None)
        keys = [key_of(row) for row in rows]
        return cls(rows, await read_envelopes(connection, project_id, keys, openable_bytes(room_bytes)))

    async def shown(self, room_bytes: int, opening: Opening | None) -> list[dict[str, Any]]:
        """The rows as they are shown: with previews, or with the payload in their place."""
        if self.envelopes is None:
            return [span_row(row) for row in self.rows]
        return await PayloadRows(self.rows, _fields, self.envelopes).shown(room_bytes, opening=opening)


@attrs.define(eq=False)
class SpanReads:
    """Reads spans of one project at a time."""

    database: Database

    async def page(
        self,
        project_id: int,
        asked: SpanFilter,
        *,
        payload: bool,
        limit: int,
        cursor: str | None,
        room_bytes: int = ROOM_BYTES,
        opening: Opening | None = None,
    ) -> dict[str, Any]:
        """`{spans, next_cursor}`, newest first."""
        where = self._where(project_id, asked)
        names = [name for name, _ in asked.keyset.columns]
        cursor_key = asked.keyset.place(cursor)
        where.after(names, cursor_key)
        order = ", ".join(f"{name} desc" for name in names)

        async def work(connection: Connection) -> tuple[SpanPage, str | None]:
            if asked.trace_id is not None:
                await _narrow(connection, where, project_id, asked.trace_id)
            # One page and one row more; the payload is looked up for these rows only.
            rows = await _newest(connection, project_id, asked, cursor_key, where, order, limit + 1)
            page, next_cursor = asked.keyset.page(rows, limit)
            shown = await SpanPage.read(connection, project_id, page, room_bytes if payload else None)
            return shown, next_cursor

        # A plain page is one statement; anything else reads what must agree.
        several = payload or asked.trace_id is not None or asked.by_event_time or _by_stretches(asked)
        page, next_cursor = await self.database.run(
            work, transaction=several, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S
        )
        return {"spans": await page.shown(room_bytes, opening), "next_cursor": next_cursor}

    def _where(self, project_id: int, asked: SpanFilter) -> Where:
        where = Where.of(project_id)
        where.equal("trace_id", asked.trace_id)
        where.equal("call_site_id", asked.call_site_id)
        where.equal("kind", asked.kind)
        where.equal("name", asked.name)
        if asked.status is not None:
            # In so many words, not as a parameter, so that the index on failed spans serves.
            where.add("status = 'error'" if asked.status == "error" else "status = 'ok'")
        where.equal("model_id", asked.model_id)
        where.equal("session_id", asked.session_id)
        where.within("started_at" if asked.by_event_time else "created_at", asked.low, asked.high)
        where.contains(SPANS.searched, asked.q)
        return where

    async def one(
        self,
        project_id: int,
        trace_id: bytes,
        span_id: bytes,
        *,
        room_bytes: int = ROOM_BYTES,
        opening: Opening | None = None,
    ) -> dict[str, Any] | None:
        """A span with its payload, as far as there is room, or None."""
        stored = await self._found(project_id, trace_id, span_id, room_bytes)
        if stored is None:
            return None
        row, envelopes = stored
        payloads = PayloadRows([row], _fields, envelopes)
        (span,) = await payloads.shown(room_bytes, every_field=True, opening=opening)
        return span

    async def of_subjects(
        self, project_id: int, subjects: Sequence[tuple[bytes, bytes | None]], *, each_bytes: int
    ) -> dict[tuple[bytes, bytes | None], dict[str, Any]]:
        """Spans with their payloads, of each at most so many bytes; of a trace without a span id its root."""

        async def work(connection: Connection) -> tuple[Sequence[Any], Envelopes]:
            # Each by its trace, whose bounds name the days to look into.
            rows = await connection.fetch(
                f"select s.*, {SPAN_AVAILABLE} from ({_OF_SUBJECTS}) s",
                project_id,
                [trace_id for trace_id, _ in subjects],
                [span_id or b"" for _, span_id in subjects],
            )
            keys = list(dict.fromkeys(key_of(row) for row in rows))
            return rows, await read_envelopes(connection, project_id, keys, each_bytes * len(subjects))

        rows, envelopes = await self.database.run(work, transaction=False, timeout_s=READ_TIMEOUT_S)
        spans: dict[tuple[bytes, bytes | None], dict[str, Any]] = {}
        for row in rows:
            payload = PayloadRows([row], _fields, envelopes)
            (span,) = await payload.shown(each_bytes, every_field=True)
            spans[row["trace_id"], row["wanted_span_id"] or None] = span
        return spans

    async def trace_of(self, project_id: int, span_id: bytes, *, timeout_s: float) -> bytes | None:
        """A trace that has a span of this id, or None. Raises `Slow` when it takes longer."""

        async def work(connection: Connection) -> bytes | None:
            trace_id: bytes | None
            near = await _stretches_with_id(connection, project_id, span_id)
            if near is None:
                # The keys alone, from trace to trace: nobody keeps an index on a span's own id.
                trace_id = await connection.fetchval(
                    "select trace_id from span where project_id = $1 and span_id = $2 limit 1",
                    project_id,
                    span_id,
                )
                return trace_id
            # Where it may be, by the index on created_at.
            trace_id = await connection.fetchval(
                "select trace_id from unnest($3::timestamptz[], $4::timestamptz[]) as stretch (low, high)"
                " cross join lateral (select trace_id from span where project_id = $1 and span_id = $2"
                " and created_at >= stretch.low and created_at < stretch.high limit 1) as held limit 1",
                project_id,
                span_id,
                *columns(near)[:2],
            )
            return trace_id

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)

    async def envelope(
        self, project_id: int, trace_id: bytes, span_id: bytes, most_bytes: int
    ) -> bytes | int | None:
        """A span as it came; its length when that is more than `most_bytes`, None when it is not there."""
        stored = await self._found(project_id, trace_id, span_id, most_bytes)
        return None if stored is None else stored[1].get((trace_id, span_id))

    async def _found(
        self, project_id: int, trace_id: bytes, span_id: bytes, most_bytes: int
    ) -> tuple[Any, Envelopes] | None:
        async def work(connection: Connection) -> tuple[Any, Envelopes] | None:
            where = Where.of(project_id)
            where.equal("trace_id", trace_id)
            where.equal("span_id", span_id)
            await _narrow(connection, where, project_id, trace_id)
            # The span, by its key; a re-sent one stands once.
            row = await connection.fetchrow(
                f"select s.*, {SPAN_AVAILABLE} from (select {_COLUMNS} from span where {where.sql()}) s",
                *where.values,
            )
            if row is None:
                return None
            return row, await read_envelopes(connection, project_id, [key_of(row)], most_bytes)

        # Statements that need not agree: what goes between two of them is told as gone.
        return await self.database.run(work, transaction=False, timeout_s=READ_TIMEOUT_S)

    async def of_trace(
        self, connection: Connection, project_id: int, trace: Any, *, room_bytes: int | None, limit: int
    ) -> SpanPage:
        """The oldest spans of a trace row, at most `limit`; with payloads when there is room for them."""
        rows = await connection.fetch(
            _OLDEST_OF_LARGE if trace["span_count"] > LARGE_SPANS else _OLDEST,
            project_id,
            trace["trace_id"],
            trace["first_started_at"],
            trace["last_started_at"],
            limit,
        )
        return await SpanPage.read(connection, project_id, rows, room_bytes)


async def _newest(
    connection: Connection,
    project_id: int,
    asked: SpanFilter,
    cursor_key: Sequence[Any] | None,
    where: Where,
    order: str,
    size: int,
) -> list[Any]:
    page = Page("span", _COLUMNS, where.sql(), where.values, order, size)

    def around(sql: str) -> str:
        return f"select s.*, {SPAN_AVAILABLE} from ({sql}) s order by {order}"

    if asked.by_event_time and asked.trace_id is None:
        high = None if asked.high is None else after(asked.high, _STEP)
        behind = cursor_key[0] if cursor_key else None
        return await newest_started(connection, project_id, page, asked.low, high, behind, around)
    near = None
    if _by_stretches(asked):
        ends = [
            after(end, _STEP)
            for end in (asked.high, cursor_key[0] if cursor_key else None)
            if end is not None
        ]
        low, high = asked.low, min(ends, default=None)
        if asked.q is not None:
            near = await stretches(connection, SPANS, project_id, asked.q, low, high)
        else:
            values = _values(asked)
            alone = len(values) == 1 and attrs.evolve(asked, low=None, high=None) == SpanFilter(**values)
            enough = size if alone else None
            near = await stretches_with(connection, SPANS, project_id, values, low, high, enough=enough)
    return await newest_rows(connection, near, page, around)


def _by_stretches(asked: SpanFilter) -> bool:
    """Whether the page is narrowed by nothing but what can be placed in time."""
    by_key = asked.trace_id is not None or asked.session_id is not None
    return not by_key and not asked.by_event_time and (asked.q is not None or bool(_values(asked)))


def _values(asked: SpanFilter) -> dict[str, Any]:
    return {field: value for field in _BY_PLACE if (value := getattr(asked, field)) is not None}


async def _stretches_with_id(connection: Connection, project_id: int, span_id: bytes) -> list[Stretch] | None:
    """Where a span of this id may be; None when that is nearly everywhere. As `stretches`."""
    split = await split_range(connection, project_id, SPANS, None, None)
    if split is None:
        return None
    await connection.execute(PLAN_ONCE)
    hours = set(await hours_with(connection, project_id, span_id, *split.cubed)) - set(split.dirty)
    if len(hours) + len(split.dirty) > _MOST_HOURS:
        return None
    return beside(split, [Stretch(hour, hour + HOUR) for hour in hours])


async def _narrow(connection: Connection, where: Where, project_id: int, trace_id: bytes) -> None:
    # In which days the spans of this trace lie; without its row there are none.
    bounds = await connection.fetchrow(
        "select first_started_at, last_started_at from trace where project_id = $1 and trace_id = $2",
        project_id,
        trace_id,
    )
    if bounds is None:
        where.add("false")
    else:
        where.within("started_at", bounds["first_started_at"], bounds["last_started_at"])


def _fields(row: Any, available: bool) -> dict[str, Any]:
    return span_row({**row, "payload_available": available})
