"""Whatever a client sends or leaves unsent, it gets a 4xx, a closed connection or a stored span, and the
service goes on."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import random
import socket
import threading
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h2.events
import h2.exceptions
import httpx2
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from svc.front.server.frame_steps import FREE_RESETS
from svc.store.postgres.rows import IS_SETTLED
from tests import wire
from tests.e2e.hostile import (
    EXPORT,
    FULL,
    MIB,
    Http2,
    ask,
    client,
    connected,
    from_store,
    hang_up,
    head,
    http2,
    open_sockets,
    payload,
    post,
    pseudo,
    read_response,
    refusal,
    rows_of,
    trace_id,
    unharmed,  # noqa: F401 - a fixture
    unique,
    until_closed,
    wait_for_spans,
)
from tests.service import Service, running, until

pytestmark = pytest.mark.usefixtures("unharmed")

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
LIMIT_BYTES = 64 * MIB
SECOND_NS = 1_000_000_000
YEAR_2500_NS = 16_725_225_600 * SECOND_NS
SPAN_ID = bytes.fromhex("00f067aa0ba902b7")


def send(service: Service, body: Any, **headers: str) -> httpx2.Response:
    """POST /v1/traces as protobuf with the write key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return post(service, "/v1/traces", body, service.write_key, PROTOBUF | named)


def one(session: str, **span: Any) -> bytes:
    """A body with one storable span of the session."""
    span.setdefault("trace_id", trace_id())
    attributes = {"session.id": session} | span.pop("attributes", {})
    return wire.request(wire.span(attributes=attributes, **span)).SerializeToString()


def stored_alone(service: Service, session: str) -> None:
    """Nothing of the session was stored so far: what is sent now comes alone."""
    assert send(service, one(session, name="the witness")).status_code == 200
    wait_for_spans(service, 1, session_id=session, name="the witness")
    assert [row["name"] for row in rows_of(service, session_id=session)] == ["the witness"]


def credentials(service: Service) -> tuple[str, str]:
    """The header lines of a raw request."""
    return f"Authorization: Bearer {service.write_key}", "Content-Type: application/x-protobuf"


# --- damaged protobuf -------------------------------------------------------------------------------------


def test_a_body_cut_anywhere_is_400_and_stores_nothing(service: Service) -> None:
    session = unique("cut")
    body = one(session, attributes={"nested": {"list": [1, "two", 3.0]}}, events=[wire.event("e", {"k": 1})])
    for length in range(1, len(body), 1 if FULL else 5):
        assert refusal(send(service, body[:length]))[:2] == (400, "BAD_REQUEST")
    stored_alone(service, session)


def test_flipped_bits_give_a_200_or_a_400_and_never_more(service: Service) -> None:
    session = unique("flip")
    body = one(
        session, attributes={"nested": {"list": [1, "two", 3.0]}}, links=[wire.link(b"x" * 16, b"y" * 8)]
    )
    chosen = random.Random(7)
    for _ in range(2_000 if FULL else 150):
        damaged = bytearray(body)
        for _ in range(chosen.choice((1, 1, 1, 3))):
            damaged[chosen.randrange(len(body))] ^= 1 << chosen.randrange(8)
        assert send(service, bytes(damaged)).status_code in (200, 400)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00" * 64,
        b"\xff" * 64,
        b"\x07",
        b"\x0e\x00",
        b"\x0b\x0b\x0b\x0b",
        b"\x0c",
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0a" + b"\xff" * 10,
        b"\x0a\x05abc",
        b"{}",
        b"\x1f\x8b",
        b"<html></html>",
    ],
    ids=lambda body: body[:8].hex(),
)
def test_bytes_that_are_no_message_are_400(service: Service, body: bytes) -> None:
    status, code, message = refusal(send(service, body))
    assert (status, code) == (400, "BAD_REQUEST")
    assert message.startswith("the body is not an OTLP trace request in protobuf")


def test_a_value_nested_ten_thousand_deep_is_400_in_both_encodings(service: Service) -> None:
    session = unique("deep")
    value: bytes = b""
    for _ in range(10_000):
        inner = b"\x0a" + _varint(len(value)) + value
        value = b"\x2a" + _varint(len(inner)) + inner
    assert refusal(send(service, _with_value(session, value)))[:2] == (400, "BAD_REQUEST")
    deep = '{"arrayValue":{"values":[' * 10_000 + "]}}" * 10_000
    body = (
        '{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"k","value":' + deep + "}]}]}]}]}"
    )
    assert refusal(post(service, "/v1/traces", body, service.write_key, JSON))[:2] == (400, "BAD_REQUEST")
    stored_alone(service, session)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))


def _with_value(session: str, value: bytes) -> bytes:
    """A span whose attribute `k` has these bytes as its AnyValue."""
    pair = b"\x0a\x01k\x12" + _varint(len(value)) + value
    span = b"\x4a" + _varint(len(pair)) + pair
    template = wire.span(attributes={"session.id": session}, trace_id=trace_id()).SerializeToString() + span
    scope_spans = b"\x12" + _varint(len(template)) + template
    resource_spans = b"\x12" + _varint(len(scope_spans)) + scope_spans
    return b"\x0a" + _varint(len(resource_spans)) + resource_spans


@pytest.mark.parametrize("signal", ["logs", "metrics"])
@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_the_body_of_another_signal_is_400_and_becomes_no_span(
    service: Service, signal: str, encoding: str
) -> None:
    before = ask(service, "count", {"dataset": "spans"})["count"]
    if encoding == "json":
        body: Any = json.dumps(OTHER_SIGNALS_JSON[signal])
        response = post(service, "/v1/traces", body, service.write_key, JSON)
    else:
        response = send(service, _other_signal(signal))
    assert refusal(response)[:2] == (400, "BAD_REQUEST")
    assert refusal(response)[2].startswith(f"this is {signal}")
    assert ask(service, "count", {"dataset": "spans"})["count"] == before


OTHER_SIGNALS_JSON: dict[str, Any] = {
    "logs": {
        "resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "1", "traceId": "ab" * 16}]}]}]
    },
    "metrics": {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "requests"}]}]}]},
}


def _other_signal(signal: str) -> bytes:
    if signal == "logs":
        logs = ExportLogsServiceRequest()
        record = logs.resource_logs.add().scope_logs.add().log_records.add()
        record.time_unix_nano = record.observed_time_unix_nano = wire.START_NS
        record.trace_id, record.span_id = trace_id(), SPAN_ID
        record.body.string_value = "hello"
        record.attributes.extend(wire.pairs({"session.id": "logs"}))
        return logs.SerializeToString()
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "requests"
    point = metric.sum.data_points.add()
    point.as_int, point.time_unix_nano = 7, wire.START_NS
    return metrics.SerializeToString()


# --- compression ------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_a_gzip_bomb_costs_no_more_memory_than_the_limit(service: Service) -> None:
    bomb = _bomb()
    assert MIB * 0.9 < len(bomb) < MIB * 1.2
    status = Path(f"/proc/{service.process.pid}/status")
    with contextlib.suppress(PermissionError):
        # Forget the high-water mark of earlier tests, where that is allowed.
        Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")
    before = _high_water_bytes(status)
    for _ in range(2):
        assert refusal(send(service, bomb, content_encoding="gzip"))[:2] == (413, "PAYLOAD_TOO_LARGE")
    assert _high_water_bytes(status) - before < LIMIT_BYTES + 64 * MIB


def _bomb() -> bytes:
    """A GiB of zeros in a MiB of gzip, in one member: equal blocks that do not look back at each other."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(64 * MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * 16 + b"\x03\0" + bytes(8)


def _high_water_bytes(status: Path) -> int:
    [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("damage", ["cut", "flipped", "garbage behind", "plain", "empty", "wrong sum"])
def test_broken_gzip_is_400(service: Service, damage: str) -> None:
    session = unique("gzip")
    plain = one(session)
    good = gzip.compress(plain)
    middle = len(good) // 2
    body = {
        "cut": good[:-9],
        "flipped": good[:middle] + bytes((good[middle] ^ 0xFF,)) + good[middle + 1 :],
        "garbage behind": good + b"garbage",
        "plain": plain,
        "empty": b"",
        "wrong sum": good[:-8] + bytes(8),
    }[damage]
    assert refusal(send(service, body, content_encoding="gzip"))[:2] == (400, "BAD_REQUEST")
    stored_alone(service, session)


def test_every_content_encoding_is_read(service: Service) -> None:
    session = unique("encodings")
    import zstandard

    raw = zlib.compressobj(wbits=-15)
    bodies = {
        "gzip": gzip.compress(one(session)[:0]) + gzip.compress(one(session)),
        "deflate": zlib.compress(one(session)),
        "Deflate": raw.compress(one(session)) + raw.flush(),
        "zstd": zstandard.compress(one(session)),
        "identity": one(session),
        "": one(session),
    }
    for encoding, body in bodies.items():
        assert send(service, body, content_encoding=encoding).status_code == 200
    wait_for_spans(service, len(bodies), session_id=session)


# --- bodies that arrive oddly -----------------------------------------------------------------------------


def test_a_body_in_chunks_of_any_size_is_one_body(service: Service) -> None:
    session = unique("chunks")
    for size in (1, 7, 10_000):
        body = one(session)
        with connected(service.port) as sock:
            sock.sendall(head("POST", "/v1/traces", *credentials(service), "Transfer-Encoding: chunked"))
            for start in range(0, len(body), size):
                piece = body[start : start + size]
                sock.sendall(b"%x;name=value\r\n%b\r\n" % (len(piece), piece))
            sock.sendall(b"0\r\nTrailer: ignored\r\n\r\n")
            assert read_response(sock)[0] == 200
    wait_for_spans(service, 3, session_id=session)


def test_a_body_that_dribbles_in_is_waited_for(service: Service) -> None:
    session = unique("slow")
    body = one(session)
    with connected(service.port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head("POST", "/v1/traces", *credentials(service), f"Content-Length: {len(body)}"))
        for start in range(0, len(body), 8):
            sock.sendall(body[start : start + 8])
            # Others are served meanwhile.
            assert client(service).get("/actuator/health/liveness").status_code == 200
        assert read_response(sock)[0] == 200
    wait_for_spans(service, 1, session_id=session)


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/query/count", "/nowhere"])
def test_a_client_that_hangs_up_half_way_leaves_nothing_behind(service: Service, path: str) -> None:
    session = unique("hung-up")
    body = one(session)
    before = open_sockets(service)
    length = f"Content-Length: {len(body)}"
    chunked = "Transfer-Encoding: chunked"
    beginnings = [
        b"POST /v1",
        head("POST", path, *credentials(service), length),
        head("POST", path, *credentials(service), length) + body[:-1],
        head("POST", path, *credentials(service), chunked) + b"%x\r\n" % len(body) + body,
        head("POST", path, length) + body[:10],
    ]
    for leave in (hang_up, socket.socket.close):
        for beginning in beginnings:
            with connected(service.port) as sock:
                sock.sendall(beginning)
                leave(sock)
    with http2(service.port) as half:
        half.state.send_headers(1, pseudo(path.encode()))
        half.state.send_data(1, body[:10])
        half.flush()
        hang_up(half.sock)
    for number in range(20):
        with http2(service.port) as deaf:
            # Gone at some moment while it is being answered.
            deaf.state.send_headers(1, pseudo(path.encode()), end_stream=True)
            deaf.flush()
            if number % 2:
                deaf.ping()
    until(lambda: open_sockets(service) <= before)
    stored_alone(service, session)


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/query/count", "/v1/metrics"])
def test_an_endless_body_that_nobody_wants_is_answered_and_cut_off(service: Service, path: str) -> None:
    before = open_sockets(service)
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    sent = 0
    with connected(service.port) as sock:
        sock.sendall(head("POST", path, "Transfer-Encoding: chunked"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 400 * MIB:
                sock.sendall(chunk)
                sent += len(chunk)
        assert sent < 200 * MIB
        answer = until_closed(sock)
    # A reset may overtake the answer on its way; what arrives is whole and says to close.
    if answer:
        assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 404 "))
        assert b"connection: close" in answer
        assert answer.endswith(b"}}")
    until(lambda: open_sockets(service) <= before)


# --- text that no database takes --------------------------------------------------------------------------

#: In protobuf `@@@` stands for the three bytes of a surrogate, in JSON for its escape.
DIRTY = "nul\0 and @@@."
CLEAN = {"protobuf": "nul\ufffd and \ufffd\ufffd\ufffd.", "json": "nul\ufffd and \ufffd."}


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_nul_and_lone_surrogates_become_replacement_characters_everywhere(
    service: Service, encoding: str
) -> None:
    session = unique(f"dirty-{encoding}")
    clean = CLEAN[encoding]
    trace = trace_id()
    chat = wire.span(
        DIRTY,
        {
            "session.id": f"{session} {DIRTY}",
            "user.id": DIRTY,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": DIRTY,
            "svc.call_site.id": f"{session} {DIRTY}",
            "input.value": DIRTY,
            "output.value": DIRTY,
            DIRTY: [DIRTY, {DIRTY: DIRTY}],
        },
        trace_id=trace,
        span_id=b"\0" * 7 + b"\x01",
        status_message=DIRTY,
        events=[wire.event(DIRTY, {DIRTY: DIRTY})],
        links=[wire.link(trace, SPAN_ID, {DIRTY: DIRTY})],
    )
    tool = wire.span(
        "execute_tool",
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": f"{session} {DIRTY}",
            "error.type": DIRTY,
        },
        trace_id=trace,
        span_id=b"\0" * 7 + b"\x02",
        status_code=2,
        status_message=DIRTY,
    )
    request = wire.request(
        chat, tool, resource={DIRTY: DIRTY, "service.name": DIRTY}, scope=DIRTY, scope_version=DIRTY
    )
    assert _send_dirty(service, request, encoding).status_code == 200

    shown = f"{session} {clean}"
    # The tool's span is of the session of its trace.
    wait_for_spans(service, 2, session_id=shown)
    [row] = rows_of(service, session_id=shown, kind="llm")
    assert row["name"] == row["user_id"] == row["provided_model_name"] == clean
    assert row["input_preview"] == row["output_preview"] == clean
    assert row["call_site_id"] == shown
    calls = ask(service, "search", {"dataset": "tool_calls", "q": session})["rows"]
    assert [call["fields"]["name"] for call in calls] == [shown]
    assert calls[0]["fields"]["error_type"] == calls[0]["fields"]["error_message"] == clean

    full = payload(service, trace, b"\0" * 7 + b"\x01")
    assert full["attributes"][clean] == [clean, {clean: clean}]
    assert full["attributes"]["session.id"] == shown
    assert [(event["name"], event["attributes"]) for event in full["events"]] == [(clean, {clean: clean})]
    assert full["links"][0]["attributes"] == {clean: clean}
    assert full["resource"]["attributes"] == {clean: clean, "service.name": clean}
    assert (full["scope"]["name"], full["scope"]["version"]) == (clean, clean)
    [known] = from_store(service, "select user_id from session where id = $1", shown)
    assert known["user_id"] == clean


def _send_dirty(service: Service, request: Any, encoding: str) -> httpx2.Response:
    if encoding == "protobuf":
        return send(service, request.SerializeToString().replace(b"@@@", b"\xed\xa0\x80"))
    from google.protobuf.json_format import MessageToDict

    tree = MessageToDict(request)
    for scope_spans in tree["resourceSpans"][0]["scopeSpans"]:
        for span in scope_spans["spans"]:
            for owner in (span, *span.get("links", ())):
                for name in {"traceId", "spanId"} & owner.keys():
                    owner[name] = base64.b64decode(owner[name]).hex()
    body = json.dumps(tree).replace("@@@", "\\ud800")
    return post(service, "/v1/traces", body, service.write_key, JSON)


# --- spans refused one by one -----------------------------------------------------------------------------

BAD_IDS: list[dict[str, Any]] = [
    {"trace_id": b""},
    {"trace_id": b"x" * 15},
    {"trace_id": b"x" * 17},
    {"trace_id": bytes(16)},
    {"span_id": b""},
    {"span_id": b"x" * 7},
    {"span_id": b"x" * 16},
    {"span_id": bytes(8)},
    {"start_ns": 0},
]


def test_bad_spans_are_refused_alone_and_counted(service: Service) -> None:
    session = unique("partial")
    bad = [
        wire.span(attributes={"session.id": session}, **{"trace_id": trace_id()} | wrong) for wrong in BAD_IDS
    ]
    good = [wire.span(attributes={"session.id": session}, trace_id=trace_id()) for _ in range(2)]
    response = send(service, wire.request(*bad[:5], *good, *bad[5:]).SerializeToString())
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-protobuf"
    answer = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert answer.rejected_spans == len(BAD_IDS)
    assert f"{len(BAD_IDS)} of {len(BAD_IDS) + 2} spans refused" in answer.error_message
    wait_for_spans(service, 2, session_id=session)
    status, _, message = refusal(send(service, wire.request(*bad).SerializeToString()))
    assert status == 400
    assert "no span in the batch can be stored" in message
    assert ask(service, "count", {"dataset": "spans", "filters": {"session_id": session}}) == {"count": 2}


def test_bad_spans_are_refused_alone_in_json_and_the_answer_is_json(service: Service) -> None:
    session = unique("partial-json")
    good = {"traceId": trace_id().hex(), "spanId": SPAN_ID.hex(), "startTimeUnixNano": str(wire.START_NS)}
    good["attributes"] = {"session.id": session}  # type: ignore[assignment]
    bad: list[Any] = [
        {},
        None,
        7,
        "span",
        good | {"traceId": "0" * 32},
        good | {"traceId": "xyz"},
        good | {"spanId": 7},
        good | {"spanId": SPAN_ID.hex() + "00"},
        good | {"startTimeUnixNano": "soon"},
        good | {"startTimeUnixNano": -1},
        good | {"startTimeUnixNano": 2**64},
    ]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [*bad, good]}]}]})
    response = post(service, "/v1/traces", body, service.write_key, JSON)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    partial = response.json()["partialSuccess"]
    assert partial.keys() == {"rejectedSpans", "errorMessage"}
    assert int(partial["rejectedSpans"]) == len(bad)
    assert partial["errorMessage"]
    wait_for_spans(service, 1, session_id=session)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b"{",
        b'{"resourceSpans": 7}',
        b'{"resourceSpans": ["x"]}',
        b'{"resourceSpans": [{"scopeSpans": "x"}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": {"a": 1}}]}]}',
        b"[" * 100_000,
        b'{"resourceSpans":[' * 20_000,
        b'{"resourceSpans": []} trailing',
        b"\x0a\x00",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_json_that_is_no_request_is_400(service: Service, body: bytes) -> None:
    assert refusal(post(service, "/v1/traces", body, service.write_key, JSON))[:2] == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", PROTOBUF),
        (b"\x0a\x00", PROTOBUF),
        (b"\x0a\x02\x12\x00", PROTOBUF),
        (b"{}", JSON),
        (b'{"resourceSpans": []}', JSON),
        (b'{"resourceSpans": null, "unknown": 1}', JSON),
        (b'\xef\xbb\xbf{"resourceSpans": [{"scopeSpans": []}]}', JSON),
    ],
)
def test_an_empty_request_succeeds(service: Service, body: bytes, headers: dict[str, str]) -> None:
    response = post(service, "/v1/traces", body, service.write_key, headers)
    assert (response.status_code, response.content) == (200, b"{}" if headers is JSON else b"")
    assert response.headers["content-type"] == headers["content-type"]


# --- extreme values ---------------------------------------------------------------------------------------


def test_times_at_the_ends_of_the_clock_are_stored_as_they_are(service: Service) -> None:
    session = unique("times")
    last_ns = 2**64 - 1
    times = {
        "no end": (wire.START_NS, 0),
        "year 2500": (YEAR_2500_NS, YEAR_2500_NS + 1),
        "last": (last_ns, last_ns),
        "first": (1, 1),
        "ends before it starts": (wire.START_NS, 1),
        "starts in 1970, ends in 2554": (1000, last_ns),
    }
    for name, (start_ns, end_ns) in times.items():
        assert send(service, one(session, name=name, start_ns=start_ns, end_ns=end_ns)).status_code == 200
    wait_for_spans(service, len(times), session_id=session)
    rows = {row["name"]: (row["started_at"], row["ended_at"]) for row in rows_of(service, session_id=session)}
    started = f"{datetime.fromtimestamp(wire.START_NS // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.674000Z"
    assert rows == {
        "no end": (started, None),
        "year 2500": ("2500-01-01T00:00:00.000000Z", "2500-01-01T00:00:00.000000Z"),
        "last": ("2554-07-21T23:34:33.709551Z", "2554-07-21T23:34:33.709551Z"),
        "first": ("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"),
        "ends before it starts": (started, started),
        "starts in 1970, ends in 2554": ("1970-01-01T00:00:00.000001Z", "2554-07-21T23:34:33.709551Z"),
    }


def test_large_spans_are_stored_whole_and_shown_short(service: Service) -> None:
    session = unique("large")
    trace = trace_id()
    text = "0123456789abcdef" * (10 * MIB // 16)
    assert send(
        service, one(session, trace_id=trace, span_id=SPAN_ID, attributes={"input.value": text})
    ).is_success
    many = {f"key {number}": number for number in range(10_000)}
    assert send(service, one(session, trace_id=trace, span_id=b"manyattr", attributes=many)).is_success
    events = [wire.event(f"event {number}", many) for number in range(20)]
    assert send(service, one(session, trace_id=trace, span_id=b"manyevts", events=events)).is_success
    key = {"k" * 60_000: "v"}
    assert send(service, one(session, trace_id=trace, span_id=b"longkey!", attributes=key)).is_success
    wait_for_spans(service, 4, session_id=session)
    assert payload(service, trace, SPAN_ID)["attributes"]["input.value"] == text
    assert payload(service, trace, b"manyattr")["attributes"] == many | {"session.id": session}
    assert [e["attributes"] for e in payload(service, trace, b"manyevts")["events"]] == [many] * 20
    assert payload(service, trace, b"longkey!")["attributes"] == key | {"session.id": session}
    previews = [row["input_preview"] for row in rows_of(service, session_id=session) if row["input_preview"]]
    # One unbroken text that is cut may be the beginning of a token: of it the first characters are shown.
    assert previews == [text[:4] + "…"]


def test_long_identifiers_are_cut_and_still_told_apart(service: Service) -> None:
    name = unique("long")
    long = "s" * 20_000
    for end in ("a", "b", "b"):
        attributes = {
            "session.id": long + end,
            "user.id": long,
            "svc.call_site.id": long,
            "gen_ai.request.model": long,
        }
        assert send(service, one("", name=name, attributes=attributes)).is_success
    wait_for_spans(service, 3, name=name)
    rows = rows_of(service, name=name)
    sessions = sorted(row["session_id"] for row in rows)
    assert len(set(sessions)) == 2
    assert all(len(session) <= 200 for session in sessions)
    for session in set(sessions):
        wait_for_spans(service, sessions.count(session), session_id=session)


def test_a_span_name_is_cut_and_may_be_empty(service: Service) -> None:
    session = unique("names")
    for name in ("", "n" * 1_000_000, "\u202e\U0001f469\u200d\U0001f680" * 5_000):
        assert send(service, one(session, name=name)).is_success
    wait_for_spans(service, 3, session_id=session)
    names = {row["name"] for row in rows_of(service, session_id=session)}
    assert {"unknown", "n" * 200} < names
    assert all(len(name) <= 200 for name in names)


# --- re-sending -------------------------------------------------------------------------------------------


def test_the_same_batch_twice_counts_once(service: Service) -> None:
    session = unique("twice")
    spans = [wire.span(attributes={"session.id": session}, trace_id=trace_id()) for _ in range(10)]
    body = wire.request(*spans, *spans[:3]).SerializeToString()
    before = ingested(service)
    for _ in range(3):
        assert send(service, body).status_code == 200
    until(lambda: ingested(service) == before + 3 * 13)
    assert ask(service, "count", {"dataset": "spans", "filters": {"session_id": session}}) == {"count": 10}


def ingested(service: Service) -> float:
    """Spans that were stored or met an equal one."""
    return service.metric("svc_ingest_stored_spans_total") + service.metric(
        "svc_ingest_duplicate_spans_total"
    )


def test_a_re_sent_span_replaces_an_earlier_end_and_never_a_later_one(service: Service) -> None:
    session = unique("re-sent")
    trace = trace_id()

    def version(name: str, seconds: int, start_ns: int = wire.START_NS) -> None:
        end_ns = 0 if not seconds else wire.START_NS + seconds * SECOND_NS
        before = ingested(service)
        body = one(session, name=name, trace_id=trace, span_id=SPAN_ID, start_ns=start_ns, end_ns=end_ns)
        assert send(service, body).status_code == 200
        until(lambda: ingested(service) == before + 1)

    def shown() -> tuple[str, str]:
        [row] = ask(service, "search", {"dataset": "spans", "filters": {"session_id": session}})["rows"]
        return row["fields"]["name"], row["created_at"]

    version("begun", 0)
    first = shown()
    assert first[0] == "begun"
    steps = [("ended", 5, "ended"), ("older", 3, "ended"), ("begun again", 0, "ended"), ("equal", 5, "equal")]
    for name, seconds, expected in steps:
        version(name, seconds)
        assert shown() == (expected, first[1])
    # With a start on another day the row moves to another partition, and there is still one.
    version("another day", 6, wire.START_NS - 3 * 86_400 * SECOND_NS)
    assert shown() == ("another day", first[1])


def test_one_trace_in_many_batches_children_first_becomes_one_trace(service: Service) -> None:
    session = unique("scattered")
    trace, root = trace_id(), b"the root"
    before_ns = wire.START_NS + 10 * SECOND_NS
    for batch in range(20):
        spans = [
            wire.span(
                f"child {batch}.{number}",
                {"session.id": session},
                trace_id=trace,
                parent=root,
                start_ns=before_ns - batch * SECOND_NS // 10,
                end_ns=before_ns + SECOND_NS,
            )
            for number in range(5)
        ]
        assert send(service, wire.request(*spans).SerializeToString()).status_code == 200
    assert send(service, one(session, name="the whole", trace_id=trace, span_id=root)).status_code == 200
    wait_for_spans(service, 101, session_id=session)

    def rolled() -> dict[str, Any]:
        sql = f"select name, span_count, root_seen, {IS_SETTLED} from trace where trace_id = $1"
        [row] = from_store(service, sql, trace)
        return row

    until(lambda: rolled()["is_settled"], every_s=0.3)
    assert rolled() == {"name": "the whole", "span_count": 101, "root_seen": True, "is_settled": True}


# --- connections ------------------------------------------------------------------------------------------


def test_twenty_posts_use_one_connection_refusals_included(service: Service) -> None:
    session = unique("keep-alive")
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    headers = {"Authorization": f"Bearer {service.write_key}", **PROTOBUF}
    asked: list[tuple[int, dict[str, str], bytes]] = [
        (200, headers, b""),
        (401, PROTOBUF, b"x" * 200_000),
        (415, headers | {"Content-Type": "text/plain"}, b"x" * 200_000),
        (400, headers, b"\xff" * 200_000),
        (400, headers | {"Content-Encoding": "gzip"}, b"x"),
    ]
    try:
        connection.connect()
        sock = connection.sock
        for number in range(20):
            status, sent, body = asked[number % len(asked)]
            connection.request("POST", "/v1/traces", body or one(session), sent, encode_chunked=False)
            response = connection.getresponse()
            response.read()
            assert response.status == status
            assert connection.sock is sock, "the connection was not kept"
    finally:
        connection.close()
    wait_for_spans(service, 4, session_id=session)


def test_sixteen_connections_at_once_are_all_served(service: Service) -> None:
    session = unique("parallel")
    start = threading.Barrier(16)
    statuses: list[int] = []

    def work() -> None:
        headers = {"Authorization": f"Bearer {service.write_key}", **PROTOBUF}
        with httpx2.Client(base_url=service.url, headers=headers, verify=False, timeout=30) as own:
            start.wait(10)
            for _ in range(5):
                statuses.append(own.post("/v1/traces", content=one(session)).status_code)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert statuses == [200] * 80
    wait_for_spans(service, 80, session_id=session)


LIVENESS = b"GET /actuator/health/liveness HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Transfer-Encoding: chunked", "Content-Length: 0"),
        ("Content-Length: 0", "Content-Length: 5"),
        ("Content-Length: 0, 5",),
        ("Content-Length: -1",),
        ("Content-Length: +0",),
        ("Content-Length: 0x0",),
        ("Content-Length: 0 0",),
        ("Content-Length:",),
        ("Content-Length : 0",),
        ("Content-Length: 99999999999999999999999999",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/query/count"])
def test_an_ambiguous_length_is_refused_and_nothing_behind_it_is_read(
    service: Service, path: str, lines: tuple[str, ...]
) -> None:
    with connected(service.port) as sock:
        sock.sendall(head("POST", path, *credentials(service), *lines) + b"0\r\n\r\n" + LIVENESS * 2)
        sock.shutdown(socket.SHUT_WR)
        answer = until_closed(sock)
    assert b'"UP"' not in answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    # 501 is RFC 9112's word for a transfer coding that is not understood.
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501 "))


@pytest.mark.parametrize("size", [b"zz", b"-1", b"", b"0x1", b"1 1", b"ffffffffffffffffffffff", b"5\r\nabc"])
def test_a_broken_chunk_ends_the_connection(service: Service, size: bytes) -> None:
    with connected(service.port) as sock:
        sock.sendall(head("POST", "/v1/traces", *credentials(service), "Transfer-Encoding: chunked"))
        sock.sendall(size + b"\r\nabcde\r\n0\r\n\r\n" + LIVENESS)
        sock.shutdown(socket.SHUT_WR)
        answer = until_closed(sock)
    assert b'"UP"' not in answer
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "request_bytes",
    [
        head("POST", "/v1/traces", "X-Long: " + "x" * 200_000),
        head("POST", "/v1/traces", *(f"X-{number}: {'x' * 100}" for number in range(2_000))),
        head("GET", "/" + "x" * 70_000),
        b"x" * 70_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET /nowhere HTTP/3.0\r\nHost: test\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: test\r\nX: \x00\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET",
    ],
    ids=lambda raw: repr(raw[:16]),
)
def test_a_head_that_is_none_is_a_4xx_or_the_end(service: Service, request_bytes: bytes) -> None:
    with connected(service.port) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(request_bytes)
            sock.shutdown(socket.SHUT_WR)
        answer = until_closed(sock)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


def test_an_upgrade_to_a_websocket_is_404_in_the_envelope(service: Service) -> None:
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    with connected(service.port) as sock:
        sock.sendall(head("GET", "/v1/traces", *upgrade))
        status, _, body = read_response(sock)
    assert status == 404
    assert json.loads(body) == {"ok": False, "error": {"code": "NOT_FOUND", "message": "no such path"}}


# --- HTTP/2 -----------------------------------------------------------------------------------------------


def test_http2_with_prior_knowledge_takes_bodies_and_keeps_its_connection(service: Service) -> None:
    session = unique("http2")
    headers = {"Authorization": f"Bearer {service.write_key}", **PROTOBUF}
    with httpx2.Client(base_url=service.url, http1=False, http2=True, verify=False, timeout=30) as own:
        large = one(session, attributes={"input.value": "x" * MIB})
        response = own.post("/v1/traces", content=large, headers=headers)
        assert (response.http_version, response.status_code) == ("HTTP/2", 200)
        for _ in range(3):
            # Each is answered without its body being wanted.
            assert refusal(own.post("/v1/traces", content=bytes(300_000)))[0] == 401
            assert refusal(own.post("/v1/query/count", content=bytes(300_000)))[0] == 401
            assert refusal(own.post("/v1/metrics", content=bytes(300_000)))[0] == 404
        assert own.post("/v1/traces", content=one(session), headers=headers).status_code == 200
        asked = {"dataset": "spans", "filters": {"session_id": session}}
        key = {"Authorization": f"Bearer {service.query_key}"}
        until(lambda: own.post("/v1/query/count", json=asked, headers=key).json()["data"]["count"] == 2)


def test_a_body_behind_its_answer_does_not_spoil_an_http2_connection(service: Service) -> None:
    with http2(service.port) as raw:
        raw.state.send_headers(1, pseudo(b"/v1/query/count"))
        raw.flush()
        for _ in range(5):
            raw.state.send_data(1, bytes(1_000))
            raw.flush()
            assert raw.ping()
        raw.state.end_stream(1)
        raw.flush()
        response = raw.receive(h2.events.ResponseReceived)
        assert response is not None
        assert raw.ping()


def _priorities(stream_count: int) -> bytes:
    return b"".join(
        b"\0\0\5\2\0" + (2 * number + 1).to_bytes(4, "big") + b"\0\0\0\0\x10"
        for number in range(stream_count)
    )


FRAMES = {
    "unknown frame": b"\0\0\5\xee\0\0\0\0\0hello",
    "a thousand priorities": _priorities(1_100),
    "a thousand settings": b"\0\0\0\4\0\0\0\0\0" * 1_000,
    "a thousand pings": b"\0\0\x08\6\0\0\0\0\0abcdefgh" * 1_000,
    "data on no stream": b"\0\0\1\0\0\0\0\0\x09x",
    "continuation of nothing": b"\0\0\1\x09\0\0\0\0\1x",
    "reset of no stream": b"\0\0\4\3\0\0\0\0\x09\0\0\0\x08",
    "window overflow": b"\0\0\4\x08\0\0\0\0\0\x7f\xff\xff\xff" * 2,
    "too large a frame": b"\xff\xff\xff\0\0\0\0\0\1",
    "goaway": b"\0\0\x08\7\0\0\0\0\0\0\0\0\0\0\0\0\0",
    "altsvc": b"\0\0\x0c\x0a\0\0\0\0\0\0\5helloh2=:1",
    "rubbish": b"\xff" * 100,
}


@pytest.mark.parametrize("frames", FRAMES)
@pytest.mark.parametrize("door", ["http", "grpc"])
def test_frames_out_of_place_cost_a_connection_at_the_most(service: Service, door: str, frames: str) -> None:
    with http2(service.port if door == "http" else service.grpc_port) as raw:
        with contextlib.suppress(OSError):
            raw.sock.sendall(FRAMES[frames])
        _ping_once(raw)
    _both_doors_work(service)


def _ping_once(raw: Http2) -> None:
    """Wait until the server has dealt with it; it may close, or go on waiting for the rest of a frame."""
    raw.sock.settimeout(0.3)
    with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
        raw.ping()


HEADS = {
    "a path outside ASCII": pseudo(b"/\xff\xfe"),
    "no path": [(b":method", b"POST"), (b":scheme", b"http")],
    "CONNECT": [(b":method", b"CONNECT"), (b":authority", b"test")],
    "a websocket": pseudo(b"/v1/traces", b"CONNECT", (b":protocol", b"websocket")),
    "a method outside ASCII": pseudo(b"/v1/traces", b"\xff"),
    "a value outside ASCII": pseudo(b"/v1/traces", b"POST", (b"authorization", b"Bearer \xff")),
    "two paths": [*pseudo(b"/v1/traces"), (b":path", b"/other")],
    "connection header": pseudo(b"/v1/traces", b"POST", (b"connection", b"close")),
    "transfer-encoding": pseudo(b"/v1/traces", b"POST", (b"transfer-encoding", b"chunked")),
    "bad length": pseudo(b"/v1/traces", b"POST", (b"content-length", b"-1")),
    "grpc with broken binary metadata": pseudo(
        EXPORT.encode(),
        b"POST",
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"x-bin", b"!"),
    ),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_strange_head_costs_a_connection_at_the_most(service: Service, door: str, name: str) -> None:
    with http2(service.port if door == "http" else service.grpc_port) as raw:
        raw.state.send_headers(1, HEADS[name])
        raw.flush()
        with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
            raw.state.send_data(1, b"\0\0\0\0\0", end_stream=True)
            raw.flush()
        _ping_once(raw)
    _both_doors_work(service)


@pytest.mark.parametrize("message", [b"", b"\0\0\0", b"\0\0\0\0\x09short", b"\7\0\0\0\0", b"\1\0\0\0\2xx"])
def test_a_grpc_message_that_does_not_fit_its_frame_is_refused(service: Service, message: bytes) -> None:
    with http2(service.grpc_port) as raw:
        raw.state.send_headers(1, _grpc_head(service))
        raw.state.send_data(1, message, end_stream=True)
        raw.flush()
        response = raw.receive(h2.events.ResponseReceived)
    assert isinstance(response, h2.events.ResponseReceived)
    assert dict(response.headers)[b"grpc-status"] in (b"3", b"12")


def test_a_client_that_never_reads_its_answer_does_not_keep_the_service_from_stopping() -> None:
    with running(SVC_SHUTDOWN_DRAIN_SECONDS="1") as alone:
        names = (
            "session.id",
            "user.id",
            "gen_ai.request.model",
            "svc.call_site.id",
            "input.value",
            "output.value",
        )
        attributes = dict.fromkeys(names, "x" * 200)
        spans = [wire.span("n" * 200, attributes, trace_id=trace_id()) for _ in range(1_000)]
        assert send(alone, wire.request(*spans).SerializeToString()).status_code == 200
        wait_for_spans(alone, 1_000)
        question = json.dumps({"dataset": "spans", "limit": 1_000})
        assert len(post(alone, "/v1/query/search", question, alone.query_key).content) > MIB
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            sock.connect(("127.0.0.1", alone.port))
            credential = f"Authorization: Bearer {alone.query_key}"
            sock.sendall(head("POST", "/v1/query/search", credential, f"Content-Length: {len(question)}"))
            sock.sendall(question.encode())
            assert sock.recv(1, socket.MSG_PEEK)
            assert alone.stop() == 0


def test_grpc_calls_given_up_half_way_leave_nothing_behind(service: Service) -> None:
    before = open_sockets(service)
    for leave in (lambda raw: hang_up(raw.sock), lambda raw: raw.state.reset_stream(1), lambda raw: None):
        with http2(service.grpc_port) as raw:
            raw.state.send_headers(1, _grpc_head(service))
            raw.state.send_data(1, b"\0\0\0\1\0half")
            raw.flush()
            leave(raw)
            with contextlib.suppress(OSError):
                raw.flush()
    with http2(service.grpc_port) as raw:
        for stream in range(1, 2 * FREE_RESETS, 2):
            raw.state.send_headers(stream, _grpc_head(service))
            raw.state.reset_stream(stream)
        raw.flush()
        assert raw.ping()
    until(lambda: open_sockets(service) <= before)
    _both_doors_work(service)


def _grpc_head(service: Service) -> list[tuple[bytes, bytes]]:
    return pseudo(
        EXPORT.encode(),
        b"POST",
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"authorization", f"Bearer {service.write_key}".encode()),
    )


def _both_doors_work(service: Service) -> None:
    """A request over HTTP and a call over gRPC, each as any client would make it."""
    assert send(service, b"").status_code == 200
    with http2(service.grpc_port) as raw:
        raw.state.send_headers(1, _grpc_head(service))
        raw.state.send_data(1, b"\0\0\0\0\0", end_stream=True)
        raw.flush()
        trailers = raw.receive(h2.events.TrailersReceived)
    assert isinstance(trailers, h2.events.TrailersReceived)
    assert dict(trailers.headers)[b"grpc-status"] == b"0"
