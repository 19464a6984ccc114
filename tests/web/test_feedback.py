"""Feedback on pages: given by thumbs and notes, shown beside what it is about, asked for in lists."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from svc.domain.feedback.entries import checked
from svc.runtime.clock import now
from svc.store.accounts.audit import AuditStore
from svc.store.feedback.writing import FeedbackStore
from svc.store.postgres.database import Database
from tests.front.people import Replica, replica
from tests.store.settling import settle_all
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, rows, store_of
from tests.web.one_trace import failing, trace_id
from tests.web.test_trace import at
from tests.web.visitor import BASE, Visitor

TRACE = trace_id("healthy").hex()


@pytest.fixture
async def here(store: Database) -> AsyncIterator[Replica]:
    async with replica(store) as found:
        clock = Clock()
        clock.now = now()
        for story in (failing(), failing("healthy", broken=False)):
            await store_of(store, clock).write(rows(*story, resource={"service.name": "shop"}))
        await settle_all(store)
        yield found


async def judged(store: Database, story: str = "healthy", **fields: Any) -> None:
    entry = checked(**({"source": "api", "name": "relevance", "trace_id": trace_id(story)} | fields))
    assert not await FeedbackStore(store).keep(PROJECT, [entry], NOW)


async def test_a_thumb_is_kept_shown_and_turned_round(owner: Visitor) -> None:
    for number, verdict in (("1", "yes"), ("0", "no")):
        given = await owner.post(f"{BASE}/feedback", {"trace_id": TRACE, "number": number})
        assert (given.status, given.location) == (303, f"{BASE}/traces/{TRACE}")
        page = (await owner.get(at("healthy"))).text
        assert re.findall(r"<li><b>helpful</b> (\w+)", page) == [verdict]
        assert re.findall(r'value="(\d)" aria-pressed="true"', page) == [number]


async def test_a_form_leads_back_to_where_it_was_sent_from(owner: Visitor) -> None:
    conversation = f"{BASE}/traces/{TRACE}?view=conversation"
    for referer, location in (
        (f"http://localhost{conversation}", conversation),
        (f"http://localhost/shared{conversation}", conversation),
        ("http://elsewhere.example/orgs", f"{BASE}/traces/{TRACE}"),
        (f"http://elsewhere.example{BASE}/sessions", f"{BASE}/sessions"),
    ):
        given = await owner.post(f"{BASE}/feedback", {"trace_id": TRACE, "number": "1"}, referer=referer)
        assert given.location == location


async def test_a_note_is_signed_shown_as_text_and_removed(owner: Visitor) -> None:
    await owner.post(f"{BASE}/feedback", {"trace_id": TRACE, "text": "<b>Look</b> at\nstep 3"})
    seen = await owner.get(at("healthy"))
    assert b"&lt;b&gt;Look&lt;/b&gt; at\nstep 3" in seen.body
    page = seen.text
    assert "owner@example.org" in page
    (entry,) = re.findall(r'name="id" value="(\w+)"', page)
    await owner.post(f"{BASE}/feedback/forget", {"source": "page", "id": entry})
    assert "Look" not in (await owner.get(at("healthy"))).text


async def test_the_list_of_sessions_shows_the_mean_of_a_chosen_name(owner: Visitor, store: Database) -> None:
    assert "helpful" not in (await owner.get(f"{BASE}/sessions")).text
    [session] = await fetch(store, "select id from session")
    await judged(store, name="helpful", number=1.0, author="ann")
    await judged(store, name="helpful", number=0.0, author="bob")
    await judged(store, "failing", name="stars", number=4.0)
    await judged(store, name="stars", number=2.0, trace_id=None, session_id=session["id"])
    page = (await owner.get(f"{BASE}/sessions")).text
    assert '<span title="2 entries">50 %</span>' in page
    page = (await owner.get(f"{BASE}/sessions?feedback=stars")).text
    assert '<span title="2 entries">3</span>' in page


async def test_overview_shows_what_was_thought_with_its_interval(owner: Visitor, store: Database) -> None:
    assert "<h2>Feedback</h2>" not in (await owner.get(f"{BASE}/overview")).text
    for number in range(10):
        await judged(store, name="helpful", number=float(number < 7), author=f"u{number}", judged_at=now())
    page = (await owner.get(f"{BASE}/overview")).text
    section = page[page.index("<h2>Feedback</h2>") :]
    assert '<td class="num">10</td><td class="num">70 %</td><td class="soft nowrap">40 % to' in section
    # What people think is not narrowed by what spans hold.
    assert "<h2>Feedback</h2>" not in (await owner.get(f"{BASE}/overview?q=model:gpt-4o")).text


async def test_what_was_written_stands_by_when_it_was_judged_however_late_it_arrived(
    owner: Visitor, store: Database
) -> None:
    for text, days in (("Newer", 2), ("Older", 5)):
        entry = checked(
            source="api", id=text, name="tone", text=text, judged_at=now() - timedelta(days=days),
            trace_id=trace_id("healthy"),
        )  # fmt: skip
        assert not await FeedbackStore(store).keep(PROJECT, [entry], now())
    page = (await owner.get(f"{BASE}/feedback")).text
    assert re.findall(r"(Newer|Older)</span>.*?>(\d d ago)</span>", page) == [
        ("Newer", "2 d ago"),
        ("Older", "5 d ago"),
    ]


async def test_names_beyond_the_bound_are_told_on_the_page(owner: Visitor, store: Database) -> None:
    assert "refused, the last one" not in (await owner.get(f"{BASE}/feedback")).text
    entries = [checked(source="api", name=f"n{n}", trace_id=bytes(15) + b"\1", number=1) for n in range(203)]
    for _ in range(2):
        assert len(await FeedbackStore(store).keep(PROJECT, entries, now())) == 3
    assert "6 entries were refused, the last one" in (await owner.get(f"{BASE}/feedback")).text


async def test_an_empty_note_is_refused(owner: Visitor) -> None:
    refused = await owner.post(f"{BASE}/feedback", {"trace_id": TRACE, "text": " "})
    assert refused.status == 400
    assert "a number, a category or a text" in refused.text


async def test_what_is_said_of_a_span_stands_on_its_panel_and_on_its_trace(
    owner: Visitor, store: Database
) -> None:
    await judged(store, span_id=(2).to_bytes(8, "big"), number=0.25, category="poor", text="Beside the point")
    panel = (await owner.get(f"{at('healthy')}/spans/{2:016x}")).text
    assert "<b>relevance</b> 0.25, poor" in panel
    assert "Beside the point" in panel
    other = (await owner.get(f"{at('healthy')}/spans/{1:016x}")).text
    assert "relevance" not in other
    page = (await owner.get(at("healthy"))).text
    assert f'span={2:016x}">on a span</a>' in page


async def test_many_entries_fold(owner: Visitor, store: Database) -> None:
    for number in range(8):
        await judged(store, id=str(number), number=float(number))
    page = (await owner.get(at("healthy"))).text
    assert "<summary>5 more entries</summary>" in page


async def test_who_may_only_look_sees_entries_and_no_form(
    here: Replica, owner: Visitor, store: Database
) -> None:
    await judged(store, number=1.0)
    assert 'class="row thumbs"' in (await owner.get(at("healthy"))).text
    invited = here.browser(cookie=owner.cookies["svc_session"])
    viewer_browser = await here.member("viewer@example.org", "viewer", invited)
    viewer = Visitor.of(here)
    viewer.cookies["svc_session"] = viewer_browser.cookie or ""
    page = (await viewer.get(at("healthy"))).text
    assert "<b>relevance</b> 1" in page
    assert 'class="row thumbs"' not in page
    assert "Remove" not in page


@pytest.mark.parametrize(
    ("bar", "names"),
    [
        ("feedback:relevance", ["failing", "healthy"]),
        ("feedback:relevance<0.5", ["failing"]),
        ("feedback:relevance>=0.75", ["healthy"]),
        ("feedback:tone=rude", ["failing"]),
        ("-feedback:relevance<0.5 status:ok", ["healthy"]),
        ("feedback:nothing", []),
    ],
)
async def test_a_list_is_narrowed_to_feedback(
    owner: Visitor, store: Database, bar: str, names: list[str]
) -> None:
    await judged(store, "healthy", number=0.75)
    await judged(store, "failing", number=0.25)
    await judged(store, "failing", name="tone", category="rude")
    listed = (await owner.get(f"{BASE}/traces?range=24h&q={bar.replace(' ', '+')}")).text
    shown = set(re.findall(r'data-id="(\w{32})"', listed))
    assert {trace_id(name).hex() for name in names} == shown & {
        trace_id(name).hex() for name in ("failing", "healthy")
    }


async def test_a_bar_that_compares_with_no_number_says_so(owner: Visitor) -> None:
    page = (await owner.get(f"{BASE}/traces?range=24h&q=feedback:tone<rude")).text
    assert "Feedback is compared with a number" in page


async def test_feedback_is_a_facet_and_a_column(owner: Visitor, store: Database) -> None:
    await judged(store, number=0.75)
    assert 'data-value="feedback:relevance"' in (await owner.get(f"{BASE}/traces/facets?range=24h")).text
    await owner.post(f"{BASE}/traces/columns", {"name": "on", "feedback": "on"})
    assert "relevance 0.75</td>" in (await owner.get(f"{BASE}/traces?range=24h")).text


async def test_a_session_is_judged_by_itself(owner: Visitor) -> None:
    page = (await owner.get(f"{BASE}/sessions")).text
    (session,) = set(re.findall(rf'{BASE}/session\?id=([^"&]+)', page))
    await owner.post(f"{BASE}/feedback", {"session_id": session, "number": "1"})
    assert "<b>helpful</b> yes" in (await owner.get(f"{BASE}/session?id={session}")).text


async def test_what_was_thought_of_an_answer_stands_under_it_in_its_session(
    owner: Visitor, store: Database
) -> None:
    (session,) = set(re.findall(rf'{BASE}/session\?id=([^"&]+)', (await owner.get(f"{BASE}/sessions")).text))
    before = (await owner.get(f"{BASE}/session?id={session}")).text
    assert "Feedback on this answer" not in before
    await judged(store, id="a", name="tone", category="<b>rude</b>", text="too short")
    page = (await owner.get(f"{BASE}/session?id={session}")).text
    (under,) = re.findall(r'<ul class="given small" aria-label="Feedback on this answer">(.*?)</ul>', page)
    assert "<b>tone</b> &lt;b&gt;rude&lt;/b&gt;" in under
    assert "too short" in under
    for number in range(4):
        await judged(store, id=str(number), number=float(number))
    page = (await owner.get(f"{BASE}/session?id={session}")).text
    assert f'<a href="{BASE}/traces/{TRACE}">2 more on the trace</a>' in page


async def test_categories_of_a_name_are_called_bad_on_the_page(owner: Visitor, store: Database) -> None:
    for number, category in enumerate(("rude", "kind")):
        await judged(store, id=f"t{number}", name="tone", category=category, judged_at=now())
    page = (await owner.get(f"{BASE}/feedback")).text
    assert '<summary aria-label="Bad categories of tone: not set">not set</summary>' in page
    assert 'name="category" value="kind"> kind' in page
    await owner.post(f"{BASE}/feedback/bad", {"name": "tone", "category": "rude"})
    page = (await owner.get(f"{BASE}/feedback")).text
    assert "rude is bad</summary>" in page
    assert 'name="category" value="rude" checked> rude' in page
    assert [row["bad"] for row in await fetch(store, "select bad from feedback_name")] == [["rude"]]
    await owner.post(f"{BASE}/feedback/bad", {"name": "tone"})
    assert [row["bad"] for row in await fetch(store, "select bad from feedback_name")] == [[]]
    assert [row.action for row in await AuditStore(store).page(project_id=PROJECT)][:2] == [
        "feedback.bad"
    ] * 2


async def test_the_page_tells_what_each_name_says_and_what_was_written(
    owner: Visitor, store: Database
) -> None:
    empty = await owner.get(f"{BASE}/feedback")
    assert "Nobody has given feedback yet" in empty.text
    assert "/v1/feedback" in empty.text
    for number in range(4):
        thumb, star = {"number": float(number > 0)}, {"number": float(number), "category": "x"}
        await judged(store, id=f"h{number}", name="helpful", judged_at=now(), **thumb)
        await judged(store, id=f"s{number}", name="stars", judged_at=now(), **star)
    await owner.post(f"{BASE}/feedback", {"trace_id": TRACE, "text": "<i>See</i> step 3"})
    page = (await owner.get(f"{BASE}/feedback")).text
    assert "75 % of 4 thumbs say helpful" in page
    assert re.search(r">stars</a></th><td [^>]+>4</td><td [^>]+>1.5</td>", page)
    assert "&lt;i&gt;See&lt;/i&gt; step 3" in page
    await owner.post(f"{BASE}/feedback/better", {"name": "stars", "better": "lower"})
    assert "higher instead" in (await owner.get(f"{BASE}/feedback")).text
    assert (await owner.get(f"{BASE}/feedback?range=2d")).status == 400
