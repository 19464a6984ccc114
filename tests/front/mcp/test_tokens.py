"""Tokens that are good for MCP alone: what may stand in an editor's settings neither sends nor queries."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from svc.front.concurrency import ConcurrencyLimiter
from svc.front.mcp.endpoint import Mcp
from svc.front.mcp.reads import Reads
from svc.front.mcp.tools import catalogue
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from tests.e2e.mcp import envelope
from tests.front.mcp.test_protocol import exchange
from tests.front.people import PROJECT, Replica, replica
from tests.store.spans.test_writing import Clock

TOKENS, KEYS = PROJECT + "/mcp-tokens", PROJECT + "/api-keys"


@pytest.fixture
async def api(store: Database) -> AsyncIterator[Replica]:
    async with replica(store) as started:
        yield started


def endpoint(api: Replica) -> Mcp:
    reads = Reads.of(api.database, QueryStore(api.database), Clock())
    return Mcp(api.means.keys, reads, ConcurrencyLimiter(4))


async def asked(api: Replica, token: str) -> tuple[int, list[str]]:
    body = json.dumps(envelope("tools/list")).encode()
    status, answer = await exchange(endpoint(api), body, authorization=f"Bearer {token}")
    listed = json.loads(answer).get("result", {"tools": []})["tools"]
    return status, [tool["name"] for tool in listed]


async def test_a_token_for_mcp_alone_reads_over_mcp_and_opens_nothing_else(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(TOKENS, {"name": "editor", "only": "mcp"})).data
    assert made["token"]["only"] == "mcp"
    status, names = await asked(api, made["plaintext"])
    assert (status, names) == (200, list(catalogue(extensions=True).tools))
    holder = api.browser(key=made["plaintext"], origin=None)
    for path in ("/cases", "/api-keys", "/retention"):
        assert (await holder.get(PROJECT + path)).status == 401, path
    assert (await holder.post("/v1/query/count", {"dataset": "spans"})).status == 401
    assert (await holder.post("/v1/feedback", {"feedback": []})).status == 401


async def test_it_is_listed_rotated_and_revoked_as_other_keys_are(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(KEYS, {"name": "editor", "scope": "admin", "only": "mcp"})).data
    key_id = made["key"]["id"]
    for path in (TOKENS, KEYS):
        assert [(key["id"], key["only"]) for key in (await owner.get(path)).data] == [(key_id, "mcp")]
    rotated = (await owner.post(f"{KEYS}/{key_id}/rotate")).data
    assert rotated["key"]["only"] == "mcp"
    assert (await asked(api, made["plaintext"]))[0] == 401
    assert (await asked(api, rotated["plaintext"]))[0] == 200
    assert (await owner.delete(f"{TOKENS}/{key_id}")).status == 200
    assert (await asked(api, rotated["plaintext"]))[0] == 401


async def test_a_token_without_more_words_is_a_key_of_scope_admin(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(TOKENS, {"name": "agent"})).data
    assert (made["token"]["scope"], "only" in made["token"]) == ("admin", False)
    assert (await asked(api, made["plaintext"]))[0] == 200
    assert (await api.browser(key=made["plaintext"], origin=None).get(PROJECT + "/cases")).status == 200


@pytest.mark.parametrize("scope", ["write", "query"])
async def test_a_key_for_mcp_alone_has_the_scope_admin(api: Replica, scope: str) -> None:
    owner = await api.owner()
    refused = (await owner.post(KEYS, {"name": "x", "scope": scope, "only": "mcp"})).refused
    assert refused[::2] == (400, "a key for MCP alone has the scope admin")
