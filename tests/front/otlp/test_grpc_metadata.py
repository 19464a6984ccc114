"""Whatever a client puts into the metadata of a call, it is answered, and nothing is logged as an error."""

from __future__ import annotations

import logging

import h2.events
import pytest

from protocol.refusals import (
    BAD_GRPC_TIMEOUT,
    DEADLINE_PASSED,
    GRPC_SIGNALS,
    GRPC_UNKNOWN,
    METADATA_TOO_LARGE,
)
from svc.front.otlp.grpc_connection import METADATA_BYTES, bounded_metadata
from tests import wire
from tests.e2e.hostile import EXPORT, Http2, http2, pseudo
from tests.front.otlp.doors import GRPC_HEADERS, with_grpc

METRICS = b"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS = b"/opentelemetry.proto.collector.logs.v1.LogsService/Export"
BODY = wire.request(wire.span()).SerializeToString()


def call(
    client: Http2, *entries: tuple[bytes, bytes], body: bytes = BODY, stream: int = 1
) -> tuple[int, str]:
    """Status and text of a call with these entries."""
    client.state.send_headers(stream, pseudo(EXPORT.encode(), b"POST", *GRPC_HEADERS, *entries))
    client.state.send_data(stream, b"\0" + len(BODY).to_bytes(4, "big") + body, end_stream=body is BODY)
    client.flush()
    head = client.receive(h2.events.ResponseReceived, stream)
    assert isinstance(head, h2.events.ResponseReceived)
    said = {bytes(name): bytes(value) for name, value in head.headers}
    if b"grpc-status" not in said:
        trailers = client.receive(h2.events.TrailersReceived, stream)
        assert isinstance(trailers, h2.events.TrailersReceived)
        said = {bytes(name): bytes(value) for name, value in trailers.headers}
    return int(said[b"grpc-status"]), said.get(b"grpc-message", b"").decode()


@pytest.mark.parametrize("value", [b"!", b"a", b"====", b"a b c", b"\x7f", b"", b"QUI", b"x" * 4000])
async def test_a_binary_entry_of_any_value_costs_the_call_nothing(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def work(port: int) -> tuple[int, str]:
        with http2(port) as client:
            return call(client, (b"trace-bin", value), (b"grpc-trace-bin", value))

    assert await with_grpc(work) == (0, "")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("given", [b"0n", b"1n", b"50m"])
async def test_a_call_whose_deadline_passes_is_told_so_and_logged_as_no_error(
    given: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def work(port: int) -> tuple[int, str]:
        with http2(port) as client:
            said = call(client, (b"grpc-timeout", given), body=b"half")
            # The connection goes on.
            assert call(client, stream=3) == (0, "")
            return said

    assert await with_grpc(work) == (4, DEADLINE_PASSED.message)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("given", [b"", b"soon", b"1", b"-1S", b"123456789S", b"1.5S"])
async def test_a_timeout_that_is_none_is_named(given: bytes) -> None:
    def work(port: int) -> tuple[int, str]:
        with http2(port) as client:
            return call(client, (b"grpc-timeout", given or b" "))

    assert await with_grpc(work) == (3, BAD_GRPC_TIMEOUT.message)


async def test_a_generous_deadline_changes_nothing() -> None:
    def work(port: int) -> tuple[int, str]:
        with http2(port) as client:
            return call(client, (b"grpc-timeout", b"10S"))

    assert await with_grpc(work) == (0, "")


async def test_metadata_above_its_bound_is_answered_and_below_it_is_taken() -> None:
    def work(port: int) -> list[tuple[int, str]]:
        with http2(port) as client:
            return [
                call(client, (b"x-large", b"v" * (METADATA_BYTES - 1000))),
                call(client, (b"x-large", b"v" * METADATA_BYTES), stream=3),
                call(client, *[(b"n%d" % n, b"v") for n in range(500)], stream=5),
                call(client, stream=7),
            ]

    too_large = (8, METADATA_TOO_LARGE.message)
    assert await with_grpc(work) == [(0, ""), too_large, too_large, (0, "")]


def test_no_client_can_send_an_entry_of_our_own() -> None:
    sent = [(":path", "/x"), ("svc-grpc-timeout", "0n"), ("svc-grpc-oversized", "1"), ("grpc-timeout", "5S")]
    assert bounded_metadata(sent) == [(":path", "/x"), ("svc-grpc-timeout", "5S")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (METRICS, GRPC_SIGNALS["metrics"]),
        (LOGS, GRPC_SIGNALS["logs"]),
        (b"/grpc.health.v1.Health/Check", GRPC_UNKNOWN),
        (EXPORT.encode() + b"s", GRPC_UNKNOWN),
    ],
    ids=["metrics", "logs", "unknown service", "unknown method"],
)
async def test_an_unimplemented_method_is_refused_as_grpc_has_it(path: bytes, text: str) -> None:
    """Without the content type, clients report that it is missing in place of the text."""

    def work(port: int) -> dict[bytes, bytes]:
        with http2(port) as client:
            client.state.send_headers(1, pseudo(path, b"POST", *GRPC_HEADERS))
            client.state.send_data(1, b"\0" + len(BODY).to_bytes(4, "big") + BODY, end_stream=True)
            client.flush()
            head = client.receive(h2.events.ResponseReceived, 1)
            assert isinstance(head, h2.events.ResponseReceived)
            assert call(client, stream=3) == (0, "")
            return {bytes(name): bytes(value) for name, value in head.headers}

    said = await with_grpc(work)
    assert said[b":status"] == b"200"
    assert said[b"content-type"] == b"application/grpc+proto"
    assert (said[b"grpc-status"], said[b"grpc-message"].decode()) == (b"12", text)


async def test_an_answer_comes_in_one_piece() -> None:
    def work(port: int) -> list[str]:
        with http2(port) as client:
            # Of the first one the table of headers is made.
            assert call(client) == (0, "")
            assert client.ping()
            client.state.send_headers(3, pseudo(EXPORT.encode(), b"POST", *GRPC_HEADERS))
            client.state.send_data(3, b"\0" + len(BODY).to_bytes(4, "big") + BODY, end_stream=True)
            client.flush()
            events = client.state.receive_data(client.sock.recv(65536))
            return [type(event).__name__ for event in events if getattr(event, "stream_id", 3) == 3]

    told = await with_grpc(work)
    assert [name for name in told if name != "WindowUpdated"] == [
        "ResponseReceived",
        "DataReceived",
        "TrailersReceived",
        "StreamEnded",
    ]
