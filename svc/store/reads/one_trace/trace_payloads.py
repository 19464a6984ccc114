"""The payloads of one trace: its conversation page by page, a search through all it said, and its export.

Called by the page of a trace. Every answer has a budget of bytes for the payloads it opens; what it has no
room for is named, never cut in two. Opening is done in threads, few at once (`svc.store.reads.payloads`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import trio

from svc.domain.spans.payload_text import finder
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import STORED_SPAN, span_row
from svc.store.reads.one_trace.skeleton import TIMEOUT_S, TraceHead, of_trace
from svc.store.reads.payloads import PayloadRows
from svc.store.spans.availability import key_of
from svc.store.spans.payloads import Envelopes, read_envelopes

#: Spans that say something of a conversation; the others only hold these.
SPEAKING: Final = (
    "llm",
    "tool",
    "mcp",
    "retrieval",
    "reranker",
    "guardrail",
    "handoff",
    "agent",
    "reasoning",
)

#: Payloads opened for one page of a conversation.
CONVERSATION_BYTES: Final = 8 * 1024 * 1024
#: Payloads searched through for one find, and spans that it names.
FIND_BYTES: Final = 24 * 1024 * 1024
MOST_FOUND: Final = 1_000
#: Payloads of one export.
EXPORT_BYTES: Final = 16 * 1024 * 1024
MOST_EXPORTED: Final = 20_000

_COLUMNS: Final = ", ".join(STORED_SPAN)
_readers: Final = trio.CapacityLimiter(1)


@attrs.frozen
class Talk:
    """A page of a conversation: its spans with their payloads, in order, and whether there are more."""

    spans: Sequence[dict[str, Any]]
    #: The call before the page, whose messages the page's own need not repeat.
    before: dict[str, Any] | None
    more: bool


@attrs.frozen
class FoundSpans:
    """Ids of spans that hold a text, in order of start; `unread` spans were not looked through in full."""

    span_ids: Sequence[bytes]
    more: bool
    unread: int


@attrs.frozen(eq=False)
class Exported:
    """The spans of a trace in order. What is made of their rows is made one by one, in the caller's thread:
    20,000 of them at once took 0.35 s and 90 MiB (November 2026).
    """

    _rows: Sequence[Any] = attrs.field(repr=False)
    _envelopes: Envelopes = attrs.field(repr=False)

    def spans(self) -> Iterator[tuple[dict[str, Any], bytes | None]]:
        """Each as its row says and as it came; None where that has aged out."""
        for row in self._rows:
            envelope = self._envelopes.get((row["trace_id"], row["span_id"]))
            yield _fields(row, envelope is not None), envelope if isinstance(envelope, bytes) else None

    def envelopes(self) -> list[bytes]:
        """Those that are still there as they came."""
        envelopes = (self._envelopes.get((row["trace_id"], row["span_id"])) for row in self._rows)
        return [envelope for envelope in envelopes if isinstance(envelope, bytes)]


@attrs.frozen
class TooLargeToExport:
    """What an export would hold."""

    spans: int
    size_bytes: int


@attrs.define(eq=False)
class TracePayloads:
    """Reads for one trace at a time."""

    database: Database

    async def conversation(
        self, project_id: int, trace_id: bytes, head: TraceHead, *, first: int, count: int
    ) -> Talk:
        """Spans that speak, oldest first, from the place `first` on."""
        where = of_trace(project_id, trace_id, head)
        where.add(f"kind = any({where.value(list(SPEAKING))})")
        limit, offset = where.value(count + 1), where.value(first)

        async def work(connection: Connection) -> tuple[list[Any], list[Any], Envelopes]:
            # A page of them, in order of start; a trace is read as far as its page.
            rows = await connection.fetch(
                f"select {_COLUMNS} from span where {where.sql()}"
                f" order by started_at, span_id limit {limit} offset {offset}",
                *where.values,
            )
            previous_call = await _call_before(connection, project_id, trace_id, head, rows) if first else []
            keys = [key_of(row) for row in [*previous_call, *rows[:count]]]
            return previous_call, rows, await read_envelopes(connection, project_id, keys, CONVERSATION_BYTES)

        previous_call, rows, envelopes = await self.database.run(
            work, readonly=True, snapshot=True, timeout_s=TIMEOUT_S
        )
        payloads = PayloadRows([*previous_call, *rows[:count]], _fields, envelopes)
        spans = await payloads.shown(4 * CONVERSATION_BYTES, every_field=True)
        page = spans[len(previous_call) :]
        return Talk(page, spans[0] if previous_call else None, len(rows) > count)

    async def find(self, project_id: int, trace_id: bytes, head: TraceHead, q: str) -> FoundSpans:
        """The spans whose name, error, previews or payload hold a text, whatever the case of its letters."""
        where = of_trace(project_id, trace_id, head)
        plain = Where([], where.values)
        plain.contains(("name", "error_type", "error_message", "input_preview", "output_preview"), q)
        limit = where.value(MOST_EXPORTED + 1)

        async def work(connection: Connection) -> tuple[list[Any], Envelopes]:
            # All spans of the trace, and which of them say it in their row.
            rows = await connection.fetch(
                f"select trace_id, span_id, started_at, frame, {plain.sql()} as said from span"
                f" where {where.sql()} order by started_at, span_id limit {limit}",
                *where.values,
            )
            keys = [key_of(row) for row in rows[:MOST_EXPORTED] if not row["said"]]
            return rows, await read_envelopes(connection, project_id, keys, FIND_BYTES)

        rows, envelopes = await self.database.run(work, readonly=True, snapshot=True, timeout_s=TIMEOUT_S)
        matches = await trio.to_thread.run_sync(_holding, rows, envelopes, q, limiter=_readers)
        beyond = max(0, head.fields["span_count"] - len(rows))
        return attrs.evolve(matches, unread=matches.unread + beyond)

    async def export(self, project_id: int, trace_id: bytes, head: TraceHead) -> Exported | TooLargeToExport:
        """Every span as it came, when they are few and short enough to be had at once."""
        if head.fields["span_count"] > MOST_EXPORTED:
            return TooLargeToExport(head.fields["span_count"], 0)
        where = of_trace(project_id, trace_id, head)
        limit = where.value(MOST_EXPORTED + 1)

        async def work(connection: Connection) -> tuple[list[Any], Envelopes]:
            # All spans of the trace.
            rows = await connection.fetch(
                f"select {_COLUMNS} from span where {where.sql()} order by started_at, span_id limit {limit}",
                *where.values,
            )
            if len(rows) > MOST_EXPORTED:
                return rows, {}
            return rows, await read_envelopes(connection, project_id, list(map(key_of, rows)), EXPORT_BYTES)

        rows, envelopes = await self.database.run(work, readonly=True, snapshot=True, timeout_s=TIMEOUT_S)
        sizes = [
            len(envelope) if isinstance(envelope, bytes) else envelope for envelope in envelopes.values()
        ]
        cut = any(not isinstance(envelope, bytes) for envelope in envelopes.values())
        if len(rows) > MOST_EXPORTED or cut:
            return TooLargeToExport(head.fields["span_count"], sum(sizes))
        return Exported(rows, envelopes)


async def _call_before(
    connection: Connection, project_id: int, trace_id: bytes, head: TraceHead, rows: Sequence[Any]
) -> list[Any]:
    """The last call of a model before these rows, which repeats what was said before it."""
    if not rows:
        return []
    where = of_trace(project_id, trace_id, head)
    where.add("kind in ('llm', 'reasoning')")
    where.after(("started_at", "span_id"), (rows[0]["started_at"], rows[0]["span_id"]))
    # Backwards from the first row.
    return await connection.fetch(
        f"select {_COLUMNS} from span where {where.sql()} order by started_at desc, span_id desc limit 1",
        *where.values,
    )


def _fields(row: Any, available: bool) -> dict[str, Any]:
    return span_row({**row, "payload_available": available})


def _holding(rows: Sequence[Any], envelopes: Envelopes, q: str) -> FoundSpans:
    holds, span_ids, unread = finder(q), [], max(0, len(rows) - MOST_EXPORTED)
    for row in rows:
        if row["said"]:
            span_ids.append(row["span_id"])
            continue
        envelope = envelopes.get((row["trace_id"], row["span_id"]))
        if isinstance(envelope, bytes):
            if holds(envelope):
                span_ids.append(row["span_id"])
        elif envelope is not None:
            unread += 1
    return FoundSpans(span_ids[:MOST_FOUND], len(span_ids) > MOST_FOUND, unread)
