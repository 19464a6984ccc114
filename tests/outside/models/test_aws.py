"""Keys of the machine: a container's endpoint and its metadata, held against the cloud's library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import pytest
from botocore.credentials import ContainerProvider, InstanceMetadataProvider
from botocore.utils import ContainerMetadataFetcher, InstanceMetadataFetcher

from svc.outside.models.aws import CloudKeys
from svc.outside.models.sigv4 import KeyPair
from tests.answering import answering

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
UNTIL = NOW + timedelta(hours=6)
KEYS = {
    "Code": "Success",
    "Type": "AWS-HMAC",
    "RoleArn": "arn:aws:iam::1:role/agents",
    "AccessKeyId": "ASIAEXAMPLE",
    "SecretAccessKey": "the/secret+key",
    "Token": "a session token",
    "LastUpdated": "2026-11-20T06:00:00Z",
    "Expiration": "2026-11-20T18:00:00Z",
}
PAIR = KeyPair("ASIAEXAMPLE", "the/secret+key", "a session token", UNTIL)
TICKET, TOKEN = "AQ-the-ticket==", "Basic the-token-of-the-container"
ROLES = "/latest/meta-data/iam/security-credentials/"


@attrs.define(eq=False)
class Machine:
    """What a machine is told by its cloud. `fail` are paths that answer with another status."""

    url: str
    keys: dict[str, str] = attrs.field(factory=lambda: dict(KEYS))
    role: bytes = b"agents"
    fail: dict[str, int] = attrs.field(factory=dict)
    heard: list[tuple[str, str]] = attrs.field(factory=list)


@pytest.fixture
def machine() -> Iterator[Machine]:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            ttl = self.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            self._say(200 if self.path == "/latest/api/token" and ttl.isdigit() else 400, TICKET.encode())

        def do_GET(self) -> None:
            if self.path == "/keys":
                fine = self.headers.get("authorization") == TOKEN
                self._say(200 if fine else 401, json.dumps(made.keys).encode())
            elif self.headers.get("x-aws-ec2-metadata-token") != TICKET:
                self._say(401, b"")
            elif self.path == ROLES:
                self._say(200, made.role)
            else:
                known = self.path == ROLES + "agents"
                self._say(200 if known else 404, json.dumps(made.keys).encode())

        def _say(self, status: int, body: bytes) -> None:
            made.heard.append((self.command, self.path))
            self.send_response(made.fail.get(self.path, status))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Machine(f"http://127.0.0.1:{server.server_port}")
    with answering(server):
        yield made


def same(ours: KeyPair | None, theirs: Any) -> bool:
    """Whether both found the same keys."""
    assert ours is not None
    frozen = theirs.get_frozen_credentials()
    return (ours.access_key, ours.secret_key, ours.session_token) == (
        frozen.access_key,
        frozen.secret_key,
        frozen.token,
    )


async def test_a_containers_endpoint_gives_what_the_clouds_library_finds_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{machine.url}/keys",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": TOKEN,
    }
    machine.keys["Expiration"] = "2099-11-20T18:00:00Z"
    theirs = ContainerProvider(environ=env, fetcher=ContainerMetadataFetcher()).load()
    asked_by_library = list(machine.heard)
    keys = CloudKeys(
        container_url=env["AWS_CONTAINER_CREDENTIALS_FULL_URI"],
        container_token=TOKEN,
        metadata_url=machine.url,
    )
    assert same(await keys.find(lambda: NOW), theirs)
    assert machine.heard == asked_by_library * 2
    assert TOKEN not in repr(keys)


async def test_the_machines_metadata_gives_what_the_clouds_library_finds_there(machine: Machine) -> None:
    machine.keys["Expiration"] = "2099-11-20T18:00:00Z"
    fetcher = InstanceMetadataFetcher(timeout=2, num_attempts=1, base_url=machine.url)
    theirs = InstanceMetadataProvider(iam_role_fetcher=fetcher).load()
    asked_by_library = list(machine.heard)
    assert same(await CloudKeys(metadata_url=machine.url).find(lambda: NOW), theirs)
    assert machine.heard == asked_by_library * 2
    assert machine.heard[0] == ("PUT", "/latest/api/token")


async def test_keys_are_kept_until_shortly_before_their_end_and_then_asked_for_anew(machine: Machine) -> None:
    keys, moment = CloudKeys(metadata_url=machine.url), NOW

    def now() -> datetime:
        return moment

    assert await keys.find(now) == PAIR
    moment = UNTIL - timedelta(minutes=6)
    assert await keys.find(now) == PAIR
    assert machine.heard.count(("GET", ROLES)) == 1
    machine.keys |= {"AccessKeyId": "ASIANEW", "Expiration": "2026-11-21T00:00:00+00:00"}
    moment = UNTIL - timedelta(minutes=4)
    found = await keys.find(now)
    assert found is not None
    assert found.access_key == "ASIANEW"


async def test_the_environment_goes_before_the_container_and_that_before_the_machine(
    machine: Machine,
) -> None:
    own = CloudKeys(
        "AKID", "secret", "session", container_url=f"{machine.url}/keys", metadata_url=machine.url
    )
    assert await own.find(lambda: NOW) == KeyPair("AKID", "secret", "session")
    assert not machine.heard
    container = CloudKeys(
        container_url=f"{machine.url}/keys", container_token=TOKEN, metadata_url=machine.url
    )
    assert await container.find(lambda: NOW) == PAIR
    assert machine.heard == [("GET", "/keys")]


@pytest.mark.parametrize(
    ("fail", "keys", "role"),
    [
        ({"/latest/api/token": 403}, {}, b"agents"),
        ({ROLES: 404}, {}, b"agents"),
        ({ROLES + "agents": 500}, {}, b"agents"),
        ({}, {"AccessKeyId": None}, b"agents"),
        ({}, {"Expiration": "soon"}, b"agents"),
        ({}, {}, b""),
        ({}, {}, b"\xff\xfe"),
        ({}, {}, b"../../elsewhere"),
    ],
)
async def test_what_is_none_gives_no_keys_and_is_asked_again(
    fail: dict[str, int], keys: dict[str, Any], role: bytes, machine: Machine
) -> None:
    machine.fail, machine.role = fail, role
    machine.keys |= keys
    found = CloudKeys(metadata_url=machine.url)
    assert await found.find(lambda: NOW) is None
    machine.fail, machine.role, machine.keys = {}, b"agents", dict(KEYS)
    assert await found.find(lambda: NOW) == PAIR


async def test_where_nothing_answers_there_are_no_keys() -> None:
    assert await CloudKeys(metadata_url="http://127.0.0.1:9").find(lambda: NOW) is None
