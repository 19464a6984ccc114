"""OTLP requests for tests: plain Python values in, protobuf messages out."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

DAY_NS = 86_400_000_000_000
#: No capture's own: a test that counts the spans of a capture counts no other test's.
TRACE_ID = bytes.fromhex("5b8efff798038103d269b633813fc60c")
#: A morning three days ago, so that questions about the last days find it in any year. It is made once for a
#: run and all its processes, which may see midnight pass.
START_NS = int(
    os.environ.setdefault("TESTS_START_NS", str((time.time_ns() // DAY_NS - 3) * DAY_NS + 34_469_674_000_000))
)

_CAPTURES = Path(__file__).parents[2] / "shared" / "captures"
_span_numbers = itertools.count(1)


def any_value(value: Any) -> AnyValue:
    """The AnyValue of a Python value, nested as deep as it is; None is the empty one."""
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case dict():
            filled = AnyValue()
            filled.kvlist_value.SetInParent()
            filled.kvlist_value.values.extend(pairs(value))
            return filled
        case list() | tuple():
            filled = AnyValue()
            filled.array_value.SetInParent()
            filled.array_value.values.extend(any_value(item) for item in value)
            return filled
        case _:
            raise TypeError(f"no AnyValue for {type(value).__name__}")


def pairs(attributes: Mapping[str, Any] | None) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in (attributes or {}).items()]


def event(name: str, attributes: Mapping[str, Any] | None = None, *, time_ns: int = START_NS) -> Span.Event:
    return Span.Event(name=name, time_unix_nano=time_ns, attributes=pairs(attributes))


def link(trace_id: bytes, span_id: bytes, attributes: Mapping[str, Any] | None = None) -> Span.Link:
    return Span.Link(trace_id=trace_id, span_id=span_id, attributes=pairs(attributes))


def span(
    name: str = "chat gpt-4o",
    attributes: Mapping[str, Any] | None = None,
    *,
    trace_id: bytes = TRACE_ID,
    span_id: bytes | None = None,
    parent: bytes = b"",
    kind: int = 3,
    start_ns: int = START_NS,
    end_ns: int = START_NS + 1_000_000_000,
    status_code: int = 0,
    status_message: str = "",
    events: Iterable[Span.Event] = (),
    links: Iterable[Span.Link] = (),
) -> Span:
    """A storable span; without `span_id` it gets one of its own."""
    return Span(
        trace_id=trace_id,
        span_id=next(_span_numbers).to_bytes(8, "big") if span_id is None else span_id,
        parent_span_id=parent,
        name=name,
        kind=kind,  # type: ignore[arg-type] # open enum: any int32
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
        attributes=pairs(attributes),
        events=events,
        links=links,
        status=Status(code=status_code, message=status_message),  # type: ignore[arg-type] # open enum
    )


def request(
    *spans: Span,
    resource: Mapping[str, Any] | None = None,
    scope: str = "tests",
    scope_version: str = "",
    schema_url: str = "",
) -> ExportTraceServiceRequest:
    """One request with the spans under one resource and one scope."""
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=pairs(resource)),
                scope_spans=[
                    ScopeSpans(
                        scope=InstrumentationScope(name=scope, version=scope_version),
                        spans=spans,
                        schema_url=schema_url,
                    )
                ],
                schema_url=schema_url,
            )
        ]
    )


def capture(name: str) -> bytes:
    """A body that a real exporter sent; skips the test where the captures are not at hand."""
    path = _CAPTURES / name
    if not path.exists():
        pytest.skip(f"capture {name} is not at hand")
    return path.read_bytes()
