"""`trace-svc export spans | traces | sessions`: a range of a project, streamed to a file or standard output.

Spans as JSON lines (rows with all that they said), as OTLP in JSON or protobuf, which any receiver reads and
which is what came, or as Parquet. Memory stays flat whatever the range.

Secrets: JSON lines and Parquet hide detected secrets as the pages do; OTLP is what came, to the byte.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.inflate import Unreadable
from protocol.operator import OperatorError
from protocol.otlp.json_writing import otlp_json
from protocol.refusals import Refused
from protocol.rest.query import jsonable
from svc.application.open_store import open_store
from svc.commands.parquet import parquet_rows
from svc.commands.target import name_project, named_project, read_filters, refusal_sentence
from svc.commands.terminal import Teller
from svc.config.table import Settings
from svc.domain.quantities import counted
from svc.domain.queries.datasets import SPANS
from svc.importers.exported import wire_of
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads.exporting import ExportedSpan, ExportReads
from svc.store.reads.payload_scan import Wanted, scan_note
from svc.store.reads.payloads import said_in
from svc.store.reads.questions.questions import checked_filters
from svc.store.reads.questions.spans_by_payload import Filters, parted

FORMS: Final = ("jsonl", "otlp-json", "otlp-proto", "parquet")
#: Said where nothing was exported, for `ask` finds spans by when they started.
ARRIVAL_NOTE: Final = (
    "The range is about when spans arrived, not when they started. Imported or delayed spans arrived later:"
    " choose a later --to, or leave it out."
)
_BEGINNING: Final = "1970-01-01T00:00:00Z"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Streams the spans, traces or sessions of a range. The range of spans is about when they arrived,\n"
        "that of traces and sessions about when they started.\n"
        "jsonl: one row per line, spans with everything they carried.\n"
        "otlp-json: one OTLP request per line.\n"
        "otlp-proto: OTLP requests, each preceded by its length in four bytes, big-endian.\n"
        "parquet: one table; needs the extra `trace-svc[parquet]` and --out."
    )
    parser.add_argument("what", choices=("spans", "traces", "sessions"))
    parser.add_argument("--form", choices=FORMS, default="jsonl", help="default: %(default)s")
    parser.add_argument("--from", dest="low", default=_BEGINNING, metavar="TIME", help="ISO 8601, inclusive")
    parser.add_argument("--to", dest="high", metavar="TIME", help="ISO 8601, exclusive; default: now")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only spans with this value, or traces with a span that has all of them; `trace-svc ask "
        "fields` lists the fields; write any other attribute as `attr.NAME`; `payload` takes a text that "
        "may stand anywhere in what a span said",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    name_project(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Export. Raises `OperatorError`, `Outage`, `OSError`."""
    if arguments.form.startswith("otlp") and arguments.what != "spans":
        raise OperatorError(f"{arguments.form} is for spans; {arguments.what} go as jsonl or parquet")
    if arguments.where and arguments.what == "sessions":
        raise OperatorError("sessions are exported whole: leave out --where")
    low, high = _instant(arguments.low), now() if arguments.high is None else _instant(arguments.high)
    if arguments.out is not None and arguments.out.exists():
        raise OperatorError(f"{arguments.out} already exists: choose another file")
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        reads = ExportReads(store.database, *await _filters(store.database, project.id, arguments.where))
        teller, count = Teller(), 0
        with _sink(arguments.form, arguments.what, arguments.out) as write:
            async for chunk in _chunks(reads, arguments.what, project.id, low, high):
                write(chunk)
                count += len(chunk)
                teller(f"{count:,} {arguments.what}")
    exported = counted(count, arguments.what.removesuffix("s"))
    print(f"exported {exported} of {project.org_slug}/{project.slug}", file=sys.stderr)
    if (
        not count
        and arguments.what == "spans"
        and (arguments.low != _BEGINNING or arguments.high is not None)
    ):
        print(ARRIVAL_NOTE, file=sys.stderr)
    if reads.payload_filters:
        print(scan_note(reads.payload_filters, reads.looked), file=sys.stderr)


async def _filters(database: Database, project_id: int, where: Sequence[str]) -> tuple[Filters, Wanted]:
    try:
        return await parted(database, project_id, checked_filters(SPANS, read_filters(where)))
    except Refused as refused:
        raise OperatorError(refusal_sentence(refused)) from None


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise OperatorError(f"{text!r} is not a time; expected one like 2026-11-01T00:00:00Z") from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant


Chunk = list[tuple[dict[str, Any], bytes | None]]


async def _chunks(
    reads: ExportReads, what: str, project_id: int, low: datetime, high: datetime
) -> AsyncIterator[Chunk]:
    if what == "spans":
        async for spans in reads.spans(project_id, low, high):
            yield list(spans)
        return
    rows = reads.traces if what == "traces" else reads.sessions
    async for batch in rows(project_id, low, high):
        yield [(row, None) for row in batch]


@contextmanager
def _sink(form: str, what: str, out: Path | None) -> Iterator[Callable[[Chunk], object]]:
    """Where chunks go, one after the other."""
    if form == "parquet":
        if out is None:
            raise OperatorError("parquet needs a file: --out FILE")
        with parquet_rows(out, what) as write:
            yield lambda chunk: write([_row(pair) for pair in chunk])
        return
    encode = {"jsonl": _lines, "otlp-json": _otlp_line, "otlp-proto": _otlp_message}[form]
    if out is None:
        yield lambda chunk: sys.stdout.buffer.write(encode(chunk))
        sys.stdout.buffer.flush()
        return
    with out.open("xb") as file:
        yield lambda chunk: file.write(encode(chunk))


def _row(exported: ExportedSpan) -> dict[str, Any]:
    fields, envelope = exported
    try:
        return fields if envelope is None else {**fields, **said_in(envelope), "otlp": wire_of(envelope)}
    except Unreadable:
        return fields


def _lines(chunk: Chunk) -> bytes:
    return b"".join(msgspec.json.encode(_row(pair), enc_hook=jsonable) + b"\n" for pair in chunk)


def _otlp_line(chunk: Chunk) -> bytes:
    envelopes = [envelope for _, envelope in chunk if envelope is not None]
    return otlp_json(envelopes) + b"\n" if envelopes else b""


def _otlp_message(chunk: Chunk) -> bytes:
    # Requests joined are one request: all their fields repeat.
    body = b"".join(envelope for _, envelope in chunk if envelope is not None)
    return struct.pack("!I", len(body)) + body if body else b""
