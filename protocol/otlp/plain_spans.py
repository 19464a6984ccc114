"""Spans of OTLP in protobuf by hand, where they are as nearly all exporters write them.

Owns: `plain_span`, and `packed_parts` for the envelopes that spans are kept in. The walk over a request asks
the first and gives to protobuf's own reader whatever it declines: fields it does not know, one twice that may
stand once, lengths past the end, texts that are not UTF-8. So it never has to judge what is damaged, and
whatever it reads protobuf reads the same (`tests/protocol/otlp/test_plain_spans.py`). Never interprets an
attribute.

`plain_spans.pxd` gives its numbers types of C where it is compiled.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.otlp.attributes import SHORT_BYTES, read_pair, remembered, short_pair
from protocol.otlp.shapes import WireEvent, WireResource, WireScope, WireSpan

_NO_SPAN_ID: Final = bytes(8)
_short_bytes: Final = SHORT_BYTES
_known: Final = remembered


def plain_span(raw: bytes, resource: WireResource, scope: WireScope) -> WireSpan | None:
    """The span; None where protobuf's own reader is to say. Raises `Unreadable` for a damaged attribute."""
    data = raw
    end = len(raw)
    offset = kind = code = 0
    start_ns = end_ns = 0
    trace_id = span_id = parent_id = b""
    name = message = ""
    attributes: dict[str, Any] = {}
    events: list[WireEvent] = []
    has_status = False
    while offset < end:
        tag = data[offset]
        offset += 1
        if tag & 7 == 2:
            head = _length(data, offset, end)
            if head < 0:
                return None
            offset += head & 7
            stop = offset + (head >> 3)
            if tag == 0x4A:
                _add_pair(data, offset, stop, attributes)
            elif tag == 0x0A:
                trace_id = data[offset:stop]
            elif tag == 0x12:
                span_id = data[offset:stop]
            elif tag == 0x22:
                parent_id = data[offset:stop]
            elif tag == 0x2A:
                try:
                    name = data[offset:stop].decode("utf-8")
                except UnicodeDecodeError:
                    return None
            elif tag == 0x5A:
                event = _event(data, offset, stop)
                if event is None:
                    return None
                events.append(event)
            elif tag == 0x7A and not has_status:
                has_status = True
                outcome = _status(data, offset, stop)
                if outcome is None:
                    return None
                code, message = outcome
            else:
                return None
            offset = stop
        elif tag == 0x39 or tag == 0x41:
            if end - offset < 8:
                return None
            if tag == 0x39:
                start_ns = _fixed64(data, offset)
            else:
                end_ns = _fixed64(data, offset)
            offset += 8
        elif tag == 0x30 or tag == 0x50 or tag == 0x60 or tag == 0x70:
            # Kinds, and counts of what was dropped, which nobody reads.
            if offset == end or data[offset] >= 0x80:
                return None
            if tag == 0x30:
                kind = data[offset]
            offset += 1
        elif tag == 0x85 and end - offset >= 5 and data[offset] == 1:
            # Flags.
            offset += 5
        else:
            return None
    if parent_id and (len(parent_id) != 8 or parent_id == _NO_SPAN_ID):
        return None
    return WireSpan(
        trace_id,
        span_id,
        parent_id,
        name,
        kind,
        start_ns,
        end_ns,
        code,
        message,
        attributes,
        tuple(events),
        (),
        resource,
        scope,
        raw,
    )


def packed_parts(envelope: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes] | None:
    """Of an envelope as `reading.envelope` packs it the resource and its schema URL, the scope and its own,
    and the span; None of any other.
    """
    data = envelope
    size = len(envelope)
    # Each part in its place, to the very end of what is around it.
    head = _inner(data, 0, size, 0x0A)
    if head < 0:
        return None
    offset = 1 + (head & 7)
    end = offset + (head >> 3)
    head = _inner(data, offset, end, 0x0A)
    if end != size or head < 0:
        return None
    resource_at = offset + 1 + (head & 7)
    resource_end = resource_at + (head >> 3)
    head = _inner(data, resource_end, end, 0x12)
    if head < 0:
        return None
    offset = resource_end + 1 + (head & 7)
    scope_spans_end = offset + (head >> 3)
    head = _inner(data, offset, scope_spans_end, 0x0A)
    if head < 0:
        return None
    scope_at = offset + 1 + (head & 7)
    scope_end = scope_at + (head >> 3)
    head = _inner(data, scope_end, scope_spans_end, 0x12)
    if head < 0:
        return None
    raw_at = scope_end + 1 + (head & 7)
    raw_end = raw_at + (head >> 3)
    scope_url = resource_url = b""
    if raw_end < scope_spans_end:
        head = _inner(data, raw_end, scope_spans_end, 0x1A)
        offset = raw_end + 1 + (head & 7)
        if head < 0 or offset + (head >> 3) != scope_spans_end:
            return None
        scope_url = envelope[offset:scope_spans_end]
    if scope_spans_end < end:
        head = _inner(data, scope_spans_end, end, 0x1A)
        offset = scope_spans_end + 1 + (head & 7)
        if head < 0 or offset + (head >> 3) != end:
            return None
        resource_url = envelope[offset:end]
    return (
        envelope[resource_at:resource_end],
        resource_url,
        envelope[scope_at:scope_end],
        scope_url,
        envelope[raw_at:raw_end],
    )


def _inner(data: bytes, offset: int, end: int, tag: int) -> int:
    """`_length` of the field that stands here, -1 for another."""
    if offset >= end or data[offset] != tag:
        return -1
    return _length(data, offset + 1, end)


def _length(data: bytes, offset: int, end: int) -> int:
    """The length that stands here, times eight, and how many bytes say it; -1 where its content ends behind
    the end, or where more than four bytes say it.
    """
    size = shift = 0
    begin = offset
    while offset < end and shift < 28:
        digit = data[offset]
        offset += 1
        size |= (digit & 0x7F) << shift
        if digit < 0x80:
            return -1 if size > end - offset else size << 3 | (offset - begin)
        shift += 7
    return -1


def _fixed64(data: bytes, offset: int) -> int:
    number = 0
    for index in range(offset + 7, offset - 1, -1):
        number = number << 8 | data[index]
    return number


def _add_pair(data: bytes, offset: int, stop: int, attributes: dict[str, Any]) -> None:
    """Read an attribute as `attributes.read_pair` does: by hand where it holds a text."""
    if stop - offset < _short_bytes:
        pair = data[offset:stop]
        attribute = _known.get(pair) or short_pair(pair)
        attributes[attribute[0]] = attribute[1]
        return
    key_at = offset + 2
    if data[offset] == 0x0A and data[offset + 1] < 0x80:
        value_at = key_at + data[offset + 1]
        if value_at + 8 < stop and data[value_at] == 0x12:
            head = _length(data, value_at + 1, stop)
            text_at = value_at + 1 + (head & 7)
            if head >= 0 and (head & 7) < 3 and text_at + (head >> 3) == stop and data[text_at] == 0x0A:
                head = _length(data, text_at + 1, stop)
                text_at += 1 + (head & 7)
                if head >= 0 and (head & 7) < 3 and text_at + (head >> 3) == stop:
                    key = data[key_at:value_at].decode("utf-8", "replace")
                    attributes[key] = data[text_at:stop].decode("utf-8", "replace")
                    return
    attribute = read_pair(data[offset:stop])
    attributes[attribute[0]] = attribute[1]


def _event(data: bytes, offset: int, end: int) -> WireEvent | None:
    time_ns = 0
    name = ""
    attributes: dict[str, Any] = {}
    while offset < end:
        tag = data[offset]
        offset += 1
        if tag == 0x09:
            if end - offset < 8:
                return None
            time_ns = _fixed64(data, offset)
            offset += 8
            continue
        if tag != 0x12 and tag != 0x1A:
            return None
        head = _length(data, offset, end)
        if head < 0:
            return None
        offset += head & 7
        stop = offset + (head >> 3)
        if tag == 0x1A:
            _add_pair(data, offset, stop, attributes)
        else:
            try:
                name = data[offset:stop].decode("utf-8")
            except UnicodeDecodeError:
                return None
        offset = stop
    return WireEvent(name, time_ns, attributes)


def _status(data: bytes, offset: int, end: int) -> tuple[int, str] | None:
    code = 0
    message = ""
    while offset < end:
        tag = data[offset]
        offset += 1
        if tag == 0x18:
            if offset == end or data[offset] >= 0x80:
                return None
            code = data[offset]
            offset += 1
            continue
        if tag != 0x12:
            return None
        head = _length(data, offset, end)
        if head < 0:
            return None
        offset += head & 7
        stop = offset + (head >> 3)
        try:
            message = data[offset:stop].decode("utf-8")
        except UnicodeDecodeError:
            return None
        offset = stop
    return code, message
