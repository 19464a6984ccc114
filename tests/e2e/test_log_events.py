"""Coding agents that send logs: a session is stored, sent again it is stored once, and none is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from svc.commands import doctor
from svc.front.otlp.grpc import METHOD
from tests import log_bodies, wire
from tests.log_bodies import Tree, as_json, as_protobuf
from tests.service import PLAIN, Service, running, until

ON = {"SVC_INGEST_GENAI_EVENTS": "true"}
LOGS = METHOD.replace("trace", "logs").replace("TraceService", "LogsService")


def post(service: Service, body: bytes, media_type: str, key: str | None = None) -> httpx2.Response:
    headers = {
        "authorization": f"Bearer {service.write_key if key is None else key}",
        "content-type": media_type,
    }
    return httpx2.post(f"{service.url}/v1/logs", content=body, headers=headers, timeout=60, **PLAIN)


def by_json(service: Service, body: Tree) -> None:
    assert post(service, as_json(body), "application/json").status_code == 200


def by_protobuf(service: Service, body: Tree) -> None:
    assert post(service, as_protobuf(body), "application/x-protobuf").status_code == 200


def by_traces(service: Service, call: Any) -> None:
    assert service.send(wire.request(call).SerializeToString()).status_code == 200


def by_grpc(service: Service, body: Tree) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        metadata = [("authorization", f"Bearer {service.write_key}")]
        channel.unary_unary(LOGS)(as_protobuf(body), metadata=metadata, timeout=30)


@pytest.fixture(scope="module")
def open_to_logs() -> Iterator[Service]:
    with running(**ON) as service:
        yield service


@pytest.mark.parametrize("send", [by_json, by_protobuf, by_grpc])
@pytest.mark.parametrize(
    ("make", "spans"), [(log_bodies.claude_code, 6), (log_bodies.codex, 7), (log_bodies.gemini_cli, 6)]
)
def test_a_session_is_stored_once_however_often_it_is_sent(
    open_to_logs: Service, make: Callable[..., Tree], spans: int, send: Callable[[Service, Tree], None]
) -> None:
    session = f"{make.__name__}-{send.__name__}"
    for _ in range(3):
        send(open_to_logs, make(session))
    open_to_logs.wait_for_spans(spans, session_id=session)
    until(lambda: _ledger(open_to_logs)["waiting"] == 0)
    ledger = _ledger(open_to_logs)
    assert (ledger["balance"], ledger["dead_lettered"], ledger["rejected"]) == (0, 0, 0)
    count = open_to_logs.ask("count", {"dataset": "spans", "filters": {"session_id": session, "kind": "llm"}})
    assert count["count"] == 2


def _ledger(service: Service) -> dict[str, int]:
    ledger: dict[str, int] = service.health()["components"]["ingest"]["details"]["ledger"]
    return ledger


def test_logs_need_the_same_key_as_traces(open_to_logs: Service) -> None:
    body = as_json(log_bodies.codex("keyless"))
    assert post(open_to_logs, body, "application/json", "svc_w_unknown").status_code == 401
    assert post(open_to_logs, body, "application/json", open_to_logs.query_key).status_code == 403


def test_the_doctor_counts_log_records(open_to_logs: Service) -> None:
    by_json(open_to_logs, log_bodies.codex("doctor"))
    (finding,) = doctor._log_records(open_to_logs.health()["components"])
    assert "became spans" in finding.line()
    assert open_to_logs.metric("svc_ingest_log_spans_total") >= 7


def test_logs_that_were_acknowledged_outlive_a_kill(open_folder: Path) -> None:
    folder = open_folder / "data"
    with running(folder, SVC_INGEST_SPOOL_MODE="disk", **ON) as service:
        # The decoder is held, so that nothing is stored before the kill.
        for pid in service.decoders():
            os.kill(pid, signal.SIGSTOP)
        by_json(service, log_bodies.claude_code("killed"))
        keys = service.write_key, service.query_key
        for pid in [*service.decoders(), service.process.pid]:
            os.kill(pid, signal.SIGKILL)
        service.process.wait()
    with running(folder, SVC_INGEST_SPOOL_MODE="disk", **ON) as service:
        assert (service.write_key, service.query_key) == keys
        service.wait_for_spans(6, session_id="killed")
        by_json(service, log_bodies.claude_code("killed"))
        until(lambda: _ledger(service)["duplicates"] == 6)
        service.wait_for_spans(6, session_id="killed")


def test_messages_on_log_events_stand_under_their_span_whichever_comes_first(open_to_logs: Service) -> None:
    for order, trace in (("before", "aa" * 16), ("after", "bb" * 16)):
        ids = {"traceId": trace, "spanId": "cd" * 8}
        message = '[{"role":"user","content":"' + order + '"}]'
        attributes = {
            "event.name": "gen_ai.client.inference.operation.details",
            "gen_ai.input.messages": message,
        }
        event = log_bodies.logs(
            "app", "openai", [log_bodies.record(log_bodies.START_NS, "", attributes, **ids)]
        )
        call = wire.span(
            "chat",
            {"session.id": order, "gen_ai.operation.name": "chat"},
            trace_id=bytes.fromhex(trace),
            span_id=b"\xcd" * 8,
        )
        sending = [partial(by_json, body=event), partial(by_traces, call=call)]
        for number, send in enumerate(sending if order == "before" else reversed(sending), start=1):
            send(open_to_logs)
            open_to_logs.wait_for_spans(number, trace_id=trace)
    step = open_to_logs.ask("count", {"dataset": "spans", "filters": {"trace_id": trace, "kind": "step"}})
    assert step["count"] == 1
