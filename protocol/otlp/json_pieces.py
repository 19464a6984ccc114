"""Large OTLP/JSON bodies, decoded span by span, so that neither memory nor others suffer.

Owns: `admit_json`. The intake calls it in a worker thread for what is too large to be decoded in the loop: a
JSON decoder holds the interpreter lock from the first byte to the last, which of 60 MiB is 1 to 2 s, and of a
body of empty objects it makes 25 bytes of memory for each byte (measured 2026-11). So the body is cut first,
by its brackets alone: what stands where spans stand is put aside, and what is left, the skeleton, is decoded
as usual. Then each span is decoded, read as `protocol.otlp.json` reads it, and written down as protobuf.

Raises `OverLimit` and `Unreadable`. A bracket costs about 0.4 µs, a span of 4 KB 80 (measured 2026-11).
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from typing import Any, Final

import attrs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from protocol.inflate import Unreadable
from protocol.otlp.json import (
    decode_tolerantly,
    fill_resource_spans,
    fill_scope_spans,
    fill_span,
    groups_of,
    items,
    objects,
)
from protocol.otlp.limits import BodyCount, Limits, OverLimit
from protocol.otlp.piecewise import RUN_BYTES
from protocol.otlp.screen import Screening, count_entries, refusal_within
from protocol.otlp.wire_format import count_values, head

# What lies between two brackets: text without any, and strings that are not long. Bounded, because a match
# holds the interpreter lock; possessive, because there is nothing to try twice.
_BETWEEN: Final = re.compile(
    rb'(?:[^"\[\]{}]{1,64}+|"[^"\\]{0,4096}+(?:\\.[^"\\]{0,1024}+){0,32}+"){0,64}+', re.DOTALL
)
#: A part of a long string.
_IN_STRING: Final = re.compile(rb'(?:[^"\\]{1,4096}+|\\.){1,64}+', re.DOTALL)
_QUOTE: Final = 0x22
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
#: Values without brackets are told by their commas; so many between two brackets are none to count.
_FEW_COMMAS: Final = 8

_OPENING: Final = b"{["
_CLOSING: Final = {0x7D: 0x7B, 0x5D: 0x5B}
#: The brackets around a span: root, resourceSpans, its member, scopeSpans, its member, spans.
_AROUND_SPAN: Final = b"{[{[{["
_AROUND_GROUP: Final = (b"{[", b"{[{[")
_OBJECT: Final = 0x7B
#: Deeper than this no decoder of ours goes.
_MOST_BRACKETS: Final = 1000

#: Stands in the skeleton for a span. Nobody outside can know it, so no text of a client can be taken for one.
_PLACE: Final = f"span {secrets.token_hex(8)} "

_RESOURCE_SPANS: Final = 1
_SCOPE_SPANS: Final = 2
_SPANS: Final = 2


def admit_json(body: bytes, limits: Limits) -> tuple[bytes, Screening]:
    """The body as protobuf, without the spans that cannot be stored, and what was refused.

    The same as `read_json` and `screen` give.
    """
    skeleton, spans = _cut(body, limits)
    reader = _Reader(body, spans, limits)
    clean = reader.request(decode_tolerantly(skeleton))
    return clean, Screening.of(reader.accepted, reader.refused)


@attrs.define(eq=False)
class _Bounds(BodyCount):
    """What was met so far, and how much may be. A value in JSON takes up to two brackets that open."""

    opened: int = 0
    opened_in_span: int = 0
    opened_outside: int = 0

    def item(self) -> None:
        self.opened_in_span = 0
        super().item()

    def within_span(self, count: int) -> None:
        self.opened_in_span += count
        if self.opened_in_span > 2 * self.limits.values:
            raise OverLimit("values")
        self.opened += count
        if self.opened > 4 * self.limits.entries:
            raise OverLimit("entries")

    def outside(self, count: int) -> None:
        # Beside the groups there are resources and scopes, which have attributes of their own.
        self.opened_outside += count
        if self.opened_outside > 2 * self.limits.values:
            raise OverLimit("groups")


def _cut(body: bytes, limits: Limits) -> tuple[bytes, list[tuple[int, int]]]:
    """The body with a placeholder for each object that stands where a span stands, and where those lie.

    Brackets that do not match end the cutting: the decoder says what is wrong with the skeleton.
    """
    bounds = _Bounds(limits)
    spans: list[tuple[int, int]] = []
    skeleton: list[bytes] = []
    brackets = bytearray()
    offset = copied = begin = 0
    span_depth = 0
    between = _BETWEEN.match
    size = len(body)
    while offset < size:
        start = offset
        match = between(body, offset)
        offset = match.end() if match is not None else offset
        if offset - start > _FEW_COMMAS and body.count(b",", start, offset) > _FEW_COMMAS:
            count = _STRING.sub(b"", body[start:offset]).count(b",")
            bounds.within_span(count) if span_depth else bounds.outside(count)
        if offset == size:
            break
        byte = body[offset]
        if byte in _OPENING:
            if span_depth:
                bounds.within_span(1)
            elif byte == _OBJECT and brackets == _AROUND_SPAN:
                bounds.item()
                begin, span_depth = offset, len(brackets) + 1
            else:
                bounds.outside(1)
                if byte == _OBJECT and bytes(brackets[:6]) in _AROUND_GROUP:
                    bounds.group()
            brackets.append(byte)
            if len(brackets) > _MOST_BRACKETS:
                raise Unreadable("the JSON body is nested too deeply")
            offset += 1
        elif byte in _CLOSING:
            if not brackets or brackets[-1] != _CLOSING[byte]:
                break
            offset += 1
            if len(brackets) == span_depth:
                skeleton += (body[copied:begin], f'"{_PLACE}{len(spans)}"'.encode())
                spans.append((begin, offset))
                copied, span_depth = offset, 0
            brackets.pop()
        elif byte == _QUOTE and offset == start:
            offset = _after_string(body, offset)
    skeleton.append(body[copied:])
    return b"".join(skeleton), spans


def _after_string(body: bytes, offset: int) -> int:
    """Where a long string ends that begins here; the end of the body when nothing closes it."""
    part = _IN_STRING.match
    offset += 1
    while (match := part(body, offset)) is not None:
        offset = match.end()
    return offset + 1 if offset < len(body) and body[offset] == _QUOTE else len(body)


@attrs.define(eq=False)
class _Reader:
    """One reading of one body that was cut."""

    body: bytes
    places: list[tuple[int, int]]
    limits: Limits
    accepted: int = 0
    refused: Counter[str] = attrs.field(factory=Counter)
    count: BodyCount = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.count = BodyCount(self.limits)

    def request(self, tree: Any) -> bytes:
        """The whole request, written down."""
        pieces: list[bytes] = []
        for source in groups_of(tree):
            self.count.group()
            group = self._resource_spans(source)
            pieces += (head(_RESOURCE_SPANS, sum(map(len, group))), *group)
        return b"".join(pieces)

    def _resource_spans(self, source: dict[str, Any]) -> list[bytes]:
        message = ResourceSpans()
        fill_resource_spans(source, message, self.limits)
        self._bounded(message.resource.attributes)
        pieces = [message.SerializeToString()]
        for group in objects(source, "scopeSpans"):
            self.count.group()
            scope_group = self._scope_spans(group)
            pieces += (head(_SCOPE_SPANS, sum(map(len, scope_group))), *scope_group)
        return pieces

    def _scope_spans(self, source: dict[str, Any]) -> list[bytes]:
        message = ScopeSpans()
        fill_scope_spans(source, message, self.limits)
        self._bounded(message.scope.attributes)
        pieces = [message.SerializeToString()]
        for item in items(source, "spans"):
            span = self._span(item)
            reason = refusal_within(span, self.limits)
            if reason is not None:
                self.refused[reason] += 1
                continue
            self.accepted += 1
            written = span.SerializeToString()
            if len(written) > RUN_BYTES:
                count_values("span", written, 0, len(written), self.limits)
            pieces += (head(_SPANS, len(written)), written)
        return pieces

    def _span(self, item: Any) -> Span:
        """The span of a placeholder; what is no object is an empty one, which is refused and counted."""
        span = Span()
        if type(item) is not str or not item.startswith(_PLACE):
            return span
        start, end = self.places[int(item.removeprefix(_PLACE))]
        try:
            fill_span(decode_tolerantly(self.body[start:end]), span, self.limits)
        except RecursionError:
            raise Unreadable("the JSON body is nested too deeply") from None
        self.count.add_entries(count_entries(span, self.limits))
        return span

    def _bounded(self, attributes: Any) -> None:
        if len(attributes) > self.limits.attributes:
            raise OverLimit("attributes")
