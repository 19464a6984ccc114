"""Sets on pages: filled from a trace and from a list, walked by their addresses, exported."""

from __future__ import annotations

import html
import json
import re

from svc.store.postgres.database import Database
from tests.web.one_trace import trace_id
from tests.web.test_feedback import here, judged  # noqa: F401 - a fixture
from tests.web.visitor import BASE, Visitor

HEALTHY, FAILING = trace_id("healthy").hex(), trace_id("failing").hex()


async def filled(owner: Visitor) -> str:
    """A set of two traces; its address."""
    for trace in (HEALTHY, FAILING):
        added = await owner.post(f"{BASE}/sets/add", {"name": " good  ones ", "trace_id": trace})
        assert added.status == 303
        assert added.location.endswith("?added=1")
    return added.location.partition("?")[0]


async def test_a_set_is_filled_shown_and_emptied(owner: Visitor) -> None:
    assert "No sets yet" in (await owner.get(f"{BASE}/sets")).text
    address = await filled(owner)
    assert (
        f'<a href="{address}">good ones</a></th><td class="num">2</td>'
        in (await owner.get(f"{BASE}/sets")).text
    )
    page = (await owner.get(address)).text
    assert "good ones: 2 entries" in page
    form = {"set": address.rpartition("/")[2], "trace_id": HEALTHY}
    assert (await owner.post(f"{BASE}/sets/remove", form)).location == address
    assert "good ones: 1 entry" in (await owner.get(address)).text
    assert (await owner.post(f"{BASE}/sets/forget", form)).location == f"{BASE}/sets"
    assert (await owner.get(address)).status == 404


async def test_a_review_leads_from_each_to_the_next(owner: Visitor) -> None:
    page = (await owner.get(await filled(owner))).text
    (first,) = re.findall(r'class="button main" href="([^"]+)"', page)
    step = (await owner.get(html.unescape(first))).text
    assert "1 of 2" in step
    assert 'data-thumb="up"' in step
    assert "data-previous" not in step
    (second,) = re.findall(r'href="([^"]+)" data-next', step)
    last = (await owner.get(html.unescape(second))).text
    assert "2 of 2" in last
    assert f"/traces/{FAILING}" in second
    assert "data-next" not in last
    assert re.findall(r'href="([^"]+)" data-previous', last) == [first]


async def test_the_answer_of_a_filter_becomes_a_set(owner: Visitor) -> None:
    form = {"name": "failures", "q": "errors:yes", "range": "24h"}
    added = await owner.post(f"{BASE}/sets/add", form)
    assert added.location.endswith("?added=1")
    page = (await owner.get(added.location)).text
    assert re.findall(r'data-id="(\w{32})"', page) == [FAILING]
    assert "1 added" in page


async def test_a_set_is_exported_with_what_was_said_and_thought(owner: Visitor, store: Database) -> None:
    await judged(store, number=0.75, author="ragas")
    address = await filled(owner)
    exported = await owner.get(address + "/export")
    assert ".jsonl" in exported.headers["content-disposition"]
    lines = [json.loads(line) for line in exported.text.splitlines()]
    assert [line["id"] for line in lines] == [HEALTHY, FAILING]
    assert [entry["name"] for entry in lines[0]["feedback"]] == ["relevance"]
    assert lines[0]["feedback"][0]["number"] == 0.75
    assert {"input", "output", "metadata"} <= lines[0].keys()
    assert lines[0]["metadata"]["trace_id"] == HEALTHY
    assert lines[1]["feedback"] == []


async def test_a_set_that_is_not_there_and_a_name_that_is_none_are_refused(owner: Visitor) -> None:
    for path in ("nonsense", "00000000-0000-4000-8000-000000000000"):
        assert (await owner.get(f"{BASE}/sets/{path}")).status == 404
        assert (await owner.get(f"{BASE}/sets/{path}/export")).status == 404
    assert (await owner.post(f"{BASE}/sets/add", {"name": " ", "trace_id": HEALTHY})).status == 400
    assert (await owner.post(f"{BASE}/sets/add", {"name": "x", "trace_id": "7"})).status == 400
