"""The README from `make run` to a write key; who gets through which door with what."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import grpc
import httpx2
import pytest

from protocol.tokens import is_token
from tests import wire
from tests.e2e.hostile import EXPORT
from tests.e2e.test_readme import README
from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, environment, running

ORG = "/api/orgs/default"
PROJECT = ORG + "/projects/default"
KEYS = PROJECT + "/api-keys"
#: Requests that keep no cookies; a loaded machine may take its time.
get, post = partial(httpx2.get, timeout=60, **PLAIN), partial(httpx2.post, timeout=60, **PLAIN)
UNLIMITED = {"SVC_AUTH_TRIES_PER_ADDRESS": "0", "SVC_AUTH_TRIES_PER_ACCOUNT": "0"}


@attrs.define(eq=False)
class People:
    """A service on which somebody followed the README: they are its owner and hold a write key."""

    service: Service
    write_key: str
    client: httpx2.Client
    tokens: dict[str, str] = attrs.field(factory=dict)

    @property
    def cookie(self) -> str:
        """The owner's session, as a `Cookie` header."""
        return f"svc_session={self.client.cookies['svc_session']}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The data of a call by the owner."""
        response = self.client.request(method, path, json=body)
        assert response.json()["ok"] is True, response.text
        return response.json()["data"]

    def token(self, scope: str) -> str:
        """A living key of the scope."""
        if scope not in self.tokens:
            self.tokens[scope] = self.call("POST", KEYS, {"name": scope, "scope": scope})["plaintext"]
        return self.tokens[scope]

    def dead_token(self, scope: str, how: str) -> str | None:
        """What is left of a key of the scope that is not living."""
        match how:
            case "none":
                return None
            case "wrong":
                token = self.token(scope)
                return token[:-1] + ("A" if token[-1] != "A" else "Q")
            case "malformed":
                return f"svc_{scope[0]}_short"
            case "deleted project":
                slug = self.call("POST", ORG + "/projects", {"name": f"gone {scope}"})["slug"]
                path = ORG + "/projects/" + slug
                made = self.call("POST", path + "/api-keys", {"name": "k", "scope": scope})
                assert asked_api(self, made["plaintext"], None) is not None
                self.call("DELETE", path)
            case _:
                made = self.call("POST", KEYS, {"name": how, "scope": scope})
                assert asked_query(self, made["plaintext"], None)[0] == (403 if scope == "write" else 200)
                path = KEYS + "/" + made["key"]["id"]
                if how == "revoked":
                    self.call("DELETE", path)
                else:
                    self.call("POST", path + "/rotate")
        token: str = made["plaintext"]
        return token


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (script,) = (block for block in blocks if "auth/signup" in block)
    folder = tmp_path_factory.mktemp("reader")
    with running(**UNLIMITED) as service:
        done = subprocess.run(
            ["bash", "-euc", script + '\necho "WRITE_KEY=$WRITE_KEY"'],
            cwd=folder,
            env={**os.environ, "SVC": service.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        key = done.stdout.strip().rpartition("WRITE_KEY=")[2]
        assert is_token(key), done.stdout
        with httpx2.Client(
            base_url=service.url, headers={"Origin": service.url}, timeout=60, **PLAIN
        ) as client:
            address, password = re.findall(r'"(?:email|password)": "([^"]+)"', script)[:2]
            assert (
                client.post("/auth/login", json={"email": address, "password": password}).status_code == 200
            )
            yield People(service, key, client)


def test_the_readers_write_key_stores_a_span(people: People) -> None:
    span = wire.span("from the README", {}, trace_id=os.urandom(16))
    response = post(
        people.service.url + "/v1/traces",
        content=wire.request(span).SerializeToString(),
        headers={"Authorization": f"Bearer {people.write_key}", "Content-Type": "application/x-protobuf"},
    )
    assert response.status_code == 200
    people.service.wait_for_spans(1, name="from the README")


def test_the_reader_owns_the_instance(people: People) -> None:
    me = people.call("GET", "/auth/me")
    assert me["organizations"] == [{"slug": "default", "name": "Default", "role": "owner"}]


# --- scope x surface x credential -------------------------------------------------------------------------

#: What a door answered: a status (or a gRPC status) and the text that goes with it.
Said = tuple[Any, str]


def _headers(token: str | None, cookie: str | None) -> dict[str, str]:
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    return sent if cookie is None else {**sent, "Cookie": cookie}


def _said(response: httpx2.Response) -> Said:
    body = response.json() if response.content else {}
    error = body.get("error", {})
    return response.status_code, f"{error.get('code')}: {error.get('message')}" if error else ""


def asked_ingest(people: People, token: str | None, cookie: str | None) -> Said:
    response = post(
        people.service.url + "/v1/traces",
        content=b'{"resourceSpans": []}',
        headers={"Content-Type": "application/json", **_headers(token, cookie)},
    )
    return _said(response)


def asked_grpc(people: People, token: str | None, cookie: str | None) -> Said:
    metadata = [(name.lower(), value) for name, value in _headers(token, cookie).items()]
    with grpc.insecure_channel(f"127.0.0.1:{people.service.grpc_port}") as channel:
        try:
            channel.unary_unary(EXPORT).with_call(b"", timeout=30, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


def asked_query(people: People, token: str | None, cookie: str | None) -> Said:
    url = people.service.url + "/v1/query/count"
    return _said(post(url, json={"dataset": "spans"}, headers=_headers(token, cookie)))


def asked_mcp(people: People, token: str | None, cookie: str | None) -> Said:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return _said(post(people.service.url + "/mcp", json=body, headers=_headers(token, cookie)))


def asked_api(people: People, token: str | None, cookie: str | None) -> Said:
    return _said(get(people.service.url + KEYS, headers=_headers(token, cookie)))


Door = Callable[[People, str | None, str | None], Said]

OK: Said = (200, "")
NOBODY: dict[Door, Said] = {
    asked_ingest: (401, "UNAUTHORIZED: no tenant context"),
    asked_grpc: ("UNAUTHENTICATED", "OTLP ingest requires a valid bearer token"),
    asked_query: (401, "UNAUTHORIZED: no tenant context"),
    asked_mcp: (401, "-32600: unauthorized"),
    asked_api: (401, "auth.unauthorized: sign in, or send a valid bearer key"),
}
COOKIE: dict[Door, Said] = {
    asked_ingest: (403, "FORBIDDEN: OTLP ingest requires a project-scoped token"),
    asked_grpc: ("UNAUTHENTICATED", "OTLP ingest requires a project-scoped token"),
    asked_query: (403, "FORBIDDEN: the query API requires a project-scoped token"),
    asked_mcp: (401, "-32600: unauthorized"),
    asked_api: OK,
}
_INGEST = (403, "FORBIDDEN: this API key is not scoped for ingest (needs a write or mcp key)")
_QUERY = (403, "FORBIDDEN: this API key is not scoped for the query API (needs a query or admin key)")
_MCP = (403, "-32600: this API key is not scoped for MCP tool access")
_API = (403, "FORBIDDEN: this API key is not scoped for the REST API (needs a query or admin key)")
_GRPC = ("PERMISSION_DENIED", "OTLP ingest requires a write-scoped token")
SCOPED: dict[str, dict[Door, Said]] = {
    "write": {
        asked_ingest: OK, asked_grpc: ("OK", ""), asked_query: _QUERY, asked_mcp: _MCP, asked_api: _API,
    },
    "query": {
        asked_ingest: _INGEST, asked_grpc: _GRPC, asked_query: OK, asked_mcp: _MCP, asked_api: OK,
    },
    "admin": {
        asked_ingest: OK, asked_grpc: ("OK", ""), asked_query: OK, asked_mcp: OK, asked_api: OK,
    },
}  # fmt: skip
SCOPES = list(SCOPED)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_living_key_reaches_what_its_scope_says(people: People, scope: str) -> None:
    assert {door: door(people, people.token(scope), None) for door in NOBODY} == SCOPED[scope]


@pytest.mark.parametrize("how", ["none", "wrong", "malformed", "revoked", "rotated", "deleted project"])
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_that_is_not_living_reaches_nothing(people: People, scope: str, how: str) -> None:
    token = people.dead_token(scope, how)
    assert {door: door(people, token, None) for door in NOBODY} == NOBODY


def test_a_cookie_reaches_the_rest_api_alone(people: People) -> None:
    assert {door: door(people, None, people.cookie) for door in NOBODY} == COOKIE


@pytest.mark.parametrize("scope", SCOPES)
def test_beside_a_cookie_the_key_decides_everywhere_but_on_the_rest_api(people: People, scope: str) -> None:
    token = people.token(scope)
    said = {door: door(people, token, people.cookie) for door in NOBODY}
    assert said == {**SCOPED[scope], asked_api: OK}


@pytest.mark.parametrize("how", ["wrong", "revoked"])
def test_a_cookie_does_not_make_up_for_a_dead_key(people: People, how: str) -> None:
    token = people.dead_token("write", how)
    said = {door: door(people, token, people.cookie) for door in NOBODY}
    assert said == {**NOBODY, asked_api: OK}


def test_a_forged_cookie_is_nobody(people: People) -> None:
    changed = people.cookie[:-8] + ("B" if people.cookie[-8] == "A" else "A") + people.cookie[-7:]
    for cookie in ("svc_session=x", changed, people.cookie.replace("svc_", "x_")):
        assert {door: door(people, None, cookie) for door in NOBODY} == NOBODY


# --- the operator -----------------------------------------------------------------------------------------


def test_an_operator_gives_somebody_a_new_password(people: People) -> None:
    url = people.service.url
    body = {"email": "bob@example.org", "password": "the one he forgot"}
    with httpx2.Client(base_url=url, headers={"Origin": url}, timeout=60, **PLAIN) as bob:
        assert bob.post("/auth/signup", json=body).status_code == 201
        listed = people.service.command("users", "list")
        assert re.search(r"^bob@example\.org +viewer +password ", listed, re.MULTILINE)
        password = people.service.command("users", "reset-password", "BOB@example.org").strip()
        assert bob.get("/auth/me").status_code == 401
        assert bob.post("/auth/login", json=body).status_code == 401
        assert bob.post("/auth/login", json={**body, "password": password}).status_code == 200
    assert people.call("GET", ORG + "/audit")["rows"][0]["actor"] == "operator"


def test_an_operator_hears_that_nobody_has_an_address(people: People) -> None:
    done = ran(
        [TRACE_SVC, "users", "reset-password", "nobody@example.org"],
        env=dict(people.service.env),
        timeout_s=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("trace-svc: no account has the address nobody@example.org;")


def test_an_operators_keys_are_in_the_audit(people: People) -> None:
    people.service.command("keys", "create", "--scope", "query", "--name", "from the shell")
    (row, *_) = people.call("GET", KEYS + "/audit")["rows"]
    assert (row["action"], row["actor"], row["details"]["name"]) == (
        "key.create",
        "operator",
        "from the shell",
    )


def test_a_forwarded_address_is_text_without_meaning(people: People) -> None:
    headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    headers["X-Forwarded-Host"] = "evil.example"
    body = {"email": "mallory@example.org", "password": "long enough"}
    with httpx2.Client(base_url=people.service.url, headers=headers, timeout=60, **PLAIN) as client:
        response = client.post("/auth/signup", json=body)
        assert "Secure" not in response.headers["set-cookie"]
        (session,) = client.get("/auth/sessions").json()["data"]
        assert session["address"] == "127.0.0.1"
        refused = client.delete("/auth/sessions", headers={"Origin": "https://evil.example"})
        assert refused.status_code == 403


def test_no_secret_reaches_the_log_the_metrics_or_the_health(people: People) -> None:
    password = "planted-password-9d1c"
    body = {"email": "eve@example.org", "password": password}
    response = post(people.service.url + "/auth/signup", json=body)
    cookie = response.headers["set-cookie"].partition("=")[2].partition(";")[0]
    wrong = {**body, "password": password + "x", "extra": password}
    post(people.service.url + "/auth/login", json=wrong)
    shown = people.service.log.read_text()
    for path in ("/actuator/prometheus", "/actuator/health"):
        shown += get(people.service.url + path).text
    shown += json.dumps(people.call("GET", ORG + "/audit"))
    for planted in (password, cookie, people.write_key, *people.tokens.values()):
        assert planted not in shown


# --- single-user mode -------------------------------------------------------------------------------------


def test_without_authentication_there_is_no_mcp_and_a_loud_warning() -> None:
    with running(SVC_AUTH_DISABLED="true") as service:
        alone = People(service, service.write_key, httpx2.Client(base_url=service.url, timeout=60, **PLAIN))
        with alone.client:
            said = {door: door(alone, None, None) for door in NOBODY}
            no_mcp = (404, "NOT_FOUND: no such path")
            assert said == {**COOKIE, asked_mcp: no_mcp}
            made = alone.call("POST", KEYS, {"name": "k", "scope": "admin"})
            said = {door: door(alone, made["plaintext"], None) for door in NOBODY}
            assert said == {**SCOPED["admin"], asked_mcp: no_mcp}
            for door in (asked_ingest, asked_query, asked_grpc):
                assert door(alone, "svc_w_" + "A" * 22, None) == NOBODY[door]
        assert "WHOEVER REACHES THIS SERVICE OWNS IT" in service.log.read_text()


def test_without_authentication_a_public_name_refuses_to_boot(tmp_path: Path) -> None:
    env = environment(tmp_path, SVC_AUTH_DISABLED="true", SITE_DOMAIN="t.example.org", TLS_MODE="upstream")
    done = ran([TRACE_SVC, "serve"], env=env, timeout_s=60)
    assert done.returncode == 1
    assert "SVC_AUTH_DISABLED is true while SITE_DOMAIN is set" in done.stderr
