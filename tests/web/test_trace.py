"""The page of one trace as the server gives it: each state, each document, and what hostile texts become."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from urllib.parse import quote, unquote

import msgspec
import pytest

from protocol.otlp.json import read_json
from svc.domain.retention.terms import Terms
from svc.runtime.clock import now
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from svc.web.shell.aged_out import aged_out_text
from tests.conftest import copied
from tests.front.people import Replica
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, rows, store_of
from tests.web.one_trace import (
    HOSTILE,
    WAV,
    failing,
    hostile,
    many,
    noise_png,
    pictured,
    strange,
    trace_id,
)
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Visitor

VIEWS = ("timeline", "tree", "conversation")


def at(name: str) -> str:
    """The address of a story."""
    return f"{BASE}/traces/{trace_id(name).hex()}"


async def _tell(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    # A healthy twin is looked for by arrival, days around: not around a day of the past.
    writer = store_of(store, Clock(now()))
    for story in (
        failing(),
        failing("healthy", broken=False),
        hostile(),
        strange(),
        pictured(),
        list(many(260)),
    ):
        await writer.write(rows(*story, resource={"service.name": "shop"}))
    await settle_all(store)


@pytest.fixture
async def store(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """The stories, told once and copied for each test."""
    async with copied(served, "stories", _tell) as database:
        yield database


async def test_the_first_line_says_what_happened(owner: Visitor) -> None:
    assert heading(await owner.get(at("failing"))) == "plan_trip took 9.84 s, 2 spans failed on the way"
    assert heading(await owner.get(at("healthy"))) == "plan_trip took 9.84 s"


async def test_a_trace_opens_at_what_failed_first_else_at_its_last_model_call(owner: Visitor) -> None:
    async def opening(path: str) -> list[str]:
        seen = (await owner.get(path)).text
        assert ('class="panel unasked"' in seen) is ("data-opening" in seen)
        return re.findall(r'data-opening="([0-9a-f]{16})"', seen)

    # Its first search of orders; without a failure the answer after the second one.
    assert await opening(at("failing")) == [f"{3:016x}"]
    assert await opening(at("healthy")) == [f"{6:016x}"]
    for asked in ("?span=0000000000000002", "?span=none", "?view=conversation", "?view=graph"):
        assert await opening(at("failing") + asked) == []


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("story", ["failing", "healthy", "hostile", "strange", "many"])
async def test_every_view_of_every_trace_is_a_page(owner: Visitor, story: str, view: str) -> None:
    seen = await owner.get(f"{at(story)}?view={view}")
    assert seen.status == 200
    assert "<script>alert" not in seen.text
    assert "\u202e" not in seen.text
    assert f'aria-current="page">{view.capitalize()}' in seen.text


async def test_every_number_leads_to_what_it_is_made_of(owner: Visitor) -> None:
    page = await owner.get(at("failing"))
    assert set(re.findall(r"explain\?number=(\w+)", page.text)) == {
        *("errors", "duration", "tokens", "cost", "spans")
    }
    cost = await owner.get(f"{at('failing')}/explain?number=cost")
    assert "6,412 tokens, $0.0191" in cost.text
    assert "$2.50 a million" in cost.text
    assert "genai-prices" in cost.text
    errors = await owner.get(f"{at('failing')}/explain?number=errors")
    assert "HTTP 502" in errors.text
    inside = await owner.get(f"{at('failing')}?explain=spans")
    assert "44 spans in 9.84 s" in inside.text
    assert (await owner.get(f"{at('failing')}/explain?number=weather")).status == 404


async def test_a_trace_that_is_not_there_is_a_page_that_says_where_it_was_looked_for(owner: Visitor) -> None:
    for named in ("0" * 32, "not-an-id", "F" * 31):
        seen = await owner.get(f"{BASE}/traces/{named}")
        assert (seen.status, heading(seen)) == (404, "There is no such trace in this project")
        assert named in seen.text
        assert "keeps traces for" in seen.text
        assert (await owner.get(f"{BASE}/traces/{named}/skeleton")).status == 404


async def test_a_stranger_is_led_to_the_sign_in_and_back(here: Replica, owner: Visitor) -> None:
    stranger = Visitor.of(here)
    seen = await stranger.get(at("failing") + "?view=tree")
    assert seen.status == 303
    assert seen.location.startswith("/login?next=")


async def test_the_columns_are_answered_once_and_then_304(owner: Visitor, store: Database) -> None:
    first = await owner.get(at("failing") + "/skeleton")
    document = json.loads(first.text)
    assert (document["v"], document["n"], document["total"], document["settled"]) == (1, 44, 44, True)
    again = await owner.get(at("failing") + "/skeleton", If_None_Match=first.headers["etag"])
    assert (again.status, again.text) == (304, "")
    late = failing()[0]
    late.span_id = (999).to_bytes(8, "big")
    late.parent_span_id = (1).to_bytes(8, "big")
    await store_of(store, Clock()).write(rows(late))
    grown = await owner.get(at("failing") + "/skeleton", If_None_Match=first.headers["etag"])
    assert (grown.status, json.loads(grown.text)["n"]) == (200, 45)
    page = await owner.get(at("failing"))
    assert heading(page) == "plan_trip is still arriving"
    assert "at least" in page.text
    assert 'data-settled="no"' in page.text
    part = await owner.get(
        at("failing") + "/skeleton?from=2000-01-01T00:00:00Z", If_None_Match=grown.headers["etag"]
    )
    assert part.status == 200
    packed = await owner.get(at("many") + "/skeleton", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"


async def test_a_conversation_says_each_message_once_and_tools_below_their_caller(owner: Visitor) -> None:
    seen = await owner.get(f"{at('failing')}?view=conversation")
    assert seen.text.count("You plan trips for customers") == 1
    assert "kb.fetch ×" in seen.text
    assert ">calls</span>" in seen.text
    more = re.search(r'data-more="([^"]+)"', seen.text)
    assert more is not None
    page = await owner.get(more[1].replace("&amp;", "&"))
    assert page.status == 200
    third = await owner.get(f"{at('failing')}/conversation?step=41")
    text = page.text + third.text
    assert "You plan trips for customers" not in text
    assert "earlier messages" in text
    assert "Friday" in text


async def test_the_panel_tells_a_span_in_parts(owner: Visitor) -> None:
    seen = await owner.get(f"{at('failing')}/spans/{3:016x}")
    for part in (
        "HTTP 502 from orders.internal",
        "Arguments",
        "Result",
        "Attributes 7",
        "Events 1",
        "Links 1",
    ):
        assert part in seen.text
    model = await owner.get(f"{at('failing')}/spans/{6:016x}")
    assert "Usage" in model.text
    assert model.text.index(">calls<") < model.text.index(">Output<")
    assert (await owner.get(f"{at('failing')}/spans/{777:016x}")).status == 404
    whole = await owner.get(f"{at('failing')}?span={3:016x}")
    assert "HTTP 502 from orders.internal" in whole.text


async def test_media_are_named_with_their_size_and_long_texts_are_cut(owner: Visitor) -> None:
    seen = await owner.get(f"{at('hostile')}/spans/{4:016x}")
    assert "image/png" in seen.text
    assert "iVBORw0KGgoiVBORw0KGgo" not in seen.text.split("Raw")[0].split("Attributes")[0]
    assert "the first 8,000 characters of 293 KiB" in seen.text
    assert len(seen.text) < 200_000
    whole = await owner.get(f"{at('hostile')}/spans/{4:016x}/text?at=input.0.0")
    assert whole.text.count("x" * 300_000) == 1
    saved = await owner.get(f"{at('hostile')}/spans/{4:016x}/text?at=input.0.0&download=1")
    assert saved.headers["content-disposition"].startswith("attachment")
    assert saved.headers["content-type"].startswith("text/plain")
    assert (await owner.get(f"{at('hostile')}/spans/{4:016x}/text?at=input.9.9")).status == 404
    assert (await owner.get(f"{at('hostile')}/spans/{4:016x}/text?at=__class__")).status == 404


async def test_pictures_and_sounds_of_a_message_are_sent_as_what_they_are(owner: Visitor) -> None:
    span = f"{at('pictured')}/spans/{1:016x}"
    panel = (await owner.get(span)).text
    shown = re.findall(r'<(?:img|audio) src="([^"]*)"', panel)
    assert [unquote(link).partition("at=")[2] for link in shown] == ["input.0.0", "input.0.2"]
    for number, content_type, content in ((0, "image/png", noise_png(140)), (2, "audio/wav", WAV)):
        whole = await owner.get(f"{span}/file?at=input.0.{number}")
        assert (whole.status, whole.headers["content-type"], whole.body) == (200, content_type, content)
        assert "content-disposition" not in whole.headers
        assert "default-src 'none'" in whole.headers["content-security-policy"]
    assert "Show the picture" in panel
    large = await owner.get(f"{span}/file?at=input.0.1", **{"Accept-Encoding": "gzip"})
    assert (large.headers["content-type"], large.body) == ("image/jpeg", noise_png(620))
    assert "content-encoding" not in large.headers
    saved = await owner.get(f"{span}/file?at=input.0.0&download=1")
    assert saved.headers["content-disposition"] == f'attachment; filename="{1:016x}-input.0.0.png"'
    assert saved.body == noise_png(140)


@pytest.mark.parametrize(
    ("wanted", "status", "content_range", "first", "last"),
    [
        ("bytes=0-1", 206, "bytes 0-1/7980", 0, 2),
        ("bytes=44-", 206, "bytes 44-7979/7980", 44, 7980),
        ("bytes=7000-99999", 206, "bytes 7000-7979/7980", 7000, 7980),
        ("bytes=7980-", 416, "bytes */7980", 0, 0),
        ("bytes=2-1", 416, "bytes */7980", 0, 0),
        ("bytes=-5", 200, None, 0, 7980),
        ("bytes=0-1,4-5", 200, None, 0, 7980),
    ],
)
async def test_a_part_of_a_sound_is_sent_where_a_part_is_wanted(
    owner: Visitor, wanted: str, status: int, content_range: str | None, first: int, last: int
) -> None:
    sent = await owner.get(f"{at('pictured')}/spans/{1:016x}/file?at=input.0.2", Range=wanted)
    assert (sent.status, sent.headers.get("content-range")) == (status, content_range)
    assert sent.headers["accept-ranges"] == "bytes"
    assert sent.body == WAV[first:last]


@pytest.mark.parametrize("number", [3, 4])
async def test_a_file_that_could_run_something_is_only_ever_downloaded(owner: Visitor, number: int) -> None:
    span = f"{at('pictured')}/spans/{1:016x}"
    for more in ("", "&download=1"):
        sent = await owner.get(f"{span}/file?at=input.0.{number}{more}")
        assert sent.headers["content-type"] == "application/octet-stream"
        assert sent.headers["content-disposition"].startswith("attachment")
        assert b"alert(" in sent.body


async def test_what_is_no_file_of_a_message_is_not_found(owner: Visitor) -> None:
    span = f"{at('pictured')}/spans/{1:016x}"
    for part_path in ("input.0.5", "input.0.9", "input.9.0", "input", "attributes", "__class__", ""):
        assert (await owner.get(f"{span}/file?at={part_path}")).status == 404, part_path


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_hostile_texts_are_shown_and_do_nothing(owner: Visitor, number: int) -> None:
    seen = await owner.get(f"{at('hostile')}/spans/{number:016x}")
    assert seen.status == 200
    for never in ("<script>alert", "<img src=x", "\u202e", "\u200b", "1337"):
        assert never not in seen.text
    assert 'href="javascript' not in seen.text
    compared = await owner.get(f"{at('hostile')}?against={trace_id('failing').hex()}")
    assert compared.status == 200
    assert "<script>alert" not in compared.text


async def test_what_aged_out_is_said_and_the_row_remains(owner: Visitor, store: Database) -> None:
    shown = (
        at("failing"),
        f"{at('failing')}?span={2:016x}",
        f"{at('failing')}/spans/{2:016x}",
        f"{at('failing')}?view=conversation",
        f"{at('failing')}/conversation",
        f"{BASE}/traces?range=all",
        f"{BASE}/traces/rows?range=all",
        f"{BASE}/traces/rail?trace={trace_id('failing').hex()}",
        f"{BASE}/sessions",
        f"{BASE}/explore?range=all",
    )
    for address in shown:
        assert "aged out" not in (await owner.get(address)).text, address
    (session,) = await store.fetch("select session_id from trace where trace_id = $1", trace_id("failing"))
    shown = (*shown, f"{BASE}/session?id={quote(session['session_id'])}")
    await store.fetch("delete from span_payload")
    for address in shown:
        page = await owner.get(address)
        assert page.status == 200, address
        assert "aged out: payloads are kept for 89 days" in page.text, address
        assert "When does my order" not in page.text, address
    assert "plan_trip" in (await owner.get(at("failing"))).text
    assert (await owner.get(f"{at('failing')}/spans/{2:016x}/text?at=input")).status == 404


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (90, "aged out: payloads are kept for 89 days"),
        (2, "aged out: payloads are kept for 1 day"),
        (0, "aged out"),
    ],
)
def test_how_long_payloads_are_kept_is_said_where_they_are_kept_for_a_term(days: int, said: str) -> None:
    assert aged_out_text(Terms(days, 90)) == said


async def test_a_trace_without_its_root_says_so(owner: Visitor) -> None:
    assert "Its root span never arrived" not in (await owner.get(at("failing"))).text


async def test_without_scripts_the_first_spans_are_a_table(owner: Visitor) -> None:
    seen = await owner.get(at("many"))
    assert "The first 200 of 260 spans" in seen.text
    assert seen.text.count(f"{at('many')}?view=timeline&amp;span=") >= 200


async def test_find_and_previews_answer_documents(owner: Visitor) -> None:
    found = json.loads((await owner.get(f"{at('failing')}/find?q=changed%20until")).text)
    assert found == {"ids": [f"{6:016x}"], "more": False, "unread": 0}
    told = json.loads((await owner.get(f"{at('failing')}/previews?ids={2:016x},{7:016x}")).text)
    assert told[f"{2:016x}"][0].startswith("When does my order")
    assert (await owner.get(f"{at('failing')}/previews?ids=../..")).text == "{}"


async def test_the_healthy_twin_is_named_in_the_address_and_the_first_difference_is_open(
    owner: Visitor,
) -> None:
    seen = await owner.get(at("failing") + "?against=healthy")
    assert seen.status == 303
    assert f"against={trace_id('healthy').hex()}" in seen.location
    page = await owner.get(seen.location)
    assert "First difference:" in page.text
    assert "failed here, output differs, slower" in page.text
    assert re.search(r"<ins>[^<]*isError", page.text)
    assert re.search(r"<del>[^<]*carrier", page.text)
    other = await owner.get(f"{seen.location}&pair={7:016x}")
    assert "render_answer" in other.text
    alone = await owner.get(at("strange") + "?against=healthy")
    assert "There is no healthy trace to compare with" in alone.text
    gone = await owner.get(at("failing") + "?against=" + "0" * 32)
    assert "There is no such trace to compare with" in gone.text


async def test_the_graph_says_in_its_table_what_it_draws(owner: Visitor) -> None:
    page = (await owner.get(at("failing") + "?view=graph")).text
    drawn = re.findall(r'<g transform="translate\([^"]+"><a [^>]+aria-label="([^:"]+): ', page)
    listed = re.findall(r'class="clip-name card-name">.*?<a [^>]+>([^<]+)</a>', page)
    assert drawn
    assert sorted(drawn) == sorted(listed)
    assert "of the time</h2>" in page
    assert "data-grid" not in page
    hostile = (await owner.get(at("hostile") + "?view=graph")).text
    assert "<script>alert" not in hostile


async def test_the_last_traces_of_a_call_site_are_one_graph(owner: Visitor) -> None:
    one = (await owner.get(at("failing") + "?view=graph")).text
    [path] = re.findall(rf'href="({BASE}/graph\?site=[^"]+)"', one)
    page = await owner.get(path.replace("&amp;", "&"))
    assert page.status == 200
    [(number, site)] = re.findall(r"<h1>The last (\d+) traces of ([^<]+)</h1>", page.text)
    assert int(number) > 1
    assert site in one
    # The start has a row where something was done outside of any step.
    steps = page.text.count('class="clip-name card-name">')
    assert page.text.count("<g transform=") in (steps, steps + 1)
    # A tool leads to the traces that call it.
    tools = re.findall(
        r'class="clip-name card-name">.*?<a class="card-link" href="([^"]+)" title="([^"]+)">', page.text
    )
    assert all(f"tool:{name}" in unquote(path) for path, name in tools), tools
    assert tools
    nothing = await owner.get(f"{BASE}/graph?site=<script>")
    assert "No trace of &lt;script&gt; in the last 30 days" in nothing.text
    assert "Nothing to draw" in nothing.text


async def test_two_ticked_traces_are_compared_and_any_other_number_is_refused(owner: Visitor) -> None:
    here, there = trace_id("failing").hex(), trace_id("healthy").hex()
    ticked = await owner.get(f"{BASE}/traces/compare?trace_id={here}&trace_id={there}&name=")
    assert ticked.status == 303
    assert ticked.location == f"{BASE}/traces/{here}?against={there}"
    page = (await owner.get(ticked.location)).text
    totals = page.partition('<div class="differences">')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row">([^<]+)</th>', totals) == [
        *("Duration", "Tokens", "Cost", "Spans", "Failed spans")
    ]
    assert "Time: largest differences" in page
    for ids in ("", f"trace_id={here}", f"trace_id={here}&trace_id={here}", f"trace_id={here}&trace_id=x"):
        refused = await owner.get(f"{BASE}/traces/compare?{ids}")
        assert (refused.status, "two traces are compared" in refused.text.lower()) == (400, True), ids


async def test_a_trace_is_compared_with_one_that_is_named_by_its_id(owner: Visitor) -> None:
    page = (await owner.get(at("failing"))).text
    assert f'<form action="{at("failing")}">' in page
    assert 'name="against"' in page
    pasted = quote(f" {trace_id('healthy').hex().upper()} ")
    assert "First difference:" in (await owner.get(f"{at('failing')}?against={pasted}")).text


async def test_the_neighbours_are_those_of_the_list_one_came_from(owner: Visitor) -> None:
    inside = quote("q=status:ok&range=all")
    seen = await owner.get(f"{at('failing')}?in={inside}")
    assert "data-previous" in seen.text or "data-next" in seen.text
    assert "range=all" in seen.text
    broken = await owner.get(f"{at('failing')}?in=range%3Dweather")
    assert broken.status == 200
    assert "data-next" not in broken.text


async def test_an_export_as_otlp_can_be_sent_again(owner: Visitor) -> None:
    seen = await owner.get(at("failing") + "/export?form=otlp")
    assert seen.headers["content-disposition"].startswith("attachment")
    sent = msgspec.json.decode(seen.text)
    spans = [
        one
        for resource in sent["resourceSpans"]
        for scope in resource["scopeSpans"]
        for one in scope["spans"]
    ]
    assert len(spans) == 44
    assert {one["traceId"] for one in spans} == {trace_id("failing").hex()}
    assert spans[1]["parentSpanId"] == f"{1:016x}"
    read = read_json(seen.text.encode())
    assert sum(len(scope.spans) for one in read.resource_spans for scope in one.scope_spans) == 44
    told = json.loads((await owner.get(at("failing") + "/export?form=json")).text)
    assert (told["span_count"], len(told["spans"])) == (44, 44)
    assert told["spans"][1]["input"][0]["role"] == "system"
    assert (await owner.get(at("failing") + "/export?form=exe")).status == 400


async def test_names_of_ten_thousand_letters_do_not_fill_a_page(owner: Visitor) -> None:
    seen = await owner.get(at("hostile"))
    assert len(seen.text) < 60_000
    assert HOSTILE not in seen.text


async def test_marks_stand_above_the_spans_and_beside_those_they_speak_of(
    owner: Visitor, store: Database
) -> None:
    before = await owner.get(at("failing"))
    assert "data-mark-of" not in before.text
    queue = PostgresTallyQueue(store)
    while await queue.waiting():
        await queue.tally(1)
    page = await owner.get(at("failing"))
    ((effect, label),) = re.findall(r'data-mark-of="(\w{16})" data-mark-label="([^"]+)"', page.text)
    assert label == "same failure again"
    ((cause,),) = await fetch_marks(store, effect)
    assert f"span={effect}" in page.text
    assert f'asked for by <a href="{at("failing")}?span={cause}">chat gpt-4o</a>' in page.text
    panel = await owner.get(f"{at('failing')}/spans/{effect}")
    assert "The tool failed in the same way just before" in panel.text
    assert re.search(rf'span={cause}">chat gpt-4o</a> asked for it', panel.text)
    asking = await owner.get(f"{at('failing')}/spans/{cause}")
    assert re.search(rf'It shows at <a href="[^"]+span={effect}">search_orders</a>', asking.text)
    other = await owner.get(f"{at('failing')}/spans/{1:016x}")
    assert 'class="small stated"' not in other.text
    # It asked for the same order twice.
    healthy = await owner.get(at("healthy"))
    assert re.findall(r'data-mark-label="([^"]+)"', healthy.text) == ["same call again"]
    assert "data-mark-of" in (await owner.get(at("failing") + "/top")).text


async def fetch_marks(store: Database, effect: str) -> list[tuple[str]]:
    """The model calls behind the marks of a span."""
    rows = await store.fetch(
        "select encode(cause_span_id, 'hex') as cause from classifier_event"
        " where subject_trace_id = $1 and subject_span_id = $2",
        trace_id("failing"),
        bytes.fromhex(effect),
    )
    return [(row["cause"],) for row in rows]


async def test_a_list_is_narrowed_to_a_mark_and_counts_it_as_a_facet(owner: Visitor, store: Database) -> None:
    queue = PostgresTallyQueue(store)
    while await queue.waiting():
        await queue.tally(1)
    marked = await owner.get(f"{BASE}/traces?range=24h&q=mark:retry_of_same_failure")
    assert re.findall(r'data-id="(\w{32})"', marked.text) == [trace_id("failing").hex()]
    unmarked = await owner.get(f"{BASE}/traces?range=24h&q=-mark:retry_of_same_failure")
    assert trace_id("failing").hex() not in unmarked.text
    assert trace_id("healthy").hex() in unmarked.text
    facets = await owner.get(f"{BASE}/traces/facets?range=24h")
    assert "<h2>Mark</h2>" in facets.text
    assert 'data-value="mark:retry_of_same_failure"' in facets.text
    wrong = await owner.get(f"{BASE}/traces?range=24h&q=mark:nonsense")
    assert "Mark is one of args_break_schema" in wrong.text
