"""Laws of the count of an envelope: it agrees with what is there, and takes time with its bound only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from svc.domain.intake.envelope_size import fields_within
from tests.cost import least, taken_s

MOST = 1_000


@given(
    events=st.integers(0, 50), links=st.integers(0, 50), nested=st.integers(1, 50), text=st.text(max_size=50)
)
def test_everything_nested_is_counted(events: int, links: int, nested: int, text: str) -> None:
    data = TracesData()
    span = data.resource_spans.add().scope_spans.add().spans.add(name="n")
    for _ in range(events):
        span.events.add(name=text)
    for _ in range(links):
        span.links.add()
    held = span.attributes.add(key="k").value.array_value
    for _ in range(nested):
        held.values.add()
    # Resource spans, scope spans, span, its name; the attribute, its key, value, and list.
    least = 8 + events * (2 if text else 1) + links + nested
    whole = data.SerializeToString()
    assert fields_within(whole, least) == least
    assert fields_within(whole, least - 1) is None


@given(data=st.binary(max_size=200))
def test_any_bytes_get_an_answer(data: bytes) -> None:
    count = fields_within(data, MOST)
    assert count is None or 0 <= count <= MOST


def test_a_span_of_millions_of_empty_events_is_told_at_once() -> None:
    data = TracesData()
    span = data.resource_spans.add().scope_spans.add().spans.add()
    # An event without anything in it, four million times.
    whole = span.SerializeToString() + b"\x5a\x00" * 4_000_000

    def wrapped(field: bytes, inner: bytes) -> bytes:
        length, digits = len(inner), bytearray()
        while length >= 0x80:
            digits.append(length & 0x7F | 0x80)
            length >>= 7
        return field + bytes((*digits, length)) + inner

    envelope = wrapped(b"\x0a", wrapped(b"\x12", wrapped(b"\x12", whole)))
    assert fields_within(envelope, 100_000) is None
    assert least(lambda: taken_s(lambda: fields_within(envelope, 100_000)), below=1) < 1
