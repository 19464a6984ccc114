"""An assistant connects by OAuth with the official SDK, against a running service."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from svc.front.mcp.tools import TOOLS
from tests.e2e.environments import node_with, python_with
from tests.service import PLAIN, Service, running

CLIENTS = Path(__file__).parent / "mcp_clients"
EMAIL, PASSWORD = "owner@example.org", "correct horse battery"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
SIGN_IN_TIMEOUT_S = 120


def call(service: Service, method: str, path: str, **how: Any) -> httpx2.Response:
    return httpx2.request(method, service.url + path, timeout=60, **how, **PLAIN)


def ping(service: Service, token: str) -> int:
    return call(service, "POST", "/mcp", json=PING, headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.mark.release
@pytest.mark.parametrize("requirements", ["mcp1.txt", "requirements.txt"])
def test_the_official_client_signs_in_reads_renews_and_is_disconnected(requirements: str) -> None:
    python = python_with(CLIENTS / requirements)
    with running(SVC_MCP_OAUTH="true") as service:
        origin = {"Origin": service.url}
        account = {"email": EMAIL, "password": PASSWORD}
        assert call(service, "POST", "/auth/signup", json=account, headers=origin).status_code == 201
        done = subprocess.run(
            [python, CLIENTS / "sign_in.py", service.url, EMAIL, PASSWORD],
            capture_output=True,
            text=True,
            timeout=SIGN_IN_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        (tools, failed), second = report["calls"]
        assert (tools > 0, failed) == (True, False)
        assert second == [tools, False]
        assert report["scope"] == "mcp:read"
        old, new = report["tokens"]
        # The one before stays good for its hour: calls may be under way with it.
        assert [ping(service, token) for token in (old, new)] == [200, 200]
        # It reads over MCP and nothing else.
        bearer = {"Authorization": f"Bearer {new}"}
        assert (
            call(service, "GET", "/api/orgs/default/projects/default/cases", headers=bearer).status_code
            == 401
        )
        assert call(service, "POST", "/v1/query/count", json={}, headers=bearer).status_code == 401
        assert call(service, "POST", "/v1/traces", json={}, headers=bearer).status_code == 401
        # The refresh token of before, sent by whoever has it, ends the grant.
        form = {
            "grant_type": "refresh_token",
            "refresh_token": report["refresh_tokens"][0],
            "client_id": report["client_id"],
        }
        replay = call(service, "POST", "/oauth/token", data=form)
        assert (replay.status_code, replay.json()["error"]) == (400, "invalid_grant")
        assert [ping(service, token) for token in (old, new)] == [401, 401]


@pytest.mark.release
def test_the_javascript_clients_sign_in_read_and_renew() -> None:
    node = node_with(CLIENTS, "@modelcontextprotocol/client")
    with running(SVC_MCP_OAUTH="true") as service:
        account = {"email": EMAIL, "password": PASSWORD}
        made = call(service, "POST", "/auth/signup", json=account, headers={"Origin": service.url})
        assert made.status_code == 201
        for kind in ("sdk", "client"):
            done = subprocess.run(
                [node, "sign_in.mjs", kind, service.url, EMAIL, PASSWORD],
                cwd=CLIENTS,
                capture_output=True,
                text=True,
                timeout=SIGN_IN_TIMEOUT_S,
            )
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout.splitlines()[-1])
            first, second = report["calls"]
            assert first == second == [len(TOOLS), False]
            assert report["steps"] == ["REDIRECT", "AUTHORIZED"]
            assert (report["state"], report["scope"], report["renewed"]) == ("state 1", "mcp:read", True)


def test_who_has_no_key_is_told_where_to_ask_for_one() -> None:
    with running(SVC_MCP_OAUTH="true") as service:
        answer = call(service, "POST", "/mcp", json=PING)
        where = f"{service.url}/.well-known/oauth-protected-resource/mcp"
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == f'Bearer realm="svc-mcp", resource_metadata="{where}"'
        document = httpx2.get(where, timeout=60, **PLAIN).json()
        assert document["resource"] == f"{service.url}/mcp"
        assert document["authorization_servers"] == [service.url]


def test_under_a_path_of_its_host_the_documents_name_it() -> None:
    with running(SVC_MCP_OAUTH="true", SVC_BASE_PATH="/traces") as service:
        root = service.url.removesuffix("/traces")
        for path in (
            "/traces/.well-known/oauth-protected-resource/mcp",
            "/.well-known/oauth-protected-resource/traces/mcp",
        ):
            document = httpx2.get(root + path, timeout=60, **PLAIN).json()
            assert document["resource"] == f"{root}/traces/mcp"
        server = httpx2.get(
            root + "/.well-known/oauth-authorization-server/traces", timeout=60, **PLAIN
        ).json()
        assert server["issuer"] == f"{root}/traces"
        assert server["authorization_endpoint"] == f"{root}/traces/oauth/authorize"


def test_without_oauth_the_endpoint_answers_to_the_letter(service: Service) -> None:
    answer = call(service, "POST", "/mcp", json=PING)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="svc-mcp"')
    for path in ("oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server"):
        assert call(service, "GET", f"/.well-known/{path}").status_code == 404
