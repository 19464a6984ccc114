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
    at = kind = code = 0
    start_ns = end_ns = 0
    trace_id = span_id = parent_id = b""
    name = message = ""
    attributes: dict[str, Any] = {}
    events: list[WireEvent] = []
    ended = False
    while at < end:
        tag = data[at]
        at += 1
        if tag & 7 == 2:
            head = _length(data, at, end)
            if head < 0:
                return None
            at += head & 7
            stop = at + (head >> 3)
            if tag == 0x4A:
                _add_pair(data, at, stop, attributes)
            elif tag == 0x0A:
                trace_id = data[at:stop]
            elif tag == 0x12:
                span_id = data[at:stop]
            elif tag == 0x22:
                parent_id = data[at:stop]
            elif tag == 0x2A:
                try:
                    name = data[at:stop].decode("utf-8")
                except UnicodeDecodeError:
                    return None
            elif tag == 0x5A:
                event = _event(data, at, stop)
                if event is None:
                    return None
                events.append(event)
            elif tag == 0x7A and not ended:
                ended = True
                outcome = _status(data, at, stop)
                if outcome is None:
                    return None
                code, message = outcome
            else:
                return None
            at = stop
        elif tag == 0x39 or tag == 0x41:
            if end - at < 8:
                return None
            if tag == 0x39:
                start_ns = _fixed64(data, at)
            else:
                end_ns = _fixed64(data, at)
            at += 8
        elif tag == 0x30 or tag == 0x50 or tag == 0x60 or tag == 0x70:
            # Kinds, and counts of what was dropped, which nobody reads.
            if at == end or data[at] >= 0x80:
                return None
            if tag == 0x30:
                kind = data[at]
            at += 1
        elif tag == 0x85 and end - at >= 5 and data[at] == 1:
            # Flags.
            at += 5
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


def packed_parts(whole: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes] | None:
    """Of an envelope as `reading.envelope` packs it the resource and its schema URL, the scope and its own,
    and the span; None of any other.
    """
    data = whole
    size = len(whole)
    # Each part in its place, to the very end of what is around it.
    head = _inner(data, 0, size, 0x0A)
    if head < 0:
        return None
    at = 1 + (head & 7)
    end = at + (head >> 3)
    head = _inner(data, at, end, 0x0A)
    if end != size or head < 0:
        return None
    resource_at = at + 1 + (head & 7)
    resource_end = resource_at + (head >> 3)
    head = _inner(data, resource_end, end, 0x12)
    if head < 0:
        return None
    at = resource_end + 1 + (head & 7)
    scope_spans_end = at + (head >> 3)
    head = _inner(data, at, scope_spans_end, 0x0A)
    if head < 0:
        return None
    scope_at = at + 1 + (head & 7)
    scope_end = scope_at + (head >> 3)
    head = _inner(data, scope_end, scope_spans_end, 0x12)
    if head < 0:
        return None
    raw_at = scope_end + 1 + (head & 7)
    raw_end = raw_at + (head >> 3)
    scope_url = resource_url = b""
    if raw_end < scope_spans_end:
        head = _inner(data, raw_end, scope_spans_end, 0x1A)
        at = raw_end + 1 + (head & 7)
        if head < 0 or at + (head >> 3) != scope_spans_end:
            return None
        scope_url = whole[at:scope_spans_end]
    if scope_spans_end < end:
        head = _inner(data, scope_spans_end, end, 0x1A)
        at = scope_spans_end + 1 + (head & 7)
        if head < 0 or at + (head >> 3) != end:
            return None
        resource_url = whole[at:end]
    return (
        whole[resource_at:resource_end],
        resource_url,
        whole[scope_at:scope_end],
        scope_url,
        whole[raw_at:raw_end],
    )


def _inner(data: bytes, at: int, end: int, tag: int) -> int:
    """`_length` of the field that stands here, -1 for another."""
    if at >= end or data[at] != tag:
        return -1
    return _length(data, at + 1, end)


def _length(data: bytes, at: int, end: int) -> int:
    """The length that stands here, times eight, and how many bytes say it; -1 where its content ends behind
    the end, or where more than four bytes say it.
    """
    size = shift = 0
    begin = at
    while at < end and shift < 28:
        digit = data[at]
        at += 1
        size |= (digit & 0x7F) << shift
        if digit < 0x80:
            return -1 if size > end - at else size << 3 | (at - begin)
        shift += 7
    return -1


def _fixed64(data: bytes, at: int) -> int:
    number = 0
    for place in range(at + 7, at - 1, -1):
        number = number << 8 | data[place]
    return number


def _add_pair(data: bytes, at: int, stop: int, attributes: dict[str, Any]) -> None:
    """Read an attribute as `attributes.read_pair` does: by hand where it holds a text."""
    if stop - at < _short_bytes:
        pair = data[at:stop]
        read = _known.get(pair) or short_pair(pair)
        attributes[read[0]] = read[1]
        return
    key_at = at + 2
    if data[at] == 0x0A and data[at + 1] < 0x80:
        value_at = key_at + data[at + 1]
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
    read = read_pair(data[at:stop])
    attributes[read[0]] = read[1]


def _event(data: bytes, at: int, end: int) -> WireEvent | None:
    time_ns = 0
    name = ""
    attributes: dict[str, Any] = {}
    while at < end:
        tag = data[at]
        at += 1
        if tag == 0x09:
            if end - at < 8:
                return None
            time_ns = _fixed64(data, at)
            at += 8
            continue
        if tag != 0x12 and tag != 0x1A:
            return None
        head = _length(data, at, end)
        if head < 0:
            return None
        at += head & 7
        stop = at + (head >> 3)
        if tag == 0x1A:
            _add_pair(data, at, stop, attributes)
        else:
            try:
                name = data[at:stop].decode("utf-8")
            except UnicodeDecodeError:
                return None
        at = stop
    return WireEvent(name, time_ns, attributes)


def _status(data: bytes, at: int, end: int) -> tuple[int, str] | None:
    code = 0
    message = ""
    while at < end:
        tag = data[at]
        at += 1
        if tag == 0x18:
            if at == end or data[at] >= 0x80:
                return None
            code = data[at]
            at += 1
            continue
        if tag != 0x12:
            return None
        head = _length(data, at, end)
        if head < 0:
            return None
        at += head & 7
        stop = at + (head >> 3)
        try:
            message = data[at:stop].decode("utf-8")
        except UnicodeDecodeError:
            return None
        at = stop
    return code, message
