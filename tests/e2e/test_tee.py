"""Laws of the tee in the whole service: both doors, an endpoint that is away, a stop, no secret told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest

from protocol.otlp.reading import read_protobuf, walk
from svc.front.otlp.grpc import METHOD
from tests.answering import answering
from tests.service import Service, running, until
from tests.wire import request, span

KEY = "planted-key-of-the-other-product"


class Receiver:
    """An OTLP endpoint that keeps spans by their ids; while `held`, it answers nobody."""

    def __init__(self) -> None:
        self.spans: dict[bytes, bytes] = {}
        self.headers: list[dict[str, str]] = []
        self.free = threading.Event()
        self.free.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.free.wait()
                for one in walk(read_protobuf(body)):
                    receiver.spans[one.trace_id + one.span_id] = one.raw
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                # An answer that nobody wants to read.
                self.send_header("content-length", str(1 << 30))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    with answering(receiver.server):
        try:
            yield receiver
        finally:
            receiver.free.set()


@pytest.fixture(scope="module")
def teed() -> Iterator[tuple[Service, Receiver]]:
    with (
        receiving() as receiver,
        running(
            SVC_TEE_ENDPOINT=receiver.url,
            SVC_TEE_HEADERS=f"authorization=Bearer%20{KEY},x-team=a%2Cb",
            SVC_TEE_MAX_BYTES="262144",
        ) as service,
    ):
        yield service, receiver


def sent(service: Service, n: int, name: str) -> dict[bytes, bytes]:
    """Spans sent over HTTP, one a request, by their ids."""
    spans = [
        span(
            f"{name} {at}",
            {"at": at},
            trace_id=name.encode().ljust(16, b"."),
        )
        for at in range(n)
    ]
    for one in spans:
        assert service.send(request(one).SerializeToString()).status_code == 200
    return {one.trace_id + one.span_id: one.SerializeToString() for one in spans}


def tee_of(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = service.health()["components"]["tee"]["details"]
    return found


def test_what_either_door_accepts_arrives_to_the_byte(teed: tuple[Service, Receiver]) -> None:
    service, receiver = teed
    expected = sent(service, 20, "by http")
    over_grpc = span("by grpc", trace_id=b"by grpc".ljust(16, b"."))
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        export = channel.unary_unary(METHOD)
        export(
            request(over_grpc).SerializeToString(),
            metadata=[("authorization", f"Bearer {service.write_key}")],
            timeout=30,
        )
    expected[over_grpc.trace_id + over_grpc.span_id] = over_grpc.SerializeToString()
    assert service.send(b"no request").status_code == 400
    until(lambda: receiver.spans.keys() >= expected.keys())
    assert {key: receiver.spans[key] for key in expected} == expected
    assert {(head["authorization"], head["x-team"]) for head in receiver.headers} == {
        (f"Bearer {KEY}", "a,b")
    }
    until(lambda: tee_of(service)["waiting_spans"] == 0)
    assert tee_of(service)["forwarded"] == service.metric("svc_tee_forwarded_spans_total") >= 21


def test_an_endpoint_that_answers_nobody_costs_ingest_nothing(teed: tuple[Service, Receiver]) -> None:
    service, receiver = teed
    receiver.free.clear()
    try:
        body = request(span("held up", {"text": "x" * 20_000}, trace_id=b"held".ljust(16, b".")))
        for _ in range(60):
            assert service.send(body.SerializeToString()).status_code == 200
        told = tee_of(service)
        assert told["waiting_bytes"] <= 262_144
        assert told["lost"]["full"] > 0
        assert service.health()["status"] == "UP"
        service.wait_for_spans(1, name="held up")
    finally:
        receiver.free.set()
    until(lambda: tee_of(service)["waiting_spans"] == 0)
    told = tee_of(service)
    assert told["offered"] == told["forwarded"] + sum(told["lost"].values())


def test_the_key_of_the_other_product_is_told_nowhere(teed: tuple[Service, Receiver]) -> None:
    service, _ = teed
    for words in (("doctor",), ("support-bundle", str(service.data_dir.parent / "bundle.tar.gz"))):
        assert KEY not in service.command(*words)
    assert KEY not in service.log.read_text()
    assert KEY not in str(service.health())


def test_a_stop_lets_what_waits_arrive() -> None:
    with receiving() as receiver, running(SVC_TEE_ENDPOINT=receiver.url) as service:
        receiver.free.clear()
        expected = sent(service, 5, "at the end")
        threading.Timer(1.0, receiver.free.set).start()
        assert service.stop() == 0
        assert receiver.spans.keys() >= expected.keys()
        assert "not forwarded" not in service.log.read_text()
