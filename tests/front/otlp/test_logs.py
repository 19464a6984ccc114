"""The doors of logs and metrics, where they are accepted: the same way in as traces, and an exact count."""

from __future__ import annotations

import gzip
import json

import h2.events
import pytest
import trio
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from actors.spool.memory import MemorySpool
from protocol.otlp.limits import Limits
from protocol.otlp.reading import read_clean, walk
from protocol.refusals import GRPC_OTHER_SIGNALS
from svc.commands import doctor
from svc.front.otlp.http import OtlpHttp
from svc.front.otlp.intake import Intake
from svc.front.otlp.quotas import Quotas, QuotaSizes
from svc.front.otlp.signals import OTHERS, Signal
from svc.runtime.asyncio_loop import asyncio_loop
from tests import log_bodies
from tests.e2e.hostile import http2, pseudo
from tests.front.otlp.doors import (
    CALLERS,
    TOKEN,
    AnyKey,
    Sender,
    grpc_door,
    http_door,
    intake,
    opened,
    request,
)
from tests.log_bodies import as_json, as_protobuf

JSON = "application/json"
HEADERS = (
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"authorization", b"Bearer " + TOKEN.encode()),
)
PATHS = {signal: path for path, signal in GRPC_OTHER_SIGNALS.items()}


def accepting(spool: MemorySpool | None = None, **options: object) -> Intake:
    return intake(spool, others=OTHERS, **options)


async def post(taken: Intake, body: bytes, signal: Signal = "logs", **headers: str) -> Sender:
    door: OtlpHttp = http_door(taken).by_path()[f"/v1/{signal}"]
    sender = Sender.of([body, b""])
    sender.may_end.set()
    await door(request(**headers), sender.receive, sender.send)
    return sender


async def names(taken: Intake) -> list[str]:
    """The spans of the batch that waits in the spool."""
    with await taken.spool.lease(1000, 1_000_000) as lease:
        (batch,) = lease.batches
        found = [span.name for span in walk(read_clean(batch.body))]
        assert batch.spans == len(found)
        lease.done()
    return found


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("media_type", ["application/x-protobuf", JSON])
async def test_log_events_are_spooled_as_spans_and_the_rest_is_told(media_type: str, encoding: str) -> None:
    taken = accepting()
    body = log_bodies.claude_code()
    sent = as_json(body) if media_type == JSON else as_protobuf(body)
    sent = gzip.compress(sent) if encoding == "gzip" else sent
    sender = await post(taken, sent, content_type=media_type, content_encoding=encoding)
    message = "1 of 7 log records refused: no event of an agent (1)"
    assert (sender.status, sender.headers[b"content-type"]) == (200, media_type.encode())
    if media_type == JSON:
        partial = {"rejectedLogRecords": "1", "errorMessage": message}
        assert json.loads(sender.body) == {"partialSuccess": partial}
    else:
        answer = ExportLogsServiceResponse.FromString(sender.body).partial_success
        assert (answer.rejected_log_records, answer.error_message) == (1, message)
    assert taken.spool.state().accepted_spans == taken.tally.spans == 6
    assert taken.log_records() == {
        "taken": 7,
        "spans": 6,
        "refused": 0,
        "dropped": 1,
        "reasons": {"no event of an agent": 1},
        "data_points_dropped": 0,
    }
    # What is dropped was never a span: the ledger of spans does not know it.
    assert taken.tally.rejected_spans == 0


@pytest.mark.parametrize("media_type", ["application/x-protobuf", JSON])
async def test_metrics_are_taken_and_dropped(media_type: str) -> None:
    taken = accepting()
    body = log_bodies.gauge(4)
    sent = as_json(body) if media_type == JSON else log_bodies.metrics_protobuf(body)
    sender = await post(taken, sent, "metrics", content_type=media_type)
    message = "4 of 4 data points refused: metrics are not kept (4)"
    assert sender.status == 200
    if media_type == JSON:
        partial = {"rejectedDataPoints": "4", "errorMessage": message}
        assert json.loads(sender.body) == {"partialSuccess": partial}
    else:
        answer = ExportMetricsServiceResponse.FromString(sender.body).partial_success
        assert (answer.rejected_data_points, answer.error_message) == (4, message)
    assert (taken.spool.state().depth, taken.tally.taken.data_points) == (0, 4)


async def test_a_body_without_an_event_is_a_success_and_stores_nothing() -> None:
    taken = accepting()
    empty = await post(taken, as_json(log_bodies.logs("x", "", [])), content_type=JSON)
    assert (empty.status, empty.body) == (200, b"{}")
    other = log_bodies.logs("x", "", [log_bodies.record(1, "GET /", {})] * 3)
    sender = await post(taken, as_json(other), content_type=JSON)
    assert (sender.status, json.loads(sender.body)["partialSuccess"]["rejectedLogRecords"]) == (200, "3")
    assert (taken.spool.state().depth, taken.tally.requests, taken.tally.refused) == (0, 2, {})


async def test_a_large_body_is_read_like_a_small_one() -> None:
    small, large = accepting(), accepting()
    body = log_bodies.gemini_cli()
    await post(small, as_json(body), content_type=JSON)
    await post(large, as_json(body) + b" " * 100_000, content_type=JSON)
    assert await names(small) == await names(large)


async def test_the_bounds_of_a_body_hold_for_logs() -> None:
    body = as_protobuf(log_bodies.claude_code())
    too_large = await post(accepting(max_body_bytes=500), body)
    too_many = await post(accepting(limits=Limits(spans=6)), body)
    bomb = await post(accepting(max_body_bytes=5_000), gzip.compress(bytes(100_000)), content_encoding="gzip")
    assert (too_large.status, too_many.status, bomb.status) == (413, 413, 413)
    assert b"SVC_INGEST_MAX_SPANS" in too_many.body
    assert (await post(accepting(), body, content_type="text/plain")).status == 415
    assert (await post(accepting(), b"\xff\xff")).status == 400
    assert (await post(accepting(), b'{"resourceSpans":[]}', content_type=JSON)).status == 400


async def test_records_of_a_refused_body_are_not_counted() -> None:
    spool = MemorySpool(60)
    taken = accepting(spool)
    sender = await post(taken, as_protobuf(log_bodies.codex()))
    assert sender.status in (413, 503)
    assert taken.tally.taken.report()["taken"] == 0


async def test_a_quota_refuses_spans_of_log_events_one_by_one() -> None:
    taken = accepting(quotas=Quotas(QuotaSizes(trace_spans=2)))
    sender = await post(taken, as_json(log_bodies.claude_code()), content_type=JSON)
    partial = json.loads(sender.body)["partialSuccess"]
    assert partial["rejectedLogRecords"] == "5"
    report = taken.tally.taken.report()
    assert (report["taken"], report["spans"], report["refused"], report["dropped"]) == (7, 2, 4, 1)
    # They were spans, so they stand in the ledger of spans.
    assert (taken.tally.spans, taken.tally.rejected_spans) == (2, 4)


async def test_without_the_setting_there_is_no_such_door() -> None:
    assert set(http_door(intake()).by_path()) == {"/v1/traces"}
    off = OtlpHttp(accepting(), AnyKey(), False, CALLERS)  # type: ignore[arg-type]
    assert set(off.by_path()) == {"/v1/traces"}
    assert intake().log_records() is None


async def called(taken: Intake, signal: Signal, body: bytes) -> bytes:
    """The message that a call over gRPC is answered with."""

    def call(port: int) -> bytes:
        with http2(port) as client:
            client.state.send_headers(1, pseudo(PATHS[signal].encode(), b"POST", *HEADERS))
            message = b"\0" + len(body).to_bytes(4, "big") + body
            for at in range(0, len(message), 16_000):
                client.state.send_data(1, message[at : at + 16_000], end_stream=at + 16_000 >= len(message))
            client.flush()
            data = client.receive(h2.events.DataReceived)
            trailers = client.receive(h2.events.TrailersReceived)
            assert isinstance(data, h2.events.DataReceived)
            assert isinstance(trailers, h2.events.TrailersReceived)
            assert (b"grpc-status", b"0") in [tuple(header) for header in trailers.headers or ()]
            return bytes(data.data[5:])

    async with asyncio_loop(()):
        door = grpc_door(taken)
        port = await opened(door)
        try:
            return await trio.to_thread.run_sync(call, port)
        finally:
            await door.close(1.0)


@pytest.mark.parametrize("size_bytes", [0, 40_000])
async def test_log_events_come_over_grpc_as_well(size_bytes: int) -> None:
    taken = accepting()
    body = log_bodies.codex()
    padding = {"key": "padding", "value": {"stringValue": "x" * size_bytes}}
    body["resourceLogs"][0]["resource"]["attributes"].append(padding)
    answer = await called(taken, "logs", as_protobuf(body))
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    assert (partial.rejected_log_records, taken.tally.spans) == (2, 7)
    assert "execute_tool shell" in await names(taken)


async def test_metrics_come_over_grpc_and_are_dropped() -> None:
    taken = accepting()
    answer = await called(taken, "metrics", log_bodies.metrics_protobuf(log_bodies.gauge(2)))
    assert ExportMetricsServiceResponse.FromString(answer).partial_success.rejected_data_points == 2


async def test_the_doctor_says_what_became_of_log_records() -> None:
    taken = accepting()
    assert doctor._log_records({}) == []
    await post(taken, as_json(log_bodies.codex()), content_type=JSON)
    await post(taken, as_json(log_bodies.gauge(1)), "metrics", content_type=JSON)
    (finding,) = doctor._log_records({"ingest": {"details": {"log_records": taken.log_records()}}})
    assert finding.line() == (
        "ok    logs        9 log records accepted since the start: 7 became spans, 0 over a quota, 2 dropped:"
        " a part of an answer (2); 1 data point of metrics dropped"
    )
