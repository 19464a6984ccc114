"""Laws of reading, screening and walking OTLP protobuf."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan, envelope, open_envelope, read_protobuf, walk
from protocol.otlp.screen import Screening, screen
from tests import wire
from tests.examples import examples

CAPTURES = [
    "v1-traces_001_openinference.pb",
    "v1-traces_004_official-genai.pb",
    "v1-traces_005_pydanticai.pb",
    "v1-traces_008_aisdk-OpenTelemetry.pb",
]

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
# One NaN only: JSON has a word for it and none for its sign and payload.
DOUBLES = st.floats(allow_nan=False) | st.just(float("nan"))
SCALARS = st.none() | st.booleans() | INT64 | DOUBLES | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ATTRIBUTES = st.dictionaries(st.text(), VALUES, max_size=5)
TRACE_IDS = st.binary(min_size=16, max_size=16).filter(any)
SPAN_IDS = st.binary(min_size=8, max_size=8).filter(any)
EVENTS = st.builds(wire.event, st.text(), ATTRIBUTES, time_ns=UINT64)
LINKS = st.builds(wire.link, TRACE_IDS, SPAN_IDS, ATTRIBUTES)
SPANS = st.builds(
    wire.span,
    st.text(),
    ATTRIBUTES,
    trace_id=TRACE_IDS,
    span_id=SPAN_IDS,
    parent=st.just(b"") | SPAN_IDS,
    kind=st.integers(0, 2**31 - 1),
    start_ns=UINT64.filter(bool),
    end_ns=UINT64,
    status_code=st.integers(0, 3),
    status_message=st.text(),
    events=st.lists(EVENTS, max_size=2),
    links=st.lists(LINKS, max_size=2),
)


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    for spans in draw(st.lists(st.lists(SPANS, max_size=3), min_size=1, max_size=2)):
        request.MergeFrom(
            wire.request(
                *spans,
                resource=draw(ATTRIBUTES),
                scope=draw(st.text()),
                scope_version=draw(st.text()),
                schema_url=draw(st.text()),
            )
        )
    return request


def shape(span: WireSpan) -> str:
    """Everything a span says, in a form in which NaN equals NaN and 1 differs from 1.0 and from True."""
    return repr(span)


def with_value(value: AnyValue) -> ExportTraceServiceRequest:
    span = wire.span()
    span.attributes.append(KeyValue(key="k", value=value))
    return wire.request(span)


def field(tag: bytes, data: bytes) -> bytes:
    """A length-delimited field, for bodies that the message classes would not write."""
    number, digits = len(data), bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return tag + bytes(digits) + bytes([number]) + data


def body_of(span: bytes) -> bytes:
    """The body of a request of one serialised span without resource and scope."""
    return field(b"\x0a", field(b"\x12", field(b"\x12", span)))


def nested_body(depth: int) -> bytes:
    """A request whose one attribute is a text inside `depth` arrays."""
    value = field(b"\x0a", b"x")
    for _ in range(depth):
        value = field(b"\x2a", field(b"\x0a", value))
    return body_of(wire.span().SerializeToString() + field(b"\x4a", field(b"\x12", value)))


def read_and_walk(body: bytes) -> list[WireSpan]:
    """What becomes of any body: its good spans, or none at all."""
    try:
        request = read_protobuf(body)
    except Unreadable:
        return []
    screening = screen(request)
    spans = list(walk(request))
    assert len(spans) == screening.accepted
    return spans


# --- reading ---------------------------------------------------------------------------------------------


def test_no_bytes_are_an_empty_request() -> None:
    request = read_protobuf(b"")
    assert list(walk(request)) == []
    assert screen(request) == Screening(0, 0)


@pytest.mark.parametrize("name", CAPTURES)
def test_a_real_capture_is_read_whole(name: str) -> None:
    request = read_protobuf(wire.capture(name))
    screening = screen(request)
    assert screening.rejected == 0
    spans = list(walk(request))
    assert len(spans) == screening.accepted > 0
    assert all(span.resource.attributes["service.name"] for span in spans)


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_cut_at_any_byte_is_read_or_unreadable(name: str) -> None:
    body = wire.capture(name)
    whole = len(read_and_walk(body))
    for end in range(len(body)):
        assert len(read_and_walk(body[:end])) <= whole


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_with_flipped_bits_is_read_or_unreadable(name: str) -> None:
    body = wire.capture(name)
    chance = random.Random(name)
    for _ in range(1500):
        broken = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        for span in read_and_walk(bytes(broken)):
            assert shape(open_envelope(envelope(span))) == shape(span)


@given(st.binary(max_size=400))
@settings(max_examples=examples(300), deadline=None)
def test_random_bytes_are_read_or_unreadable(body: bytes) -> None:
    read_and_walk(body)


@pytest.mark.parametrize(
    "body",
    [
        b"\x02\x00",  # field 0
        b"\x0e\x00",  # wire type 6
        b"\x0f\x00",  # wire type 7
        b"\x0b",  # a group that never ends
        b"\x0c",  # an end without its group
        b"\x0a\xff\xff\xff\xff\x07",  # a length of 2^31 - 1
        b"\x0a" + b"\xff" * 10,  # a length that is no varint
        b"\x0b" * 100_000,  # groups in groups
    ],
)
def test_a_broken_wire_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_protobuf(body)


def test_nesting_to_the_limit_is_read_and_beyond_it_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="MaxDepth"):
        read_protobuf(nested_body(48))
    (span,) = read_and_walk(nested_body(47))
    value = span.attributes[""]
    for _ in range(47):
        (value,) = value
    assert value == "x"
    assert shape(open_envelope(envelope(span))) == shape(span)


def test_an_any_value_10_000_deep_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        read_protobuf(nested_body(10_000))


def test_refusing_a_span_beside_the_deepest_one_keeps_it_whole() -> None:
    request = read_protobuf(nested_body(47))
    (deepest,) = walk(request)
    request.resource_spans[0].scope_spans[0].spans.add()
    assert screen(request).rejected == 1
    (kept,) = walk(request)
    assert shape(kept) == shape(deepest)


def test_broken_utf8_becomes_the_replacement_character_wherever_it_stands() -> None:
    marked = "B\u00abD"
    request = wire.request(
        wire.span(
            marked,
            {marked: marked, "list": [marked, {marked: marked}], "data": b"\xff\x00\xc2\xab", "n": 7},
            status_message=marked,
            events=[wire.event(marked, {marked: marked})],
            links=[wire.link(wire.TRACE_ID, b"12345678", {marked: marked})],
        ),
        resource={marked: marked},
        scope=marked,
        schema_url=marked,
    )
    request.resource_spans[0].resource.entity_refs.add(type=marked, id_keys=[marked, "fine"])
    broken = request.SerializeToString().replace(b"B\xc2\xabD", b"B\xc2\xc2D")
    (span,) = read_and_walk(broken)
    mended = "B\ufffd\ufffdD"
    assert span.name == span.status_message == span.scope.name == span.resource.schema_url == mended
    assert span.attributes == {
        mended: mended,
        "list": [mended, {mended: mended}],
        "data": b"\xff\x00\xc2\xab",
        "n": 7,
    }
    assert span.events[0].name == mended
    assert span.events[0].attributes == span.links[0].attributes == {mended: mended}
    assert span.resource.attributes == {mended: mended}
    (entity,) = read_protobuf(broken).resource_spans[0].resource.entity_refs
    assert list(entity.id_keys) == [mended, "fine"]


@given(st.binary(max_size=30))
@settings(deadline=None)
def test_any_bytes_for_a_name_are_read_as_python_reads_them(name: bytes) -> None:
    (span,) = read_and_walk(body_of(wire.span("").SerializeToString() + field(b"\x2a", name)))
    assert span.name == name.decode("utf-8", "replace")


def test_unknown_fields_stay_in_the_raw_span() -> None:
    future = b"\xfa\x3e\x03new"
    (span,) = read_and_walk(body_of(wire.span("s").SerializeToString() + future))
    assert future in span.raw
    assert future in open_envelope(envelope(span)).raw


def test_an_index_into_a_string_table_is_an_absent_value() -> None:
    (span,) = read_and_walk(with_value(AnyValue(string_value_strindex=3)).SerializeToString())
    assert span.attributes == {"k": None}


# --- screening -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"trace_id": b""}, "trace_id"),
        ({"trace_id": bytes(16)}, "trace_id"),
        ({"trace_id": b"x" * 15}, "trace_id"),
        ({"trace_id": b"x" * 32}, "trace_id"),
        ({"span_id": b""}, "span_id"),
        ({"span_id": bytes(8)}, "span_id"),
        ({"span_id": b"x" * 16}, "span_id"),
        ({"start_ns": 0}, "start_time"),
    ],
)
def test_a_span_that_cannot_be_stored_is_refused_alone(fault: dict[str, Any], reason: str) -> None:
    request = wire.request(wire.span("first"), wire.span("bad", **fault), wire.span("last"))
    screening = screen(request)
    assert (screening.accepted, screening.rejected) == (2, 1)
    assert [span.name for span in walk(request)] == ["first", "last"]
    assert screening.message().startswith("1 of 3 spans refused: " + reason)


@given(st.lists(st.sampled_from(["good", "trace", "span", "start"]), max_size=40))
@settings(deadline=None)
def test_every_span_is_either_kept_in_order_or_counted_with_its_reason(kinds: list[str]) -> None:
    faults: dict[str, dict[str, Any]] = {
        "good": {},
        "trace": {"trace_id": b"short"},
        "span": {"span_id": bytes(8)},
        "start": {"start_ns": 0},
    }
    spans = [wire.span(str(at), **faults[kind]) for at, kind in enumerate(kinds)]
    request = wire.request(*spans)
    screening = screen(request)
    assert [span.name for span in walk(request)] == [str(at) for at, k in enumerate(kinds) if k == "good"]
    assert screening.accepted == kinds.count("good")
    assert screening.rejected == sum(count for _, count in screening.reasons)
    assert sorted(count for _, count in screening.reasons) == sorted(
        kinds.count(kind) for kind in {"trace", "span", "start"} & set(kinds)
    )
    assert screen(request).rejected == 0


def test_the_message_is_empty_when_all_is_well_and_short_when_100_000_spans_are_bad() -> None:
    assert screen(wire.request(wire.span())).message() == ""
    bad = [wire.span(trace_id=b"", span_id=b"x"), wire.span(span_id=b""), wire.span(start_ns=0)]
    screening = screen(wire.request(*(bad * 33_333), wire.span()))
    assert (screening.accepted, screening.rejected) == (1, 99_999)
    assert len(screening.message().encode()) < 1024


@pytest.mark.parametrize("parent", [b"short", b"x" * 16, bytes(8)])
def test_a_parent_id_that_is_none_makes_a_root(parent: bytes) -> None:
    request = wire.request(wire.span(parent=parent))
    assert screen(request) == Screening(1, 0)
    (span,) = walk(request)
    assert span.parent_span_id == b""
    assert parent not in span.raw


def test_a_metric_whose_name_and_description_pass_for_ids_is_refused() -> None:
    metrics = ExportMetricsServiceRequest()
    scope_metrics = metrics.resource_metrics.add().scope_metrics.add()
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        metric = scope_metrics.metrics.add(name="process.cpu.time", description="cpu time", unit="s")
        points = getattr(metric, kind).data_points
        point = points.add(start_time_unix_nano=wire.START_NS, time_unix_nano=wire.START_NS)
        point.attributes.add(key="cpu").value.int_value = 1
    assert read_and_walk(metrics.SerializeToString()) == []


@given(
    st.lists(
        st.tuples(VALUES, ATTRIBUTES, st.binary(max_size=16), st.binary(max_size=8), st.text(), UINT64),
        min_size=1,
        max_size=4,
    )
)
@settings(deadline=None)
def test_log_records_never_become_spans(records: list[tuple[Any, ...]]) -> None:
    logs = ExportLogsServiceRequest()
    resource_logs = logs.resource_logs.add()
    resource_logs.resource.attributes.extend(wire.pairs({"service.name": "logger"}))
    scope_logs = resource_logs.scope_logs.add()
    for body, attributes, trace_id, span_id, severity, time_ns in records:
        scope_logs.log_records.add(
            time_unix_nano=time_ns,
            observed_time_unix_nano=time_ns,
            severity_number=9,
            severity_text=severity,
            body=wire.any_value(body),
            attributes=wire.pairs(attributes),
            trace_id=trace_id,
            span_id=span_id,
        )
    assert read_and_walk(logs.SerializeToString()) == []


# --- walking and envelopes -------------------------------------------------------------------------------


@given(requests())
@settings(max_examples=examples(40), deadline=None)
def test_a_request_survives_its_wire_and_every_span_its_envelope(request: ExportTraceServiceRequest) -> None:
    expected = list(walk(request))
    read = read_protobuf(request.SerializeToString())
    assert screen(read) == Screening(len(expected), 0)
    walked = list(walk(read))
    assert [shape(span) for span in walked] == [shape(span) for span in expected]
    for span in walked:
        packed = envelope(span)
        assert shape(open_envelope(packed)) == shape(span)
        data = TracesData.FromString(packed)
        assert data.resource_spans[0].scope_spans[0].spans[0].SerializeToString() == span.raw


@given(ATTRIBUTES)
@settings(max_examples=examples(80), deadline=None)
def test_an_attribute_is_walked_to_the_value_it_was_made_of(attributes: dict[str, Any]) -> None:
    (span,) = walk(wire.request(wire.span("s", attributes)))
    assert repr(span.attributes) == repr(attributes)


def test_every_field_of_a_span_is_walked() -> None:
    (span,) = walk(
        wire.request(
            wire.span(
                "chat",
                {"a": 1},
                span_id=b"12345678",
                parent=b"87654321",
                kind=5,
                start_ns=10,
                end_ns=5,
                status_code=2,
                status_message="boom",
                events=[wire.event("exception", {"exception.type": "E"}, time_ns=7)],
                links=[wire.link(b"t" * 16, b"s" * 8, {"l": True})],
            ),
            resource={"service.name": "app"},
            scope="sdk",
            scope_version="1.2",
            schema_url="https://example.org/1",
        )
    )
    assert (span.trace_id, span.span_id, span.parent_span_id) == (wire.TRACE_ID, b"12345678", b"87654321")
    assert (span.name, span.kind, span.start_ns, span.end_ns) == ("chat", 5, 10, 5)
    assert (span.status_code, span.status_message, span.attributes) == (2, "boom", {"a": 1})
    (event,) = span.events
    assert (event.name, event.time_ns, event.attributes) == ("exception", 7, {"exception.type": "E"})
    (link,) = span.links
    assert (link.trace_id, link.span_id, link.attributes) == (b"t" * 16, b"s" * 8, {"l": True})
    assert (span.resource.attributes, span.resource.schema_url) == (
        {"service.name": "app"},
        "https://example.org/1",
    )
    assert (span.scope.name, span.scope.version, span.scope.schema_url) == (
        "sdk",
        "1.2",
        "https://example.org/1",
    )


def test_spans_of_one_scope_share_its_object_and_its_resource() -> None:
    first, second = walk(wire.request(wire.span(), wire.span()))
    assert first.resource is second.resource
    assert first.scope is second.scope


def test_of_two_attributes_with_one_key_the_last_wins() -> None:
    span = wire.span("s", {"k": "first"})
    span.attributes.extend(wire.pairs({"k": "last"}))
    (walked,) = walk(wire.request(span))
    assert walked.attributes == {"k": "last"}


def test_nul_stays_in_the_wire_shapes() -> None:
    (span,) = walk(wire.request(wire.span("a\x00b", {"k\x00": "v\x00"})))
    assert (span.name, span.attributes) == ("a\x00b", {"k\x00": "v\x00"})


def test_a_10_mib_attribute_and_10_000_attributes_survive_the_envelope() -> None:
    large = "x" * (10 * 1024 * 1024)
    many = {f"attribute.{number}": number for number in range(10_000)}
    for attributes in ({"large": large}, many):
        (span,) = read_and_walk(wire.request(wire.span("s", attributes)).SerializeToString())
        assert span.attributes == attributes
        assert open_envelope(envelope(span)).attributes == attributes


@pytest.mark.parametrize("size", [0, 1, 90, 127, 128, 129, 16_200, 16_383, 16_384, 16_500, 2_100_000])
def test_lengths_about_the_steps_of_a_varint_are_written_right(size: int) -> None:
    (span,) = walk(wire.request(wire.span("n" * size), resource={"r": "r" * size}, scope="s" * size))
    assert shape(open_envelope(envelope(span))) == shape(span)


def test_an_envelope_of_two_spans_or_none_is_unreadable() -> None:
    for spans in ([], [wire.span(), wire.span()]):
        with pytest.raises(Unreadable, match=f"holds {len(spans)} spans"):
            open_envelope(wire.request(*spans).SerializeToString())
