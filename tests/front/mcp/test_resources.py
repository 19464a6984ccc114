"""Resources: cases and traces by address, read as the tools read them."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from protocol.agents import PURPOSES
from svc.front.mcp import endpoint, handlers
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.case_states import CaseStates
from svc.store.postgres.database import Database
from tests.front.mcp.asking import Door
from tests.store.detection.detecting import ANN, opened, seen
from tests.store.spans.test_writing import NOW, one, rows, store_of

TRACE = (7).to_bytes(16, "big")
SECRET = "a ruling that stays inside"


@pytest.fixture
async def door(store: Database) -> Door:
    """Three open cases, the last with a ruling, and a trace of two spans."""
    assert (await ProjectStore(store).make_default()).id == 1
    for number in (1, 2, 3):
        case = await opened(store, seen(number))
    await CaseStates(store).rule(1, case.id, {"why": SECRET}, ANN, NOW)
    await store_of(store).write(
        rows(one(1, trace_id=TRACE, name="turn"), one(2, trace_id=TRACE, parent=1, name="chat"))
    )
    return Door.of(store)


async def tool(door: Door, name: str, **arguments: Any) -> Any:
    answer = (await door.ask("tools/call", {"name": name, "arguments": arguments})).result
    return answer["structuredContent"]


async def read(door: Door, uri: str) -> Any:
    """What a resource holds, after checking its form."""
    (part,) = (await door.ask("resources/read", {"uri": uri})).result["contents"]
    assert part.keys() == {"uri", "mimeType", "text"}
    assert (part["uri"], part["mimeType"]) == (uri, "application/json")
    return json.loads(part["text"])


async def test_resources_are_announced_with_the_forms_of_their_addresses(door: Door) -> None:
    capabilities = (await door.ask("initialize", {})).result["capabilities"]
    assert capabilities["resources"] == {"listChanged": False, "subscribe": False}
    listed = (await door.ask("resources/templates/list")).result["resourceTemplates"]
    assert [each["uriTemplate"] for each in listed] == ["case://{reference}", "trace://{trace_id}"]
    assert (await door.ask("resources/templates/list", {"cursor": "2"})).code == -32602


async def test_open_cases_are_listed_by_the_page(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = (await door.ask("resources/list")).result["resources"]
    assert first["uri"] == "case://" + first["name"]
    assert first["title"].startswith(first["name"] + ": cause ")
    monkeypatch.setattr(handlers, "limit", lambda _wanted: 2)
    page = (await door.ask("resources/list")).result
    rest = (await door.ask("resources/list", {"cursor": page["nextCursor"]})).result
    assert (len(page["resources"]), len(rest["resources"])) == (2, 1)
    # A null would not be the protocol's.
    assert rest.keys() == {"resources"}
    assert {each["uri"] for each in page["resources"] + rest["resources"]} == {
        "case://C-1", "case://C-2", "case://C-3"
    }  # fmt: skip
    assert (await door.ask("resources/list", {"cursor": 2})).code == -32602


async def test_a_case_that_is_closed_is_listed_no_more_and_still_read(door: Door, store: Database) -> None:
    case = await tool(door, "get_case", id="C-1")
    await CaseStates(store).resolve(1, UUID(case["id"]), "fixed", ANN, NOW)
    listed = (await door.ask("resources/list")).result["resources"]
    assert "case://C-1" not in {each["uri"] for each in listed}
    assert (await read(door, "case://C-1"))["state"] == "resolved"


async def test_a_case_and_a_trace_read_as_their_tools_answer(door: Door) -> None:
    for uri in ("case://C-3", "CASE://c-3/", "case://%43-3"):
        assert await read(door, uri) == await tool(door, "get_case", id="C-3")
    assert await read(door, f"trace://{TRACE.hex()}") == await tool(door, "get_trace", trace_id=TRACE.hex())


async def test_rulings_stay_inside(door: Door) -> None:
    raw = (await door.ask("resources/read", {"uri": "case://C-3"})).body
    assert SECRET not in json.dumps(raw)
    assert "ruling" not in await read(door, "case://C-3")


@pytest.mark.parametrize(
    "uri",
    ["case://C-99", "trace://" + "ff" * 16, "trace://xyz", "case://", "file:///etc/passwd", "C-3", "",
     "case://C-3/events", "case://C-3?all", "case://" + "9" * 10_000],
)  # fmt: skip
async def test_what_is_not_there_is_the_protocols_error(door: Door, uri: str) -> None:
    asked = await door.ask("resources/read", {"uri": uri})
    assert (asked.status, asked.code) == (200, -32002)
    assert asked.body["error"]["data"] == {"uri": uri[:200]}


@pytest.mark.parametrize("params", [None, [], {}, {"uri": 3}, {"uri": None}])
async def test_an_address_that_is_no_text_is_invalid(door: Door, params: Any) -> None:
    assert (await door.ask("resources/read", params)).code == -32602


async def test_a_case_of_another_project_is_not_there(door: Door, store: Database) -> None:
    stranger = Door.of(store, project_id=2)
    assert (await stranger.ask("resources/list")).result == {"resources": []}
    for uri in ("case://C-3", f"trace://{TRACE.hex()}"):
        assert (await stranger.ask("resources/read", {"uri": uri})).code == -32002


async def test_a_resource_without_room_says_so(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ROOM_BYTES", 100)
    asked = await door.ask("resources/read", {"uri": "case://C-3"})
    assert asked.code == -32603
    assert "narrow the question" in asked.message


@pytest.mark.parametrize("kind", [{"extensions": False}, {"purpose": PURPOSES["rca"]}])
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list", "resources/read"])
async def test_to_the_letter_and_for_runs_there_are_no_resources(
    door: Door, store: Database, kind: dict[str, Any], method: str
) -> None:
    asked = await Door.of(store, **kind).ask(method, {"uri": "case://C-3"})
    assert (asked.code, asked.message) == (-32601, f"method not found: {method}")
