"""The list of users: sums of each, search, failures, order, pages and bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from svc.domain.feedback.entries import Feedback, checked
from svc.runtime.clock import now
from svc.store.feedback.reads import FeedbackReads
from svc.store.feedback.writing import FeedbackStore
from svc.store.postgres.database import Database
from svc.store.reads.usage.users import UserReads
from svc.web.sessions.users import ROWS
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.test_pages import heading
from tests.web.test_user import HOSTILE, chats
from tests.web.visitor import BASE, Visitor

PAGE = BASE + "/users"


async def judge(store: Database, *entries: Feedback) -> None:
    assert not await FeedbackStore(store).keep(1, entries, now())


def listed(page: str) -> list[str]:
    return re.findall(r'<a class="card-link" href="[^"]*/user\?id=([^"&]*)', page)


async def many(store: Database, count: int) -> None:
    writer, start = store_of(store, Clock()), now() - timedelta(hours=2)
    await writer.write(
        rows(
            *(
                one(
                    1,
                    trace_id=(n + 1).to_bytes(16, "big"),
                    start=start + timedelta(seconds=n),
                    status_code=2 if n % 10 == 0 else 0,
                    attributes={"user.id": f"u{n:03}", "session.id": f"s{n}"},
                )
                for n in range(count)
            )
        )
    )


async def test_each_user_has_their_own_sums(store: Database, owner: Visitor) -> None:
    await chats(store, "u1", "u2")
    page = await UserReads(store).page(1, now() - timedelta(days=1), now(), limit=10)
    assert [(user.user_id, user.traces, user.sessions, user.failing) for user in page.users] == [
        ("u1", 6, 3, 3),
        ("u2", 6, 3, 3),
    ]
    seen = await owner.get(PAGE)
    assert heading(seen) == "2 users in 30 days"
    assert listed(seen.text) == ["u1", "u2"]


async def test_users_are_searched_narrowed_to_failures_and_sorted(store: Database, owner: Visitor) -> None:
    await many(store, 40)
    assert listed((await owner.get(PAGE + "?q=U03")).text) == [f"u03{n}" for n in range(10)]
    assert set(listed((await owner.get(PAGE + "?failing=yes")).text)) == {"u000", "u010", "u020", "u030"}
    assert listed((await owner.get(PAGE + "?by=seen")).text)[0] == "u039"
    assert listed((await owner.get(PAGE + "?by=failed")).text)[:4] == ["u000", "u010", "u020", "u030"]
    assert (await owner.get(PAGE + "?by=mood")).status == 400
    nobody = await owner.get(PAGE + "?q=nobody")
    assert "No such user" in nobody.text


async def test_traces_that_failed_and_those_with_a_failed_span_are_both_told_and_sort_together(
    store: Database, owner: Visitor
) -> None:
    def trace(number: int, user_id: str, *statuses: int) -> Iterator[Any]:
        where = {"trace_id": number.to_bytes(16, "big"), "start": now() - timedelta(minutes=number)}
        for at, status in enumerate(statuses, 1):
            root = {} if at == 1 else {"parent": 1}
            yield one(at, status_code=status, attributes={"user.id": user_id}, **root, **where)

    await store_of(store, Clock()).write(
        rows(
            *(span for number in (1, 2) for span in trace(number, "bob", 2)),
            *trace(3, "ada", 2),
            *(span for number in (4, 5) for span in trace(number, "ada", 0, 2)),
        )
    )
    page = (await owner.get(PAGE)).text
    assert listed(page) == ["ada", "bob"]
    cells = [
        re.sub(r"<[^>]+>|\s+", " ", cell).split() for cell in re.findall(r'"Failed">(.*?)</td>', page, re.S)
    ]
    assert cells == [["✕", "1", "▲", "2"], ["✕", "2"]]


async def test_a_column_shows_the_mean_of_a_chosen_name_of_each_user(store: Database, owner: Visitor) -> None:
    await chats(store, "u1", "u2")
    assert "The mean of" not in (await owner.get(PAGE)).text
    mine, theirs = ((number + 1).to_bytes(16, "big") for number in (0, 100))
    await judge(
        store,
        *(checked(source="api", name="helpful", trace_id=mine, number=1.0, author=f"a{n}") for n in range(3)),
        checked(source="api", name="helpful", session_id="s0-1", number=0.0),
        checked(source="api", name="helpful", trace_id=bytes(15) + b"\xff", number=0.0),
        checked(source="api", name="stars", trace_id=theirs, number=4.0),
    )
    page = (await owner.get(PAGE)).text
    assert re.findall(r'<span title="(\d entr\w+)">([^<]*)</span>', page) == [("4 entries", "75 %")]
    page = (await owner.get(PAGE + "?feedback=stars&by=traces")).text
    assert re.findall(r'<span title="(\d entr\w+)">([^<]*)</span>', page) == [("1 entry", "4")]
    # What the column shows stays while one sorts and searches.
    assert 'name="feedback" value="stars"' in page
    assert "feedback=stars&amp;by=cost" in page or "by=cost&amp;feedback=stars" in page


async def test_the_column_counts_only_the_traces_that_the_sums_are_of(store: Database) -> None:
    await many(store, 30)
    await judge(
        store,
        *(
            checked(source="api", name="helpful", trace_id=(n + 1).to_bytes(16, "big"), number=1.0)
            for n in range(30)
        ),
    )
    low, high = now() - timedelta(days=1), now()
    users = [f"u{n:03}" for n in range(30)]
    means = await FeedbackReads(store).of_users(1, users, "helpful", low, high, 12)
    assert means == {f"u{n:03}": (1, 1.0) for n in range(18, 30)}
    assert await FeedbackReads(store).of_users(1, users, "helpful", high, high, 12) == {}


async def test_pages_of_users_hold_each_of_them_once(store: Database, owner: Visitor) -> None:
    await many(store, ROWS + 7)
    first, second = await owner.get(PAGE), await owner.get(f"{PAGE}?from_row={ROWS}")
    ids = listed(first.text) + listed(second.text)
    assert len(ids) == len(set(ids)) == ROWS + 7
    assert f"from_row={ROWS}" in first.text


async def test_beyond_its_bound_it_counts_the_newest_traces_and_says_since_when(store: Database) -> None:
    await many(store, 30)
    low, high = now() - timedelta(days=1), now()
    page = await UserReads(store).page(1, low, high, limit=50, most=12)
    assert {user.user_id for user in page.users} == {f"u{n:03}" for n in range(18, 30)}
    assert page.since == min(user.last_seen for user in page.users)
    everything = await UserReads(store).page(1, low, high, limit=50)
    assert (everything.count, everything.since) == (30, None)


async def test_nobody_yet_says_how_users_are_named(owner: Visitor) -> None:
    seen = await owner.get(PAGE)
    assert heading(seen) == "0 users in 30 days"
    assert "<code>user.id</code>" in seen.text


async def test_a_hostile_id_is_text_and_leads_to_its_user(store: Database, owner: Visitor) -> None:
    await chats(store, HOSTILE)
    page = (await owner.get(PAGE)).text
    assert "<script>alert" not in page
    link: Any = re.search(r'href="([^"]*/user\?id=[^"]*)"', page)
    assert (await owner.get(link[1])).status == 200
    assert "question 0.0 of 0" in (await owner.get(link[1])).text


async def test_the_page_of_a_user_shows_what_was_thought_of_their_answers(
    store: Database, owner: Visitor
) -> None:
    await chats(store, "u1", "u2")
    mine, other = ((number + 1).to_bytes(16, "big").hex() for number in (0, 100))
    for trace_id, note in ((mine, "wrong order number"), (other, "not about them")):
        answer = await owner.post(f"{BASE}/feedback", {"trace_id": trace_id, "text": note})
        assert answer.status == 303, answer.text
    page = (await owner.get(BASE + "/user?id=u1")).text
    assert "wrong order number" in page
    assert f'href="{BASE}/traces/{mine}">Open trace' in page
    assert "not about them" not in page
