"""Which signal a body holds that was sent to the endpoint of traces and holds none.

Owns: `other_signal` and `signal_text`, what a client is told. Called by the admission of bodies,
about those that are refused: protobuf does not say what it is, and a metric read as a span is a span without
ids. Never raises over what a client sent.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Signal = Literal["metrics", "logs"]

#: A body of several signals has shown what it is by then.
_LOOKED_AT: Final = 100


def other_signal(body: bytes) -> Signal | None:
    """The signal that the body holds, where all that it holds is of that signal."""
    if _all_of(ExportMetricsServiceRequest, body, _metrics):
        return "metrics"
    if _all_of(ExportLogsServiceRequest, body, _records):
        return "logs"
    return None


def signal_text(signal: Signal) -> str:
    """What to tell whoever sent it."""
    return (
        f"this is {signal}; this endpoint accepts traces: set OTEL_{signal.upper()}_EXPORTER=none,"
        " or send it elsewhere"
    )


def _all_of(request_type: Any, body: bytes, marks: Any) -> bool:
    try:
        request = request_type.FromString(body)
    except DecodeError:
        return False
    signs = marks(request)[:_LOOKED_AT]
    return bool(signs) and all(signs)


def _metrics(request: Any) -> list[bool]:
    return [
        bool(metric.name) and metric.WhichOneof("data") is not None
        for group in request.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    ]


def _records(request: Any) -> list[bool]:
    return [
        bool(record.time_unix_nano or record.observed_time_unix_nano)
        for group in request.resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    ]
