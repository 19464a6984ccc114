"""The reader by hand and protobuf's own: whatever the first reads, the second reads the same."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from protocol.compiled import sources
from protocol.inflate import Unreadable
from protocol.otlp import plain_spans
from protocol.otlp.reading import any_span
from protocol.otlp.shapes import WireResource, WireScope, WireSpan

RESOURCE = WireResource({}, b"", "")
SCOPE = WireScope("", "", {}, b"", "")

Reader = Callable[[bytes, WireResource, WireScope], WireSpan | None]


def as_source() -> Reader:
    """The reader as its text runs, whatever is compiled."""
    [text, *_] = sources("protocol.otlp.plain_spans")
    spec = importlib.util.spec_from_file_location("plain_spans_as_source", text)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reader: Reader = module.plain_span
    return reader


#: As it is imported, which is compiled where anything is, and as its text runs.
READERS: dict[str, Reader] = {"imported": plain_spans.plain_span, "text": as_source()}

texts = st.text(max_size=40) | st.text(min_size=150, max_size=400)
values = st.recursive(
    st.builds(AnyValue, string_value=texts)
    | st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1))
    | st.builds(AnyValue, double_value=st.floats(allow_nan=False))
    | st.builds(AnyValue, bool_value=st.booleans())
    | st.builds(AnyValue, bytes_value=st.binary(max_size=80))
    | st.just(AnyValue()),
    lambda inner: (
        st.builds(AnyValue, array_value=st.builds(ArrayValue, values=st.lists(inner, max_size=3)))
        | st.builds(
            AnyValue,
            kvlist_value=st.builds(
                KeyValueList, values=st.lists(st.builds(KeyValue, key=texts, value=inner), max_size=3)
            ),
        )
    ),
    max_leaves=6,
)
pairs = st.lists(st.builds(KeyValue, key=texts, value=values), max_size=5)
times = st.integers(0, 2**64 - 1)
events = st.lists(st.builds(Span.Event, time_unix_nano=times, name=texts, attributes=pairs), max_size=2)
plain = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16),
    span_id=st.binary(min_size=8, max_size=8),
    parent_span_id=st.just(b"") | st.binary(min_size=8, max_size=8).filter(any),
    name=texts,
    kind=st.sampled_from(range(6)),
    start_time_unix_nano=times,
    end_time_unix_nano=times,
    attributes=pairs,
    events=events,
    status=st.builds(Status, code=st.sampled_from(range(3)), message=texts),
    dropped_attributes_count=st.integers(0, 127),
    flags=st.integers(0, 2**32 - 1),
)
links = st.lists(
    st.builds(Span.Link, trace_id=st.binary(max_size=20), span_id=st.binary(max_size=9), attributes=pairs),
    max_size=2,
)
#: What the reader by hand may decline as well.
anything = plain | st.builds(
    Span,
    trace_id=st.binary(max_size=20),
    span_id=st.binary(max_size=12),
    parent_span_id=st.binary(max_size=9),
    trace_state=texts,
    name=texts,
    kind=st.integers(0, 300),
    attributes=pairs,
    links=links,
    events=st.lists(
        st.builds(Span.Event, name=texts, dropped_attributes_count=st.integers(0, 2**32 - 1)), max_size=2
    ),
    dropped_links_count=st.integers(0, 2**32 - 1),
    status=st.builds(Status, code=st.integers(0, 200)),
)


def told(span: WireSpan) -> str:
    """All that a span says, values with their types; resource and scope are the caller's own."""
    fields = msgspec.structs.astuple(span)
    return repr([field for field in fields if field is not RESOURCE and field is not SCOPE])


def agree(reader: Reader, raw: bytes) -> bool:
    """Whether the reader read it, and then as protobuf does; what it calls unreadable protobuf does too."""
    try:
        span = reader(raw, RESOURCE, SCOPE)
    except Unreadable:
        with pytest.raises(Unreadable):
            any_span(raw, RESOURCE, SCOPE)
        return False
    if span is None:
        return False
    assert told(span) == told(any_span(raw, RESOURCE, SCOPE))
    return True


@pytest.mark.parametrize("way", READERS)
@settings(deadline=None)
@given(plain)
def test_a_span_as_exporters_write_it_is_read_by_hand_and_as_protobuf_reads_it(way: str, span: Span) -> None:
    assert agree(READERS[way], span.SerializeToString())


@pytest.mark.parametrize("way", READERS)
@settings(deadline=None)
@given(anything)
def test_any_span_is_read_alike_or_declined(way: str, span: Span) -> None:
    agree(READERS[way], span.SerializeToString())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A span of which some bytes are gone, changed, doubled or made up."""
    raw = bytearray(draw(anything).SerializeToString())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(("cut", "change", "add", "double"))):
            case "cut":
                del raw[at : at + draw(st.integers(1, 9))]
            case "change":
                raw[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "add":
                raw[at:at] = draw(st.binary(min_size=1, max_size=6))
            case "double":
                raw[at:at] = raw[at : at + draw(st.integers(1, 60))]
    return bytes(raw)


@pytest.mark.parametrize("way", READERS)
@settings(deadline=None)
@given(damaged() | st.binary(max_size=200))
def test_a_damaged_span_is_read_as_protobuf_reads_it_or_declined(way: str, raw: bytes) -> None:
    agree(READERS[way], raw)


def field(tag: int, content: bytes) -> bytes:
    size = bytearray()
    length = len(content)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((tag, *size, length)) + content


TEXT = KeyValue(key="k" * 40, value=AnyValue(string_value="v" * 300)).SerializeToString()
#: Each of them cannot be what it says it is, or is what few would write.
ODD: dict[str, bytes] = {
    "a length past the end": b"\x4a\x7fabc",
    "a length that never ends": b"\x0a" + b"\xff" * 12,
    "a length of five bytes": b"\x0a\x83\x80\x80\x80\x00abc",
    "a length beyond any body": b"\x0a\xff\xff\xff\xff\x07abc",
    "a tag of two bytes for a field of one": b"\x8a\x00\x03abc",
    "field zero": b"\x02\x01a",
    "a group": b"\x0b\x0c",
    "the end of a group": b"\x0c",
    "a start cut short": b"\x39" + bytes(5),
    "flags cut short": b"\x85\x01\x00",
    "a kind of two bytes": b"\x30\x80\x01",
    "a kind that is negative": b"\x30" + b"\xff" * 9 + b"\x01",
    "a kind without a number": b"\x30",
    "a name that is not UTF-8": field(0x2A, b"\xff\xfe"),
    "a name with half a surrogate": field(0x2A, b"\xed\xa0\x80"),
    "a name twice": field(0x2A, b"first") + field(0x2A, b"second"),
    "a status twice": field(0x7A, b"\x18\x02") + field(0x7A, field(0x12, b"why")),
    "a status with a text that is not UTF-8": field(0x7A, field(0x12, b"\xff")),
    "a status longer than what is around it": b"\x7a\x02\x12\x30",
    "an event with a field nobody knows": field(0x5A, field(0x3A, b"x")),
    "an event longer than what is around it": b"\x5a\x02\x12\x30",
    "an event with a time cut short": b"\x5a\x03\x09\x00\x00",
    "a text longer than its value": field(0x4A, TEXT[:-1]),
    "a text with bytes behind it": field(0x4A, TEXT + b"\x00"),
    "a text that is not UTF-8": field(0x4A, TEXT.replace(b"vv", b"\xff\xfe")),
    "a key that is not UTF-8": field(0x4A, TEXT.replace(b"kk", b"\xff\xfe")),
    "a value before its key": field(0x4A, field(0x12, field(0x0A, b"v" * 90)) + field(0x0A, b"k")),
    "a value twice": field(0x4A, TEXT + field(0x12, field(0x0A, b"again"))),
    "an attribute without anything": b"\x4a\x00",
    "an attribute of zeros": field(0x4A, bytes(100)),
    "a parent of zeros": field(0x22, bytes(8)),
    "a parent of four bytes": field(0x22, b"four"),
    "a state of the trace": field(0x1A, b"a=b"),
    "a link": field(0x6A, field(0x0A, bytes(16))),
    "a time as a varint": b"\x38\x05",
    "an unknown field of every width": b"\xa0\x06\x01" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4),
    "nested arrays beyond what protobuf reads": field(0x4A, b"\x0a\x01k" + b"\x12\x7f\x2a\x7d" * 40),
}


@pytest.mark.parametrize("way", READERS)
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_span_is_read_as_protobuf_reads_it_or_declined(way: str, odd: str) -> None:
    start = b"\x39" + struct.pack("<Q", 1)
    agree(READERS[way], ODD[odd])
    agree(READERS[way], start + ODD[odd])
    agree(READERS[way], ODD[odd] + start)


@pytest.mark.parametrize("way", READERS)
@pytest.mark.parametrize("size", [0, 1, 20, 63, 64, 65, 126, 127, 128, 129, 16_383, 16_384, 2_097_152])
def test_texts_of_every_length_of_their_length_are_read_alike(way: str, size: int) -> None:
    span = Span(name="n" * size, attributes=[KeyValue(key="k", value=AnyValue(string_value="é" * size))])
    assert agree(READERS[way], span.SerializeToString())


def test_depth_is_judged_by_protobuf_alone() -> None:
    value: Any = AnyValue(int_value=1)
    for _ in range(30):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    raw = Span(attributes=[KeyValue(key="deep", value=value)]).SerializeToString()
    for reader in READERS.values():
        assert agree(reader, raw)
