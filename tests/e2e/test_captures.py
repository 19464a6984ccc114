"""Bodies that real instrumentations sent, posted again: the true totals come out (see their README)."""

from __future__ import annotations

import pytest

from protocol.otlp.json import read_json
from protocol.otlp.reading import read_protobuf, walk
from tests.service import Service
from tests.wire import capture

#: Input and output tokens that the model stand-in really gave; None where no output was reported.
TRUE_TOTALS = {
    "v1-traces_001_openinference.pb": (485, 120),
    "v1-traces_004_official-genai.pb": (485, 120),
    "v1-traces_005_pydanticai.pb": (240, 60),
    "v1-traces_008_aisdk-OpenTelemetry.pb": (240, 60),
    "v1-traces_013_jsjson.json": (12, 0),
}


@pytest.mark.parametrize("name", TRUE_TOTALS)
def test_a_capture_gives_its_true_totals(service: Service, name: str) -> None:
    body = capture(name)
    is_json = name.endswith(".json")
    spans = list(walk(read_json(body) if is_json else read_protobuf(body)))
    sent = service.send(body, Content_Type="application/json" if is_json else "application/x-protobuf")
    assert (sent.status_code, sent.content) == (200, b"{}" if is_json else b"")
    traces = {span.trace_id.hex() for span in spans}
    for trace_id in traces:
        count = sum(span.trace_id.hex() == trace_id for span in spans)
        service.wait_for_spans(count, trace_id=trace_id)
    rows = [
        row["fields"]
        for trace_id in traces
        for row in service.ask("search", {"dataset": "spans", "filters": {"trace_id": trace_id}})["rows"]
    ]
    given = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    answered = ("output_tokens", "reasoning_tokens")
    assert (
        sum(row[bucket] or 0 for row in rows for bucket in given),
        sum(row[bucket] or 0 for row in rows for bucket in answered),
    ) == TRUE_TOTALS[name]
