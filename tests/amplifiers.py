"""Bodies that ask for far more than they weigh: what attacks were made of, for the laws and for measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests import wire


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    size, digits = len(content), bytearray()
    while size >= 0x80:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((number << 3 | 2, *digits, size)) + content


def good_span(extra: bytes = b"") -> bytes:
    """A storable span, and something behind its fields."""
    return wire.span().SerializeToString() + extra


def protobuf_body(spans: Iterable[bytes]) -> bytes:
    """A request of one resource and one scope."""
    return field(1, field(2, b"".join(field(2, span) for span in spans)))


def json_body(spans: bytes) -> bytes:
    """The same in JSON, of spans that are written down already."""
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + spans + b"]}]}]}"


#: The fields of a storable span in JSON, and its end left open.
JSON_SPAN = (
    b'{"traceId":"'
    + b"ab" * 16
    + b'","spanId":"'
    + b"cd" * 8
    + b'","startTimeUnixNano":"1795167269674000000"'
)

_ARRAY = 5


def protobuf_amplifiers(count: int, *names: str) -> dict[str, bytes]:
    """Of `count` empty messages each, by the name of the limit that each passes: those named, or all."""

    def nested() -> bytes:
        return field(9, field(1, b"k") + field(2, field(_ARRAY, b"\x0a\x00" * count)))

    return _made(
        names,
        {
            "spans": lambda: protobuf_body([b""] * count),
            "groups": lambda: b"\x0a\x00" * count,
            "groups beside a span": lambda: field(1, b"\x12\x00" * count + field(2, field(2, good_span()))),
            "groups of fields that nobody knows": lambda: b"\x7a\x00" * count,
            "events": lambda: protobuf_body([good_span(b"\x5a\x00" * count)]),
            "links": lambda: protobuf_body([good_span(b"\x6a\x00" * count)]),
            "attributes": lambda: protobuf_body([good_span(b"\x4a\x00" * count)]),
            "attributes of a resource": lambda: field(1, field(1, b"\x0a\x00" * count)),
            "values": lambda: protobuf_body([good_span(nested())]),
            "values of fields that nobody knows": lambda: protobuf_body([good_span(b"\x7a\x00" * count)]),
        },
    )


def json_amplifiers(count: int, *names: str) -> dict[str, bytes]:
    """The same in JSON."""
    return _made(
        names,
        {
            "spans": lambda: json_body(b"{}," * count + b"{}"),
            "groups": lambda: b'{"resourceSpans":[' + b"{}," * count + b"{}]}",
            "groups of values that nobody knows": lambda: b'{"x":[' + b"1," * count + b"1]}",
            "values of brackets": lambda: json_body(JSON_SPAN + b',"x":[' + b"[]," * count + b"[]]}"),
            "values of numbers": lambda: json_body(JSON_SPAN + b',"x":[' + b"1," * count + b"1]}"),
            "values of texts": lambda: json_body(JSON_SPAN + b',"x":[' + b'"",' * count + b'""]}'),
            "events": lambda: json_body(JSON_SPAN + b',"events":[' + b"{}," * 3000 + b"{}]}"),
        },
    )


def _made(names: tuple[str, ...], bodies: dict[str, Callable[[], bytes]]) -> dict[str, bytes]:
    return {name: bodies[name]() for name in names or bodies}
