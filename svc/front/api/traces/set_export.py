"""`{p}/sets/{set}/export`: a set in the format of an evaluation tool.

What each entry was given and answered, the note on it, and what was thought of it. Entries are read in
batches and encoded one by one while the answer is sent, so that a batch is all that memory holds. Bounded by
`BATCH`, `LINE_BYTES` of payload each and `EXPORT_TIMEOUT_S`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.refusals import BAD_REQUEST, NO_SUCH_SET
from protocol.rest.query import timestamp, timestamp_or_none
from protocol.rest.sets import SetExported, SetExportQuery
from svc.domain.feedback.set_formats import FORMATS, SetFormat
from svc.front.api.routes import ApiStream, Route
from svc.front.api.traces.sets import ONE_SET, set_of
from svc.front.auth.calls import Call
from svc.store.feedback.reads import FeedbackReads, FeedbackRow
from svc.store.feedback.sets import SetEntry, SetStore, TraceSet
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.turns import turns_of

#: Payload that is read for one line, and how long sending all of it may take.
LINE_BYTES: Final = 256 * 1024
EXPORT_TIMEOUT_S: Final = 900.0
#: Entries that are read at once.
BATCH: Final = 25
#: What is sent at once.
PIECE_BYTES: Final = 64 * 1024

#: What a span was given and what it gave.
_SIDES: Final = ("input", "output")
#: A span, or the whole of a trace.
_Subject = tuple[bytes, bytes | None]


@attrs.frozen
class SetExport:
    """A set in a format. What was there when it began is exported; what is gone since has nothing to say."""

    call: Call[Any]
    set: TraceSet
    entries: Sequence[SetEntry] = attrs.field(repr=False)
    format: SetFormat

    async def file(self) -> AsyncIterator[bytes]:
        """The pieces of a file: lines, or one document."""
        end = b"\n" if self.entries or self.format.columns else b""
        async for piece in _gathered(self._pieces(b"\n"), b"", end):
            yield piece

    async def envelope(self) -> AsyncIterator[bytes]:
        """The pieces of an answer of the API: the envelope of contract §1 around the items."""
        start = b'{"ok":true,"data":{"format":%s,"items":[' % msgspec.json.encode(self.format.name)
        async for piece in _gathered(self._pieces(b","), start, b"]}}"):
            yield piece

    async def _pieces(self, between: bytes) -> AsyncIterator[bytes]:
        """An item for each entry with `between` them, or one item for all, which is read once a column."""
        if not self.format.columns:
            async for piece in self._values(0, between):
                yield piece
            return
        yield b'{"action":"create","name":%s' % msgspec.json.encode(self.set.name)
        for index, column in enumerate(self.format.columns):
            yield b',"%s":[' % column.encode()
            async for piece in self._values(index, b","):
                yield piece
            yield b"]"
        yield b"}"

    async def _values(self, index: int, between: bytes) -> AsyncIterator[bytes]:
        for first in range(0, len(self.entries), BATCH):
            lines = await _lines(self.call, self.set, self.entries[first : first + BATCH])
            for number, line in enumerate(lines, first):
                value = self.format.encoded(self.set.name, line, index)
                yield between + value if number else value
                await trio.lowlevel.checkpoint()


async def _gathered(pieces: AsyncIterator[bytes], start: bytes, end: bytes) -> AsyncIterator[bytes]:
    """Pieces between a start and an end, small ones together: each that is sent costs a frame."""
    waiting, size = [start], 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join((*waiting, end))


async def export_of(call: Call[Any], format_: SetFormat) -> SetExport:
    """The set that the path names. Raises `Refused` where there is none."""
    trace_set = await set_of(call)
    entries = await SetStore(call.means.database).entries(call.project.id, trace_set.id)
    return SetExport(call, trace_set, [entry for entry in entries if entry.is_there], format_)


async def get_export(call: Call[None]) -> ApiStream:
    """The set in a format of evaluation tools: one item for each entry, or the body of one upload."""
    query: SetExportQuery = call.query
    export = await export_of(call, FORMATS[query.format])
    return ApiStream(export.envelope(), EXPORT_TIMEOUT_S)


async def _lines(call: Call[Any], trace_set: TraceSet, entries: Sequence[SetEntry]) -> list[dict[str, Any]]:
    spans = await _spans(call, [(entry.trace_id, entry.span_id) for entry in entries])
    rows = await FeedbackReads(call.means.database).entries_of_traces(
        call.project.id, [entry.trace_id for entry in entries]
    )
    return [
        _line(trace_set, entry, spans.get((entry.trace_id, entry.span_id), {}), rows.get(entry.trace_id, ()))
        for entry in entries
    ]


async def _spans(call: Call[Any], subjects: Sequence[_Subject]) -> dict[_Subject, dict[str, Any]]:
    """What these say. A trace whose root says nothing says what its calls were asked and answered."""
    reads = SpanReads(call.means.history)
    spans = await reads.of_subjects(call.project.id, subjects, each_bytes=LINE_BYTES)
    silent = [
        trace_id
        for trace_id, span_id in subjects
        if span_id is None and any(spans.get((trace_id, None), {}).get(side) is None for side in _SIDES)
    ]
    turns = await turns_of(call.means.history, call.project.id, silent)
    speakers = {(trace_id, span_id) for trace_id, turn in turns.items() for span_id in turn if span_id}
    calls = (
        await reads.of_subjects(call.project.id, sorted(speakers), each_bytes=LINE_BYTES) if speakers else {}
    )
    for trace_id, turn in turns.items():
        root = spans.setdefault((trace_id, None), {})
        for side, span_id in zip(_SIDES, turn, strict=True):
            if root.get(side) is None:
                root[side] = calls.get((trace_id, span_id), {}).get(side)
    return spans


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
            "started_at": timestamp_or_none(entry.started_at),
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
