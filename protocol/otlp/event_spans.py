"""Spans that are made from log records, as a trace request.

Owns `EventSpan`, what a log event says as a span, and `SpanRequest`, which writes them in the groups
of their records. The translation of log events calls it. Never says what an event means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from protocol.otlp.log_records import Record


@attrs.frozen
class EventSpan:
    """The span of an event. `attributes` come beside those of the record, less the keys in `without`."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = attrs.field(repr=False)
    without: frozenset[str] = frozenset()
    failure: str | None = attrs.field(default=None, repr=False)
    calls_out: bool = False


@attrs.define(eq=False)
class SpanRequest:
    """A trace request that grows by one span for each event."""

    message: Any = attrs.field(factory=ExportTraceServiceRequest)
    _around: Record | None = None

    def add(self, event_span: EventSpan, item: Record) -> None:
        """One more span, under the resource and the scope of its record."""
        around, self._around = self._around, item
        if around is None or item.resource is not around.resource:
            self.message.resource_spans.add(resource=item.resource)
        resource_spans = self.message.resource_spans[-1]
        if not resource_spans.scope_spans or around is None or item.scope is not around.scope:
            resource_spans.scope_spans.add(scope=item.scope)
        _fill(resource_spans.scope_spans[-1].spans.add(), event_span, item.record)

    def serialised(self) -> bytes:
        """As bytes."""
        serialised: bytes = self.message.SerializeToString()
        return serialised


def _fill(span: Span, event_span: EventSpan, record: Any) -> None:
    span.trace_id, span.span_id, span.parent_span_id = (
        event_span.trace_id,
        event_span.span_id,
        event_span.parent_id,
    )
    span.name = event_span.name
    span.kind = Span.SPAN_KIND_CLIENT if event_span.calls_out else Span.SPAN_KIND_INTERNAL
    span.start_time_unix_nano, span.end_time_unix_nano = event_span.start_ns, event_span.end_ns
    for pair in record.attributes:
        if pair.key not in event_span.without and pair.key not in event_span.attributes:
            span.attributes.append(pair)
    for key, value in event_span.attributes.items():
        _set(span.attributes.add(key=key).value, value)
    if event_span.failure is not None:
        span.status.code = Status.STATUS_CODE_ERROR
        span.status.message = event_span.failure


def _set(target: AnyValue, value: Any) -> None:
    if type(value) is bool:
        target.bool_value = value
    elif type(value) is int:
        target.int_value = value
    elif type(value) is float:
        target.double_value = value
    elif type(value) is list:
        target.array_value.SetInParent()
        for member in value:
            target.array_value.values.add(string_value=str(member))
    else:
        target.string_value = str(value)
