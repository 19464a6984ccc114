"""What `trace-svc export spans` wrote, taken back: JSON lines, OTLP in JSON lines, OTLP in protobuf, Parquet.

Owns `wire_of`, which the export writes beside each row so that it can be taken back, and its reading. OTLP
comes back to the byte, dated by when spans ended. JSON lines come back as they were shown: secrets that were
hidden stay hidden; when a span was stored is kept. Any file of OTLP in JSON, a request a line, is read as
well. A cursor is a place in the file.
"""

from __future__ import annotations

import gzip
import io
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from protocol.inflate import Unreadable
from protocol.operator import OperatorError
from protocol.otlp.admission import Form
from protocol.otlp.json import read_json
from protocol.otlp.reading import open_envelope, read_clean, read_protobuf, walk
from protocol.text import clean
from svc.domain.detect.secrets.masking import masked_value
from svc.importers.source import (
    Identity,
    ImportPage,
    ImportWindow,
    identity,
    instant_of,
    nanoseconds,
    pairs_of,
    request_of,
)

#: Lines of one page; an export writes so many spans into one request of OTLP.
PAGE_LINES: Final = 500
#: Spans of one page of requests, which need not be as many.
_PAGE_SPANS: Final = 2_000
PAGE_BYTES: Final = 32 * 1024 * 1024
#: No export of ours has a longer line or request.
MOST_BYTES: Final = 256 * 1024 * 1024

_GZIP: Final = b"\x1f\x8b"
#: The first letter of Parquet's mark.
_PARQUET: Final = b"P"

#: What exports of traces and of sessions have.
OTHERS: Final = frozenset({"span_count", "last_activity_at"})

LEAVES: Final = (
    "cases, findings, keys, people and settings stay where they are: `trace-svc backup` moves a whole"
    " instance",
    "traces and sessions are made anew from their spans",
)

NO_PAYLOAD: Final = "its payload had aged out when it was exported"
NO_SPAN: Final = "a line that is no span of an export"

#: What a row needs to be taken back, beside what it shows of a span.
_ROW: Final = ("trace_id", "span_id", "attributes", "resource", "scope", "otlp")


def wire_of(envelope: bytes) -> dict[str, Any]:
    """The fields of a span that its row does not show, as OTLP JSON names them. Raises `Unreadable`."""
    wire = open_envelope(envelope)
    span = Span.FromString(wire.raw)
    status = {"code": span.status.code, "message": _masked(span.status.message)}
    document: dict[str, Any] = {
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
        "traceState": _masked(span.trace_state),
        "flags": span.flags,
        "droppedAttributesCount": span.dropped_attributes_count,
        "droppedEventsCount": span.dropped_events_count,
        "droppedLinksCount": span.dropped_links_count,
        "status": {key: value for key, value in status.items() if value},
        "eventTimesUnixNano": [str(event.time_unix_nano) for event in span.events],
    }
    return {key: value for key, value in document.items() if value}


def _masked(text: str) -> str:
    masked_text: str = masked_value(clean(text))
    return masked_text


class ExportedFile:
    """A file that an export wrote, or standard input (`-`), which cannot be gone back in."""

    name: str = "trace-svc export"
    leaves: tuple[str, ...] = LEAVES

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self._path, self._stream = name, stream
        self._at = 0
        #: The first byte, which says how it is written, and is not read yet.
        self._head = stream.read(1)
        if self._head == _PARQUET:
            raise OperatorError(
                f"{name} looks like Parquet, which is read from its end: give the file, unpacked"
            )
        self._form = "lines" if self._head in (b"{", b"") else "frames"

    @classmethod
    @contextmanager
    def at(cls, path: str) -> Iterator[ExportedFile]:
        """The file of this name, or standard input, open. Raises `OSError`."""
        if path == "-":
            yield cls("standard input", sys.stdin.buffer)
            return
        with Path(path).open("rb") as file:
            is_gzip = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            yield cls(path, io.BufferedReader(gzip.GzipFile(fileobj=file)) if is_gzip else file)

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The lines or requests behind a place."""
        self._go_to(int(cursor or 0))
        return self._lines() if self._form == "lines" else self._frames()

    def _go_to(self, offset: int) -> None:
        if offset == self._at:
            return
        if not self._stream.seekable():
            raise OperatorError("standard input cannot be gone on with; give the file, or add --again")
        self._stream.seek(offset)
        self._head, self._at = b"", offset

    def _read(self, size: int) -> bytes:
        head, self._head = self._head, b""
        return head + self._stream.read(size - len(head))

    def _line(self) -> bytes:
        head, self._head = self._head, b""
        line = head if head == b"\n" else head + self._stream.readline(MOST_BYTES + 1)
        if len(line) > MOST_BYTES:
            raise OperatorError(f"a line of {self._path} is longer than {MOST_BYTES} bytes")
        return line

    def _frames(self) -> ImportPage:
        """Requests, until together they are a page: each page is noted on its own."""
        bodies: list[tuple[Form, bytes]] = []
        tokens: dict[Identity, int | None] = {}
        size = 0
        while len(tokens) < _PAGE_SPANS and size < PAGE_BYTES and (body := self._frame()) is not None:
            size += len(body)
            bodies.append(("protobuf", body))
            tokens |= dict.fromkeys(_ids(body, "protobuf"))
        return ImportPage(tuple(bodies), str(self._at) if bodies else None, tokens)

    def _frame(self) -> bytes | None:
        """The next request; None at the end of the file."""
        head = self._read(4)
        if not head:
            return None
        (size,) = struct.unpack("!I", head) if len(head) == 4 else (MOST_BYTES + 1,)
        body = self._read(size) if size <= MOST_BYTES else b""
        if len(body) < size:
            raise OperatorError(
                f"{self._path} is no export of ours, or cut off: at byte {self._at} there is no whole request"
            )
        self._at += 4 + size
        return body

    def _lines(self) -> ImportPage:
        rows: list[dict[str, Any]] = []
        bodies: list[tuple[Form, bytes]] = []
        tokens: dict[Identity, int | None] = {}
        unread: dict[str, int] = {}
        size = 0
        for _ in range(PAGE_LINES):
            line = self._line()
            if not line:
                break
            self._at += len(line)
            size += len(line)
            fields = _object(line)
            if fields is not None and "resourceSpans" in fields:
                bodies.append(("json", line))
                tokens |= dict.fromkeys(_ids(line, "json"))
            elif fields is not None and OTHERS & fields.keys():
                raise OperatorError(
                    f"{self._path} is an export of traces or sessions; these are made of spans: export those"
                )
            elif fields is None or not {"trace_id", "span_id"} <= fields.keys():
                if line.strip():
                    unread[NO_SPAN] = unread.get(NO_SPAN, 0) + 1
            else:
                rows.append(fields)
            if size >= PAGE_BYTES:
                break
        if not size:
            return ImportPage((), None)
        page = page_of(rows, str(self._at))
        return ImportPage(
            (*bodies, *page.bodies),
            page.cursor,
            {**tokens, **page.told},
            page.came,
            {**unread, **page.unread},
        )


def page_of(rows: Sequence[Mapping[str, Any]], cursor: str) -> ImportPage:
    """Rows of an export as a page: one request, and what is known of its spans beside."""
    complete_rows = [row for row in rows if all(name in row for name in _ROW)]
    tokens: dict[Identity, int | None] = {}
    arrivals: dict[Identity, datetime] = {}
    for row in complete_rows:
        key = identity(row["trace_id"], row["span_id"])
        tokens[key] = row.get("total_tokens")
        if (moment := instant_of(row.get("created_at"))) is not None:
            arrivals[key] = moment
    without_payload = len(rows) - len(complete_rows)
    bodies: tuple[tuple[Form, bytes], ...] = (
        (("json", request_of(map(_group, complete_rows))),) if complete_rows else ()
    )
    return ImportPage(
        bodies, cursor, tokens, arrivals, {NO_PAYLOAD: without_payload} if without_payload else {}
    )


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return document if isinstance(document, dict) else None


def _ids(body: bytes, form: Form) -> Iterable[Identity]:
    """The identities in a request; of one that cannot be read none, which is said when it is screened."""
    try:
        request = read_clean(body) if form == "protobuf" else read_json(body)
        return [span.trace_id + span.span_id for span in walk(request)]
    except Unreadable:
        try:
            return [span.trace_id + span.span_id for span in walk(read_protobuf(body))]
        except Unreadable:
            return []


def _group(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A row of JSON lines as one span with its resource and its scope, in OTLP JSON."""
    wire, resource, scope = dict(row["otlp"]), row["resource"], row["scope"]
    times = wire.pop("eventTimesUnixNano", ())
    span = {
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        "parentSpanId": row.get("parent_span_id") or "",
        "name": row.get("name") or "",
        "attributes": pairs_of(row["attributes"]),
        "events": [_event(event, n, times) for n, event in enumerate(row.get("events") or ())],
        "links": [
            {
                "traceId": link["trace_id"],
                "spanId": link["span_id"],
                "attributes": pairs_of(link.get("attributes") or {}),
            }
            for link in row.get("links") or ()
        ],
        **wire,
    }
    group = {
        "resource": {"attributes": pairs_of(resource["attributes"])},
        "schemaUrl": resource.get("schema_url", ""),
    }
    scoped = {
        "scope": {
            "name": scope.get("name", ""),
            "version": scope.get("version", ""),
            "attributes": pairs_of(scope.get("attributes") or {}),
        },
        "schemaUrl": scope.get("schema_url", ""),
    }
    return group, scoped, [span]


def _event(event: Mapping[str, Any], n: int, times: Iterable[str]) -> dict[str, Any]:
    event_times = list(times)
    moment = instant_of(event.get("time"))
    return {
        "name": event.get("name", ""),
        "timeUnixNano": event_times[n]
        if n < len(event_times)
        else "0"
        if moment is None
        else nanoseconds(moment),
        "attributes": pairs_of(event.get("attributes") or {}),
    }
