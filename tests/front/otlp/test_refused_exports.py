"""What a refused exporter is told, in the form it asks for, and what the operator reads of it."""

from __future__ import annotations

import json
import logging

import pytest
from google.rpc import error_details_pb2, status_pb2
from grpclib.const import Status

from actors.spool.memory import MemorySpool
from protocol import refusals
from protocol.refusals import BAD_REQUEST, NO_TENANT, QUOTA_BYTES, SPOOL_FULL, UNKNOWN_KEY, Refusal
from svc.commands import doctor
from svc.front.otlp.grpc_answers import failure_of
from svc.front.otlp.http import status_of
from svc.front.otlp.intake import REFUSAL_LINE_S, IntakeTally
from svc.front.otlp.quotas import Quotas, QuotaSizes
from svc.front.server.door import Door
from tests.front.otlp.doors import Sender, http_door, intake, request


async def refused(body: bytes = b"\xff", spool: MemorySpool | None = None, **headers: str) -> Sender:
    sender = Sender.of([body, b""])
    sender.may_end.set()
    await http_door(intake(spool))(request(**headers), sender.receive, sender.send)
    return sender


@pytest.mark.parametrize("accept", ["application/x-protobuf", "text/html, application/x-protobuf;q=0.9"])
async def test_a_client_that_asks_for_protobuf_hears_a_status(accept: str) -> None:
    sender = await refused(accept=accept)
    assert sender.status == 400
    assert sender.headers[b"content-type"] == b"application/x-protobuf"
    status = status_pb2.Status.FromString(sender.body)
    assert status.code == 3
    assert status.message.startswith("the body is not an OTLP trace request in protobuf")


async def test_a_status_says_when_to_come_again() -> None:
    sender = await refused(spool=MemorySpool(0), accept="application/x-protobuf")
    status = status_pb2.Status.FromString(sender.body)
    assert (sender.status, status.code, status.message) == (503, 14, SPOOL_FULL.message)
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert info.retry_delay.seconds == int(sender.headers[b"retry-after"])


#: One row of the table of refusals for each status in it.
ROWS = {row.status: row for row in vars(refusals).values() if isinstance(row, Refusal)}


@pytest.mark.parametrize("row", ROWS.values(), ids=[str(status) for status in ROWS])
def test_every_refusal_has_a_code_that_blames_who_is_at_fault(row: Refusal) -> None:
    of_http, of_grpc = status_pb2.Status.FromString(status_of(row)), failure_of(row)
    assert of_http.message == of_grpc.message == row.message
    ours = {Status.UNAVAILABLE.value, Status.INTERNAL.value, Status.DEADLINE_EXCEEDED.value}
    for code in (of_http.code, of_grpc.status.value):
        assert code in {status.value for status in Status} - {Status.OK.value, Status.UNKNOWN.value}
        assert (code in ours) is (row.status >= 500 or row.status == 408)


@pytest.mark.parametrize("accept", ["application/x-protobuf", "application/json"])
async def test_a_key_over_its_quota_is_told_to_wait_in_either_form(accept: str) -> None:
    door = http_door(intake(quotas=Quotas(QuotaSizes(key_bytes_per_minute=10))))
    # A minute takes one body of any size.
    for _ in range(2):
        sender = Sender.of([b"x" * 100, b""])
        sender.may_end.set()
        await door(request(accept=accept), sender.receive, sender.send)
    assert sender.status == QUOTA_BYTES.status
    assert sender.headers[b"content-type"] == accept.encode()
    if accept == "application/json":
        assert json.loads(sender.body)["error"]["message"] == QUOTA_BYTES.message
        return
    status = status_pb2.Status.FromString(sender.body)
    assert (status.code, status.message) == (Status.RESOURCE_EXHAUSTED.value, QUOTA_BYTES.message)
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert info.retry_delay.seconds == int(sender.headers[b"retry-after"])


@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/json", "application/json, application/x-protobuf"]
)
async def test_everybody_else_hears_the_envelope(accept: str) -> None:
    sender = await refused(accept=accept)
    assert sender.headers[b"content-type"] == b"application/json"
    assert json.loads(sender.body)["error"]["code"] == "BAD_REQUEST"


async def nobody(*_: object) -> None:
    raise AssertionError("nobody is asked")


@pytest.mark.parametrize("port", [4317, None])
async def test_grpc_at_the_http_door_is_answered_with_trailers_alone(port: int | None) -> None:
    sender = Sender.of([b"message", b""])
    sender.may_end.set()
    scope = request(content_type="application/grpc+proto")
    await Door(otlp={}, mcp=nobody, app=nobody, grpc_port=port)(scope, sender.receive, sender.send)
    assert (sender.status, sender.body) == (200, b"")
    assert sender.headers[b"content-type"] == b"application/grpc"
    assert sender.headers[b"grpc-status"] == b"12"
    expected = {
        4317: b"this is the HTTP port; gRPC is taken at port 4317",
        None: b"this is the HTTP port and gRPC is off; SVC_INGEST_OTLP_TRANSPORT=BOTH turns it on",
    }
    assert sender.headers[b"grpc-message"] == expected[port]


def test_a_cause_of_refusals_is_named_once_a_minute_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    tally = IntakeTally(clock=lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            tally.refuse(NO_TENANT)
            tally.refuse(UNKNOWN_KEY)
        tally.refuse(BAD_REQUEST.saying("the body is cut"))
        now_s = REFUSAL_LINE_S
        tally.refuse(NO_TENANT)
    assert [record.getMessage() for record in caplog.records] == [
        "refused 1 export with 401: no tenant context (no bearer token)",
        "refused 1 export with 401: no tenant context (unknown key)",
        "refused 1 export with 400: the body is cut (BAD_REQUEST)",
        "refused 100 exports with 401: no tenant context (no bearer token)",
    ]
    assert tally.refused == {"401": 201, "400": 1}


def test_the_hosts_doctor_names_what_was_refused_lately_with_its_cause() -> None:
    tally = IntakeTally(clock=lambda: 0.0)
    tally.refuse(UNKNOWN_KEY)
    components = {"ingest": {"details": {"refused_lately": tally.lately.told()}}}
    (finding,) = doctor._refused(components)
    assert finding.line() == "warn  refused     1 recently with 401: no tenant context (unknown key)"
    assert doctor._refused({"ingest": {"details": {}}}) == doctor._refused({}) == []
