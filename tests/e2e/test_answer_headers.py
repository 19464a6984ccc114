"""What goes with every answer of the door: its type is to be believed, and pages stand alone."""

from __future__ import annotations

import re
import socket
from typing import Any

import httpx2
import pytest

from tests.service import PLAIN, Service

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


def head(service: Service, sent: bytes) -> str:
    """The head of the answer to bytes as they are."""
    with socket.create_connection(("127.0.0.1", service.port), 10) as sock:
        sock.settimeout(10)
        sock.sendall(sent)
        came = b""
        while b"\r\n\r\n" not in came:
            piece = sock.recv(65536)
            assert piece, came
            came += piece
    return came.partition(b"\r\n\r\n")[0].decode("latin1").lower()


def test_every_route_answers_every_method_with_nosniff(service: Service) -> None:
    with httpx2.Client(base_url=service.url, timeout=30, **PLAIN) as client:
        described: dict[str, Any] = client.get("/openapi.json").json()["paths"]
        paths = {re.sub(r"{\w+}", "1", path) for path in described}
        paths |= {"/", "/login", "/signup", "/account", "/orgs/default/projects/default/traces", "/orgs/x"}
        paths |= {"/mcp", "/v1/logs", "/v1/metrics", "/nothing", "/static/x/nothing.js", "/.well-known/x"}
        assert len(paths) > 60
        statuses = set()
        for path in sorted(paths):
            for method in METHODS:
                answer = client.request(method, path)
                statuses.add(answer.status_code)
                assert answer.headers.get_list("x-content-type-options") == ["nosniff"], (method, path)
    assert {200, 303, 400, 401, 404, 405} <= statuses, statuses


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", " 400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 300_000 + b"\r\n\r\n", " 4"),
        (
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            " 400",
        ),
        (b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\n\r\n", " 200"),
        (
            b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n",
            " 404",
        ),
    ],
    ids=["no HTTP", "a large head", "two lengths", "gRPC", "a web socket"],
)
def test_what_is_refused_before_any_route_says_nosniff_too(
    service: Service, sent: bytes, status: str
) -> None:
    answer = head(service, sent)
    assert answer.startswith("http/1.1" + status), answer
    assert answer.count("x-content-type-options: nosniff") == 1, answer


def test_pages_and_what_they_load_hold_no_handle_on_their_opener(service: Service) -> None:
    with httpx2.Client(base_url=service.url, timeout=30, **PLAIN) as client:
        for path in ("/signup", "/orgs/default/projects/default/nothing"):
            answer = client.get(path)
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers.get_list("cross-origin-opener-policy") == ["same-origin"]
