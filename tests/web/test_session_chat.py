"""A session as a chat: words right and left, work folded between them, a page of turns at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads.usage.session_talk import FIRST_SPANS, LAST_SPANS, SessionTalk
from svc.web.messages.message_parts import Step
from svc.web.sessions.session_chat import ChatTurn
from svc.web.sessions.sessions import TURNS
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.visitor import BASE, Visitor

PAGE = BASE + "/session?id=talk"


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


async def conversation(
    store: Database, turns: int, *, tools: int = 1, users: Sequence[str] = ("ada",)
) -> None:
    """A session whose every model call repeats the history; the last tool of each turn fails."""
    writer, start = store_of(store, Clock()), now() - timedelta(hours=3)
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        where: dict[str, Any] = {
            "trace_id": (turn + 1).to_bytes(16, "big"),
            "start": start + timedelta(seconds=10 * turn),
        }
        user_id = users[turn % len(users)]
        who = {"session.id": "talk"} | ({"user.id": user_id} if user_id else {})
        history.append(text("user", f"**question** {turn}"))
        model = {
            **who,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.input.messages": json.dumps(history),
        }
        history.append(text("assistant", f"answer {turn}"))
        model["gen_ai.output.messages"] = json.dumps(history[-1:])
        tool = {
            **who,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.arguments": json.dumps({"number": turn}),
        }
        spans = [one(1, name="support", attributes=who, **where)]
        spans += [
            one(
                n + 2,
                parent=1,
                name=f"run {n}",
                attributes=tool,
                status_code=2 if n == tools - 1 else 0,
                **where,
            )
            for n in range(tools)
        ]
        late = {**where, "start": where["start"] + timedelta(milliseconds=500)}
        spans.append(one(tools + 2, parent=1, name="chat", attributes=model, **late))
        await writer.write(rows(*spans))
    await settle_all(store)


async def test_each_turn_shows_its_own_question_and_answer_once_in_order(
    store: Database, owner: Visitor
) -> None:
    await conversation(store, 3)
    page = (await owner.get(PAGE)).text
    said = ["**question** 0", "answer 0", "**question** 1", "answer 1", "**question** 2", "answer 2"]
    places = [page.index(words) for words in said]
    assert places == sorted(places)
    assert [page.count(words) for words in said] == [1] * 6
    assert page.count('class="bubble ask"') == 3
    assert page.count('class="bubble reply"') == 3


async def test_the_work_of_a_turn_is_folded_and_says_what_failed(store: Database, owner: Visitor) -> None:
    await conversation(store, 1, tools=2)
    page = (await owner.get(PAGE)).text
    assert '<details class="worked"><summary class="small">2 tool calls, 1 failed</summary>' in page
    folded = page.partition('<details class="worked">')[2].partition("</details>")[0]
    assert folded.index("run 0") < folded.index("run 1")
    assert page.count("run 1") == folded.count("run 1")
    trace_id = (1).to_bytes(16, "big").hex()
    assert f'href="{BASE}/traces/{trace_id}"' in page


def test_a_turn_counts_as_tool_calls_what_calls_tools_and_says_where_it_counts_a_part() -> None:
    def step(kind: str, times: int = 1, status: str = "ok") -> Step:
        return Step({"kind": kind, "status": status}, 0, [], [], times)

    done = [step("tool", 2), step("mcp", status="error"), step("reranker"), step("llm", 3)]
    assert ChatTurn({}, None, work=done).work_text == "3 tool calls, 3 model calls and 1 other step, 1 failed"
    assert ChatTurn({}, None, work=done[2:3], more=True).work_text == "at least 1 other step"


async def test_turns_are_paged_and_each_page_leads_to_its_neighbours(store: Database, owner: Visitor) -> None:
    await conversation(store, TURNS + 2)
    first = (await owner.get(PAGE)).text
    assert first.count('class="bubble ask"') == TURNS
    assert f"{PAGE}&amp;from={TURNS}" in first
    second = (await owner.get(f"{PAGE}&from={TURNS}")).text
    assert second.count('class="bubble ask"') == 2
    assert f"answer {TURNS + 1}" in second
    assert f'<a href="{PAGE}">Earlier turns</a>' in second
    beyond = await owner.get(f"{PAGE}&from=9999999")
    assert beyond.status == 200
    assert beyond.text.count('class="bubble ask"') == 1


async def test_a_long_trace_is_read_at_both_ends_and_keeps_its_answer(
    store: Database, owner: Visitor
) -> None:
    await conversation(store, 1, tools=FIRST_SPANS + LAST_SPANS + 10)
    talk = (await SessionTalk(store).of(1, [(1).to_bytes(16, "big")]))[(1).to_bytes(16, "big").hex()]
    assert len(talk.spans) == FIRST_SPANS + 1 + LAST_SPANS
    assert talk.more
    page = (await owner.get(PAGE)).text
    assert page.count("answer 0") == 1
    assert "Only its first and last steps are shown" in page


async def test_above_each_turn_stands_who_asked(store: Database, owner: Visitor) -> None:
    await conversation(store, 3, users=("ada", "bob"))
    page = (await owner.get(PAGE)).text
    asked = [turn.partition("</p>")[0] for turn in page.split('<p class="small soft who">')[1:]]
    asked = [line for line in asked if "/user?id=" in line]
    assert ["bob" if "bob" in line else "ada" for line in asked] == ["ada", "bob", "ada"]


async def test_who_asked_is_not_guessed_where_several_did(store: Database, owner: Visitor) -> None:
    await conversation(store, 3, users=("ada", "bob", ""))
    page = (await owner.get(PAGE)).text
    asked = [turn.partition("</p>")[0] for turn in page.split('<p class="small soft who">')[1:]]
    (unsigned,) = [line for line in asked if "User" in line]
    assert "/user?id=" not in unsigned
