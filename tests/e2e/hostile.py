"""What the hostile end-to-end tests share: raw talk to both doors, minted keys, stored payloads, and the
check after every test that the service took no harm.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import itertools
import json
import os
import secrets
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import grpc
import h2.config
import h2.connection
import h2.events
import httpx2
import pytest
import trio
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.domain.intake.payload import payload_of
from svc.store.postgres.database import Connection
from svc.store.spans.payloads import read_payloads
from tests.service import Service, until

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#: `make hostile` asks for the sizes and rounds of the attacks as they were described.
FULL = os.environ.get("HOSTILE") == "full"
MIB = 1024 * 1024

T = TypeVar("T")

_names = itertools.count(1)


def unique(word: str) -> str:
    """A name that no other test uses."""
    return f"{word}-{os.getpid()}-{next(_names)}"


def trace_id() -> bytes:
    """A trace of one's own."""
    return secrets.token_bytes(16)


@functools.cache
def client(service: Service) -> httpx2.Client:
    """One client with living connections; a new one for each request would cost more than most tests."""
    made = httpx2.Client(base_url=service.url, timeout=60, verify=False)
    atexit.register(made.close)
    return made


def health(service: Service) -> dict[str, Any]:
    """The whole health report."""
    report: dict[str, Any] = client(service).get("/actuator/health").json()
    return report


def ingest_health(service: Service) -> dict[str, Any]:
    """What health says of the spool and its drainers."""
    details: dict[str, Any] = health(service)["components"]["ingest"]["details"]
    return details


def in_flight(service: Service) -> float:
    """HTTP requests inside, this question included."""
    text = client(service).get("/actuator/prometheus").text
    [line] = [line for line in text.splitlines() if line.startswith("svc_http_in_flight ")]
    return float(line.split()[1])


def post(
    service: Service, path: str, body: Any, key: str | None, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    """POST a body with a bearer key, or with none."""
    sent = {} if key is None else {"Authorization": f"Bearer {key}"}
    return client(service).post(path, content=body, headers=sent | dict(headers or {}))


def ask(service: Service, route: str, body: dict[str, Any]) -> Any:
    """The data of a question that has to be answered."""
    response = post(service, f"/v1/query/{route}", json.dumps(body), service.query_key)
    assert response.status_code == 200, response.text
    return response.json()["data"]


def wait_for_spans(service: Service, count: int, **filters: Any) -> None:
    """Until this many spans are queryable."""
    asked = {"dataset": "spans", "filters": filters}
    until(lambda: ask(service, "count", asked)["count"] == count)


@pytest.fixture
def unharmed(service: Service) -> Iterator[None]:
    """Whatever was sent: the service is UP, holds nothing, buried nothing and logged no ERROR."""
    logged = service.log.stat().st_size
    buried = ingest_health(service)["dead_lettered"]
    yield
    assert service.process.poll() is None
    until(lambda: ingest_health(service)["depth"] == 0)
    until(lambda: in_flight(service) == 1)
    report = health(service)
    assert report["status"] == "UP"
    assert report["components"]["ingest"]["details"]["dead_lettered"] == buried
    with service.log.open("rb") as log:
        log.seek(logged)
        errors = [line for line in log if b"level=error" in line]
    assert not errors, errors


@functools.cache
def minted(service: Service, scope: str) -> str:
    """A key of the scope, made once beside the running service."""
    return service.command("keys", "create", "--scope", scope, "--name", unique(scope)).strip()


def refusal(response: httpx2.Response) -> tuple[int, str, str]:
    """Status, code and message of a refusal, which has to be the failure envelope and nothing else."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"ok", "error"}
    assert body["ok"] is False
    assert {"code", "message"} <= body["error"].keys() <= {"code", "message", "details"}
    return response.status_code, body["error"]["code"], body["error"]["message"]


def rows_of(service: Service, **filters: Any) -> list[dict[str, Any]]:
    """The fields of the spans that the query API shows for these filters, newest first."""
    data = ask(service, "search", {"dataset": "spans", "filters": filters, "limit": 1000})
    return [row["fields"] for row in data["rows"]]


# --- the database behind the doors ------------------------------------------------------------------------


def with_store(service: Service, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Do something on the service's own database, as its commands beside the running service do."""

    async def done() -> T:
        async with open_store(read_settings(service.env)) as store:
            return await store.database.run(work, readonly=True)

    return trio.run(done)


def from_store(service: Service, sql: str, *values: Any) -> list[dict[str, Any]]:
    """Rows read beside the running service."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        return [dict(row) for row in await connection.fetch(sql, *values)]

    return with_store(service, work)


def payload(service: Service, trace: bytes, span: bytes) -> dict[str, Any]:
    """The full payload of a stored span, as a reader gets it."""

    async def work(connection: Connection) -> dict[str, Any]:
        sql = "select project_id, started_at, frame from span where trace_id = $1 and span_id = $2"
        row = await connection.fetchrow(sql, trace, span)
        assert row is not None
        found = await read_payloads(
            connection, row["project_id"], [(trace, span, row["started_at"], row["frame"])]
        )
        return payload_of(found[trace, span])

    return with_store(service, work)


@contextlib.contextmanager
def frozen_database(service: Service) -> Iterator[None]:
    """Stop every process of the embedded PostgreSQL, so that all it is asked hangs; then let it go on."""
    pid_file = service.data_dir / "postgres" / "18" / "data" / "postmaster.pid"
    postmaster = int(pid_file.read_text().split()[0])
    stopped: list[int] = []
    try:
        # The postmaster first: it makes no more children, so that none is missed.
        for pid in itertools.chain([postmaster], _children(postmaster)):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        yield
    finally:
        for pid in reversed(stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The command in parentheses may hold blanks; what follows it is state and parent.
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    yield int(folder.name)


# --- raw HTTP/1.1 -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(port: int, timeout_s: float = 10.0) -> Iterator[socket.socket]:
    """A TCP connection to one of the doors."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        yield sock


def until_closed(sock: socket.socket) -> bytes:
    """Everything that arrives until the other side closes."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def read_response(sock: socket.socket) -> tuple[int, Mapping[str, str], bytes]:
    """One response from a socket that may stay open."""
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def head(method: str, path: str, *lines: str) -> bytes:
    """A request head."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: test", *lines, "", "")).encode("latin1")


def hang_up(sock: socket.socket) -> None:
    """Close with a reset, as a killed client does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def open_sockets(service: Service) -> int:
    """How many sockets the process of the service holds."""
    count = 0
    for fd in Path(f"/proc/{service.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(fd).startswith("socket:")
    return count


# --- raw HTTP/2 -------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Http2:
    """A client that sends what it likes."""

    sock: socket.socket
    state: h2.connection.H2Connection
    events: list[h2.events.Event] = attrs.field(factory=list)
    closed: bool = False

    def flush(self) -> None:
        """Send what is due."""
        self.sock.sendall(self.state.data_to_send())

    def receive(self, until_event: type[h2.events.Event], stream: int = 1) -> h2.events.Event | None:
        """The next event of this kind on this stream (or on the connection), None when it is closed first."""
        while True:
            for event in self.events:
                if isinstance(event, until_event) and getattr(event, "stream_id", stream) == stream:
                    self.events.remove(event)
                    return event
            if self.closed:
                return None
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            self.closed = not piece
            if piece:
                self.events += self.state.receive_data(piece)
                self.flush()

    def ping(self) -> bool:
        """Whether the connection still answers."""
        try:
            self.state.ping(b"12345678")
            self.flush()
        except OSError:
            return False
        return self.receive(h2.events.PingAckReceived) is not None


@contextlib.contextmanager
def http2(port: int) -> Iterator[Http2]:
    """An HTTP/2 connection with prior knowledge, its settings exchanged."""
    with connected(port) as sock:
        state = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        state.initiate_connection()
        client = Http2(sock, state)
        client.flush()
        assert client.receive(h2.events.RemoteSettingsChanged) is not None
        yield client


def pseudo(path: bytes, method: bytes = b"POST", *headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The header block of a request."""
    names = ((b":method", method), (b":path", path), (b":scheme", b"http"), (b":authority", b"test"))
    return [*names, *headers]


# --- gRPC -------------------------------------------------------------------------------------------------


@attrs.frozen
class Called:
    """The outcome of a call: status, text, trailers, and the response when it is OK."""

    code: grpc.StatusCode
    text: str
    trailers: Mapping[str, Any]
    response: ExportTraceServiceResponse | None = None


def call(
    service: Service,
    body: bytes,
    authorization: str | None,
    *,
    method: str = EXPORT,
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> Called:
    """One unary call by grpcio on a channel of its own, not retried."""
    metadata = () if authorization is None else (("authorization", authorization),)
    options = (("grpc.enable_retries", 0), ("grpc.max_send_message_length", -1))
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}", options=options) as channel:
        try:
            answer, outcome = channel.unary_unary(method).with_call(
                body, timeout=30, metadata=metadata, compression=compression
            )
        except grpc.RpcError as error:
            return Called(error.code(), error.details(), dict(error.trailing_metadata() or ()))
        return Called(
            outcome.code(),
            outcome.details(),
            dict(outcome.trailing_metadata() or ()),
            ExportTraceServiceResponse.FromString(answer),
        )


def retry_infos(called: Called) -> list[float]:
    """The seconds to wait that the trailers name: in the status details, and in a trailer of its own."""
    waits = []
    if raw := called.trailers.get("grpc-status-details-bin"):
        status = status_pb2.Status.FromString(raw)
        assert status.code == called.code.value[0]
        for detail in status.details:
            info = error_details_pb2.RetryInfo()
            assert detail.Unpack(info)
            waits.append(info.retry_delay.ToTimedelta().total_seconds())
    if raw := called.trailers.get("google.rpc.retryinfo-bin"):
        waits.append(error_details_pb2.RetryInfo.FromString(raw).retry_delay.ToTimedelta().total_seconds())
    return waits
