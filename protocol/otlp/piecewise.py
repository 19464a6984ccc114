"""Large protobuf bodies, counted and screened piece by piece, so that neither memory nor others suffer.

Owns: `admit_protobuf`. The intake calls it in a worker thread for what is too large to be read in one go. The
whole of a request is never taken apart: its groups are stepped over on the wire, which costs a few tenths of
a microsecond each, and its spans are parsed in runs that are forgotten again. protobuf's decoder holds the
interpreter lock, so no run is longer than `RUN_BYTES`: of 256 KiB of the worst, empty spans, it makes 8 MiB
in 6 ms (measured 2026-11; in one piece 16 MiB of them were 1,400 MiB and 19 s). A span that is longer than a
run is counted on the wire, to its innermost value, before it is parsed.

Raises `OverLimit` and `Unreadable`. Never keeps a reference to the body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import attrs
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from protocol.inflate import Unreadable
from protocol.otlp.limits import MENDED_EXTRA_BYTES, BodyCount, Limits, OverLimit
from protocol.otlp.reading import no_request
from protocol.otlp.screen import Screening, count_entries, refusal_within, screen_spans
from protocol.otlp.variants import lenient, mend_texts
from protocol.otlp.wire_format import ValueCount, count_values, fields, head
from protocol.text import NOT_UTF8

RUN_BYTES: Final = 256 * 1024

#: Where spans lie: `resource_spans` of a request, `scope_spans` of those, `spans` of these.
_RESOURCE_SPANS: Final = 1
_SCOPE_SPANS: Final = 2
_SPANS: Final = 2
#: The group's own description, of either.
_DESCRIPTION: Final = 1

#: How many arrays around a value protobuf reads at most, with its hundred messages; maps are fewer.
_PROTOBUF_DEPTH: Final = 47

Pieces = list[bytes | memoryview]


def admit_protobuf(body: bytes, limits: Limits) -> tuple[bytes, Screening]:
    """The body as it may be stored, and what was refused of it. The same as `read_body` and `screen` give."""
    reader = _Reader(body, limits)
    pieces = reader.request()
    clean = body if pieces is None else b"".join(pieces)
    return clean, Screening.of(reader.accepted, reader.refused)


@attrs.define(eq=False)
class _Reader:
    """One reading of one body. A verb gives the new pieces of its range, or None where nothing changed."""

    body: bytes
    limits: Limits
    view: memoryview = attrs.field(init=False)
    accepted: int = 0
    refused: Counter[str] = attrs.field(factory=Counter)
    count: BodyCount = attrs.field(init=False)
    others: int = 0
    grown_bytes: int = 0
    #: A message longer than this is counted value by value before it is parsed.
    counted_bytes: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.view = memoryview(self.body)
        self.count = BodyCount(self.limits)
        self.counted_bytes = min(RUN_BYTES, smallest_over(self.limits))

    def request(self) -> Pieces | None:
        return self._cut(ExportTraceServiceRequest, _RESOURCE_SPANS, 0, len(self.body), self._resource_spans)

    def _resource_spans(self, start: int, end: int) -> Pieces | None:
        self.count.group()
        return self._cut(ResourceSpans, _SCOPE_SPANS, start, end, self._scope_spans)

    def _other(self) -> None:
        """A field beside the groups and spans: a description, a URL, or one that nobody knows."""
        self.others += 1
        if self.others > 4 * (self.limits.groups + self.limits.spans):
            raise OverLimit("groups")

    def _cut(
        self,
        message: type[Message],
        inner: int,
        start: int,
        end: int,
        open_group: Callable[[int, int], Pieces | None],
    ) -> Pieces | None:
        """Steps over a message whose field `inner` holds groups; what lies between them is parsed in runs."""
        pieces: Pieces = []
        run, changed = start, False
        for field_start, number, content, stop in fields(self.body, start, end):
            if number == inner:
                changed |= self._parsed(message, run, field_start, pieces)
                group = open_group(content, stop)
                changed |= self._put(pieces, inner, field_start, stop, group)
                run = stop
            else:
                self._other()
                if stop - field_start > self.counted_bytes:
                    changed |= self._parsed(message, run, field_start, pieces)
                    run = field_start
                    if number == _DESCRIPTION and message is ResourceSpans:
                        count_values("resource", self.body, content, stop, self.limits)
                if stop - run >= RUN_BYTES:
                    changed |= self._parsed(message, run, stop, pieces)
                    run = stop
        changed |= self._parsed(message, run, end, pieces)
        return pieces if changed else None

    def _put(self, pieces: Pieces, number: int, field_start: int, stop: int, group: Pieces | None) -> bool:
        """Adds a field as it was, or anew around the pieces that were found in it."""
        if group is None:
            pieces.append(self.view[field_start:stop])
            return False
        pieces.append(head(number, sum(map(len, group))))
        pieces += group
        return True

    def _parsed(self, message: type[Message], start: int, end: int, pieces: Pieces) -> bool:
        """Makes sure that a run can be read. Returns whether it had to be mended."""
        if start == end:
            return False
        _, mended = self._read(message, start, end)
        pieces.append(self.view[start:end] if mended is None else mended)
        return mended is not None

    def _scope_spans(self, start: int, end: int) -> Pieces | None:
        self.count.group()
        pieces: Pieces = []
        run, changed = start, False
        for field_start, number, content, stop in fields(self.body, start, end):
            if number == _SPANS:
                self.count.item()
            else:
                self._other()
            if stop - field_start > self.counted_bytes:
                changed |= self._screened(run, field_start, pieces)
                run = stop
                if number == _SPANS:
                    changed |= self._long_span(field_start, content, stop, pieces)
                    continue
                if number == _DESCRIPTION:
                    count_values("scope", self.body, content, stop, self.limits)
                changed |= self._screened(field_start, stop, pieces)
            elif stop - run >= RUN_BYTES:
                changed |= self._screened(run, stop, pieces)
                run = stop
        changed |= self._screened(run, end, pieces)
        return pieces if changed else None

    def _screened(self, start: int, end: int, pieces: Pieces) -> bool:
        """Reads a run of spans and drops those that cannot be stored. Returns whether anything changed."""
        if start == end:
            return False
        scope_spans, mended = self._read(ScopeSpans, start, end)
        for span in scope_spans.spans:
            self.count.add_entries(count_entries(span, self.limits))
        total = len(scope_spans.spans)
        accepted = screen_spans(scope_spans, self.refused, None, self.limits.quota)
        self.accepted += accepted
        if accepted < total:
            mended = scope_spans.SerializeToString()
        pieces.append(self.view[start:end] if mended is None else mended)
        return mended is not None

    def _long_span(self, field_start: int, content: int, stop: int, pieces: Pieces) -> bool:
        counted: ValueCount = count_values("span", self.body, content, stop, self.limits)
        self.count.add_entries(counted.values)
        span, mended = self._read(Span, content, stop)
        reason = refusal_within(span, self.limits)
        if reason is not None:
            self.refused[reason] += 1
            return True
        self.accepted += 1
        if mended is None:
            pieces.append(self.view[field_start:stop])
        else:
            pieces += [head(_SPANS, len(mended)), mended]
        return mended is not None

    def _read(self, message: type[Message], start: int, end: int) -> tuple[Any, bytes | None]:
        """A part of the body as a message, and its bytes when texts in it had to be mended."""
        part: Any = self.view[start:end]
        try:
            return message.FromString(part), None
        except DecodeError:
            pass
        try:
            parsed = lenient(message.DESCRIPTOR.full_name).FromString(part)
            mend_texts(parsed)
            mended = parsed.SerializeToString()
            self.grown_bytes += max(0, len(mended) - (end - start))
            if self.grown_bytes > MENDED_EXTRA_BYTES:
                raise Unreadable(NOT_UTF8)
            return message.FromString(mended), mended
        except DecodeError as error:
            raise no_request(error) from None


def smallest_over(limits: Limits) -> int:
    """The size in bytes from which on a message could be above a limit that is counted on the wire.

    An empty message takes two bytes, an array or a map around it four; of either protobuf allows no more
    than 47.
    """
    return min(2 * limits.values, 4 * limits.depth if limits.depth < _PROTOBUF_DEPTH else 2 * limits.values)
