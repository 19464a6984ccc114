"""The first look as a page: what it says of broken tools, and how a newcomer comes to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads import first_look as reads
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Visitor


async def failing(store: Database, number: int = 12, tool: str = "create_return") -> None:
    """Traces of the last minutes in each of which a tool fails, and a model is called that has no price."""
    writer = store_of(store, Clock())
    start = now() - timedelta(minutes=30)
    spans: list[Any] = []
    for at in range(number):
        where: dict[str, Any] = {
            "trace_id": (at + 1).to_bytes(16, "big"),
            "start": start + timedelta(minutes=at),
        }
        call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "error.type": "KeyError"}
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "<b>house</b>-ft3",
            "gen_ai.usage.input_tokens": 100,
        }
        spans += [
            one(1, name="answer", **where),
            one(2, parent=1, name="chat", attributes=chat, **where),
            one(3, parent=1, name="call", attributes=call, status_code=2, **where),
        ]
    await writer.write(rows(*spans))
    await settle_all(store)


async def test_without_traces_it_leads_to_connect(owner: Visitor) -> None:
    seen = await owner.get(BASE + "/first-look")
    assert heading(seen) == "First look: no trace has arrived yet"
    assert f'href="{BASE}/connect"' in seen.text


async def test_it_names_what_is_broken_with_traces_to_open(store: Database, owner: Visitor) -> None:
    await failing(store)
    seen = await owner.get(BASE + "/first-look")
    assert heading(seen) == "First look: 1 thing is broken, 4 need a change in your setup"
    assert "create_return has failed in every trace" in seen.text
    assert "12 of 12 traces, each with KeyError; surely more than 20 %." in seen.text
    for number in (1, 2, 3):
        assert f'{BASE}/traces/{number:032x}?span={3:016x}"' in seen.text
    assert "&lt;b&gt;house&lt;/b&gt;-ft3 has no price" in seen.text
    assert "<b>house" not in seen.text
    assert (await owner.get(f"{BASE}/traces/{1:032x}?span={3:016x}")).status == 200


async def test_a_newcomer_is_led_to_it(store: Database, owner: Visitor) -> None:
    await failing(store, 1)
    for path in ("/connect", "/triage"):
        assert f'href="{BASE}/first-look"' in (await owner.get(BASE + path)).text, path


async def test_too_much_to_count_in_time_is_said(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await failing(store, 1)
    monkeypatch.setattr(reads.FirstLookReads.of, "__defaults__", (0.0,))
    seen = await owner.get(BASE + "/first-look")
    assert (seen.status, heading(seen)) == (200, "Too many spans to count in time")
