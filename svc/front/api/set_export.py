"""`{p}/sets/{set}/export`: a set in the format of an evaluation tool.

What each entry was given and answered, the note on it, and what was thought of it. Entries are read in
batches and encoded one by one. Bounded: `EXPORT_TIMEOUT_S`, `EXPORT_BYTES`, and `LINE_BYTES` of payload each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.refusals import BAD_REQUEST, NO_SUCH_SET, Refusal
from protocol.rest.query import timestamp
from protocol.rest.sets import SetExported, SetExportQuery
from svc.domain.feedback.set_formats import FORMATS, SetFormat
from svc.front.api.routes import ApiStream, Route
from svc.front.api.sets import ONE_SET, set_of
from svc.front.auth.calls import Call
from svc.store.feedback.reads import FeedbackReads, FeedbackRow
from svc.store.feedback.sets import SetEntry, SetStore, TraceSet
from svc.store.reads.spans import SpanReads

#: Payload that is read for one line, how long all of it may take, and how large the file may be.
LINE_BYTES: Final = 256 * 1024
EXPORT_TIMEOUT_S: Final = 60.0
EXPORT_BYTES: Final = 64 * 1024 * 1024
#: Entries that are read at once.
BATCH: Final = 50
_TOO_LARGE: Final = BAD_REQUEST.saying("this set is too large for one file: split it into smaller ones")


@attrs.frozen
class SetExport:
    """A set in a format; `items` are JSON, one for each entry or, of Phoenix, one for all."""

    set: TraceSet
    format: SetFormat
    items: Sequence[bytes] = attrs.field(repr=False)


async def export_of(call: Call[Any], format_: SetFormat) -> SetExport | Refusal:
    """The set that the path names. Raises `Refused` where there is none."""
    trace_set = await set_of(call)
    entries = await SetStore(call.means.database).entries(call.project.id, trace_set.id)
    present = [entry for entry in entries if entry.is_there]
    values: list[tuple[bytes, ...]] = []
    size = 0
    with trio.move_on_after(EXPORT_TIMEOUT_S) as scope:
        for first in range(0, len(present), BATCH):
            for line in await _lines(call, trace_set, present[first : first + BATCH]):
                values.append(format_.encoded(trace_set.name, line))
                size += sum(map(len, values[-1]))
                await trio.lowlevel.checkpoint()
            if size > EXPORT_BYTES:
                return _TOO_LARGE
    if scope.cancelled_caught:
        return _TOO_LARGE
    return SetExport(trace_set, format_, format_.items(trace_set.name, values))


async def get_export(call: Call[None]) -> ApiStream | Refusal:
    """The set in a format of evaluation tools: one item for each entry, or the body of one upload."""
    query: SetExportQuery = call.query
    export = await export_of(call, FORMATS[query.format])
    return export if isinstance(export, Refusal) else ApiStream(_pieces(export), EXPORT_TIMEOUT_S)


async def _pieces(export: SetExport) -> AsyncIterator[bytes]:
    """The envelope of contract §1 around the items, item by item."""
    yield b'{"ok":true,"data":{"format":%s,"items":[' % msgspec.json.encode(export.format.name)
    for number, item in enumerate(export.items):
        yield b"," + item if number else item
    yield b"]}}"


async def _lines(call: Call[Any], trace_set: TraceSet, entries: Sequence[SetEntry]) -> list[dict[str, Any]]:
    subjects = [(entry.trace_id, entry.span_id) for entry in entries]
    spans = await SpanReads(call.means.history).of_subjects(call.project.id, subjects, each_bytes=LINE_BYTES)
    rows = await FeedbackReads(call.means.database).entries_of_traces(
        call.project.id, [entry.trace_id for entry in entries]
    )
    return [
        _line(trace_set, entry, spans.get((entry.trace_id, entry.span_id), {}), rows.get(entry.trace_id, ()))
        for entry in entries
    ]


def _line(
    trace_set: TraceSet, entry: SetEntry, span: dict[str, Any], rows: Sequence[FeedbackRow]
) -> dict[str, Any]:
    return {
        "id": entry.key,
        "input": span.get("input"),
        "output": span.get("output"),
        "note": entry.note,
        "metadata": {
            "set_id": str(trace_set.id),
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


ROUTES: Final = (
    Route(
        "GET", ONE_SET + "/export", "ORG_VIEW", get_export, SetExported, query=SetExportQuery,
        refusals=(BAD_REQUEST, NO_SUCH_SET),
    ),
)  # fmt: skip
