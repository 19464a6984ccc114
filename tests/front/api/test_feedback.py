"""The door for feedback, and feedback over REST."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from protocol.refusals import INGEST_SCOPE, OTHER_USE
from protocol.rest.feedback import ENTRIES_MAX
from svc.front.auth.bearer import authorize
from tests.front.people import PROJECT, Browser, Replica
from tests.store.spans.test_writing import fetch

FEEDBACK = PROJECT + "/feedback"
TRACE = "0af7651916cd43dd8448eb211c80319c"
KEYS = PROJECT + "/api-keys"


def said(**fields: Any) -> dict[str, Any]:
    return {"name": "helpful", "trace_id": TRACE, "number": 1} | fields


async def sender(api: Replica, scope: str = "write") -> Browser:
    return api.browser(key=await api.token(scope), origin=None)


async def sent(browser: Browser, *entries: Any) -> Any:
    answer = await browser.post("/v1/feedback", {"feedback": entries})
    assert answer.status == 200, answer.body
    return answer.body


async def test_what_is_sent_is_shown(api: Replica) -> None:
    program, owner = await sender(api), await api.owner()
    assert (
        await sent(program, said(id="7", author="u-17", text="Just right", at="2026-11-25T10:00:00Z")) == {}
    )
    page = (await owner.get(f"{FEEDBACK}?trace_id={TRACE}")).data
    (entry,) = page["feedback"]
    assert page["next_cursor"] is None
    assert {name: entry[name] for name in ("id", "source", "name", "number", "text", "author", "at")} == {
        "id": "7",
        "source": "api",
        "name": "helpful",
        "number": 1.0,
        "text": "Just right",
        "author": "u-17",
        "at": "2026-11-25T10:00:00.000000Z",
    }
    (name,) = (await owner.get(f"{FEEDBACK}/names")).data["names"]
    assert (name["name"], name["entries"], name["mean"], name["better"]) == ("helpful", 1, 1.0, "higher")


async def test_what_the_project_masks_is_replaced_in_texts_from_either_door_and_counted(api: Replica) -> None:
    program, owner = await sender(api), await api.owner()
    await owner.put(f"{PROJECT}/masking", {"classes": ["email"], "patterns": []})
    assert await sent(program, said(id="7", text="ask ann@example.com")) == {}
    shown = (await owner.post(FEEDBACK, said(text="or bob@example.com, or eve@example.com"))).data
    assert shown["text"] == "or [email], or [email]"
    entries = (await owner.get(f"{FEEDBACK}?trace_id={TRACE}")).data["feedback"]
    assert sorted(entry["text"] for entry in entries) == ["ask [email]", "or [email], or [email]"]
    firings = await fetch(api.database, "select summary from classifier_event")
    assert "example.com" not in str([row["summary"] for row in firings])
    assert (await owner.get(f"{PROJECT}/masking")).data["counts"] == {"email": 3}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (said(trace_id="xyz"), "trace_id is 32 hexadecimal digits"),
        (said(trace_id="0" * 32), "not all of them 0"),
        (said(span_id="12"), "span_id is 16 hexadecimal digits"),
        (said(number=None), "a number, a category or a text"),
        (said(number="one"), "an entry cannot be read"),
        (said(score=1), "unknown field `score`"),
        (said(at="yesterday"), "at"),
        ("helpful", "an entry cannot be read"),
    ],
)
async def test_what_cannot_be_kept_is_counted_and_all_else_is_kept(
    api: Replica, entry: Any, reason: str
) -> None:
    partial = (await sent(await sender(api), said(id="good"), entry))["partialSuccess"]
    assert partial["rejectedFeedback"] == 1
    assert reason in partial["errorMessage"]
    assert [row["id"] for row in await fetch(api.database, "select id from feedback")] == ["good"]


async def test_a_request_holds_so_many_entries(api: Replica) -> None:
    program = await sender(api)
    assert await sent(program, *(said(id=str(number)) for number in range(ENTRIES_MAX))) == {}
    refused = await program.post("/v1/feedback", {"feedback": [said()] * (ENTRIES_MAX + 1)})
    assert refused.refused[:2] == (400, "BAD_REQUEST")


async def test_a_browser_on_any_page_may_send(api: Replica) -> None:
    page = api.browser(key=await api.token("write"), origin="https://shop.example")
    asked = await page.call("OPTIONS", "/v1/feedback")
    assert asked.status == 204
    assert asked.headers["access-control-allow-headers"] == "authorization, content-type"
    answer = await page.post("/v1/feedback", {"feedback": [said()]})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    large = await page.post("/v1/feedback", {"feedback": [said(text="x" * 20_000_000)]})
    assert (large.status, large.headers["access-control-allow-origin"]) == (413, "*")
    refused = await api.browser(origin="https://shop.example").post("/v1/feedback", {"feedback": []})
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "*")


async def test_a_key_for_feedback_alone_gives_feedback_and_opens_nothing_else(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(KEYS, {"name": "shop", "scope": "write", "only": "feedback"})).data
    assert made["key"]["only"] == "feedback"
    page = api.browser(key=made["plaintext"], origin="https://shop.example")
    assert await sent(page, said()) == {}
    for path in (FEEDBACK, PROJECT + "/cases"):
        assert (await page.get(path)).status in (401, 403)
    # A living key is not called unknown.
    refusal = await authorize(
        api.means.keys, f"Bearer {page.key}", ("write", "admin"), INGEST_SCOPE, place=""
    )
    assert refusal == OTHER_USE["feedback"]
    assert [key["only"] for key in (await owner.get(KEYS)).data] == ["feedback"]
    turned = (await owner.post(f"{KEYS}/{made['key']['id']}/rotate")).data
    assert (await page.post("/v1/feedback", {"feedback": []})).status == 401
    page.key = turned["plaintext"]
    assert await sent(page, said()) == {}
    assert (await owner.delete(f"{KEYS}/{made['key']['id']}")).data == {"revoked": True}
    assert (await page.post("/v1/feedback", {"feedback": []})).status == 401


async def test_a_key_for_feedback_alone_writes(api: Replica) -> None:
    owner = await api.owner()
    refused = (await owner.post(KEYS, {"name": "x", "scope": "query", "only": "feedback"})).refused
    assert refused[::2] == (400, "a key for feedback alone has the scope write")


async def test_what_somebody_says_on_the_pages_is_signed_and_can_be_taken_back(api: Replica) -> None:
    owner = await api.owner()
    for number in (1, 0):
        entry = (await owner.post(FEEDBACK, said(number=number))).data
    assert (entry["author"], entry["source"], entry["number"]) == ("owner@example.org", "page", 0.0)
    note = (await owner.post(FEEDBACK, said(name="note", number=None, text="Look at step 3"))).data
    assert len((await owner.get(FEEDBACK)).data["feedback"]) == 2
    assert (await owner.delete(f"{FEEDBACK}/page/{note['id']}")).data == {}
    assert (await owner.delete(f"{FEEDBACK}/page/{note['id']}")).refused[0] == 404
    assert (await owner.delete(f"{FEEDBACK}/nowhere/{note['id']}")).refused[0] == 404


async def test_who_may_only_look_says_nothing(api: Replica) -> None:
    viewer = await api.member("viewer@example.org", "viewer", await api.owner())
    assert (await viewer.get(FEEDBACK)).status == 200
    assert (await viewer.post(FEEDBACK, said())).refused[0] == 403


async def test_which_end_is_good_is_set_and_left_to_the_name_again(api: Replica) -> None:
    owner = await api.owner()
    await sent(await sender(api), said(name="toxicity"))
    for better, shown in (("higher", ("higher", True)), (None, ("lower", False))):
        await owner.put(f"{FEEDBACK}/names/toxicity", {"better": better})
        (name,) = (await owner.get(f"{FEEDBACK}/names")).data["names"]
        assert (name["better"], name["is_set"]) == shown
    assert (await owner.put(f"{FEEDBACK}/names/nobody", {"better": "lower"})).refused[0] == 404


async def test_what_the_documentation_sends_is_kept(api: Replica) -> None:
    page = (Path(__file__).parents[3] / "deploy/feedback.md").read_text()
    (shown,) = re.findall(r"-d '(\{.*?\})'\n```", page, re.DOTALL)
    assert (await (await sender(api)).post("/v1/feedback", shown.encode())).body == {}
    owner = await api.owner()
    names = [name["name"] for name in (await owner.get(f"{FEEDBACK}/names")).data["names"]]
    assert sorted(names) == ["helpful", "relevance", "stars"]
