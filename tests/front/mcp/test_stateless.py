"""MCP 2026-07-28 beside the versions with a handshake: what it demands, and that nobody else sees it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import attrs
import msgspec
import pytest

from protocol.agents import PURPOSES, RUN_TOOLS
from svc.front.mcp.stateless import CAPABILITIES_KEY, SERVER_KEY, SUPPORTED, VERSION, VERSION_KEY
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from tests.e2e.mcp import envelope
from tests.front.mcp.asking import Asked, Door
from tests.store.detection.detecting import opened, seen

META = {VERSION_KEY: VERSION, CAPABILITIES_KEY: {}, "io.modelcontextprotocol/clientInfo": {"name": "t"}}
SERVER = {"name": "svc-mcp", "version": "0.1.0"}


@attrs.frozen
class Modern:
    """A client of 2026-07-28; what a test wants to be wrong is given as `meta` or `headers`, None to drop."""

    door: Door

    async def ask(
        self, method: str, params: Any = None, *, meta: Any = META, headers: Any = None, id_: Any = 1
    ) -> Asked:
        asked = {**(params or {}), **({} if meta is None else {"_meta": meta})}
        sent = {"mcp-protocol-version": VERSION, "mcp-method": method}
        name = asked.get("uri" if method == "resources/read" else "name")
        sent |= {} if name is None else {"mcp-name": name}
        sent |= headers or {}
        body = envelope(method, asked, id_)
        return await self.door.send(body, {name: value for name, value in sent.items() if value is not None})


@pytest.fixture
async def modern(store: Database) -> Modern:
    assert (await ProjectStore(store).make_default()).id == 1
    await opened(store, seen(1))
    return Modern(Door.of(store))


async def test_discover_says_what_is_spoken_and_offered(modern: Modern) -> None:
    asked = await modern.ask("server/discover")
    assert asked.status == 200
    result = asked.result
    assert "read-only" in result.pop("instructions")
    assert result == {
        "resultType": "complete",
        "_meta": {SERVER_KEY: SERVER},
        "ttlMs": 300_000,
        "cacheScope": "private",
        "supportedVersions": ["2026-07-28", "2025-06-18"],
        "capabilities": {
            "tools": {"listChanged": False},
            "prompts": {"listChanged": False},
            "resources": {"listChanged": False, "subscribe": False},
        },
    }


CALLS: tuple[tuple[str, dict[str, Any], str | None], ...] = (
    ("tools/list", {}, "tools"),
    ("prompts/list", {}, "prompts"),
    ("resources/list", {}, "resources"),
    ("resources/templates/list", {}, "resourceTemplates"),
    ("resources/read", {"uri": "case://C-1"}, "contents"),
    ("tools/call", {"name": "get_project", "arguments": {}}, None),
    ("tools/call", {"name": "no_such_tool"}, None),
    ("prompts/get", {"name": "triage_case", "arguments": {"case": "C-1"}}, None),
)


@pytest.mark.parametrize(("method", "params", "listed"), CALLS)
async def test_a_result_is_that_of_the_handshake_with_what_this_version_adds(
    modern: Modern, method: str, params: dict[str, Any], listed: str | None
) -> None:
    result = (await modern.ask(method, params)).result
    assert (result.pop("resultType"), result.pop("_meta")) == ("complete", {SERVER_KEY: SERVER})
    if listed is not None:
        assert result[listed]
        assert result.pop("ttlMs") >= 0
        assert result.pop("cacheScope") == "private"
    assert result == (await modern.door.ask(method, params)).result


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "subscriptions/listen", "resources/subscribe"]
)
async def test_a_method_that_there_is_not_is_404(modern: Modern, method: str) -> None:
    asked = await modern.ask(method)
    assert (asked.status, asked.code, asked.body["id"]) == (404, -32601, 1)


@pytest.mark.parametrize("version", ["1900-01-01", "2027-01-01", "x" * 500])
async def test_an_unsupported_version_is_told_what_is_supported(modern: Modern, version: str) -> None:
    for method in ("server/discover", "tools/list"):
        meta = {**META, VERSION_KEY: version}
        asked = await modern.ask(method, meta=meta, headers={"mcp-protocol-version": version})
        assert (asked.status, asked.code) == (400, -32022)
        data = {"supported": list(SUPPORTED), "requested": version[:100]}
        assert asked.body["error"]["data"] == data


async def test_what_is_named_as_supported_is_spoken(modern: Modern) -> None:
    for version in SUPPORTED:
        meta = {**META, VERSION_KEY: version}
        asked = await modern.ask("tools/list", meta=meta, headers={"mcp-protocol-version": version})
        assert asked.status == 200
        assert asked.result["tools"]


@pytest.mark.parametrize(
    "meta",
    [None, {}, "x", {VERSION_KEY: VERSION}, {CAPABILITIES_KEY: {}}, {**META, VERSION_KEY: 3},
     {**META, CAPABILITIES_KEY: None}],
)  # fmt: skip
async def test_a_request_without_its_meta_is_malformed(modern: Modern, meta: Any) -> None:
    asked = await modern.ask("tools/list", meta=meta)
    assert (asked.status, asked.code, asked.body["id"]) == (400, -32602, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mcp-protocol-version", None),
        ("mcp-protocol-version", "2025-06-18"),
        ("mcp-method", None),
        ("mcp-method", "tools/list"),
        ("mcp-method", "TOOLS/CALL"),
        ("mcp-name", None),
        ("mcp-name", "get_trace"),
        ("mcp-name", "=?base64?!!?="),
        ("mcp-name", "=?base64?" + b64encode(b"\xff").decode() + "?="),
    ],
)
async def test_headers_that_differ_from_the_body_are_refused_before_anything_runs(
    modern: Modern, name: str, value: str | None
) -> None:
    call = {"name": "get_project", "arguments": {}}
    asked = await modern.ask("tools/call", call, headers={name: value})
    assert (asked.status, asked.code, asked.body["id"]) == (400, -32020, 1)
    assert name in asked.message


async def test_a_name_may_come_encoded(modern: Modern) -> None:
    encoded = "=?base64?" + b64encode(b"get_project").decode() + "?="
    call = {"name": "get_project", "arguments": {}}
    assert (await modern.ask("tools/call", call, headers={"mcp-name": encoded})).status == 200


async def test_a_header_that_is_there_twice_is_refused(modern: Modern) -> None:
    handler = modern.door.handler
    body = envelope("tools/list", {"_meta": META})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": msgspec.json.encode(body), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"authorization", b"Bearer " + modern.door.token.encode())]
    headers += [(b"mcp-protocol-version", VERSION.encode()), *[(b"mcp-method", b"tools/list")] * 2]
    await handler({"method": "POST", "path": "/mcp", "headers": headers}, receive, send)
    assert sent[0]["status"] == 400
    assert msgspec.json.decode(sent[1]["body"])["error"]["code"] == -32020


async def test_what_is_not_there_is_invalid_params(modern: Modern) -> None:
    asked = await modern.ask("resources/read", {"uri": "case://C-99"})
    assert (asked.status, asked.code) == (400, -32602)
    assert asked.body["error"]["data"] == {"uri": "case://C-99"}


async def test_a_notification_is_accepted_without_a_word(modern: Modern) -> None:
    asked = await modern.ask("notifications/cancelled", {"requestId": 1}, id_=None)
    assert (asked.status, asked.body) == (202, None)


@pytest.mark.parametrize("body", [b"[]", b"{", b"", b"1", b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]'])
async def test_what_is_no_message_is_400_and_has_no_id(modern: Modern, body: bytes) -> None:
    asked = await modern.door.send(body, {"mcp-protocol-version": VERSION})
    assert asked.status == 400
    assert asked.body.keys() == {"jsonrpc", "error"}


async def test_a_client_with_a_handshake_may_name_any_version_in_it(modern: Modern) -> None:
    body = envelope("initialize", {"protocolVersion": VERSION, "_meta": {"progressToken": 1}})
    for headers in ({}, {"mcp-protocol-version": VERSION}):
        asked = await modern.door.send(body, headers)
        assert (asked.status, asked.result["protocolVersion"]) == (200, "2025-06-18")


async def test_a_run_discovers_its_tools_alone(store: Database) -> None:
    asked = await Modern(Door.of(store, purpose=PURPOSES["rca"])).ask("server/discover")
    assert asked.result["capabilities"] == {"tools": {"listChanged": False}}
    assert "list_cases" not in asked.result["instructions"].split("Tools: ")[1]


async def test_a_run_has_what_extends_the_specification_whatever_the_setting_says(store: Database) -> None:
    run, client = (Door.of(store, extensions=False, purpose=purpose) for purpose in (PURPOSES["rca"], None))
    names = [
        {tool["name"] for tool in (await door.ask("tools/list")).result["tools"]} for door in (run, client)
    ]
    assert (set(RUN_TOOLS), "compare" in names[1]) == (names[0], False)
    asked = {"name": "list_traces", "arguments": {"fields": ["total_cost"]}}
    assert (await run.ask("tools/call", asked)).result["isError"] is False
    assert (await client.ask("tools/call", asked)).code == -32602


async def test_to_the_letter_one_version_is_spoken(store: Database) -> None:
    modern = Modern(Door.of(store, extensions=False))
    asked = await modern.ask("server/discover")
    assert (asked.status, asked.code) == (400, -32600)
    # No header, no word of it: what a request carries beside is nobody's.
    asked = await modern.ask("server/discover", headers={"mcp-protocol-version": None})
    assert (asked.status, asked.code) == (200, -32601)
