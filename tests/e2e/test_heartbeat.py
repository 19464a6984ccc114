"""The heartbeat of the real service: one message when it may, and not even a look-up when it may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.answering import answering
from tests.service import running, until

#: Writes down every name that the process looks up, from its first moment on.
LISTENER = """
import os, sys
def heard(event, arguments):
    if event == "socket.getaddrinfo":
        with open(os.environ["LOOKED_UP"], "a") as file:
            print(arguments[0], file=file)
sys.addaudithook(heard)
"""


@attrs.define
class Host:
    """A heartbeat host on this machine."""

    port: int = 0
    heard: list[tuple[str, Any]] = attrs.field(factory=list)


@pytest.fixture
def host() -> Iterator[Host]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.heard.append((self.path, json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            return

    found = Host()
    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_port
    with answering(server):
        yield found


@pytest.mark.release
def test_one_message_at_the_start_and_none_nor_a_look_up_when_turned_off(host: Host, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LISTENER)
    looked_up = tmp_path / "looked-up"
    looked_up.touch()
    settings = {
        "PYTHONPATH": str(tmp_path),
        "LOOKED_UP": str(looked_up),
        "SVC_TELEMETRY_URL": f"http://localhost:{host.port}/beat",
    }
    with running(SVC_TELEMETRY_ENABLED="true", **settings):
        until(lambda: host.heard)
    ((path, message),) = host.heard
    assert path == "/beat"
    assert sorted(message) == [
        "app_version", "arch", "contract_version", "edition", "install_id", "org_count_bucket", "os",
        "project_count_bucket", "timestamp", "trace_volume_bucket",
    ]  # fmt: skip
    assert "localhost" in looked_up.read_text().split(), "the trap works"
    looked_up.write_text("")
    with running(SVC_TELEMETRY_ENABLED="false", **settings) as service:
        assert "heartbeat" not in service.health()["components"]["actors"]["details"]
        assert "its host is never resolved" in service.command("doctor")
    assert len(host.heard) == 1
    names = set(looked_up.read_text().split())
    assert "localhost" not in names
