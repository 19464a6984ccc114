"""Laws of bodies of other signals, sent where traces are accepted."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from protocol.inflate import Unreadable
from protocol.otlp.admission import NotHere, admit
from protocol.otlp.limits import DEFAULT_LIMITS
from protocol.otlp.signals import other_signal
from tests import wire


def metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name, metric.description, metric.unit = "gen_ai.client.token.usage", "Tokens used.", "{token}"
    point = metric.sum.data_points.add()
    point.as_int, point.time_unix_nano = 7, wire.START_NS
    return request.SerializeToString()


def logs() -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano, record.trace_id, record.span_id = wire.START_NS, b"\x01" * 16, b"\x02" * 8
    record.body.string_value = "claude_code.user_prompt"
    record.attributes.extend(wire.pairs({"session.id": "s"}))
    return request.SerializeToString()


@pytest.mark.parametrize(("signal", "body"), [("metrics", metrics()), ("logs", logs())])
def test_a_body_of_another_signal_is_called_by_its_name(signal: str, body: bytes) -> None:
    assert other_signal(body) == signal
    with pytest.raises(Unreadable, match=f"^this is {signal}; this endpoint accepts traces"):
        admit(body, "protobuf", DEFAULT_LIMITS, inline=False)
    # In the loop it may be left to a worker thread.
    with pytest.raises((Unreadable, NotHere)):
        admit(body, "protobuf", DEFAULT_LIMITS, inline=True)


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"nonsense", wire.request(wire.span(span_id=b"")).SerializeToString()]
)
def test_nothing_else_is_taken_for_another_signal(body: bytes) -> None:
    assert other_signal(body) is None
