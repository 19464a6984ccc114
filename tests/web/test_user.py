"""The page of a user: what they asked, what failed, what it cost, and nobody else's."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from svc.runtime.clock import now
from svc.store.postgres.database import Database
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.test_overview import bars
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Visitor

PAGE = BASE + "/user?id="
HOSTILE = "<script>alert(1)</script>&id=u2"


async def chats(store: Database, *users: str) -> None:
    """Three sessions of two traces for each user; the second trace of a session has a tool that fails."""
    writer, start = store_of(store, Clock()), now() - timedelta(hours=3)
    spans: list[Any] = []
    for at, user in enumerate(users):
        for session in range(3):
            for turn in range(2):
                where: dict[str, Any] = {
                    "trace_id": (100 * at + 10 * session + turn + 1).to_bytes(16, "big"),
                    "start": start + timedelta(minutes=10 * session + turn),
                }
                who = {"user.id": user, "session.id": f"s{at}-{session}"}
                llm = {
                    **who,
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "gpt-4o",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.usage.input_tokens": 1_000,
                    "input.value": f"question {session}.{turn} of {at}",
                }
                tool = {**who, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
                spans += [
                    one(1, name="answer", attributes={**who, "input.value": llm["input.value"]}, **where),
                    one(2, parent=1, name="chat", attributes=llm, **where),
                    one(
                        3,
                        parent=1,
                        name="run",
                        attributes=tool,
                        status_code=2 if turn else 0,
                        **where,
                    ),
                ]
    await writer.write(rows(*spans))
    await settle_all(store)


async def test_it_shows_their_sessions_failures_and_spend_and_nobody_elses(
    store: Database, owner: Visitor
) -> None:
    await chats(store, "u1", "u2")
    seen = await owner.get(PAGE + "u1")
    assert heading(seen) == "u1: 3 sessions and 6 traces in 30 days, 3 of them with a failure, $0.0150 spent"
    for session in range(3):
        assert f"question {session}.0 of 0" in seen.text
        assert f"/session?id=s0-{session}" in seen.text
    assert "of 1<" not in seen.text
    assert "s1-0" not in seen.text
    assert '<code>search</code></a> <span class="soft">3 calls</span>' in seen.text
    # Their hours may lie on two days.
    drawn = [said.rpartition("ok ")[2] for said, _ in bars(seen.text, "Traces")]
    assert sum(int(number) for number in drawn if number != "–") == 6
    assert 'aria-label="Spend"' in seen.text
    assert 'aria-label="Tokens"' not in seen.text


async def test_every_way_from_it_stays_with_the_user(store: Database, owner: Visitor) -> None:
    await chats(store, "u1", "u2")
    seen = await owner.get(PAGE + "u1")
    for _said, address in bars(seen.text, "Traces"):
        assert "q=user%3Au1" in address
    overview = await owner.get(BASE + "/overview?q=user:u1&range=30d")
    assert heading(overview).startswith("6 traces in 30 days")
    session = await owner.get(BASE + "/session?id=s0-1")
    assert f'href="{BASE}/user?id=u1"' in session.text
    trace = await owner.get(f"{BASE}/traces/{(1).to_bytes(16, 'big').hex()}")
    assert f'href="{BASE}/user?id=u1"' in trace.text


async def test_an_id_may_hold_any_character(store: Database, owner: Visitor) -> None:
    await chats(store, HOSTILE, "u2")
    seen = await owner.get(PAGE + quote(HOSTILE, safe=""))
    assert heading(seen).startswith(html.escape(HOSTILE, quote=False)[:20])
    assert "6 traces" in heading(seen)
    assert "<script>alert" not in seen.text


async def test_a_user_nobody_knows_and_one_without_a_name(store: Database, owner: Visitor) -> None:
    await chats(store, "u1")
    seen = await owner.get(PAGE + "nobody")
    assert heading(seen) == "No traces of nobody in 30 days"
    assert (await owner.get(BASE + "/user")).status == 404
    seen = await owner.get(PAGE + "u1&range=yesterday&from=2020-01-01")
    assert "No traces of u1" in heading(seen)


async def test_they_stand_beside_the_median_user_once_there_are_thirty(
    owner: Visitor, store: Database
) -> None:
    users = [f"u{number}" for number in range(30)]
    await chats(store, *users[:29])
    assert "median user" not in (await owner.get(PAGE + "u0")).text
    await chats(store, *users)
    page = (await owner.get(PAGE + "u0")).text
    _, _, beside = page.partition("<h2>Compared with the median user</h2>")
    assert dict(re.findall(r"<span>([a-z ]+) <b>([^<]+)</b></span>", beside)[:5]) == {
        "traces": "6, median 6",
        "sessions": "3, median 3",
        "with a failure": "50 %, median 50 %",
        "spend": "$0.0150, median $0.0150",
        "users compared": "30",
    }
    assert "median user" not in (await owner.get(PAGE + "nobody")).text
