"""The board: charts of Explore that a project keeps on Overview, for members to arrange."""

from __future__ import annotations

import csv
import html
import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from trio_asyncio import trio_as_aio

from svc.runtime.clock import now
from svc.store.accounts.kept_charts import MOST_CHARTS, QUESTION_CHARS, TITLE_CHARS, KeptChartStore
from svc.store.postgres.database import Connection, Database
from tests.front.people import Replica
from tests.web.test_overview import PAGE, bars, calls, days
from tests.web.test_pages import heading
from tests.web.test_triage import invited
from tests.web.visitor import BASE, Seen, Visitor

EXPLORE = BASE + "/explore"
COST = "dataset=spans&measure=cost&field=model_id&q=kind%3Allm&range=7d"


async def keep(visitor: Visitor, question: str = COST, title: str = "Model spend") -> Seen:
    return await visitor.post(EXPLORE + "/keep", {"question": question, "title": title})


def section(page: Seen, title: str) -> str:
    """The chart of this title: one that is kept, or one of the page's own."""
    parts = re.split(rf'aria-label="(?:Kept chart \d+: )?{re.escape(html.escape(title))}">', page.text)
    return parts[1].partition("</section>")[0] if len(parts) > 1 else ""


def board(page: Seen) -> list[str]:
    """The titles of the board, in their order."""
    text = page.text.partition('id="board"')[2].partition('<nav class="tabs"')[0]
    return [html.unescape(title) for title in re.findall(r"<header><h2>([^<]*)</h2>", text)]


def form(page: Seen, title: str, act: str) -> dict[str, str]:
    """The hidden fields of a form of a chart."""
    text = section(page, title).partition(f'action="{BASE}/overview/charts/{act}"')[2].partition("</form>")[0]
    return {
        name: html.unescape(value)
        for name, value in re.findall(r'type="hidden" name="([a-z]+)" value="([^"]*)"', text)
    }


async def test_an_empty_board_says_how_to_keep_a_chart(store: Database, owner: Visitor) -> None:
    await calls(store, 4)
    page = await owner.get(PAGE)
    assert board(page) == []
    assert "press <i>Keep on Overview</i>" in page.text


async def test_the_board_stands_on_overview_before_the_first_trace(owner: Visitor) -> None:
    assert "press <i>Keep on Overview</i>" in (await owner.get(PAGE)).text
    assert (await keep(owner)).status == 303
    page = await owner.get(PAGE)
    assert "No traces yet" in page.text
    assert board(page) == ["Model spend"]


async def test_explore_suggests_a_title_in_plain_words(store: Database, owner: Visitor) -> None:
    await calls(store, 4)
    for question, title in {
        COST: "Cost of spans by model, kind llm",
        "": "Spans by kind",
        "dataset=tool_calls&measure=error_rate": "Error rate of tool calls by name",
        "q=session_id:null": "Spans by kind, no session",
        f"q=name:{'x' * 200}": f"Spans by kind, name {'x' * (TITLE_CHARS - 21)}…",
    }.items():
        page = await owner.get(f"{EXPLORE}?{question}")
        assert f'name="title" type="text" value="{title}"' in page.text, question


async def test_a_kept_chart_stands_on_overview_over_the_days_of_the_page(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 60)
    kept = await keep(owner, COST, "  Spend of   models ")
    assert kept.status == 303
    after = await owner.get(kept.location)
    assert "Kept as <b>Spend of models</b>" in after.text
    assert ">Keep on Overview</summary>" not in after.text
    for range_ in ("range=30d", days(now() - timedelta(days=1), now())):
        page = await owner.get(f"{PAGE}?{range_}")
        assert board(page) == ["Spend of models"]
        # The same figure as the page's own chart of the same thing.
        own, ours = (
            re.search(r'class="value">([^<]+)<', section(page, title))
            for title in ("Spend", "Spend of models")
        )
        assert own is not None
        assert ours is not None
        assert ours[1] == own[1]
        assert len(bars(page.text, "Kept chart 1: Spend of models")) == len(bars(page.text, "Spend"))


async def test_its_bars_and_its_link_lead_to_explore_with_its_question(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 6)
    await keep(owner, "dataset=tool_calls&field=name", "Tools")
    page = await owner.get(f"{PAGE}?{days(now() - timedelta(days=1), now())}")
    address = re.search(r'href="([^"]+)">Open in Explore', section(page, "Tools"))
    assert address is not None
    opened = await owner.get(html.unescape(address[1]))
    assert heading(opened).startswith("6 tool calls from ")
    counted = 0
    for said, leads_to in bars(page.text, "Kept chart 1: Tools"):
        number = int(said.rpartition(" ")[2].replace("–", "0"))
        assert heading(await owner.get(leads_to)).startswith(f"{number} tool calls from ")
        counted += number
    assert counted == 6
    assert "from" in parse_qs(urlsplit(bars(page.text, "Kept chart 1: Tools")[0][1]).query)


@pytest.mark.parametrize(
    "question",
    [
        "measure=error_rate&field=tool&q=kind:tool",
        "measure=duration_p95&field=model_id&q=kind:llm",
        "measure=users&field=kind",
        "measure=tokens&field=model_id&by=created_at",
        "dataset=classifier_events",
        "dataset=metric_rollups",
        "q=name:chat+refund",
    ],
)
async def test_any_question_is_drawn_in_any_range(store: Database, owner: Visitor, question: str) -> None:
    await calls(store, 6)
    assert (await keep(owner, question, "Chart")).status == 303
    for days_back in (0, 5, 60, 300):
        page = await owner.get(f"{PAGE}?{days(now() - timedelta(days=days_back), now())}")
        assert "data-bars" in section(page, "Chart"), (days_back, section(page, "Chart"))
    key = page.text.partition('id="kept-')[2].partition('"')[0]
    table = await owner.get(f"{PAGE}?table=kept-{key}")
    assert "as a table" in section(table, "Chart")


async def test_two_instants_stay_whatever_the_page_shows(store: Database, owner: Visitor) -> None:
    await calls(store, 30)
    since, until = now() - timedelta(days=20), now() - timedelta(hours=10)
    await keep(owner, f"from={since:%Y-%m-%dT%H:%MZ}&to={until:%Y-%m-%dT%H:%MZ}&q=kind:llm", "Then")
    page = await owner.get(f"{PAGE}?range=today")
    assert "Always from " in section(page, "Then")
    assert '<span class="value">20</span>' in section(page, "Then")


async def test_the_filter_of_the_page_narrows_what_it_can_and_says_what_it_cannot(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 12)
    await keep(owner, "q=kind:llm&field=model_id", "Calls")
    await keep(owner, "dataset=tool_calls", "Tools")
    await keep(owner, "q=user_id:u0&field=kind", "One user")
    page = await owner.get(f"{PAGE}?{days(now() - timedelta(days=2), now())}&q=user:u1")
    assert '<span class="value">3</span>' in section(page, "Calls")
    unnarrowed = "The filter of this page does not apply to this chart"
    assert unnarrowed not in section(page, "Calls")
    for title in ("Tools", "One user"):
        assert unnarrowed in section(page, title)


async def test_a_title_that_is_refused_stays_in_its_field(store: Database, owner: Visitor) -> None:
    await calls(store, 4)
    long = "x" * (TITLE_CHARS + 1)
    for typed, said in ((" ", "Give the chart a title."), (long, "this one has 81")):
        page = await keep(owner, COST, typed)
        assert page.status == 400
        assert f'name="title" type="text" value="{typed}"' in page.text
        assert said in page.text
        assert '<option value="cost" selected>' in page.text
    await keep(owner)
    seen = await owner.get(f"{PAGE}?range=30d")
    page = await owner.post(PAGE + "/charts/rename", {**form(seen, "Model spend", "rename"), "title": long})
    assert page.status == 400
    assert f'value="{long}"' in section(page, "Model spend")
    assert "this one has 81" in section(page, "Model spend")
    assert 'range=30d" aria-current="true"' in page.text


async def test_a_question_too_long_or_twice_or_over_years_is_refused_in_words(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 4)
    assert (await keep(owner)).status == 303
    for question, said in {
        # Another relative range is the same chart.
        COST.replace("7d", "24h"): "This chart is on Overview already.",
        f"q=name:{'x' * QUESTION_CHARS}": "too long to keep",
        "from=2020-01-01T00:00Z&to=2026-01-01T00:00Z": "at most 366 days",
    }.items():
        page = await keep(owner, question, "Again")
        assert page.status == 400
        assert said in page.text
    assert (await keep(owner, "range=never")).status == 400
    assert board(await owner.get(PAGE)) == ["Model spend"]


async def test_the_thirteenth_chart_is_refused_in_words(store: Database, owner: Visitor) -> None:
    await calls(store, 4)
    for number in range(MOST_CHARTS):
        assert (await keep(owner, f"q=name:n{number}", f"Chart {number}")).status == 303
    page = await keep(owner, COST, "One more")
    assert page.status == 400
    assert f"Overview holds {MOST_CHARTS} charts at most" in page.text
    assert 'value="One more"' in page.text
    assert "to make room" in (await owner.get(f"{EXPLORE}?{COST}")).text
    assert len(board(await owner.get(PAGE))) == MOST_CHARTS


async def test_members_arrange_the_board_and_come_back_to_the_page_they_had(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 4)
    for title in ("A", "B", "C"):
        await keep(owner, f"q=name:{title}", title)
    page = await owner.get(f"{PAGE}?range=30d&by=tool")
    moved = await owner.post(PAGE + "/charts/move", form(page, "C", "move"))
    assert moved.location.startswith(f"{PAGE}?range=30d&by=tool#kept-")
    page = await owner.get(moved.location.partition("#")[0])
    assert board(page) == ["A", "C", "B"]
    down = {**form(page, "A", "move"), "direction": "down"}
    await owner.post(PAGE + "/charts/move", down)
    renamed = {**form(page, "B", "rename"), "title": "Bee"}
    assert (await owner.post(PAGE + "/charts/rename", renamed)).status == 303
    assert board(await owner.get(PAGE)) == ["C", "A", "Bee"]
    removed = await owner.post(PAGE + "/charts/remove", form(page, "A", "remove"))
    assert removed.location.endswith("#board")
    assert (await owner.post(PAGE + "/charts/remove", form(page, "A", "remove"))).status == 303
    assert board(await owner.get(PAGE)) == ["C", "Bee"]
    gone = await owner.post(PAGE + "/charts/rename", {**form(page, "A", "rename"), "title": "A"})
    assert gone.status == 400
    assert "no longer on Overview" in gone.text


async def test_a_viewer_sees_the_board_and_changes_nothing(
    store: Database, here: Replica, owner: Visitor
) -> None:
    await calls(store, 4)
    await keep(owner)
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    page = await viewer.get(PAGE)
    assert board(page) == ["Model spend"]
    assert "Open in Explore" in section(page, "Model spend")
    assert "<form" not in section(page, "Model spend")
    assert "Keep on Overview" not in (await viewer.get(EXPLORE)).text
    assert (await keep(viewer, "q=name:x", "Mine")).status == 403
    acts = form(await owner.get(PAGE), "Model spend", "remove")
    for act in ("remove", "move", "rename"):
        assert (await viewer.post(f"{PAGE}/charts/{act}", {**acts, "title": "x"})).status == 403
    assert board(await owner.get(PAGE)) == ["Model spend"]


async def test_two_projects_never_see_each_others_charts(store: Database, owner: Visitor) -> None:
    await calls(store, 4)
    assert (await owner.post(BASE + "/settings/project/new", {"name": "Alpha"})).status == 303
    await keep(owner)
    alpha = "/orgs/default/projects/alpha"
    acts = form(await owner.get(PAGE), "Model spend", "remove")
    assert (await owner.post(alpha + "/overview/charts/remove", acts)).status == 303
    renamed = await owner.post(alpha + "/overview/charts/rename", {**acts, "title": "Theirs"})
    assert renamed.status == 400
    assert "Model spend</h2>" not in (await owner.get(f"{alpha}/overview")).text
    assert "On Overview</a>" not in (await owner.get(f"{alpha}/explore?{COST}")).text
    assert board(await owner.get(PAGE)) == ["Model spend"]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "dataset=spans&field=attr.shop.gone&measure=count&by=started_at",
            "“attr.shop.gone” is no longer a field",
        ),
        ("dataset=spans&field=kind&measure=joy&by=started_at", "“joy” is no longer a measure of spans"),
        ("dataset=moods&field=kind&measure=count&by=started_at", "can no longer read the query"),
        ("dataset=spans&field=kind&measure=count&by=started_at&from=never", "'from'"),
    ],
)
async def test_a_question_that_no_longer_holds_says_so_in_its_place(
    store: Database, owner: Visitor, question: str, said: str
) -> None:
    await calls(store, 4)
    await keep(owner)
    charts = KeptChartStore(store)
    project = await store.fetch("select id from project")
    await charts.keep(project[0]["id"], "Broken", question, "ann@example.org")
    page = await owner.get(PAGE)
    assert page.status == 200
    assert board(page) == ["Model spend", "Broken"]
    assert said in html.unescape(section(page, "Broken"))
    assert "data-bars" in section(page, "Model spend")
    assert (await owner.post(PAGE + "/charts/remove", form(page, "Broken", "remove"))).status == 303


async def test_charts_that_are_not_read_in_time_say_so_and_the_page_stands(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await calls(store, 4)
    await keep(owner)
    monkeypatch.setattr("svc.web.overview.board_reads.BOARD_TIMEOUT_S", 0.0)
    # A week may have begun a minute ago.
    page = await owner.get(PAGE + "?range=30d")
    assert heading(page).startswith("4 traces ")
    assert "took too long to read" in section(page, "Model spend")
    assert "Some figures took longer" not in page.text


async def test_a_chart_that_waits_says_so_and_those_behind_it_are_drawn(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 4)
    await keep(owner, "dataset=metric_rollups", "Rollups")
    await keep(owner)

    async def locked(connection: Connection) -> Seen:
        await connection.execute("lock table metric_rollup in access exclusive mode")
        # The lock is held here while the page is read over other connections.
        page: Seen = await trio_as_aio(owner.get)(PAGE)
        return page

    page = await store.run(locked)
    assert "took too long to read" in section(page, "Rollups")
    assert "data-bars" in section(page, "Model spend")
    assert "Some figures took longer" not in page.text


async def test_a_hostile_title_and_value_are_text(store: Database, owner: Visitor) -> None:
    hostile = "<script>alert(1)</script>"
    await calls(store, 4, **{"user.id": hostile})
    await keep(owner, "field=user_id&q=kind:llm", hostile)
    page = await owner.get(PAGE)
    assert hostile not in page.text
    assert html.escape(hostile) in page.text


async def test_the_file_of_the_page_has_the_figures_of_each_chart(store: Database, owner: Visitor) -> None:
    await calls(store, 30)
    await keep(owner, COST, "=Spend")
    await keep(owner, "measure=error_rate&field=kind", "Errors")
    await keep(owner, "measure=users&q=name:nobody", "Nobody")
    for range_ in (
        "range=30d",
        days(now() - timedelta(days=3), now()),
        days(now() - timedelta(days=300), now()),
    ):
        file = (await owner.get(f"{PAGE}/csv?{range_}")).text
        lines = list(csv.DictReader(file.splitlines()))
        assert {len(line) for line in csv.reader(file.splitlines())} == {len(lines[0])}
        assert [line["since"] for line in lines] == sorted({line["since"] for line in lines})
        # What is spent is what the page's own column says, split by model.
        spent = [name for name in lines[0] if name.startswith("'=Spend: ")]
        assert len(spent) == 3
        own = sum(float(line["spend_usd"] or 0) for line in lines)
        assert sum(float(line[name] or 0) for line in lines for name in spent) == pytest.approx(own)
        assert own > 0
        rates = [
            float(line[name])
            for name in lines[0]
            if name.startswith("Errors: ")
            for line in lines
            if line[name]
        ]
        assert rates
        assert all(0 <= rate <= 1 for rate in rates)
        assert "Nobody" in lines[0]


async def test_a_chart_that_is_not_drawn_has_an_empty_column(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await calls(store, 4)
    await keep(owner)
    monkeypatch.setattr("svc.web.overview.board_reads.BOARD_TIMEOUT_S", 0.0)
    file = (await owner.get(f"{PAGE}/csv?range=30d")).text
    lines = list(csv.DictReader(file.splitlines()))
    assert {line["Model spend"] for line in lines} == {""}
    assert sum(int(line["traces"]) for line in lines) == 4
