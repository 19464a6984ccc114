"""Bodies of logs and metrics as they arrive: records one by one, and how many data points there are.

Owns `walk_records`, `count_points` and `Record`. The translation of log events calls both. A record is read
alone: a body that holds many of them never lies in memory as objects. Raises `Unreadable`, `OverLimit` and
`TooLarge`, and never says what a record means.

The rules of JSON are those of `protocol.otlp.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from protocol.inflate import TooLarge, Unreadable
from protocol.otlp.admission import Form
from protocol.otlp.json import decode_tolerantly, items, objects
from protocol.otlp.json_values import fill_attributes, id_of, room_of, text, unsigned
from protocol.otlp.limits import BodyCount, Limits, OverLimit
from protocol.otlp.piecewise import smallest_over
from protocol.otlp.wire_format import Kind, count_values, fields

#: JSON of these signals is read at once; what is larger is refused as too large.
JSON_BYTES: Final = 8 * 1024 * 1024

_GROUPS: Final = 1
_DESCRIPTION: Final = 1
_SCOPES: Final = 2
_ITEMS: Final = 2
_UINT32_MAX: Final = 2**32 - 1
_UINT64_MAX: Final = 2**64 - 1
#: Gauge, sum, histogram, exponential histogram, summary; their data points are field 1 of each.
_DATA: Final = frozenset({5, 7, 9, 10, 11})
_JSON_DATA: Final = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


@attrs.frozen
class Record:
    """A record, None where it cannot be read, and what is around it; those of one group share the objects."""

    resource: Resource
    scope: InstrumentationScope
    record: LogRecord | None = attrs.field(repr=False)


def walk_records(body: bytes, form: Form, limits: Limits) -> Iterator[Record]:
    """Every record of a logs body, in order."""
    counts = BodyCount(limits)
    return _json_records(body, counts) if form == "json" else _records(body, counts)


def _records(body: bytes, counts: BodyCount) -> Iterator[Record]:
    for _, number, content, stop in fields(body, 0, len(body)):
        if number != _GROUPS:
            continue
        counts.group()
        resource = _described(Resource, "resource", body, content, stop, counts)
        for _, inner, start, end in fields(body, content, stop):
            if inner == _SCOPES:
                counts.group()
                scope = _described(InstrumentationScope, "scope", body, start, end, counts)
                for _, innermost, begin, limit_end in fields(body, start, end):
                    if innermost == _ITEMS:
                        counts.item()
                        record = _read(LogRecord, "record", body, begin, limit_end, counts)
                        yield Record(resource, scope, record)


def _described(message: type[Any], kind: Kind, body: bytes, start: int, end: int, counts: BodyCount) -> Any:
    """The resource or scope of a group, which may stand behind its members."""
    described = message()
    for _, number, content, stop in fields(body, start, end):
        if number == _DESCRIPTION:
            described = _read(message, kind, body, content, stop, counts)
    if described is None:
        raise Unreadable(f"the body is not an OTLP request in protobuf: a {kind} is damaged")
    return described


def _read(message: type[Message], kind: Kind, body: bytes, start: int, end: int, counts: BodyCount) -> Any:
    if end - start > smallest_over(counts.limits):
        counts.add_entries(count_values(kind, body, start, end, counts.limits).entries)
    try:
        return message.FromString(body[start:end])
    except DecodeError:
        return None


def _json_records(body: bytes, counts: BodyCount) -> Iterator[Record]:
    room = room_of(counts.limits)
    for group in _json_groups(body, "resourceLogs"):
        counts.group()
        resource = Resource()
        _fill(group.get("resource"), resource, room)
        for scoped in objects(group, "scopeLogs"):
            counts.group()
            scope = InstrumentationScope()
            described = scoped.get("scope")
            _fill(described, scope, room)
            if type(described) is dict:
                scope.name, scope.version = text(described.get("name")), text(described.get("version"))
            for source in items(scoped, "logRecords"):
                counts.item()
                record = _json_record(source, counts, room) if type(source) is dict else None
                yield Record(resource, scope, record)


def _fill(source: Any, described: Any, room: int) -> None:
    if type(source) is dict:
        fill_attributes(source.get("attributes"), described.attributes, room)


def _json_record(source: dict[str, Any], counts: BodyCount, room: int) -> LogRecord:
    get = source.get
    attributes = get("attributes")
    size = len(attributes) if isinstance(attributes, list | dict) else 0
    if size > counts.limits.attributes:
        raise OverLimit("attributes")
    counts.add_entries(size)
    record = LogRecord(
        time_unix_nano=unsigned(get("timeUnixNano"), _UINT64_MAX),
        observed_time_unix_nano=unsigned(get("observedTimeUnixNano"), _UINT64_MAX),
        severity_text=text(get("severityText")),
        event_name=text(get("eventName")),
        flags=unsigned(get("flags"), _UINT32_MAX),
        trace_id=id_of(get("traceId"), 16),
        span_id=id_of(get("spanId"), 8),
    )
    fill_attributes(attributes, record.attributes, room)
    body = LogRecord()
    fill_attributes([{"key": "", "value": get("body")}], body.attributes, room)
    record.body.CopyFrom(body.attributes[0].value)
    return record


def count_points(body: bytes, form: Form, limits: Limits) -> int:
    """How many data points a metrics body holds."""
    counts = BodyCount(limits)
    return _json_points(body, counts) if form == "json" else _points(body, counts)


def _points(body: bytes, counts: BodyCount) -> int:
    points = 0
    for _, number, content, stop in fields(body, 0, len(body)):
        if number != _GROUPS:
            continue
        counts.group()
        for _, inner, start, end in fields(body, content, stop):
            if inner != _SCOPES:
                continue
            counts.group()
            for _, innermost, begin, limit_end in fields(body, start, end):
                if innermost == _ITEMS:
                    counts.item()
                    for _, kind, data, beyond in fields(body, begin, limit_end):
                        if kind in _DATA:
                            points += sum(field == 1 for _, field, _, _ in fields(body, data, beyond))
    return points


def _json_points(body: bytes, counts: BodyCount) -> int:
    points = 0
    for group in _json_groups(body, "resourceMetrics"):
        counts.group()
        for scoped in objects(group, "scopeMetrics"):
            counts.group()
            for metric in items(scoped, "metrics"):
                counts.item()
                for kind in _JSON_DATA if type(metric) is dict else ():
                    data = metric.get(kind)
                    points += len(items(data, "dataPoints")) if type(data) is dict else 0
    return points


def _json_groups(body: bytes, field: str) -> list[dict[str, Any]]:
    if len(body) > JSON_BYTES:
        raise TooLarge(JSON_BYTES)
    try:
        tree = decode_tolerantly(body)
    except RecursionError:
        raise Unreadable("the JSON body is nested too deeply") from None
    if type(tree) is not dict:
        raise Unreadable("the JSON body is not an object")
    if tree and field not in tree:
        raise Unreadable(f"the JSON body holds no {field}")
    return objects(tree, field)
