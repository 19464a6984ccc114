"""No small request costs a large one: payloads, batches, questions, resets, silent connections."""

from __future__ import annotations

import json
import os
import resource
import socket
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import httpx2
import pytest

from tests import wire
from tests.e2e.hostile import FULL, MIB, client, minted, post, trace_id, unharmed, unique, wait_for_spans  # noqa: F401
from tests.e2e.mcp import asked, envelope, invalid, mcp, result
from tests.e2e.watch import Watch
from tests.service import PLAIN, Service, running, until

pytestmark = pytest.mark.usefixtures("unharmed")

#: Characters of a question that is too long.
TOO_LONG = 100_000 if FULL else 1001
#: The longest that health may take beside what is asked here.
BESIDE_S = 2.0


def sent_large(service: Service, spans: int, size: int) -> bytes:
    """A trace of so many spans that each said so much, no two the same."""
    trace = trace_id()
    name = unique("large")
    for number in range(1, spans + 1):
        text = f"{number} " + "so it went on and on; " * (size // 22)
        span = wire.span(
            name, {"gen_ai.prompt": text, "note": "short"}, trace_id=trace, span_id=bytes([number]) * 8
        )
        body = wire.request(span).SerializeToString()
        assert service.send(body).status_code == 200
    wait_for_spans(service, spans, name=name)
    until(lambda: asked(service, "get_trace", trace_id=trace.hex())["span_count"] == spans)
    return trace


@pytest.fixture(scope="module")
def large(service: Service) -> bytes:
    """A trace of five spans of six megabytes each."""
    return sent_large(service, 5, 6 * MIB)


def whole(service: Service, path: str) -> Any:
    """The payload that a path serves."""
    headers = {"Authorization": f"Bearer {minted(service, 'admin')}"}
    response = client(service).get(path, headers=headers)
    assert response.status_code == 200, response.text[:300]
    assert response.headers["content-type"] == "application/json"
    return response.json()["data"]


def test_what_is_cut_of_a_trace_says_so_and_is_served_whole_elsewhere(service: Service, large: bytes) -> None:
    response = mcp(
        service,
        envelope(
            "tools/call", {"name": "get_trace", "arguments": {"trace_id": large.hex(), "fields": ["payload"]}}
        ),
    )
    assert len(response.content) <= 8 * MIB
    spans = result(response)["structuredContent"]["spans"]
    cut = spans[0]["payload_truncated"]
    assert cut["size_bytes"] > 6 * MIB
    assert "attributes" in cut["missing"]
    assert spans[0]["attributes"] is None
    found = whole(service, cut["whole"])
    assert len(found["attributes"]["gen_ai.prompt"]) > 5 * MIB
    assert found["attributes"]["note"] == "short"
    assert {"input", "output", "provided_usage", "events", "links", "resource", "scope"} <= found.keys()


def test_a_span_that_fits_is_not_cut(service: Service) -> None:
    trace = sent_large(service, 1, MIB)
    span = asked(service, "get_span", trace_id=trace.hex(), span_id="01" * 8)
    assert "payload_truncated" not in span
    assert len(span["attributes"]["gen_ai.prompt"]) > MIB * 9 // 10


def test_a_batch_of_large_answers_is_bounded_in_bytes_and_memory_and_holds_nobody_up(
    service: Service, large: bytes
) -> None:
    one = {"name": "get_trace", "arguments": {"trace_id": large.hex(), "fields": ["payload"]}}
    with Watch(service) as watch:
        response = mcp(service, [envelope("tools/call", one, id_=number) for number in range(10)])
    assert len(response.content) <= 16 * MIB
    answers = response.json()
    assert [answer["id"] for answer in answers] == list(range(10))
    assert watch.grown_bytes < 250 * MIB
    assert watch.statuses == {200}
    assert watch.worst_s < BESIDE_S


def test_a_searched_text_is_bounded_and_the_refusal_names_the_limit(service: Service) -> None:
    for dataset in ("spans", "tool_calls"):
        asked_ = {"dataset": dataset, "q": "x" * TOO_LONG}
        response = post(service, "/v1/query/search", json.dumps(asked_), service.query_key)
        assert response.status_code == 400
        assert (
            response.json()["error"]["message"] == f"'q' has {TOO_LONG} characters; at most 1,000 are taken"
        )
        asked_["q"] = "x" * 1000
        assert post(service, "/v1/query/search", json.dumps(asked_), service.query_key).status_code == 200
    for tool in ("list_traces", "list_spans"):
        assert "1000" in invalid(service, tool, q="x" * TOO_LONG)


def test_streams_reset_again_and_again_costs_its_connection_and_nobody_else(service: Service) -> None:
    with Watch(service) as watch:
        began_s = watch.busy_s()
        reset_rapidly(service.port, 20_000 if FULL else 5_000)
        until(lambda: in_flight_but_two(service))
        took_s = watch.busy_s() - began_s
    assert watch.statuses == {200}
    assert watch.worst_s < BESIDE_S
    assert took_s < 5
    assert watch.grown_bytes < 60 * MIB


def in_flight_but_two(service: Service) -> bool:
    """Nothing is inside but the question and the watch."""
    text = client(service).get("/actuator/prometheus").text
    (line,) = [line for line in text.splitlines() if line.startswith("svc_http_in_flight ")]
    return float(line.split()[1]) <= 2


def reset_rapidly(port: int, times: int) -> None:
    """Ask for health and reset the question, again and again, on one connection, until it is closed."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    head = [(":method", "GET"), (":path", "/actuator/health"), (":scheme", "http"), (":authority", "x")]
    for number in range(times):
        stream = 2 * number + 1
        connection.send_headers(stream, head, end_stream=True)
        connection.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        try:
            sock.sendall(connection.data_to_send())
            while sock.recv(65536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            # It was closed while it was still sending: just so.
            return


def test_a_client_that_gives_up_now_and_then_keeps_its_connection(service: Service) -> None:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    head = [
        (":method", "GET"),
        (":path", "/actuator/health/liveness"),
        (":scheme", "http"),
        (":authority", "x"),
    ]
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as sock:
        for number in range(20):
            connection.send_headers(4 * number + 1, head, end_stream=True)
            connection.reset_stream(4 * number + 1, h2.errors.ErrorCodes.CANCEL)
            connection.send_headers(4 * number + 3, head, end_stream=True)
            sock.sendall(connection.data_to_send())
            ended = False
            while not ended:
                data = sock.recv(65536)
                assert data
                events = connection.receive_data(data)
                ended = any(isinstance(event, h2.events.StreamEnded) for event in events)


def test_silent_connections_go_first_when_descriptors_run_out() -> None:
    with running(errors_expected=True) as service:
        open_now = len(list_fds(service))
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (2 * open_now + 64, 2 * open_now + 64))
        silent = []
        try:
            for _ in range(2 * open_now + 200):
                silent.append(socket.create_connection(("127.0.0.1", service.port), timeout=10))
            for _ in range(5):
                assert httpx2.get(f"{service.url}/actuator/health", timeout=10, **PLAIN).status_code == 200
        finally:
            for sock in silent:
                sock.close()
        assert service.metric("svc_http_shed_total") > 0
        errors = [line for line in service.log.read_text().splitlines() if "level=error" in line]
        assert len(errors) <= 1


def list_fds(service: Service) -> list[str]:
    """The open files of the main process."""
    return os.listdir(f"/proc/{service.process.pid}/fd")


def test_the_soft_limit_of_open_files_is_the_hard_one(service: Service) -> None:
    soft, hard = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
