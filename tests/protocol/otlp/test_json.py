"""Laws of reading OTLP/JSON."""

from __future__ import annotations

import base64
import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from protocol.inflate import Unreadable
from protocol.otlp.json import read_json
from protocol.otlp.limits import DEFAULT_LIMITS, OverLimit
from protocol.otlp.reading import WireSpan, envelope, open_envelope, read_protobuf, walk
from protocol.otlp.screen import Screening, screen
from tests import wire
from tests.examples import examples
from tests.protocol.otlp.test_reading import ATTRIBUTES, requests, shape

CAPTURE = "v1-traces_013_jsjson.json"
TRACE_HEX = wire.TRACE_ID.hex()
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def span_json(**fields: Any) -> dict[str, Any]:
    """A storable span in JSON; `fields` replace or add to its own."""
    return {
        "traceId": TRACE_HEX,
        "spanId": "00000000000000aa",
        "name": "s",
        "startTimeUnixNano": str(wire.START_NS),
        **fields,
    }


def body_of(*spans: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def read_one(**fields: Any) -> WireSpan:
    """The span in JSON, beside a good one that must be there whatever befalls it."""
    request = read_json(body_of(span_json(**fields), span_json(name="beside")))
    assert screen(request) == Screening(2, 0)
    span, beside = walk(request)
    assert beside.name == "beside"
    assert shape(open_envelope(envelope(span))) == shape(span)
    return span


def read_value(value: Any) -> Any:
    return read_one(attributes=[{"key": "k", "value": value}]).attributes["k"]


def otlp_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    """The request as the specification writes it in JSON: proto3 JSON with hex ids and numbered enums."""
    tree: dict[str, Any] = json_format.MessageToDict(request, use_integers_for_enums=True)
    for resource_spans in tree.get("resourceSpans", []):
        for scope_spans in resource_spans.get("scopeSpans", []):
            for span in scope_spans.get("spans", []):
                for owner in (span, *span.get("links", [])):
                    for field in ("traceId", "spanId", "parentSpanId"):
                        if field in owner:
                            owner[field] = base64.b64decode(owner[field]).hex()
    return tree


def read_and_walk(body: bytes) -> None:
    with contextlib.suppress(Unreadable, OverLimit):
        request = read_json(body)
        screening = screen(request)
        spans = list(walk(read_protobuf(request.SerializeToString())))
        assert len(spans) == screening.accepted


# --- what the specification says -------------------------------------------------------------------------


@given(requests())
@settings(max_examples=examples(40), deadline=None)
def test_json_and_protobuf_of_one_request_read_to_the_same_spans(request: ExportTraceServiceRequest) -> None:
    read = read_json(json.dumps(otlp_json(request)).encode())
    assert [shape(span) for span in walk(read)] == [shape(span) for span in walk(request)]


def test_the_capture_of_the_javascript_exporter_is_read_whole() -> None:
    request = read_json(wire.capture(CAPTURE))
    assert screen(request) == Screening(1, 0)
    (span,) = walk(request)
    assert (span.name, span.kind, span.status_code, span.status_message) == ("root", 3, 2, "boom")
    assert span.trace_id.hex() == "9dd9ca97c682ef6ab4f191df844f71ec"
    assert span.end_ns - span.start_ns == 781656
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 12,
        "d": 1.5,
        "f": 3,
        "b": True,
        "arr": ["a", "b"],
        "big": 9007199254740992,
        "neg": -1,
        "empty": "",
    }
    assert [(event.name, event.attributes) for event in span.events] == [("e", {"k": 1})]
    assert span.scope.name == "acc"
    assert span.resource.attributes["telemetry.sdk.language"] == "nodejs"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b" {}\n",
        b'{"resourceSpans":[]}',
        b'{"resourceSpans":null}',
        b'{"resourceSpans":{}}',
        b'{"resourceSpans":[{}]}',
        b'{"resourceSpans":[{"scopeSpans":{}}]}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":{}}]}]}',
        b'{"resourceSpans":[{"resource":null,"scopeSpans":[{"scope":null,"spans":null}]}]}',
        b'{"resource_spans":[{"scope_spans":[{"spans":[{"name":"x"}]}]}]}',
        b'{"unknown":{"deep":[1,2,{"a":null}]}}',
    ],
)
def test_an_empty_request_is_read_as_one(body: bytes) -> None:
    assert list(walk(read_json(body))) == []


def test_unknown_fields_are_ignored_everywhere() -> None:
    span = span_json(future={"a": 1}, attributes=[{"key": "k", "value": {"stringValue": "v"}, "x": 1}])
    tree = {
        "more": 1,
        "resourceSpans": [
            {"more": [], "resource": {"more": 1}, "scopeSpans": [{"more": 1, "spans": [span]}]}
        ],
    }
    (read,) = walk(read_json(json.dumps(tree).encode()))
    assert read.attributes == {"k": "v"}


def test_ids_are_hex_of_any_case() -> None:
    span = read_one(traceId=TRACE_HEX.upper(), spanId="AbCdEf0123456789", parentSpanId="ABCDEF0123456780")
    assert span.trace_id == wire.TRACE_ID
    assert span.span_id.hex() == "abcdef0123456789"
    assert span.parent_span_id.hex() == "abcdef0123456780"


def test_ids_in_base64_are_told_by_their_length() -> None:
    span = read_one(
        traceId=base64.b64encode(wire.TRACE_ID).decode(),
        spanId=base64.b64encode(b"12345678").decode(),
        parentSpanId=base64.b64encode(b"87654321").decode(),
    )
    assert (span.trace_id, span.span_id, span.parent_span_id) == (wire.TRACE_ID, b"12345678", b"87654321")


@pytest.mark.parametrize("number", [wire.START_NS, str(wire.START_NS), float(wire.START_NS)])
def test_a_64_bit_time_is_a_number_or_a_decimal_string(number: Any) -> None:
    assert abs(read_one(startTimeUnixNano=number).start_ns - wire.START_NS) < 256


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"stringValue": ""}, ""),
        ({"stringValue": "é😀"}, "é😀"),
        ({"boolValue": False}, False),
        ({"intValue": 3}, 3),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 9223372036854775807}, 2**63 - 1),
        ({"intValue": 3.0}, 3),
        ({"doubleValue": 1}, 1.0),
        ({"doubleValue": "1.5"}, 1.5),
        ({"doubleValue": "Infinity"}, float("inf")),
        ({"doubleValue": "-Infinity"}, float("-inf")),
        ({"bytesValue": "AP8="}, b"\x00\xff"),
        ({"bytesValue": "_-8"}, b"\xff\xef"),
        ({"bytesValue": ""}, b""),
        ({"arrayValue": {}}, []),
        ({"arrayValue": {"values": None}}, []),
        ({"arrayValue": {"values": [{"intValue": "1"}, {}, {"stringValue": "x"}]}}, [1, None, "x"]),
        ({"kvlistValue": {}}, {}),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}),
        ({}, None),
        (None, None),
        ({"stringValue": None}, None),
        ({"stringValue": None, "intValue": 4}, 4),
        ({"stringValueStrindex": 4}, None),
    ],
)
def test_an_any_value_is_read_by_its_arm(written: Any, read: Any) -> None:
    assert repr(read_value(written)) == repr(read)


def test_a_double_may_be_no_number() -> None:
    assert repr(read_value({"doubleValue": "NaN"})) == "nan"


def test_of_two_members_with_one_name_the_last_wins() -> None:
    body = body_of(span_json()).replace(b'"name": "s"', b'"name": "first", "name": "last"')
    (span,) = walk(read_json(body))
    assert span.name == "last"


# --- what exporters send all the same --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("bare", "bare"),
        (7, 7),
        (1.25, 1.25),
        (True, True),
        ([1, "two", [3]], [1, "two", [3]]),
        ({"plain": {"object": [1]}}, {"plain": {"object": [1]}}),
        ({"stringValue": 5}, 5),
        ({"stringValue": ["a"]}, ["a"]),
        ({"boolValue": "yes"}, "yes"),
        ({"intValue": "twelve"}, "twelve"),
        ({"intValue": 3.5}, 3.5),
        ({"intValue": True}, True),
        ({"intValue": 2**63}, str(2**63)),
        ({"intValue": str(-(2**63) - 1)}, str(-(2**63) - 1)),
        ({"intValue": 1e300}, 1e300),
        (2**64, str(2**64)),
        ({"intValue": "9" * 5000}, "9" * 5000),
        ({"doubleValue": "much"}, "much"),
        ({"doubleValue": int("9" * 400)}, "9" * 400),
        ({"bytesValue": "no base64!"}, "no base64!"),
        ({"bytesValue": [1, 2]}, [1, 2]),
        ({"arrayValue": [1, {"intValue": 2}]}, [1, 2]),
        ({"arrayValue": {"values": "text"}}, {"values": "text"}),
        ({"kvlistValue": {"values": {"a": {"intValue": "1"}}}}, {"a": 1}),
    ],
)
def test_a_value_of_the_wrong_type_is_kept_as_what_it_is(written: Any, read: Any) -> None:
    assert repr(read_value(written)) == repr(read)


@given(ATTRIBUTES)
@settings(max_examples=examples(40), deadline=None)
def test_attributes_given_as_an_object_are_its_members(attributes: dict[str, Any]) -> None:
    tree = otlp_json(wire.request(wire.span("s", attributes)))
    span = tree["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["attributes"] = {pair.get("key", ""): pair.get("value") for pair in span.get("attributes", [])}
    (read,) = walk(read_json(json.dumps(tree).encode()))
    assert repr(read.attributes) == repr(attributes)


@pytest.mark.parametrize(
    ("written", "kind"),
    [(3, 3), ("3", 3), ("SPAN_KIND_CLIENT", 3), ("client", 0), (2**31, 0), (-1, 0), (99, 99), ([], 0)],
)
def test_an_enum_is_a_number_or_a_name_and_else_unset(written: Any, kind: int) -> None:
    assert read_one(kind=written).kind == kind


def test_an_error_status_given_by_name_stays_an_error() -> None:
    assert read_one(status={"code": "STATUS_CODE_ERROR"}).status_code == 2


NO_TRACE_IDS: list[Any] = [None, 7, [], {}, "", "xyz", "0" * 32, "a" * 31, "ü" * 32, "=" * 24]
NO_SPAN_IDS: list[Any] = [None, 7, [], {}, "", "0" * 16, "a" * 17, "a b c d e f g h ", "=" * 12]
NO_TIMES: list[Any] = [None, 0, -1, 2**64, "soon", 0.5, True, [], "1e18", 1e300]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("traceId", value) for value in NO_TRACE_IDS],
        *[("spanId", value) for value in NO_SPAN_IDS],
        *[("startTimeUnixNano", value) for value in NO_TIMES],
    ],
)
def test_a_span_without_readable_id_or_start_is_refused_alone(field: str, value: Any) -> None:
    request = read_json(body_of(span_json(name="first"), span_json(**{field: value}), span_json(name="last")))
    screening = screen(request)
    assert (screening.accepted, screening.rejected) == (2, 1)
    assert [span.name for span in walk(request)] == ["first", "last"]


@pytest.mark.parametrize("span", [None, 1, "text", [], {}, [span_json()]])
def test_what_is_no_span_is_refused_alone(span: Any) -> None:
    request = read_json(body_of(span, span_json()))
    screening = screen(request)
    assert (screening.accepted, screening.rejected) == (1, 1)


def test_wrong_types_inside_a_span_cost_it_those_fields_only() -> None:
    span = read_one(
        parentSpanId=12,
        name=["x"],
        traceState={},
        flags=-1,
        endTimeUnixNano="never",
        attributes=[
            None,
            "text",
            {"key": 5, "value": {"stringValue": "lost"}},
            {"key": "kept", "value": {"intValue": 1}},
        ],
        events=[3, {"name": 4, "timeUnixNano": [], "attributes": 7}],
        links={"traceId": "x"},
        droppedAttributesCount=2**40,
        status="STATUS_CODE_ERROR",
    )
    assert (span.parent_span_id, span.name, span.end_ns, span.links, span.status_code) == (b"", "", 0, (), 0)
    assert span.attributes == {"kept": 1}
    assert [(event.name, event.time_ns, event.attributes) for event in span.events] == [("", 0, {})]


@given(
    st.dictionaries(
        st.sampled_from(sorted(field.json_name for field in Span.DESCRIPTOR.fields)),
        JSON_VALUES | st.lists(st.fixed_dictionaries({"key": JSON_VALUES, "value": JSON_VALUES}), max_size=3),
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_no_field_of_any_type_costs_the_span_beside_it(fields: dict[str, Any]) -> None:
    request = read_json(body_of(span_json(**fields), span_json(name="beside")))
    screen(request)
    assert list(walk(read_protobuf(request.SerializeToString())))[-1].name == "beside"


# --- what must not pass ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"7",
        b"{",
        b"{}x",
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":1e400}',
        b'{"a":[1,]}',
        b'{"a":"\x01"}',
        b'{"a":"\\ud8"}',
        b"\xff\xfe{\x00}\x00",
        b'{"resourceSpans":7}',
        b'{"resourceSpans":[1]}',
        b'{"resourceSpans":[null]}',
        b'{"resourceSpans":[{"scopeSpans":{"0":{}}}]}',
        b'{"resourceSpans":[{"scopeSpans":["x"]}]}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":"x"}]}]}',
        b'{"resourceLogs":[]}',
        b'{"resourceMetrics":[{"scopeMetrics":[]}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_body_that_is_no_trace_request_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable) as refused:
        read_json(body)
    assert 0 < len(refused.value.reason) < 200


def test_json_that_is_read_after_its_text_was_mended_still_has_to_be_json() -> None:
    with pytest.raises(Unreadable):
        read_json(b'{"a":"\\ud800"')


# --- hostile text and nesting ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb"\ud800", "\ufffd"),
        (rb"\uDFFF", "\ufffd"),
        (rb"a\ud800b", "a\ufffdb"),
        (rb"\ud800\ud83d\ude00", "\ufffd😀"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud800\u0041", "\ufffdA"),
        (rb"\\ud800 \ud800", "\\ud800 \ufffd"),
        (rb"\\\ud800", "\\\ufffd"),
        (rb"\n\ud800\t\"", '\n\ufffd\t"'),
        (b"\xff", "\ufffd"),
        (b"caf\xe9", "caf\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (rb"\u0000", "\x00"),
        (rb"\ud83d\ude00 " + "é😀\uffff".encode(), "😀 é😀\uffff"),
    ],
)
def test_broken_text_becomes_the_replacement_character(written: bytes, read: str) -> None:
    body = body_of(span_json(name="NAME", attributes={"KEY": "VALUE"}))
    for word in (b"NAME", b"KEY", b"VALUE"):
        body = body.replace(word, written)
    (span,) = walk(read_json(body))
    assert span.name == read
    assert span.attributes == {read: read}


@given(st.text(alphabet=st.characters(codec=None), max_size=30))
@settings(deadline=None)
def test_any_escaped_text_keeps_its_pairs_and_loses_only_lone_surrogates(text: str) -> None:
    (span,) = walk(read_json(body_of(span_json(name=text))))
    assert span.name == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_a_byte_order_mark_is_dropped() -> None:
    (span,) = walk(read_json(b"\xef\xbb\xbf" + body_of(span_json(name="é"))))
    assert span.name == "é"


def _arrays(value: Any) -> Any:
    return {"arrayValue": {"values": [value]}}


def _maps(value: Any) -> Any:
    return {"kvlistValue": {"values": [{"key": "k", "value": value}]}}


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("arrays", _arrays),
        ("maps", _maps),
        ("bare arrays", lambda v: [v]),
        ("bare objects", lambda v: {"k": v}),
        ("mixed", lambda v: _maps(_arrays(v))),
        ("arms in arms", lambda v: {"intValue": v}),
    ],
)
@pytest.mark.parametrize("depth", [*range(14, 21), *range(28, 34), *range(44, 50), 92, 93, 94, 95, 96, 120])
def test_what_is_nested_too_deeply_for_protobuf_is_kept_as_its_json(
    name: str, wrap: Callable[[Any], Any], depth: int
) -> None:
    value: Any = {"stringValue": "core"}
    for _ in range(depth):
        value = wrap(value)
    pairs = [{"key": "k", "value": value}]
    body = body_of(
        span_json(attributes=pairs, events=[{"attributes": pairs}], links=[{"attributes": pairs}]),
        span_json(),
    )
    levels = depth * {"mixed": 2, "arms in arms": 0}.get(name, 1)
    try:
        request = read_json(body)
    except OverLimit:
        assert levels > DEFAULT_LIMITS.depth
        return
    first, _ = walk(read_protobuf(request.SerializeToString()))
    assert "core" in repr(first.attributes)
    assert "core" in repr(first.events[0].attributes)
    assert "core" in repr(first.links[0].attributes)
    assert shape(open_envelope(envelope(first))) == shape(first)


@pytest.mark.parametrize("depth", [200, 400, 900, 1000, 5000])
def test_nesting_about_the_limit_of_the_interpreter_is_read_or_unreadable(depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"stringValue":', "}"), ('{"a":', "}"), ('{"arrayValue":[', "]}")):
        value = opening * depth + "1" + closing * depth
        read_and_walk(body_of(span_json(attributes={"k": "VALUE"})).replace(b'"VALUE"', value.encode()))


def test_a_10_mib_attribute_and_10_000_attributes_are_read() -> None:
    large = "x" * (10 * 1024 * 1024)
    many = {f"attribute.{number}": number for number in range(10_000)}
    for attributes in ({"large": large}, many):
        assert read_one(attributes=attributes).attributes == attributes


def test_the_capture_cut_at_any_byte_is_unreadable() -> None:
    body = wire.capture(CAPTURE)
    for end in range(len(body)):
        with pytest.raises(Unreadable):
            read_json(body[:end])


def test_the_capture_with_changed_bytes_is_read_or_unreadable() -> None:
    body = wire.capture(CAPTURE)
    chance = random.Random(CAPTURE)
    for _ in range(3000):
        broken = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(len(broken))] = chance.choice(
                b'0{}[]",:\\n\xff' + bytes([chance.randrange(256)])
            )
        read_and_walk(bytes(broken))


@given(st.binary(max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_random_bytes_are_read_or_unreadable(body: bytes) -> None:
    read_and_walk(body)
    read_and_walk(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"' + body + b'"}]}]}]}')
