"""The doors of applications: scripts of any page may use them, and no address may use them without end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest

from svc.front.auth.limits import REGISTRATIONS, TOKEN_FAILURES, TOKEN_FAILURES_WINDOW_S
from svc.store.postgres.database import Database
from tests.front.people import Replica, replica
from tests.front.test_oauth import CALLBACK, FORM, VERIFIER, allowed, asking, client_id, register, signed_in

INSPECTOR = "http://inspector.example:6274"
DOCUMENTS = (
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
)
DOORS = ("/oauth/register", "/oauth/token", "/oauth/revoke")


@pytest.fixture
async def here(store: Database) -> AsyncIterator[Replica]:
    async with replica(store, SVC_MCP_OAUTH="true") as started:
        yield started


async def preflight(here: Replica, path: str, method: str) -> Any:
    browser = here.browser(origin=INSPECTOR)
    asked = {
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "mcp-protocol-version",
    }
    return await browser.call(
        "OPTIONS", path, b"", **{name.replace("-", "_"): v for name, v in asked.items()}
    )


async def send(here: Replica, path: str, peer: str = "192.0.2.9", **form: str) -> Any:
    browser = here.browser(origin=INSPECTOR, peer=peer)
    return await browser.call("POST", path, urlencode(form).encode(), Content_Type=FORM)


async def refused_token(here: Replica, peer: str = "192.0.2.9") -> Any:
    return await send(
        here, "/oauth/token", peer, grant_type="refresh_token", refresh_token="no-such", client_id="nobody"
    )


# --- pages of other origins -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method"), [*((path, "GET") for path in DOCUMENTS), *((path, "POST") for path in DOORS)]
)
async def test_a_browser_that_asks_first_is_let_in(here: Replica, path: str, method: str) -> None:
    answer = await preflight(here, path, method)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-methods"] == method
    allowed_headers = answer.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "content-type", "mcp-protocol-version"} <= set(allowed_headers)
    assert int(answer.headers["access-control-max-age"]) > 0
    # Cookies stay out of it.
    assert "access-control-allow-credentials" not in answer.headers


async def test_scripts_read_what_they_are_answered_good_or_bad(here: Replica) -> None:
    browser = here.browser(origin=INSPECTOR)
    answers = [await browser.get(path) for path in DOCUMENTS]
    answers.append(await browser.post("/oauth/register", {"redirect_uris": [CALLBACK]}))
    answers.append(await browser.post("/oauth/register", {}))
    answers.append(await refused_token(here))
    answers.append(await send(here, "/oauth/revoke", token="no-such", client_id="nobody"))
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 201, 400, 400, 200]
    assert {answer.headers["access-control-allow-origin"] for answer in answers} == {"*"}
    assert all("access-control-allow-credentials" not in answer.headers for answer in answers)


@pytest.mark.parametrize(
    "path", ["/oauth/authorize", "/login", "/api/orgs/default/projects/default/cases", "/v1/query/count"]
)
async def test_no_other_door_is_opened_to_pages(here: Replica, path: str) -> None:
    answer = await preflight(here, path, "POST")
    assert answer.status >= 400
    assert not [name for name, _ in answer.headers if name.lower().startswith("access-control-")]


async def test_without_oauth_there_is_nothing_to_ask(store: Database) -> None:
    async with replica(store) as started:
        for path in (*DOCUMENTS, *DOORS):
            assert (await preflight(started, path, "POST")).status in (404, 405), path


# --- how often --------------------------------------------------------------------------------------------


async def test_an_address_whose_requests_come_to_nothing_is_told_to_wait(here: Replica) -> None:
    owner, client = await signed_in(here), await client_id(here)
    code = (await allowed(owner, asking(client)))["code"]
    for _ in range(TOKEN_FAILURES):
        assert (await refused_token(here)).status == 400
    told = await refused_token(here)
    assert (told.status, told.body["error"]) == (429, "slow_down")
    assert 0 < int(told.headers["retry-after"]) <= TOKEN_FAILURES_WINDOW_S
    assert told.headers["access-control-expose-headers"] == "Retry-After"
    good = {
        "grant_type": "authorization_code", "code": code, "client_id": client, "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
    }  # fmt: skip
    # Nothing is looked at any more, so the code is good from elsewhere.
    assert (await send(here, "/oauth/token", **good)).status == 429
    assert (await send(here, "/oauth/revoke", token="x", client_id="y")).status == 429
    assert here.means.sign_ins()["refused_tokens"] == 3
    assert (await send(here, "/oauth/token", "198.51.100.7", **good)).status == 200


async def test_what_succeeds_is_not_counted(here: Replica) -> None:
    owner, client = await signed_in(here), await client_id(here)
    code = (await allowed(owner, asking(client)))["code"]
    for _ in range(TOKEN_FAILURES - 1):
        await refused_token(here)
    form = {"client_id": client, "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    tokens = (await send(here, "/oauth/token", grant_type="authorization_code", code=code, **form)).body
    for _ in range(3):
        renewed = await send(
            here, "/oauth/token", grant_type="refresh_token", client_id=client,
            refresh_token=tokens["refresh_token"],
        )  # fmt: skip
        assert renewed.status == 200, renewed.body
        tokens = renewed.body
    given_back = await send(here, "/oauth/revoke", token=tokens["refresh_token"], client_id=client)
    assert given_back.status == 200
    assert (await refused_token(here)).status == 400
    assert (await refused_token(here)).status == 429


async def test_registrations_over_the_bound_are_counted(here: Replica) -> None:
    for _ in range(REGISTRATIONS + 2):
        answer = await register(here)
    assert answer.status == 429
    assert here.means.sign_ins()["refused_registrations"] == 2
    # Asking a browser's question first costs nothing.
    assert (await preflight(here, "/oauth/register", "POST")).status == 204
    assert (await register(here, peer="198.51.100.7")).status == 201
