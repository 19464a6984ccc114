"""Sets on pages: filled from a trace and from a list, walked by their addresses, exported."""

from __future__ import annotations

import html
import json
import re

from protocol.detection import Ref
from svc.store.postgres.database import Database
from tests.store.detection.detecting import opened, seen
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
    sets = (await owner.get(f"{BASE}/sets")).text
    assert re.search(rf'href="{address}">good ones</a></th><td [^>]+>2</td>', sets)
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


async def test_a_note_is_written_on_the_review_and_shown_and_exported(owner: Visitor) -> None:
    address = await filled(owner)
    form = {"set": address.rpartition("/")[2], "trace_id": FAILING, "note": " <b>Wrong</b> order "}
    review = f"{BASE}/traces/{FAILING}?view=conversation&in=set%3D{form['set']}"
    kept = await owner.post(f"{BASE}/sets/note", form, referer=f"http://localhost{review}")
    assert (kept.status, kept.location) == (303, review)
    assert "&lt;b&gt;Wrong&lt;/b&gt; order</textarea>" in (await owner.get(review)).text
    assert "&lt;b&gt;Wrong&lt;/b&gt; order</td>" in (await owner.get(address)).text
    lines = [json.loads(line) for line in (await owner.get(address + "/export")).text.splitlines()]
    assert [line["note"] for line in lines] == [None, "<b>Wrong</b> order"]
    assert (await owner.post(f"{BASE}/sets/note", form | {"note": "x" * 2001})).status == 400
    assert (await owner.post(f"{BASE}/sets/note", form | {"trace_id": "7" * 32})).status == 404


async def test_ticked_rows_and_a_span_are_added(owner: Visitor) -> None:
    page = (await owner.get(f"{BASE}/traces?range=all")).text
    assert len(re.findall(r'name="trace_id" value="\w{32}" form="ticked"', page)) == 2
    ticked = await owner.post(f"{BASE}/sets/add", {"name": "few", "trace_id": [HEALTHY, FAILING]})
    assert ticked.location.endswith("?added=2")
    span = f"{3:016x}"
    panel = (await owner.get(f"{BASE}/traces/{HEALTHY}/spans/{span}")).text
    assert f'action="{BASE}/sets/add"' in panel
    added = await owner.post(f"{BASE}/sets/add", {"name": "few", "trace_id": HEALTHY, "span_id": span})
    assert added.location.endswith("?added=1")
    assert f"{HEALTHY}-{span}" in (await owner.get(added.location)).text


async def test_the_traces_of_a_case_become_a_set_by_one_button(owner: Visitor, store: Database) -> None:
    witnesses = [Ref("witness", trace_id=trace_id("failing")), Ref("witness", trace_id=bytes(15) + b"\7")]
    await opened(store, seen(), [*witnesses, Ref("exemplar", trace_id=trace_id("healthy"), rank=1)])
    assert "Keep them as the set C-1" in (await owner.get(f"{BASE}/cases/C-1")).text
    made = await owner.post(f"{BASE}/sets/add", {"case": "C-1", "name": "C-1"})
    assert made.location.endswith("?added=2")
    page = (await owner.get(made.location)).text
    assert re.findall(r'data-id="(\w{32})"', page) == [HEALTHY, FAILING]
    assert (await owner.post(f"{BASE}/sets/add", {"case": "C-9", "name": "C-9"})).status == 404


async def test_others_answers_are_hidden_in_a_review_until_one_has_answered(
    owner: Visitor, store: Database
) -> None:
    address = await filled(owner)
    await judged(store, name="helpful", number=1.0, author="bob@example.org", source="page")
    review = f"{BASE}/traces/{HEALTHY}?view=conversation&in=set%3D{address.rpartition('/')[2]}"
    page = (await owner.get(review)).text
    assert "bob@example.org" not in page
    assert "1 answer of other reviewers is shown after you have given yours" in page
    assert "bob@example.org" in (await owner.get(f"{BASE}/traces/{HEALTHY}")).text
    await owner.post(f"{BASE}/feedback", {"trace_id": HEALTHY, "number": "0"})
    assert "bob@example.org" in (await owner.get(review)).text


async def test_the_page_says_how_far_reviewers_are_and_how_often_they_agree(
    owner: Visitor, store: Database
) -> None:
    address = await filled(owner)
    for story, number in (("healthy", 1.0), ("failing", 1.0)):
        await judged(store, story, name="helpful", number=number, author="bob@example.org", source="page")
    await owner.post(f"{BASE}/feedback", {"trace_id": HEALTHY, "number": "1"})
    page = (await owner.get(address)).text
    assert "answered 1 of 2: 1 yes, 0 no" in page
    assert "<b>bob@example.org</b> answered 2 of 2: 2 yes, 0 no" in page
    assert "gave the same answer to 1 of the 1 entry that both answered: <b>100 %</b>" in page
    # Whoever looks goes on where they stopped.
    (first,) = re.findall(r'class="button main" href="([^"]+)"', page)
    assert f"/traces/{FAILING}" in first
    await owner.post(f"{BASE}/feedback", {"trace_id": FAILING, "number": "0"})
    page = (await owner.get(address)).text
    assert "The reviewers differ" in page
    assert "Cohen’s kappa is 0," in page
