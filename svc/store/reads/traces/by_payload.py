"""Traces by an attribute that is no field, or by a text: their payloads are looked into, the newest first.

Called by `svc.store.reads.traces.traces` for a filter that has such attributes, or leaves some out. A page
looks through as much as `svc.store.reads.payload_scan` allows and says how far it came; its cursor goes on
from there. Counts and drawings of such traces would have to look through all of them: there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs
import trio

from svc.domain.attributes.conventions import PAYLOAD, may_need_payloads
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.reads.payload_scan import (
    MOST_S,
    MOST_SPANS,
    UNLISTED,
    saying_traces,
    scan_note,
    spans_of_traces,
)
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.traces.trace_filter import NEWEST_TRACES, HeldValue, TraceFilter, held_by_spans
from svc.store.spans.payloads import SpanKey

#: Traces that are looked into at once, and those whose whole payloads are.
_TRACES: Final = 100
_TEXT_TRACES: Final = 20


class TracePages(Protocol):
    """Pages of traces that indexes and rows tell."""

    async def page(
        self, project_id: int, asked: TraceFilter, *, limit: int, cursor: str | None, timeout_s: float
    ) -> dict[str, Any]: ...


async def resolved(database: Database, project_id: int, asked: TraceFilter) -> TraceFilter:
    """The filter with those of its attributes apart that are no fields of the project."""
    names = {field for field, _ in (*asked.attributes, *asked.without) if may_need_payloads(field)}
    if not names:
        return asked
    unknown = names - set(await promoted_fields(database, project_id))

    def parted(pairs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        return [pair for pair in pairs if pair[0] not in unknown], [
            pair for pair in pairs if pair[0] in unknown
        ]

    attributes, by_payload = parted(asked.attributes)
    without, payload_without = parted(asked.without)
    return attrs.evolve(
        asked,
        attributes=attributes,
        payload_attributes=(*asked.payload_attributes, *by_payload),
        without=without,
        payload_without=(*asked.payload_without, *payload_without),
    )


@attrs.define
class _Progress:
    """How far a page came."""

    spans: int = 0
    back_to: str = ""
    stopped: bool = False

    def add(self, keys: Sequence[SpanKey], traces: Sequence[dict[str, Any]]) -> None:
        """These were looked through."""
        self.spans += len(keys)
        if traces:
            self.back_to = traces[-1]["started_at"]

    def note(self, asked: TraceFilter) -> str:
        """In a sentence."""
        further = UNLISTED.format(moment=self.back_to) if self.stopped else ""
        return scan_note((*asked.payload_attributes, *asked.payload_without), self.spans, further)


async def page_by_payload(
    database: Database,
    pages: TracePages,
    project_id: int,
    asked: TraceFilter,
    *,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """`{traces, next_cursor, notes}`, newest first: the traces with one span that says all of it."""
    by_rows = attrs.evolve(asked, payload_attributes=(), payload_without=())
    # What is left out may stand on any span of a trace, whatever one span is asked to have.
    scanned_by = by_rows if asked.payload_attributes else TraceFilter()
    progress, deadline = _Progress(), trio.current_time() + MOST_S
    traces: list[dict[str, Any]] = []
    names = {name for name, _ in (*asked.payload_attributes, *asked.payload_without)}
    at_once = _TEXT_TRACES if PAYLOAD in names else _TRACES
    while True:
        page = await pages.page(project_id, by_rows, limit=at_once, cursor=cursor, timeout_s=READ_TIMEOUT_S)
        candidates, cursor = page["traces"], page["next_cursor"]
        room = MOST_SPANS - progress.spans
        keys = await span_keys(database, project_id, scanned_by, candidates, room + 1)
        if len(keys) > room:
            keys, candidates = _whole(keys[:room], candidates)
            cursor, progress.stopped = NEWEST_TRACES.cursor(candidates[-1]), True
        kept_ids, further = await _kept_ids(database, project_id, asked, keys, candidates)
        progress.add([*keys, *further], candidates)
        for trace in candidates:
            if bytes.fromhex(trace["trace_id"]) in kept_ids:
                traces.append(trace)
            if len(traces) == limit and trace is not candidates[-1]:
                # Those behind it are looked into again: what they say is not kept between two pages.
                return _answer(traces, NEWEST_TRACES.cursor(trace), progress, asked)
        over = progress.spans >= MOST_SPANS or trio.current_time() > deadline
        progress.stopped = progress.stopped or (over and cursor is not None and len(traces) < limit)
        if cursor is None or len(traces) == limit or progress.stopped:
            return _answer(traces, cursor, progress, asked)


def _answer(
    traces: list[dict[str, Any]], cursor: str | None, progress: _Progress, asked: TraceFilter
) -> dict[str, Any]:
    return {"traces": traces, "next_cursor": cursor, "notes": [progress.note(asked)]}


async def span_keys(
    database: Database, project_id: int, asked: TraceFilter, traces: Sequence[dict[str, Any]], most: int
) -> Sequence[SpanKey]:
    """The spans of these traces that meet what is asked of the same span, trace by trace."""
    where = Where.of(project_id)
    conditions = [
        HeldValue(
            fields, value, where.value(value), where.value(fields[0]) if is_attribute else None
        ).condition
        for fields, value, is_attribute in (held_by_spans(asked) if asked.one_span else ())
    ]
    met = " and ".join(f"({condition})" for condition in conditions) or "true"
    trace_ids = [bytes.fromhex(trace["trace_id"]) for trace in traces]
    return await spans_of_traces(database, where, trace_ids, met, most)


def _whole(
    keys: Sequence[SpanKey], traces: Sequence[dict[str, Any]]
) -> tuple[Sequence[SpanKey], Sequence[dict[str, Any]]]:
    """The spans of those traces that are there as a whole, and the traces up to them; at least the first,
    whose other spans are given up.
    """
    cut_id = keys[-1][0]
    place = next(n for n, trace in enumerate(traces) if bytes.fromhex(trace["trace_id"]) == cut_id)
    if keys[0][0] == cut_id:
        return keys, traces[: place + 1]
    return [key for key in keys if key[0] != cut_id], traces[:place]


async def _kept_ids(
    database: Database,
    project_id: int,
    asked: TraceFilter,
    keys: Sequence[SpanKey],
    traces: Sequence[dict[str, Any]],
) -> tuple[set[bytes], Sequence[SpanKey]]:
    """The traces that say what is asked and nothing of what is left out; spans read beside `keys`."""
    further: Sequence[SpanKey] = ()
    kept_ids = {bytes.fromhex(trace["trace_id"]) for trace in traces}
    if asked.payload_attributes:
        kept_ids = await saying_traces(database, project_id, keys, asked.payload_attributes)
    if asked.payload_without and kept_ids:
        few = [trace for trace in traces if bytes.fromhex(trace["trace_id"]) in kept_ids]
        # Of what meets the rest, few: all their spans, not those alone that were asked.
        if asked.payload_attributes:
            further = await span_keys(database, project_id, TraceFilter(), few, MOST_SPANS)
        kept_ids -= await saying_traces(
            database, project_id, further or keys, asked.payload_without, enough=any
        )
    return kept_ids, further
