"""Asking providers and Git hosts: where, signed by whom, and what of their answers is told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.http import HttpClient
from svc.outside.reach import PROBES, Providers
from tests.answering import answering

AT = datetime(2026, 11, 20, 12, 34, 56, tzinfo=UTC)
SECRET = "the-secret-of-the-integration"


@attrs.define(eq=False)
class Other:
    """Whoever is asked: what it heard, and what it answers."""

    url: str
    status: int = 200
    heard: list[tuple[str, dict[str, str]]] = attrs.field(factory=list)


@pytest.fixture
def other() -> Iterator[Other]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.heard.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
            self.send_response(made.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Other(f"http://127.0.0.1:{server.server_port}")
    with answering(server):
        yield made


def providers() -> Providers:
    return Providers(HttpClient(AddressRule(LOCAL_NETWORKS)), lambda: AT)


@pytest.mark.parametrize(("kind", "provider"), [(kind, name) for kind, of in PROBES.items() for name in of])
async def test_each_is_asked_once_with_its_secret_in_one_header(
    kind: str, provider: str, other: Other
) -> None:
    told = await providers().ask(kind, provider, other.url, SECRET, region="eu-central-1")
    assert (told.reachable, told.accepted, told.status) == (True, True, 200)
    ((path, headers),) = other.heard
    assert path == PROBES[kind][provider].path
    assert [name for name, text in headers.items() if SECRET in text] == [PROBES[kind][provider].header]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "the credentials are refused"),
        (403, "the credentials are not allowed to do this"),
        (404, "it answers, but not at this path; check the base URL"),
        (429, "it answers, but limits our rate"),
        (500, "answered with status 500"),
    ],
)
async def test_of_a_refusal_the_status_is_told_and_nothing_else(
    status: int, message: str, other: Other
) -> None:
    other.status = status
    told = await providers().ask("model_provider", "openai", other.url, SECRET)
    assert (told.reachable, told.accepted, told.message) == (True, False, message)


@pytest.mark.parametrize("session", ["", " a/session+token=="])
async def test_a_key_pair_signs_for_its_region_as_the_cloud_expects(
    session: str, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await providers().ask(
        "model_provider",
        "aws_bedrock",
        other.url,
        SECRET + session,
        username="AKIDEXAMPLE",
        region="eu-central-1",
    )
    assert told.accepted
    ((path, ours),) = other.heard
    theirs = AWSRequest("GET", other.url + path, headers={"accept": "application/json"})
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: AT.replace(tzinfo=None))
    known = Credentials("AKIDEXAMPLE", SECRET, session.strip() or None)
    botocore.auth.SigV4Auth(known, "bedrock", "eu-central-1").add_auth(theirs)
    assert ours["authorization"].replace(", ", ",") == theirs.headers["Authorization"].replace(", ", ",")
    assert ours.get("x-amz-security-token", "") == session.strip()
    assert SECRET not in str(ours)


def test_the_cloud_is_asked_in_the_integrations_own_region() -> None:
    for region in ("eu-central-1", "ap-southeast-2"):
        url, _ = providers().asking("model_provider", "aws_bedrock", None, SECRET, region=region)
        assert url == f"https://bedrock.{region}.amazonaws.com/foundation-models"


async def test_what_cannot_be_reached_is_told_without_its_words() -> None:
    told = await providers().ask("git", "gitlab", "http://127.0.0.1:9", SECRET)
    assert (told.reachable, told.accepted, told.status) == (False, False, None)
    assert SECRET not in told.message
