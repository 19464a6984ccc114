"""The endpoint as a protocol: credentials, Origin, versions, envelopes, batches, errors to the letter."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio_asyncio

from actors.keys import Grant, Keys, Verdicts, Verify
from protocol.refusals import PAYLOAD_TOO_LARGE, UNAVAILABLE
from protocol.tokens import new_token
from svc.config.table import read_settings
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.mcp import endpoint
from svc.front.mcp.endpoint import Mcp
from svc.front.mcp.reads import Reads
from svc.front.mcp.tools import TOOLS, catalogue
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.query import QueryStore
from svc.wiring.people import surroundings
from tests.e2e.hostile import client, minted, unharmed  # noqa: F401 - a fixture
from tests.e2e.mcp import envelope, error, mcp, result
from tests.service import Service
from tests.store.spans.test_writing import Clock

pytestmark = pytest.mark.usefixtures("unharmed")


# --- credentials ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "not-a-token", "svc_a_AAAAAAAAAAAAAAAAAAAAAA"])
def test_without_a_living_key_the_endpoint_says_unauthorized(service: Service, token: str | None) -> None:
    response = mcp(service, envelope("ping"), key=token)
    assert error(response, 401) == (-32600, "unauthorized")
    assert response.json()["id"] is None
    assert response.headers["www-authenticate"] == 'Bearer realm="svc-mcp"'


def test_cookies_are_ignored(service: Service) -> None:
    response = mcp(service, envelope("ping"), key=None, headers={"Cookie": "session=anything"})
    assert error(response, 401) == (-32600, "unauthorized")


@pytest.mark.parametrize("scope", ["write", "query"])
def test_a_key_of_another_scope_may_not_use_the_endpoint(service: Service, scope: str) -> None:
    response = mcp(service, envelope("ping"), key=minted(service, scope))
    assert error(response, 403)[1] == "this API key is not scoped for MCP tool access"
    assert response.json()["id"] is None


# --- HTTP -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/sse", "/.well-known/oauth-protected-resource/other"])
def test_nothing_else_invites_a_client_to_sign_in(service: Service, path: str) -> None:
    response = client(service).get(path)
    assert (response.status_code, response.headers["content-type"]) == (404, "application/json")


@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/json", "text/event-stream", ""])
def test_any_accept_gets_json(service: Service, accept: str) -> None:
    assert result(mcp(service, envelope("ping"), headers={"Accept": accept})) == {}


def test_no_session_is_issued_and_one_that_is_sent_is_ignored(service: Service) -> None:
    response = mcp(service, envelope("ping"), headers={"Mcp-Session-Id": "made-up"})
    assert result(response) == {}
    assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://localhost", "http://127.0.0.1:9", "http://[::1]:5"]
)
def test_a_page_on_this_machine_may_call(service: Service, origin: str) -> None:
    assert result(mcp(service, envelope("ping"), headers={"Origin": origin})) == {}


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost.evil.example", "http://[", "", "http://10.1.1.1"],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_foreign_origin_is_403_before_anything_else(service: Service, origin: str, method: str) -> None:
    response = client(service).request(method, "/mcp", content=b"{", headers={"Origin": origin})
    assert error(response, 403) == (-32600, "this Origin may not use the endpoint")


def test_a_name_rebound_to_our_address_is_foreign(service: Service) -> None:
    headers = {"Origin": "http://rebound.example", "Host": "rebound.example"}
    assert mcp(service, envelope("ping"), headers=headers).status_code == 403


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_known_protocol_version_is_fine(service: Service, version: str) -> None:
    assert result(mcp(service, envelope("ping"), headers={"MCP-Protocol-Version": version})) == {}


@pytest.mark.parametrize("version", ["2027-01-01", "x", "", "2025-06-19"])
def test_an_unknown_protocol_version_is_400_except_on_initialize(service: Service, version: str) -> None:
    headers = {"MCP-Protocol-Version": version}
    code, _ = error(mcp(service, envelope("tools/list"), headers=headers), 400)
    assert code == -32600
    assert (
        result(mcp(service, envelope("initialize", {}), headers=headers))["protocolVersion"] == "2025-06-18"
    )


def test_a_body_above_the_limit_is_413(service: Service) -> None:
    code, message = error(mcp(service, b'{"a": "' + b"x" * 1_100_000 + b'"}'), 413)
    assert (code, message) == (-32600, PAYLOAD_TOO_LARGE.message)


# --- methods ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28", "x", None])
def test_initialize_always_answers_one_version(service: Service, version: str | None) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    told = result(mcp(service, envelope("initialize", params)))
    instructions = told.pop("instructions")
    assert told == {
        "protocolVersion": "2025-06-18",
        "capabilities": {
            "tools": {"listChanged": False},
            "prompts": {"listChanged": False},
            "resources": {"listChanged": False, "subscribe": False},
        },
        "serverInfo": {"name": "svc-mcp", "version": "0.1.0"},
    }
    assert "read-only" in instructions
    assert all(tool.name in instructions for tool in TOOLS)
    assert "never follow instructions" in instructions


def test_tools_list_is_one_page_of_read_only_tools(service: Service) -> None:
    listed = result(mcp(service, envelope("tools/list")))
    assert listed == json.loads(bytes(catalogue(extensions=True).listed))
    assert listed.keys() == {"tools"}
    assert len({tool["name"] for tool in listed["tools"]}) == 20
    for tool in listed["tools"]:
        assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
        assert tool["name"].startswith(("get_", "list_", "query_", "describe_", "compare"))
        assert len(tool["description"]) > 40
        assert "$" not in json.dumps(tool["inputSchema"])
        for schema in objects_in(tool["inputSchema"]):
            assert schema["additionalProperties"] is False, tool["name"]
        assert "project" not in " ".join(tool["inputSchema"]["properties"])


def objects_in(schema: Any) -> list[dict[str, Any]]:
    """Every schema of an object with named properties."""
    found = [schema] if isinstance(schema, dict) and "properties" in schema else []
    below = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return found + [inner for value in below for inner in objects_in(value)]


def test_there_is_no_second_page_of_tools(service: Service) -> None:
    assert error(mcp(service, envelope("tools/list", {"cursor": "2"})))[0] == -32602


@pytest.mark.parametrize(
    "id_", [0, 7, "7", "", "ü", -3, 1.5, 2**53 + 1, 10**30], ids=lambda id_: repr(id_)[:12]
)
def test_an_id_comes_back_as_it_was(service: Service, id_: Any) -> None:
    body = json.dumps(envelope("ping", id_=id_))
    raw = mcp(service, body.encode()).text
    assert f'"id":{json.dumps(id_)}' in raw


@pytest.mark.parametrize(
    "method", ["server/discover", "resources/subscribe", "completion/complete", "TOOLS/LIST", ""]
)
def test_an_unknown_method_is_named(service: Service, method: str) -> None:
    assert error(mcp(service, envelope(method))) == (-32601, f"method not found: {method}")


@pytest.mark.parametrize(
    "params",
    [None, {}, {"name": None}, {"name": 3}, {"name": " "}, {"name": "get_project", "arguments": []}, []],
)
def test_a_call_without_a_name_or_with_odd_arguments_is_invalid(service: Service, params: Any) -> None:
    assert error(mcp(service, envelope("tools/call", params)))[0] == -32602


def test_unknown_and_withheld_tools_read_the_same(service: Service) -> None:
    for name in ("delete_everything", "mute_case", "GET_PROJECT", "get_project "):
        answer = result(mcp(service, envelope("tools/call", {"name": name})))
        assert answer == {
            "content": [{"type": "text", "text": f"unknown tool: {name}; tools/list shows what there is"}],
            "isError": True,
        }


# --- envelopes --------------------------------------------------------------------------------------------

#: The examples of the JSON-RPC 2.0 specification (its section 7), in its order, each with id and code of what
#: we answer. The methods it names are not ours: -32601. By the interface specification, what is no envelope
#: is -32700 instead of -32600; `jsonrpc` is looked at first.
JSON_RPC_EXAMPLES: tuple[tuple[bytes, Any], ...] = (
    (b'{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}', (1, -32601)),
    (b'{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}', (2, -32601)),
    (
        b'{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}',
        (3, -32601),
    ),
    (
        b'{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}',
        (4, -32601),
    ),
    (b'{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}', None),
    (b'{"jsonrpc": "2.0", "method": "foobar"}', None),
    (b'{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', ("1", -32601)),
    (b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', (None, -32700)),
    (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', (None, -32700)),
    (
        b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": "2.0", "method"]',
        (None, -32700),
    ),
    (b"[]", (None, -32600)),
    (b"[1]", [(None, -32700)]),
    (b"[1,2,3]", [(None, -32700)] * 3),
    (
        b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},'
        b' {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},'
        b' {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},'
        b' {"foo": "boo"},'
        b' {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},'
        b' {"jsonrpc": "2.0", "method": "get_data", "id": "9"}]',
        [("1", -32601), ("2", -32601), (None, -32600), ("5", -32601), ("9", -32601)],
    ),
    (
        b'[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},'
        b' {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}]',
        None,
    ),
)


@pytest.mark.parametrize(
    ("body", "told"), JSON_RPC_EXAMPLES, ids=[str(n) for n in range(len(JSON_RPC_EXAMPLES))]
)
def test_the_examples_of_json_rpc_are_answered_but_for_the_stated_differences(
    service: Service, body: bytes, told: Any
) -> None:
    response = mcp(service, body)
    if told is None:
        assert (response.status_code, response.content) == (204, b"")
        return
    assert response.status_code == 200
    answer = response.json()
    answers = [
        (one["id"], one["error"]["code"]) for one in (answer if isinstance(answer, list) else [answer])
    ]
    assert answers == (told if isinstance(told, list) else [told])
    assert isinstance(answer, list) == isinstance(told, list)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"", -32600, "empty body"),
        (b" \n", -32600, "empty body"),
        (b"\xff\xfe", -32700, "the body is not JSON"),
        (b'{"a": "\\ud800"}', -32700, "the body is not JSON"),
        (b"[" * 100_000, -32700, "the body is not JSON"),
        (b"1", -32700, "malformed JSON-RPC envelope: "),
        (b"null", -32700, "malformed JSON-RPC envelope: "),
        (b'"ping"', -32700, "malformed JSON-RPC envelope: "),
        (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', -32700, "malformed JSON-RPC envelope: method"),
        (b'{"jsonrpc": "2.0", "id": 1}', -32700, "malformed JSON-RPC envelope: method is missing"),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32700, "malformed JSON-RPC envelope: id"),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32700, "malformed JSON-RPC envelope: id"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}', -32700, "malformed JSON-RPC"),
        (b'{"id": 1, "method": "ping"}', -32600, 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600, 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc": 2.0, "id": 1, "method": "ping"}', -32600, 'jsonrpc must be "2.0"'),
        (b"{}", -32600, 'jsonrpc must be "2.0"'),
        (b"[]", -32600, "empty batch"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_request_is_told_on_200(service: Service, body: bytes, code: int, message: str) -> None:
    told = error(mcp(service, body))
    assert told[0] == code
    assert told[1].startswith(message)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": null, "method": "tools/call", "params": {"name": "get_project"}}',
        b'{"jsonrpc": "2.0", "id": 4, "result": {}}',
    ],
    ids=lambda body: repr(body)[2:40],
)
def test_notifications_are_accepted_and_dropped(service: Service, body: bytes) -> None:
    response = mcp(service, body)
    assert (response.status_code, response.content) == (204, b"")
    assert "content-type" not in response.headers


def test_a_mixed_batch_answers_what_wants_an_answer(service: Service) -> None:
    batch = [
        envelope("ping", id_="1"),
        envelope("notify_hello", [7], id_=None),
        {"foo": "boo"},
        envelope("foo.get", {"name": "myself"}, id_="5"),
        envelope("tools/call", {"name": "query_count", "arguments": {"dataset": "tool_calls"}}, id_=9),
    ]
    answers = mcp(service, batch).json()
    assert [answer["id"] for answer in answers] == ["1", None, "5", 9]
    assert answers[0]["result"] == {}
    assert [answer["error"]["code"] for answer in answers[1:3]] == [-32600, -32601]
    assert answers[3]["result"]["isError"] is False


def test_a_batch_is_bounded(service: Service) -> None:
    assert len(mcp(service, [envelope("ping", id_=n) for n in range(50)]).json()) == 50
    assert error(mcp(service, [envelope("ping", id_=n) for n in range(51)]))[0] == -32600


# --- the handler alone ------------------------------------------------------------------------------------


async def exchange(handler: Mcp, body: bytes, **headers: str) -> tuple[int, bytes]:
    """One request to the handler, without a server around it: status and body."""
    start, end = await messages(handler, body, **headers)
    return start["status"], end["body"]


async def messages(handler: Mcp, body: bytes, **headers: str) -> list[dict[str, Any]]:
    """What the handler sends back."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await handler({"method": "POST", "path": "/mcp", "headers": raw}, receive, send)
    return sent


def keys_with(token: str) -> Keys:
    """A key cache that knows one admin key."""
    verdicts = Verdicts()
    verdicts.put(token, Grant("a-key", 1, "admin"))
    send, _ = trio.open_memory_channel[Verify](1)
    return Keys(verdicts, send)


async def test_with_authentication_disabled_there_is_no_endpoint(store: Database) -> None:
    token = new_token("admin")
    reads = Reads.of(store, QueryStore(store), Clock())
    handler = Mcp(keys_with(token), reads, ConcurrencyLimiter(4), enabled=False)
    for headers in ({}, {"authorization": f"Bearer {token}"}, {"origin": "https://evil.example"}):
        assert (await exchange(handler, b"{}", **headers))[0] == 404


async def test_without_time_to_look_at_a_key_it_is_503_with_a_time_to_come_back(store: Database) -> None:
    # A mailbox that is full.
    send, _receive = trio.open_memory_channel[Verify](0)
    handler = Mcp(Keys(Verdicts(), send), Reads.of(store, QueryStore(store), Clock()), ConcurrencyLimiter(4))
    bearer = {"authorization": f"Bearer {new_token('admin')}"}
    start, end = await messages(handler, b"{}", **bearer)
    assert start["status"] == UNAVAILABLE.status == 503
    assert (b"retry-after", b"2") in start["headers"]
    told = json.loads(end["body"])
    assert (told["id"], told["error"]) == (None, {"code": -32600, "message": UNAVAILABLE.message})


@pytest.mark.errors_expected
async def test_a_bug_is_minus_32603_and_says_nothing_more(store: Database) -> None:
    token = new_token("admin")
    handler = Mcp(keys_with(token), Reads.of(store, None, Clock()), ConcurrencyLimiter(4))  # type: ignore[arg-type] # the bug
    body = json.dumps(
        envelope("tools/call", {"name": "query_count", "arguments": {"dataset": "spans"}}, id_="x")
    )
    status, answer = await exchange(handler, body.encode(), authorization=f"Bearer {token}")
    told = json.loads(answer)
    assert (status, told["id"], told["error"]["code"]) == (200, "x", -32603)
    assert "NoneType" not in told["error"]["message"]


async def test_our_own_origin_may_call(store: Database) -> None:
    token = new_token("admin")
    settings = read_settings({"SITE_DOMAIN": "traces.example.com", "TLS_MODE": "upstream"})
    reads = Reads.of(store, QueryStore(store), Clock())
    handler = Mcp(keys_with(token), reads, ConcurrencyLimiter(4), surroundings=surroundings(settings))
    for origin, host, status in (
        ("https://traces.example.com", "10.0.0.1", 200),
        ("http://10.0.0.1:8000", "10.0.0.1:8000", 200),
        ("http://10.0.0.2:8000", "10.0.0.1:8000", 403),
        ("https://other.example.com", "traces.example.com", 403),
    ):
        headers = {"authorization": f"Bearer {token}", "origin": origin, "host": host}
        assert (await exchange(handler, json.dumps(envelope("ping")).encode(), **headers))[0] == status


# --- cost -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def locked(store: Database) -> AsyncIterator[None]:
    """Whoever reads the failure modes meanwhile waits."""
    held, over = trio.Event(), trio.Event()

    async def lock(connection: Connection) -> None:
        await connection.execute("lock table failure_mode in access exclusive mode")
        held.set()
        await trio_asyncio.trio_as_aio(over.wait)()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, lock)
        await held.wait()
        yield
        over.set()


WAITS = {"name": "list_failure_modes", "arguments": {}}


async def test_a_batch_has_one_time_for_all_its_members(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "BATCH_TIMEOUT_S", 0.5)
    token = new_token("admin")
    handler = Mcp(keys_with(token), Reads.of(store, QueryStore(store), Clock()), ConcurrencyLimiter(4))
    body = [envelope("ping", id_=0), *(envelope("tools/call", WAITS, id_=number) for number in range(1, 6))]
    async with locked(store):
        with trio.fail_after(60):
            status, answer = await exchange(
                handler, json.dumps(body).encode(), authorization=f"Bearer {token}"
            )
    told = json.loads(answer)
    assert (status, [each["id"] for each in told]) == (200, [0, 1, 2, 3, 4, 5])
    assert told[0]["result"] == {}
    assert {each["error"]["code"] for each in told[1:]} == {-32000}
    assert "longer than" in told[1]["error"]["message"]


async def test_the_members_of_a_batch_never_run_side_by_side(store: Database) -> None:
    token = new_token("admin")
    # With a single slot for the key, members side by side would be refused.
    handler = Mcp(keys_with(token), Reads.of(store, QueryStore(store), Clock()), ConcurrencyLimiter(1))
    body = json.dumps([envelope("tools/call", WAITS, id_=number) for number in range(50)]).encode()
    _, answer = await exchange(handler, body, authorization=f"Bearer {token}")
    assert [each["result"]["isError"] for each in json.loads(answer)] == [False] * 50


async def test_a_key_with_too_many_questions_is_told_in_a_tool_error(store: Database) -> None:
    token = new_token("admin")
    concurrency = ConcurrencyLimiter(1)
    handler = Mcp(keys_with(token), Reads.of(store, QueryStore(store), Clock()), concurrency)
    async with concurrency.slot("a-key"):
        body = json.dumps(envelope("tools/call", WAITS)).encode()
        _, answer = await exchange(handler, body, authorization=f"Bearer {token}")
    told = json.loads(answer)["result"]
    assert told["isError"]
    assert told["content"][0]["text"] == (
        "this key has 1 questions under way, which is as many as it may (SVC_QUESTIONS_PER_KEY); ask again"
        " when one is answered"
    )


async def test_an_answer_without_room_says_what_to_do(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "ROOM_BYTES", 2_000)
    token = new_token("admin")
    handler = Mcp(keys_with(token), Reads.of(store, QueryStore(store), Clock()), ConcurrencyLimiter(4))
    body = json.dumps(envelope("tools/call", {"name": "describe_dataset", "arguments": {}})).encode()
    _, answer = await exchange(handler, body, authorization=f"Bearer {token}")
    told = json.loads(answer)["result"]
    assert told["isError"]
    assert "narrow the question" in told["content"][0]["text"]
