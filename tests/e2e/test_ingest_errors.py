"""The ingest doors refuse to the letter: the rows of the credential-error table and the rules of pressure."""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import attrs
import grpc
import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from protocol import rpc
from protocol.otlp.screen import SNAKE_CASE
from protocol.refusals import SIGNAL_REMEDIES
from tests import wire
from tests.e2e.hostile import (
    MIB,
    Called,
    call,
    client,
    connected,
    frozen_database,
    head,
    health,
    ingest_health,
    minted,
    post,
    read_response,
    refusal,
    retry_infos,
    trace_id,
    unharmed,  # noqa: F401 - a fixture
    unique,
    wait_for_spans,
)
from tests.service import PLAIN, Service, running, until

pytestmark = pytest.mark.usefixtures("unharmed")

NO_TENANT = (401, "UNAUTHORIZED", "no tenant context")
WRONG_SCOPE = (403, "FORBIDDEN", "this API key is not scoped for ingest (needs a write or mcp key)")
DISABLED = (404, "NOT_FOUND", "OTLP receiver is disabled")

UNKNOWN_TOKEN = "svc_w_AAAAAAAAAAAAAAAAAAAAAA"
LIMIT_BYTES = 64 * MIB
PROTOBUF = {"content-type": "application/x-protobuf"}


def small(session: str | None = None) -> bytes:
    """One storable span."""
    attributes = {} if session is None else {"session.id": session}
    return wire.request(wire.span(attributes=attributes, trace_id=trace_id())).SerializeToString()


def send(service: Service, body: Any, key: str | None = None, **headers: str) -> httpx2.Response:
    """POST /v1/traces, by default as protobuf and without a key."""
    sent = {"content-type": "application/x-protobuf"}
    sent |= {name.lower().replace("_", "-"): value for name, value in headers.items()}
    return post(service, "/v1/traces", body, key, sent)


def near_miss(token: str) -> str:
    """The token with its last character changed: its stored prefix is found, its hash is not."""
    return token[:-1] + ("A" if token[-1] != "A" else "Q")


# --- credentials over HTTP --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Basic dXNlcjpwYXNzd29yZA==",
        "Bearer not-a-token",
        f"Bearer {UNKNOWN_TOKEN}",
        UNKNOWN_TOKEN,
        "Bearer " + "svc_w_" + "A" * 60_000,
    ],
    ids=lambda value: repr(value)[:24],
)
def test_without_a_living_key_http_ingest_says_no_tenant_context(
    service: Service, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    response = send(service, small(), **headers)
    assert refusal(response) == NO_TENANT
    reason = "unknown key" if (authorization or "").startswith("Bearer ") else "no bearer token"
    assert response.json() == {
        "ok": False,
        "error": {"code": "UNAUTHORIZED", "message": "no tenant context", "details": {"reason": reason}},
    }


def test_a_token_that_is_nearly_right_is_refused_by_both_doors(service: Service) -> None:
    token = near_miss(service.write_key)
    assert refusal(send(service, small(), token)) == NO_TENANT
    assert call(service, small(), f"Bearer {token}").code is grpc.StatusCode.UNAUTHENTICATED


def test_a_query_key_may_not_ingest_over_http(service: Service) -> None:
    assert refusal(send(service, small(), service.query_key)) == WRONG_SCOPE


def test_write_and_admin_keys_ingest_and_the_scheme_is_case_blind(service: Service) -> None:
    session = unique("scopes")
    admin = minted(service, "admin")
    for authorization in (
        f"Bearer {service.write_key}",
        f"bearer {service.write_key}",
        f"BEARER   {admin}",
    ):
        response = send(service, small(session), Authorization=authorization)
        assert (response.status_code, response.content) == (200, b"")
    assert call(service, small(session), f"Bearer {admin}").code is grpc.StatusCode.OK
    wait_for_spans(service, 4, session_id=session)


# --- methods, types, encodings, paths ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "media_type", ["", "text/plain", "application/protobuf", "application/x-www-form-urlencoded", "json", ";"]
)
def test_any_other_media_type_is_415_and_is_named(service: Service, media_type: str) -> None:
    status, code, message = refusal(send(service, small(), service.write_key, Content_Type=media_type))
    assert (status, code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert repr(media_type.partition(";")[0]) in message


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, gzip", "x-gzip", "gzip;q=1"])
def test_any_other_content_encoding_is_415_and_is_named(service: Service, encoding: str) -> None:
    status, code, message = refusal(send(service, small(), service.write_key, Content_Encoding=encoding))
    assert (status, code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert encoding in message


@pytest.mark.parametrize(
    ("media_type", "encoding"),
    [
        ("Application/X-Protobuf", "GZIP"),
        ("application/x-protobuf; charset=utf-8", "gzip"),
        ("application/x-protobuf ;messageType=x", "Identity"),
        ("APPLICATION/JSON", "gzip"),
        ("application/json; charset=UTF-8", ""),
    ],
)
def test_types_and_encodings_are_read_in_any_case_and_with_parameters(
    service: Service, media_type: str, encoding: str
) -> None:
    is_json = "json" in media_type.lower()
    body = b'{"resourceSpans": []}' if is_json else b""
    body = gzip.compress(body) if encoding.lower() == "gzip" else body
    response = send(service, body, service.write_key, Content_Type=media_type, Content_Encoding=encoding)
    assert response.status_code == 200
    assert response.content == (b"{}" if is_json else b"")
    assert response.headers["content-type"] == ("application/json" if is_json else "application/x-protobuf")


@pytest.mark.parametrize("signal", ["metrics", "logs"])
@pytest.mark.parametrize("credential", ["none", "write"])
def test_metrics_and_logs_over_http_are_404_in_the_encoding_of_the_request(
    service: Service, signal: str, credential: str
) -> None:
    key = service.write_key if credential == "write" else None
    remedy = SIGNAL_REMEDIES[signal]
    text = f"{signal} are not accepted; this service accepts traces, at /v1/traces: {remedy}"
    for sent in ({}, {"content-type": "application/json"}, {**PROTOBUF, "accept": "application/json"}):
        response = post(service, f"/v1/{signal}", small(), key, sent)
        assert refusal(response) == (404, "NOT_FOUND", text)
        assert response.json()["error"]["details"] == {"path": "/v1/traces"}
    response = post(service, f"/v1/{signal}", small(), key, PROTOBUF)
    assert (response.status_code, response.headers["content-type"]) == (404, "application/x-protobuf")
    status = rpc.Status.parse(response.content)
    assert (status.code, status.message) == (grpc.StatusCode.UNIMPLEMENTED.value[0], text)


def test_refused_signals_are_counted_by_either_listener_and_health_shows_them(service: Service) -> None:
    def counted() -> float:
        text = httpx2.get(f"{service.url}/actuator/prometheus", timeout=30, **PLAIN).text
        (line,) = re.findall(r'^svc_ingest_refused_signals_total\{signal="logs"\} (\S+)$', text, re.MULTILINE)
        return float(line)

    before = counted()
    assert post(service, "/v1/logs", small(), service.write_key, PROTOBUF).status_code == 404
    called = call(service, small(), None, method="/opentelemetry.proto.collector.logs.v1.LogsService/Export")
    assert called.text.endswith(SIGNAL_REMEDIES["logs"])
    assert counted() == before + 2
    shown = {entry["signal"]: entry["remedy"] for entry in ingest_health(service)["refused_signals"]}
    assert shown["logs"] == SIGNAL_REMEDIES["logs"]


def test_an_exporter_of_all_signals_hears_404_and_keeps_its_connection(service: Service) -> None:
    """A refused body is taken to its end, so that what comes next on the connection is understood."""
    session = unique("signals")
    with httpx2.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.write_key}"}, timeout=30
    ) as client:
        for _ in range(3):
            for path in ("/v1/logs", "/v1/metrics"):
                assert client.post(path, content=b"x" * 3_000_000).status_code == 404
            response = client.post(
                "/v1/traces", content=small(session), headers={"Content-Type": "application/x-protobuf"}
            )
            assert response.status_code == 200
    wait_for_spans(service, 3, session_id=session)


@pytest.mark.parametrize("path", ["/", "/v1/traces/", "/v1/traces/v1/traces", "/api/public/otel/v1/traces"])
def test_a_path_that_traces_are_often_sent_to_names_the_right_one(service: Service, path: str) -> None:
    response = post(service, path, small(), service.write_key)
    assert refusal(response) == (404, "NOT_FOUND", "no such path; traces are taken at /v1/traces")
    assert response.json()["error"]["details"] == {"path": "/v1/traces"}
    assert ("WRONG_PATH", f"nothing is served at {path}") in refused_lately(service)


def test_a_grpc_client_at_the_http_port_hears_which_port_it_wants(service: Service) -> None:
    astray = attrs.evolve(service, grpc_port=service.port)
    called = call(astray, small(), f"Bearer {service.write_key}")
    assert called.code is grpc.StatusCode.UNIMPLEMENTED
    assert called.text == f"this is the HTTP port; gRPC is taken at port {service.grpc_port}"
    assert ("GRPC_OVER_HTTP", called.text) in refused_lately(service)


def test_a_request_that_is_no_export_is_no_refused_one(service: Service) -> None:
    before = refused_lately(service)
    assert httpx2.post(service.url + "/wp-login.php", data={"log": "admin"}).status_code == 404
    assert httpx2.get(service.url + "/v1/tracez").status_code == 404
    asked = {"Authorization": f"Bearer {service.query_key}"}
    assert httpx2.post(service.url + "/v1/query/counts", json={}, headers=asked).status_code == 404
    assert refused_lately(service) == before


def refused_lately(service: Service) -> set[tuple[str, str]]:
    """Cause and message of what health says was refused."""
    report = httpx2.get(service.url + "/actuator/health").json()
    told = report["components"]["ingest"]["details"].get("refused_lately", [])
    return {(each["cause"], each["message"]) for each in told}


# --- the order of the checks ------------------------------------------------------------------------------


def test_each_check_comes_before_the_next(service: Service) -> None:
    """Every request breaks a rule and all the rules behind it, and hears of the first alone."""
    garbage, other = b"\xff" * 100, {"Content_Type": "text/plain"}
    in_order = [
        client(service).put("/v1/traces", content=garbage),
        send(service, garbage, None, **other),
        send(service, garbage, service.query_key, **other),
        send(service, garbage, service.write_key, **other),
    ]
    assert [response.status_code for response in in_order] == [405, 401, 403, 415]
    with connected(service.port) as sock:
        # 413 comes at the head of a body that could not be decoded either.
        sock.sendall(
            head(
                "POST",
                "/v1/traces",
                f"Authorization: Bearer {service.write_key}",
                "Content-Type: application/x-protobuf",
                f"Content-Length: {LIMIT_BYTES + 1}",
            )
        )
        status, _, body = _send_rest(sock, LIMIT_BYTES + 1)
    assert (status, json.loads(body)["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert send(service, garbage, service.write_key).status_code == 400


def _send_rest(sock: socket.socket, size: int) -> tuple[int, object, bytes]:
    block = b"\xff" * MIB
    while size:
        size -= sock.send(block[:size])
    return read_response(sock)


def test_a_body_of_unknown_length_is_413_as_soon_as_it_is_too_long(service: Service) -> None:
    """The whole of it is not needed: one byte past the limit decides."""
    response = send(service, (bytes(MIB) for _ in range(65)), service.write_key)
    assert refusal(response)[:2] == (413, "PAYLOAD_TOO_LARGE")


# --- gRPC -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Basic dXNlcg==", "Bearer not-a-token", f"Bearer {UNKNOWN_TOKEN}"]
)
def test_without_a_living_key_grpc_ingest_asks_for_one(service: Service, authorization: str | None) -> None:
    called = call(service, small(), authorization)
    assert (called.code, called.text) == (
        grpc.StatusCode.UNAUTHENTICATED,
        "OTLP ingest requires a valid bearer token",
    )
    assert not retry_infos(called)


def test_a_query_key_may_not_ingest_over_grpc(service: Service) -> None:
    called = call(service, small(), f"Bearer {service.query_key}")
    assert (called.code, called.text) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "OTLP ingest requires a write-scoped token",
    )
    assert not retry_infos(called)


@pytest.mark.parametrize(
    "method",
    [
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Import",
        "/grpc.health.v1.Health/Check",
    ],
)
def test_any_other_grpc_method_is_unimplemented(service: Service, method: str) -> None:
    called = call(service, small(), f"Bearer {service.write_key}", method=method)
    assert called.code is grpc.StatusCode.UNIMPLEMENTED
    assert not retry_infos(called)


def over_grpc(service: Service, body: bytes, compression: grpc.Compression) -> Called:
    return call(service, body, f"Bearer {service.write_key}", compression=compression)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_grpc_takes_plain_and_gzipped_messages(service: Service, compression: grpc.Compression) -> None:
    session = unique("grpc")
    called = over_grpc(service, small(session) + small(session), compression)
    assert called.code is grpc.StatusCode.OK
    assert called.response == ExportTraceServiceResponse()
    wait_for_spans(service, 2, session_id=session)


def test_grpc_refuses_a_compression_that_it_does_not_read(service: Service) -> None:
    called = over_grpc(service, small() * 100, grpc.Compression.Deflate)
    assert called.code is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 100, small()[:-1], b"\x0a\xff\xff\xff\xff\x07"],
    ids=["no tag", "cut off", "length past the end"],
)
def test_grpc_calls_undecodable_bytes_an_invalid_argument(service: Service, body: bytes) -> None:
    called = over_grpc(service, body, grpc.Compression.NoCompression)
    assert called.code is grpc.StatusCode.INVALID_ARGUMENT
    assert called.text.startswith("the body is not an OTLP trace request in protobuf")
    assert not retry_infos(called)


def test_grpc_refuses_bad_spans_alone_and_a_batch_of_only_bad_ones(service: Service) -> None:
    session = unique("grpc-partial")
    good = wire.span(attributes={"session.id": session}, trace_id=trace_id())
    bad = wire.span(trace_id=bytes(16))
    partial = over_grpc(
        service, wire.request(bad, good, bad).SerializeToString(), grpc.Compression.NoCompression
    )
    assert partial.response is not None
    assert partial.response.partial_success.rejected_spans == 2
    assert partial.response.partial_success.error_message
    wait_for_spans(service, 1, session_id=session)
    none = over_grpc(service, wire.request(bad).SerializeToString(), grpc.Compression.NoCompression)
    assert none.code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_grpc_refuses_what_is_too_large_without_asking_for_a_retry(
    service: Service, compression: grpc.Compression
) -> None:
    called = over_grpc(service, bytes(LIMIT_BYTES + 1), compression)
    assert called.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not retry_infos(called)


# --- transports -------------------------------------------------------------------------------------------


def test_with_grpc_alone_the_http_receiver_is_disabled_and_the_rest_is_there() -> None:
    with running(SVC_INGEST_OTLP_TRANSPORT="GRPC") as alone:
        for key in (None, alone.write_key, alone.query_key):
            assert refusal(send(alone, b"\xff", key, Content_Type="text/plain")) == DISABLED
        assert refusal(client(alone).get("/v1/traces")) == DISABLED
        assert call(alone, small(), f"Bearer {alone.write_key}").code is grpc.StatusCode.OK
        wait_for_spans(alone, 1)
        assert health(alone)["status"] == "UP"


def test_with_http_alone_nothing_listens_on_the_grpc_port() -> None:
    with running(SVC_INGEST_OTLP_TRANSPORT="HTTP") as alone:
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.1", alone.grpc_port)) != 0
        assert send(alone, small(), alone.write_key).status_code == 200
        wait_for_spans(alone, 1)


# --- pressure ---------------------------------------------------------------------------------------------

BUDGET_BYTES = 400_000
#: What a batch costs beside its body.
OVERHEAD_BYTES = 512
BATCH_BYTES = 90_000


def padded(size: int, session: str) -> bytes:
    """One span in a body of exactly this many bytes."""

    def filled(padding: int) -> bytes:
        attributes = {"session.id": session, "padding": "x" * padding}
        return wire.request(wire.span(attributes=attributes, trace_id=trace_id())).SerializeToString()

    body = filled(size - 200)
    body = filled(size - 200 + size - len(body))
    assert len(body) == size
    return body


@pytest.fixture(scope="module")
def crowded() -> Iterator[Service]:
    """A service with a small spool, its keys and its first partitions known."""
    with running(SVC_INGEST_SPOOL_MAX_BYTES=str(BUDGET_BYTES)) as found:
        assert send(found, small(), found.write_key).status_code == 200
        assert send(found, small(), found.query_key).status_code == 403
        wait_for_spans(found, 1)
        yield found


def test_a_full_spool_is_503_and_what_was_acknowledged_is_stored_in_the_end(crowded: Service) -> None:
    session = unique("full")
    write = f"Bearer {crowded.write_key}"
    fitting = BUDGET_BYTES // (BATCH_BYTES + OVERHEAD_BYTES)
    # One body is larger than the whole budget: it could never be taken, however long its sender waits.
    huge = padded(BUDGET_BYTES, session)
    with frozen_database(crowded):
        answers = [send(crowded, padded(BATCH_BYTES, session), crowded.write_key) for _ in range(fitting + 1)]
        assert [answer.status_code for answer in answers] == [200] * fitting + [503]
        _says_full(answers[-1])
        _says_full_over_grpc(call(crowded, padded(BATCH_BYTES, session), write))

        never = send(crowded, huge, crowded.write_key)
        assert refusal(never) == (
            413,
            "PAYLOAD_TOO_LARGE",
            "the batch is larger than the whole ingest buffer",
        )
        assert "retry-after" not in never.headers
        never_called = call(crowded, huge, write)
        assert never_called.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not retry_infos(never_called)

        # The rest of the budget, to the byte; from now on nothing needs to be read to be refused.
        rest = BUDGET_BYTES - fitting * (BATCH_BYTES + OVERHEAD_BYTES) - OVERHEAD_BYTES
        assert send(crowded, padded(rest + 1, session), crowded.write_key).status_code == 503
        assert send(crowded, padded(rest, session), crowded.write_key).status_code == 200
        _says_full(send(crowded, b"\xff", crowded.write_key, Content_Type="text/plain"))
        _says_full_over_grpc(call(crowded, b"\xff", write))
        assert refusal(send(crowded, b"\xff", crowded.query_key)) == WRONG_SCOPE
        assert refusal(send(crowded, b"\xff")) == NO_TENANT

        asked_s = time.monotonic()
        health(crowded)
        assert time.monotonic() - asked_s < 6
        # A database that is slow to answer is busy at first, and away when it stays so.
        until(lambda: health(crowded)["components"]["db"]["status"] == "DOWN")
        report = health(crowded)
        assert report["status"] == "DOWN"
        ingest = report["components"]["ingest"]["details"]
        assert ingest["bytes"] == ingest["max_bytes"] == BUDGET_BYTES
        assert ingest["depth"] == fitting + 1
    wait_for_spans(crowded, fitting + 1, session_id=session)
    until(lambda: health(crowded)["status"] == "UP")
    ingest = ingest_health(crowded)
    assert (ingest["depth"], ingest["bytes"], ingest["dead_lettered"]) == (0, 0, 0)
    assert send(crowded, padded(BATCH_BYTES, session), crowded.write_key).status_code == 200
    wait_for_spans(crowded, fitting + 2, session_id=session)


def _says_full(response: httpx2.Response) -> None:
    assert refusal(response)[:2] == (503, "UNAVAILABLE")
    assert response.headers["retry-after"] in ("1", "2", "3", "4", "5")


def _says_full_over_grpc(called: Called) -> None:
    assert called.code is grpc.StatusCode.UNAVAILABLE
    in_details, in_trailer = retry_infos(called)
    assert in_details == in_trailer
    assert 1 <= in_details <= 5


@pytest.mark.parametrize("padding", [0, 200_000], ids=["in the loop", "beside the loop"])
def test_names_in_snake_case_are_told_with_nothing_rejected(service: Service, padding: int) -> None:
    body = {
        "resource_spans": [{"scope_spans": [{"spans": [{"trace_id": "0" * 31 + "1"}]}]}],
        "x": "x" * padding,
    }
    answer = httpx2.post(
        f"{service.url}/v1/traces",
        json=body,
        headers={"Authorization": f"Bearer {service.write_key}"},
        timeout=30,
        **PLAIN,
    )
    assert answer.status_code == 200
    assert answer.json() == {"partialSuccess": {"rejectedSpans": "0", "errorMessage": SNAKE_CASE}}


def test_an_empty_request_in_json_is_told_nothing(service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.write_key}"}
    for body in ({}, {"resourceSpans": []}):
        answer = httpx2.post(f"{service.url}/v1/traces", json=body, headers=headers, timeout=30, **PLAIN)
        assert (answer.status_code, answer.json()) == (200, {})
