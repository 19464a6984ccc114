"""Laws of taking an export back: OTLP to the byte, JSON lines as they show; no file of another kind."""

from __future__ import annotations

import gzip
import io
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from protocol.operator import OperatorError
from protocol.otlp.admission import admit
from protocol.otlp.json_writing import otlp_json
from protocol.otlp.limits import DEFAULT_LIMITS
from protocol.otlp.reading import envelope, open_envelope, read_clean, walk
from protocol.rest.query import jsonable
from svc.commands.parquet import parquet_rows
from svc.importers.exported import NO_PAYLOAD, NO_SPAN, ExportedFile, wire_of
from svc.importers.parquet import ParquetExport
from svc.importers.source import ImportPage, ImportWindow
from svc.store.reads.payloads import said_in
from tests.examples import examples
from tests.wire import event, link, request, span

WINDOW = ImportWindow(None, datetime(2100, 1, 1, tzinfo=UTC))

TEXT = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
PLAIN = some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | TEXT
VALUE = some.recursive(
    PLAIN | some.floats(allow_nan=False, allow_infinity=False),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ATTRIBUTES = some.dictionaries(TEXT, VALUE, max_size=4)
NS = some.integers(1, 2**62)


@some.composite
def spans(draw: Any) -> Any:
    one = span(
        draw(TEXT),
        draw(ATTRIBUTES),
        trace_id=draw(some.binary(min_size=16, max_size=16).filter(any)),
        span_id=draw(some.binary(min_size=8, max_size=8).filter(any)),
        parent=draw(some.just(b"") | some.binary(min_size=8, max_size=8).filter(any)),
        kind=draw(some.integers(0, 5)),
        start_ns=draw(NS),
        end_ns=draw(some.integers(0, 2**62)),
        status_code=draw(some.integers(0, 2)),
        status_message=draw(TEXT),
        events=[event(draw(TEXT), draw(ATTRIBUTES), time_ns=draw(NS))],
        links=[link(b"\1" * 16, b"\2" * 8, draw(ATTRIBUTES))],
    )
    one.trace_state, one.flags, one.dropped_events_count = draw(TEXT), draw(some.integers(0, 2**32 - 1)), 3
    sent = request(one, resource=draw(ATTRIBUTES), scope=draw(TEXT), schema_url=draw(TEXT))
    return envelope(next(walk(read_clean(sent.SerializeToString()))))


def line(whole: bytes, **fields: Any) -> bytes:
    """A line of an export, as far as the importer needs it."""
    wire = open_envelope(whole)
    row = {
        "trace_id": wire.trace_id.hex(),
        "span_id": wire.span_id.hex(),
        "parent_span_id": wire.parent_span_id.hex() or None,
        "name": wire.name,
        "created_at": "2026-11-20T12:00:00.000001Z",
        "total_tokens": 7,
        **said_in(whole),
        "otlp": wire_of(whole),
        **fields,
    }
    return msgspec.json.encode(row, enc_hook=jsonable) + b"\n"


async def pages(data: bytes, name: str = "file") -> list[ImportPage]:
    source = ExportedFile(name, io.BytesIO(data))
    found, cursor = [], None
    while True:
        page = await source.page(WINDOW, cursor)
        found.append(page)
        if page.cursor is None:
            return found
        cursor = page.cursor


async def taken(data: bytes) -> list[bytes]:
    """The envelopes of what an import makes of it."""
    return [
        envelope(one)
        for page in await pages(data)
        for form, body in page.bodies
        for one in walk(read_clean(admit(body, form, DEFAULT_LIMITS, inline=False)[0]))
    ]


@settings(max_examples=examples(60), deadline=None)
@given(some.lists(spans(), min_size=1, max_size=3))
async def test_otlp_in_protobuf_comes_back_to_the_byte(wholes: list[bytes]) -> None:
    joined = b"".join(wholes)
    assert await taken(struct.pack("!I", len(joined)) + joined) == wholes


@settings(max_examples=examples(60), deadline=None)
@given(some.lists(spans(), min_size=1, max_size=3))
async def test_otlp_in_json_comes_back_as_it_was_exported(wholes: list[bytes]) -> None:
    exported = otlp_json(wholes) + b"\n"
    assert otlp_json(await taken(exported)) + b"\n" == exported


@settings(max_examples=examples(60), deadline=None)
@given(some.lists(spans(), min_size=1, max_size=3))
async def test_json_lines_say_the_same_when_they_are_exported_again(wholes: list[bytes]) -> None:
    exported = [line(whole) for whole in wholes]
    assert [line(whole) for whole in await taken(b"".join(exported))] == exported


async def test_a_page_says_which_spans_it_has_their_tokens_and_when_they_came() -> None:
    whole = envelope(next(walk(request(span(attributes={"session.id": "s"})))))
    first, last = await pages(line(whole))
    (one,) = first.told
    assert (len(one), first.told[one]) == (24, 7)
    assert first.came == {one: datetime(2026, 11, 20, 12, 0, 0, 1, tzinfo=UTC)}
    assert (last.bodies, last.cursor) == ((), None)


async def test_a_cursor_is_a_place_from_which_another_run_goes_on() -> None:
    wholes = [envelope(next(walk(request(span())))) for _ in range(1200)]
    data = b"".join(line(whole) for whole in wholes)
    every = await pages(data)
    assert len(every) == 4
    page = await ExportedFile("file", io.BytesIO(data)).page(WINDOW, every[1].cursor)
    assert page == every[2]


async def test_an_empty_request_is_no_end() -> None:
    whole = envelope(next(walk(request(span()))))
    framed = struct.pack("!I", len(whole)) + whole
    assert len(await taken(bytes(4) + framed + bytes(4) + framed)) == 2


async def test_what_is_packed_is_unpacked(tmp_path: Any) -> None:
    whole = envelope(next(walk(request(span()))))
    file = tmp_path / "spans.jsonl.gz"
    file.write_bytes(gzip.compress(line(whole)))
    with ExportedFile.at(str(file)) as source:
        page = await source.page(WINDOW, None)
    assert len(page.told) == 1


async def test_what_cannot_be_taken_back_is_counted() -> None:
    whole = envelope(next(walk(request(span()))))
    aged = (
        b'{"trace_id": "' + b"1" * 32 + b'", "span_id": "' + b"2" * 16 + b'", "payload_available": false}\n'
    )
    data = line(whole) + aged + b"what?\n\n"
    first = (await pages(data))[0]
    assert first.unread == {NO_PAYLOAD: 1, NO_SPAN: 1}
    assert len(first.told) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PAR1....", "looks like Parquet, which is read from its end"),
        (struct.pack("!I", 100) + b"short", "cut off"),
        (b"\xff\xff\xff\xff", "no export of ours"),
        (b'{"trace_id": "11", "span_count": 3}\n', "an export of traces or sessions"),
        (b'{"id": "s", "last_activity_at": null}\n', "an export of traces or sessions"),
    ],
)
async def test_a_file_of_another_kind_says_what_it_is(data: bytes, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        await pages(data)


async def test_parquet_goes_on_at_any_row_and_counts_what_it_cannot_take_back(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    wholes = [envelope(next(walk(request(span(span_id=(n + 1).to_bytes(8, "big")))))) for n in range(1100)]
    lines = [msgspec.json.decode(line(whole)) for whole in wholes]
    lines[3] = {key: lines[3][key] for key in ("trace_id", "span_id")}
    file = tmp_path / "spans"
    with parquet_rows(file, "spans") as write:
        for start in range(0, len(lines), 300):
            write(lines[start : start + 300])
    source, cursor, seen = ParquetExport(file), None, []
    while True:
        page = await source.page(WINDOW, cursor)
        # Another run, which begins there, finds the same.
        assert await ParquetExport(file).page(WINDOW, cursor) == page
        cursor = page.cursor
        if cursor is None:
            break
        seen.append((len(page.told), dict(page.unread)))
    assert seen == [(499, {NO_PAYLOAD: 1}), (500, {}), (100, {})]
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(OperatorError, match="is no Parquet file, or cut off"):
        ParquetExport(file)
    with parquet_rows(file, "sessions"):
        pass
    with pytest.raises(OperatorError, match="an export of traces or sessions"):
        ParquetExport(file)
