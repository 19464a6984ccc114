"""A set as JSON lines: what each entry was given and answered, and what was thought of it. Bounded."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio

from protocol.refusals import BAD_REQUEST, NO_SUCH_SET, Refusal
from protocol.rest.query import timestamp
from svc.store.feedback.reads import FeedbackReads, FeedbackRow
from svc.store.feedback.sets import SetEntry, SetStore
from svc.store.reads.spans import SpanReads
from svc.store.reads.traces import TraceReads
from svc.web.page import PROJECT, PageRoute, Sent, Visit
from svc.web.pages.sets import opened_set_of

#: Payload that is read for one line, how long all of it may take, and how large the file may be.
LINE_BYTES: Final = 256 * 1024
EXPORT_TIMEOUT_S: Final = 60.0
EXPORT_BYTES: Final = 64 * 1024 * 1024


async def export(visit: Visit) -> Sent | Refusal:
    """The set as JSON lines: what each entry was given and answered, and what was thought of it."""
    opened_set = await opened_set_of(visit, visit.call.path["setId"])
    if opened_set is None:
        return NO_SUCH_SET
    entries = await SetStore(visit.means.database).entries(visit.project.id, opened_set.id)
    lines: list[bytes] = []
    size = 0
    with trio.move_on_after(EXPORT_TIMEOUT_S) as scope:
        for entry in entries:
            if not entry.is_there:
                continue
            lines.append(msgspec.json.encode(await _line(visit, entry)) + b"\n")
            size += len(lines[-1])
            if size > EXPORT_BYTES:
                break
    if scope.cancelled_caught or size > EXPORT_BYTES:
        return BAD_REQUEST.saying("this set is too large for one file: split it into smaller ones")
    return Sent(b"".join(lines), "application/x-ndjson", file_name=f"set-{opened_set.id}.jsonl")


async def _line(visit: Visit, entry: SetEntry) -> dict[str, Any]:
    spans = SpanReads(visit.means.history)
    span_id = entry.span_id
    if span_id is None:
        traces = TraceReads(visit.means.history, spans)
        trace = await traces.one(visit.project.id, entry.trace_id, payload=False)
        roots = [] if trace is None else [span for span in trace["spans"] if not span["parent_span_id"]]
        span_id = bytes.fromhex(roots[0]["span_id"]) if roots else None
    span = (
        None
        if span_id is None
        else await spans.one(visit.project.id, entry.trace_id, span_id, room_bytes=LINE_BYTES)
    )
    span = span or {}
    rows = await FeedbackReads(visit.means.database).of_trace(visit.project.id, entry.trace_id)
    return {
        "id": entry.key,
        "input": span.get("input"),
        "output": span.get("output"),
        "metadata": {
            "trace_id": entry.trace_id.hex(),
            "span_id": None if entry.span_id is None else entry.span_id.hex(),
            "name": entry.name,
            "call_site_id": entry.call_site_id,
            "model": span.get("provided_model_name"),
            "status": entry.status,
            "started_at": None if entry.started_at is None else timestamp(entry.started_at),
        },
        "feedback": [_judgement(row) for row in rows if entry.span_id in (None, row.span_id)],
    }


def _judgement(row: FeedbackRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "number": row.number,
        "category": row.category,
        "text": row.text,
        "author": row.author,
        "source": row.source,
        "at": timestamp(row.judged_at),
    }


PAGES: Final = (PageRoute("GET", PROJECT + "/sets/{setId}/export", "ORG_VIEW", export),)
