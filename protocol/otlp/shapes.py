"""What a span is between the wire and the row: the shapes that readers make and everybody else reads.

Owns: the `Wire…` shapes, and `varint` with the tags of an envelope, of which resources and scopes keep their
part. `protocol.otlp.reading` makes them. Never reads a byte itself.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

# Field tags, (number << 3) | 2, of the three messages an envelope is made of.
RESOURCE_SPANS: Final = b"\x0a"  # TracesData.resource_spans
RESOURCE: Final = b"\x0a"  # ResourceSpans.resource
SCOPE_SPANS: Final = b"\x12"  # ResourceSpans.scope_spans
SCOPE: Final = b"\x0a"  # ScopeSpans.scope
SPAN: Final = b"\x12"  # ScopeSpans.spans
SCHEMA_URL: Final = b"\x1a"  # schema_url of either


def varint(number: int) -> bytes:
    """A length as the wire has it."""
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number & 0x7F | 0x80, number >> 7))
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _url(schema_url: str) -> bytes:
    if not schema_url:
        return b""
    url = schema_url.encode()
    return SCHEMA_URL + varint(len(url)) + url


# None of the wire shapes is frozen, though whoever holds one reads it only: those below are built for every
# span. As structs they cost a third of what attrs' classes cost (0.10 and 0.31 µs a span, November 2026), and
# without a cycle the garbage collector has nothing to find in them.


@attrs.define(eq=False)
class WireResource:
    """A resource, shared by its spans. `raw` is its protobuf form.

    `head` and `tail` are what stands in an envelope before its scope and after it.
    """

    attributes: dict[str, Any]
    raw: bytes
    schema_url: str
    head: bytes = attrs.field(init=False, repr=False)
    tail: bytes = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.head = RESOURCE + varint(len(self.raw)) + self.raw
        self.tail = _url(self.schema_url)


@attrs.define(eq=False)
class WireScope:
    """An instrumentation scope, shared by its spans. `raw` is its protobuf form.

    `head` and `tail` are what stands in an envelope before the span and after it.
    """

    name: str
    version: str
    attributes: dict[str, Any]
    raw: bytes
    schema_url: str
    head: bytes = attrs.field(init=False, repr=False)
    tail: bytes = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.head = SCOPE + varint(len(self.raw)) + self.raw
        self.tail = _url(self.schema_url)


class WireEvent(msgspec.Struct, eq=False, gc=False):
    """One event of a span; the time is a Unix time in nanoseconds, 0 when unknown."""

    name: str
    time_ns: int
    attributes: dict[str, Any]


class WireLink(msgspec.Struct, eq=False, gc=False):
    """One link of a span; the ids are as sent, of any length."""

    trace_id: bytes
    span_id: bytes
    attributes: dict[str, Any]


class WireSpan(msgspec.Struct, eq=False, gc=False):
    """One span as it came (contract §3 says what becomes of it).

    Ids are bytes; `parent_span_id` is empty on a root. Times are Unix times in nanoseconds; `end_ns` is 0
    when unknown and may lie before `start_ns`. `kind` and `status_code` are the numbers of the proto, unknown
    ones included. Attribute values are str, bool, int, float, bytes, list, dict or None (an empty AnyValue);
    of two attributes with one key the last wins. Text may hold U+0000. `raw` is the span's protobuf form,
    unknown fields included.
    """

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    kind: int
    start_ns: int
    end_ns: int
    status_code: int
    status_message: str
    attributes: dict[str, Any]
    events: tuple[WireEvent, ...]
    links: tuple[WireLink, ...]
    resource: WireResource
    scope: WireScope
    raw: bytes
