"""Every door for programs keeps the same laws: one table of doors, and each law over all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
import grpc
import h2.events
import pytest

from protocol.refusals import TWO_AUTHORIZATIONS
from tests import wire
from tests.e2e.hostile import (
    EXPORT,
    MIB,
    call,
    client,
    connected,
    head,
    http2,
    minted,
    post,
    pseudo,
    read_response,
    refusal,
    trace_id,
    unharmed,  # noqa: F401 - a fixture
    unique,
)
from tests.e2e.test_query_errors import ASKED
from tests.service import Service

pytestmark = pytest.mark.usefixtures("unharmed")

SCOPES: Final = ("write", "query", "admin")
GRPC_AS_HTTP: Final = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
}
API: Final = "/api/orgs/default/projects/default"
GARBAGE: Final = b"\xff\x00 neither JSON nor protobuf"


def one_span() -> bytes:
    return wire.request(wire.span(trace_id=trace_id())).SerializeToString()


def json_body(asked: object) -> Callable[[], bytes]:
    return lambda: json.dumps(asked).encode()


@attrs.frozen
class Door:
    """One way in: where, by which method, what it takes, from keys of which scopes, up to which size."""

    name: str
    path: str
    scopes: Sequence[str]
    body: Callable[[], bytes] = bytes
    method: str = "POST"
    media_type: str = "application/json"
    limit_bytes: int = MIB
    #: Whether a browser is answered that asks before it sends.
    preflight: bool = False

    def status(self, service: Service, key: str | None, body: bytes | None = None) -> int:
        """How it answers a request that is right but perhaps for the key, or one with another body."""
        content = self.body() if body is None else body
        if self.path == "":
            authorization = None if key is None else f"Bearer {key}"
            return GRPC_AS_HTTP[call(service, content, authorization).code]
        headers: Mapping[str, str] = {"content-type": self.media_type}
        if self.method == "GET":
            bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
            return client(service).get(self.path, headers=bearer).status_code
        return post(service, self.path, content, key, headers).status_code


DOORS: Final = (
    Door("OTLP protobuf", "/v1/traces", ("write", "admin"), one_span, media_type="application/x-protobuf",
         limit_bytes=64 * MIB),
    Door("OTLP JSON", "/v1/traces", ("write", "admin"), json_body({}), limit_bytes=64 * MIB),
    Door("OTLP gRPC", "", ("write", "admin"), one_span),
    *(
        Door(f"query {name}", f"/v1/query/{name}", ("query", "admin"), json_body(asked))
        for name, asked in ASKED.items()
    ),
    Door("feedback", "/v1/feedback", ("write", "admin"), json_body({"feedback": []}), preflight=True),
    Door("MCP", "/mcp", ("admin",), json_body({"jsonrpc": "2.0", "id": 1, "method": "ping"})),
    Door("cases", f"{API}/cases", ("query", "admin"), method="GET"),
)  # fmt: skip
BY_HTTP: Final = [door for door in DOORS if door.path]
WITH_BODY: Final = [door for door in BY_HTTP if door.method == "POST"]


def named(door: Door) -> str:
    return door.name


#: What reads a credential: the doors for programs, and a page.
CREDENTIALED: Final = (
    *(attrs.evolve(door, path=door.path or EXPORT) for door in DOORS),
    Door("page", "/orgs/default/projects/default/traces", (), method="GET", media_type="text/html"),
    Door("OAuth", "/oauth/revoke", (), lambda: b"token=x&client_id=y"),
)


@pytest.mark.parametrize("right_first", [True, False])
@pytest.mark.parametrize("http_version", ["1.1", "2"])
@pytest.mark.parametrize("door", CREDENTIALED, ids=named)
def test_a_request_with_two_credentials_is_refused_whichever_of_them_is_right(
    service: Service, door: Door, http_version: str, right_first: bool
) -> None:
    credentials = [f"Bearer {minted(service, 'admin')}", "Bearer svc_w_AAAAAAAAAAAAAAAAAAAAAA"]
    lines = [("authorization", value) for value in (credentials if right_first else credentials[::-1])]
    body = door.body()
    if door.path == EXPORT:
        lines += [("content-type", "application/grpc"), ("te", "trailers")]
        _, headers, _ = over_http2(
            service.grpc_port, door, lines, b"\0" + len(body).to_bytes(4, "big") + body
        )
        # A call is refused over HTTP/2 alone.
        assert (headers["grpc-status"], headers["grpc-message"]) == ("3", TWO_AUTHORIZATIONS.message)
        return
    lines += [("content-type", door.media_type), ("content-length", str(len(body)))]
    lines += [("accept", door.media_type)]
    if http_version == "2":
        status, headers, answer = over_http2(service.port, door, lines, body)
    else:
        with connected(service.port) as sock:
            sock.sendall(head(door.method, door.path, *(f"{name}: {value}" for name, value in lines)) + body)
            status, headers, answer = read_response(sock)
    assert (status, headers["content-type"].partition(";")[0]) == (400, door.media_type)
    assert TWO_AUTHORIZATIONS.message.lower() in answer.decode("latin1").lower()


def over_http2(
    port: int, door: Door, lines: list[tuple[str, str]], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a request over HTTP/2."""
    entries = [(name.encode(), value.encode()) for name, value in lines]
    with http2(port) as http:
        http.state.send_headers(1, pseudo(door.path.encode(), door.method.encode(), *entries))
        http.state.send_data(1, body, end_stream=True)
        http.flush()
        start = http.receive(h2.events.ResponseReceived)
        assert isinstance(start, h2.events.ResponseReceived)
        headers = {name.decode(): value.decode() for name, value in start.headers}
        if "grpc-status" in headers:
            return int(headers[":status"]), headers, b""
        data = http.receive(h2.events.DataReceived)
        assert isinstance(data, h2.events.DataReceived)
        return int(headers[":status"]), headers, data.data


@pytest.mark.parametrize("door", DOORS, ids=named)
def test_a_door_opens_to_keys_of_its_scopes_and_to_no_other(service: Service, door: Door) -> None:
    for scope in SCOPES:
        assert door.status(service, minted(service, scope)) == (200 if scope in door.scopes else 403), scope
    assert door.status(service, None) == 401
    assert door.status(service, "svc_w_AAAAAAAAAAAAAAAAAAAAAA") == 401


def test_a_revoked_key_is_refused_on_the_next_request_at_every_door(service: Service) -> None:
    for scope in SCOPES:
        name = unique("doomed")
        token = service.command("keys", "create", "--scope", scope, "--name", name).strip()
        doors = [door for door in DOORS if scope in door.scopes]
        # Known to be good, so that only the revocation can make it bad.
        assert {door.name: door.status(service, token) for door in doors} == {one.name: 200 for one in doors}
        [line] = [line for line in service.command("keys", "list").splitlines() if line.endswith(name)]
        service.command("keys", "revoke", line.split()[0])
        assert {door.name: door.status(service, token) for door in doors} == {one.name: 401 for one in doors}


@pytest.mark.parametrize("door", DOORS, ids=named)
def test_who_may_not_come_in_hears_so_whatever_was_sent(service: Service, door: Door) -> None:
    for body in (b"", GARBAGE, b"x" * 3 * MIB):
        assert door.status(service, None, body) == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("door", BY_HTTP, ids=named)
def test_any_other_method_is_405_and_names_what_is_allowed(service: Service, door: Door, method: str) -> None:
    headers = {"Authorization": f"Bearer {minted(service, 'admin')}"}
    response = client(service).request(method, door.path, headers=headers)
    allowed = response.headers.get("allow")
    if door.method == method or (door.method == "GET" and method == "HEAD"):
        assert response.status_code != 405
    elif method == "OPTIONS" and door.preflight:
        assert (response.status_code, response.content) == (204, b"")
    else:
        assert response.status_code == 405
        assert door.method in (allowed or "").replace(" ", "").split(",")
        if method != "HEAD" and door.name != "MCP":
            assert refusal(response) == (405, "METHOD_NOT_ALLOWED", "method not allowed")


@pytest.mark.parametrize("door", WITH_BODY, ids=named)
def test_a_body_that_says_it_is_too_large_is_413_before_it_has_come(service: Service, door: Door) -> None:
    lines = (
        f"Content-Length: {door.limit_bytes + 1}",
        f"Content-Type: {door.media_type}",
        f"Authorization: Bearer {minted(service, 'admin')}",
    )
    with connected(service.port) as sock:
        sock.sendall(head("POST", door.path, *lines))
        status, _, _ = read_response(sock)
    assert status == 413
