"""`trace-svc doctor --project` says who sends what into the running service, and what to change."""

from __future__ import annotations

import os
import time
import uuid

from tests.service import Service, until
from tests.wire import request, span


def test_the_doctor_names_the_exporter_its_faults_and_what_was_refused(service: Service) -> None:
    name = f"shop-{uuid.uuid4()}"
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "our.own.key": 1}
    calls = [
        span(trace_id=os.urandom(16), span_id=os.urandom(8), attributes=call, start_ns=time.time_ns(),
             end_ns=time.time_ns())
        for _ in range(5)
    ]  # fmt: skip
    bad = span(trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
    bad.start_time_unix_nano = 0
    body = request(*calls, bad, resource={"service.name": name}, scope="some.library", scope_version="7",
                   schema_url="https://opentelemetry.io/schemas/1.45.0")  # fmt: skip
    assert service.send(body.SerializeToString()).status_code == 200

    told = ""

    def is_told() -> bool:
        nonlocal told
        told = service.command("doctor", "--project", "default", "--days", "1")
        # The decoder tells of the spans, the door of what it refused.
        return name in told and "rejected on arrival" in told

    until(is_told)
    entry = next(part for part in told.split("\n\n") if name in part)
    assert "some.library 7" in entry
    assert "speaks      OpenTelemetry GenAI and MCP 100 %" in entry
    assert "conventions 1.45.0 100 %" in entry
    assert "5 checked: model 100 %, usage 0 %, session 0 %, content 0 %" in entry
    assert "not read    our.own.key 100 %" in entry
    assert 'stream_options={"include_usage": true}' in entry
    assert "rejected on arrival" in told
    assert "start" in told.split("rejected on arrival")[1]


def test_the_doctor_says_by_itself_that_a_new_version_renamed_a_key(service: Service) -> None:
    name = f"renamer-{uuid.uuid4()}"

    def send(key: str, version: str) -> None:
        call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", key: 10}
        calls = [
            span(trace_id=os.urandom(16), span_id=os.urandom(8), attributes=call, start_ns=time.time_ns(),
                 end_ns=time.time_ns())
            for _ in range(3)
        ]  # fmt: skip
        body = request(*calls, resource={"service.name": name}, scope="a.library", scope_version=version)
        assert service.send(body.SerializeToString()).status_code == 200

    send("gen_ai.usage.input_tokens", "1.0")
    moment_s = int(time.time())
    # When keys were seen is known to the second.
    until(lambda: int(time.time()) > moment_s)
    send("genai.usage.input_tokens", "1.1")
    words = "have genai.usage.input_tokens and no longer gen_ai.usage.input_tokens"
    until(lambda: words in service.command("doctor"))
    (line,) = [line for line in service.command("doctor").splitlines() if name in line]
    assert line.startswith("warn  clients")
    assert line.endswith("trace-svc remap --org default --project default --apply")
    entry = service.command("doctor", "--project", "default", "--days", "1")
    assert words in next(part for part in entry.split("\n\n") if name in part and "1.1" in part)
