"""Overview: its figures are those of the rows, everywhere the same, and every bar leads to its traces."""

from __future__ import annotations

import csv
import html
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from trio_asyncio import trio_as_aio

from protocol.refusals import Refused
from svc.domain.detect.detectors.base import slot_of
from svc.domain.quantities import count, percent
from svc.runtime.clock import now
from svc.store.postgres.database import Connection, Database
from svc.web.overview.overview_charts import (
    HEIGHT,
    TOPS,
    ChartHead,
    ChartMaker,
    ChartSeries,
    release_marks,
)
from svc.web.overview.overview_period import MOST_DAYS, DayRange
from svc.web.overview.overview_reads import RANKED, CallSums, Dimension, Overview, less, together
from svc.web.overview.overview_view import table
from svc.web.shell.charts import round_up
from tests.detecting.house import execute
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Seen, Visitor

PAGE = BASE + "/overview"
HOSTILE = "<script>alert(1)</script>"
MODELS = ("gpt-4o", "gpt-4o-mini", "claude-haiku-4-5")


async def calls(store: Database, number: int = 40, *, start: datetime | None = None, **said: Any) -> None:
    """Traces back from now, an hour apart, each with a call of a model and of a tool; every fifth failed."""
    writer, start = store_of(store, Clock()), start or now() - timedelta(minutes=5)
    spans: list[Any] = []
    for n in range(number):
        where: dict[str, Any] = {
            "trace_id": (n + 1).to_bytes(16, "big"),
            "start": start - n * timedelta(hours=1),
        }
        llm = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": MODELS[n % 3],
            "gen_ai.provider.name": "anthropic" if n % 3 == 2 else "openai",
            "gen_ai.usage.input_tokens": 1_000 + n,
            "gen_ai.usage.output_tokens": 100,
            "user.id": f"u{n % 4}",
            "deployment.environment.name": "production" if n % 2 else "staging",
            **said,
        }
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        spans += [
            one(1, name="answer", status_code=2 if n % 5 == 0 else 0, **where),
            one(2, parent=1, name="chat", attributes=llm, took_s=1 + n % 3, **where),
            one(3, parent=1, name="run", attributes=tool, status_code=2 if n % 4 == 0 else 0, **where),
        ]
    await writer.write(rows(*spans))
    await settle_all(store)


def days(first: datetime, last: datetime) -> str:
    return f"from={first:%Y-%m-%d}&to={last:%Y-%m-%d}"


def bars(text: str, title: str) -> list[tuple[str, str]]:
    """What each bar of a chart says, and where it leads."""
    section = text.partition(f'aria-label="{title}"')[2].partition("</section>")[0]
    return [
        (html.unescape(said), html.unescape(address))
        for address, said in re.findall(r'<a href="([^"]+)"[^>]*><title>([^<]*)</title>', section)
    ]


async def test_before_the_first_trace_the_page_leads_to_connecting(owner: Visitor) -> None:
    seen = await owner.get(PAGE)
    assert heading(seen) == "No traces this week"
    assert "Charts appear with the first trace." in seen.text
    assert "/connect" in seen.text


async def test_headline_charts_table_and_file_say_the_same(store: Database, owner: Visitor) -> None:
    await calls(store)
    address = f"{PAGE}?{days(now() - timedelta(days=3), now())}"
    seen = await owner.get(address)
    spans = await store.fetch(
        "select model_id, count(*) as n, sum(total_cost) as cost from span where kind = 'llm' group by 1"
    )
    spent = sum((row["cost"] for row in spans), Decimal())
    assert heading(seen).startswith("40 traces from ")
    assert f"{percent(0.2)} failed".replace(" %", "\u00a0%") in html.unescape(heading(seen))
    # The sum of the bars, of the rows and of the file.
    traces = [int(said.rpartition("ok ")[2].replace("–", "0")) for said, _ in bars(seen.text, "Traces")]
    failed = [
        int(said.partition("failed ")[2].partition(",")[0].replace("–", "0"))
        for said, _ in bars(seen.text, "Traces")
    ]
    assert (sum(traces), sum(failed)) == (32, 8)
    file = await owner.get(address.replace("/overview?", "/overview/csv?"))
    lines = list(csv.DictReader(file.text.splitlines()))
    assert sum(int(line["traces"]) for line in lines) == 40
    assert sum(int(line["failed"]) for line in lines) == 8
    assert sum(Decimal(line["spend_usd"] or "0") for line in lines) == pytest.approx(spent)
    assert sum(int(line["tokens"] or "0") for line in lines) == sum(1_100 + n for n in range(40))
    for row in spans:
        cells = re.search(rf'title="{row["model_id"]}".*?</tr>', seen.text, re.S)
        assert cells is not None
        assert f'data-label="Calls">{count(row["n"])}</td>' in cells[0]


async def test_every_bar_leads_to_the_traces_that_it_counts(store: Database, owner: Visitor) -> None:
    await calls(store, 12)
    seen = await owner.get(f"{PAGE}?{days(now() - timedelta(days=2), now())}&q=environment:production")
    for said, address in bars(seen.text, "Traces"):
        failed, ok = (
            int(part.rpartition(" ")[2].replace("–", "0")) for part in said.rpartition(": ")[2].split(", ")
        )
        listed = await owner.get(address)
        assert listed.text.count("<tr data-id") == failed + ok, said


async def test_bars_of_failures_lead_to_the_traces_that_hold_them(store: Database, owner: Visitor) -> None:
    await calls(store, 12)
    seen = await owner.get(f"{PAGE}?{days(now() - timedelta(days=2), now())}")

    async def listed(title: str) -> int:
        pages = [await owner.get(address) for _, address in bars(seen.text, title)]
        return sum(page.text.count("<tr data-id") for page in pages)

    # Every fifth trace failed, and every fourth has a tool that did, which fails no trace.
    assert await listed("Failed traces") == len({n for n in range(12) if n % 5 == 0 or n % 4 == 0})
    assert await listed("Failed tool calls") == len(range(0, 12, 4))


async def test_calls_without_a_value_stand_in_a_row_that_says_so(store: Database, owner: Visitor) -> None:
    await calls(store, 4)
    seen = await owner.get(f"{PAGE}?range=30d&by=release")
    assert '<th scope="row" role="rowheader" class="clip-name card-name">not known</th>' in seen.text


@pytest.mark.parametrize("by", ["model", "site", "agent", "tool", "user", "release", "environment"])
async def test_it_is_split_by_any_of_its_fields(store: Database, owner: Visitor, by: str) -> None:
    await calls(store, 8, **{"service.version": "2.14.0"})
    seen = await owner.get(f"{PAGE}?range=30d&by={by}")
    assert seen.status == 200
    expected = {
        "model": "gpt-4o-mini",
        "tool": "search",
        "user": "u1",
        "environment": "staging",
        "release": "2.14.0",
    }
    assert expected.get(by, "All ") in seen.text
    assert ("not split: tools have no price of their own" in seen.text) == (by == "tool")


async def test_it_is_narrowed_by_what_spans_and_traces_both_have_and_says_what_it_left_out(
    store: Database, owner: Visitor
) -> None:
    await calls(store, 12)
    seen = await owner.get(f"{PAGE}?range=30d&q=user:u1")
    assert heading(seen).startswith("3 traces in 30 days")
    seen = await owner.get(f"{PAGE}?range=30d&q=user:u1+latency:%3E1s+-model:x+refund+attr.nope:1")
    assert heading(seen).startswith("3 traces in 30 days")
    assert "latency:&gt;1s, -model:x, attr.nope:1, “refund” cannot filter both spans and traces" in seen.text


async def test_a_change_is_told_against_the_weeks_before_where_both_sides_have_enough(
    store: Database, owner: Visitor
) -> None:
    today = now().replace(hour=0, minute=0, second=0, microsecond=0)
    await calls(store, 48, start=today - timedelta(minutes=30))
    address = f"{PAGE}?{days(today - timedelta(days=2), today - timedelta(days=1))}"
    seen = await owner.get(address)
    assert "against a week earlier" in seen.text
    assert 'title="0 of 30 calls before"' in seen.text


async def test_hostile_values_are_text(store: Database, owner: Visitor) -> None:
    await calls(store, 6, **{"deployment.environment.name": HOSTILE, "gen_ai.request.model": HOSTILE})
    for by in ("model", "environment"):
        seen = await owner.get(f"{PAGE}?range=30d&by={by}")
        assert seen.status == 200
        assert HOSTILE not in seen.text


async def test_what_cannot_be_read_is_refused_by_name(owner: Visitor) -> None:
    for asked, told in (
        ("by=weather", "by is one of"),
        ("range=ever", "range is one of"),
        ("from=tomorrow", "is a day like"),
        ("to=9999-12-31", "is a day from 1970 on and before 9900"),
        ("from=0001-01-01", "is a day from 1970 on and before 9900"),
        ("from=2026-11-22&amp;to=2026-11-20".replace("&amp;", "&"), "the range ends before it begins"),
        ("from=2020-01-01&to=2026-01-01", f"at most {MOST_DAYS} days"),
    ):
        for path in ("/overview", "/overview/csv"):
            seen = await owner.get(f"{BASE}{path}?{asked}")
            assert seen.status == 400, asked
            assert told.lower() in html.unescape(seen.text).lower()


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
    st.sampled_from(["today", "yesterday", "week", "30d"]) | st.integers(0, MOST_DAYS - 1),
)
def test_steps_cover_a_period_and_the_one_before_is_as_long(moment: datetime, chosen: str | int) -> None:
    query = (
        {"range": chosen}
        if isinstance(chosen, str)
        else {"from": f"{moment - timedelta(days=chosen):%Y-%m-%d}", "to": f"{moment:%Y-%m-%d}"}
    )
    period = DayRange.of(query, moment)
    starts = period.starts
    assert starts[0] == period.low
    assert all(period.place(start) == number for number, start in enumerate(starts))
    assert len(starts) <= 96
    assert starts[-1] < period.high or len(starts) == 1
    assert starts[-1] + period.step >= period.high
    before = period.before
    assert before.high - before.low == period.high - period.low
    assert before.high <= period.low
    assert (period.low - before.low) % timedelta(days=7) == timedelta()
    again = DayRange.of({name: value for name, value in period.parameters.items() if value}, moment)
    assert (again.low, again.high) == (period.low, period.high)


def test_a_period_of_one_day_is_said_so() -> None:
    moment = datetime(2026, 11, 22, 12, tzinfo=UTC)
    assert DayRange.of({"from": "2026-11-20"}, moment).said == "on Fri 20 Nov"
    assert DayRange.of({"to": "2026-11-20"}, moment).said == "on Fri 20 Nov"
    with pytest.raises(Refused):
        DayRange.of({"from": "2026-02-30"}, moment)


@given(st.lists(st.none() | st.floats(0, 1e12), min_size=10, max_size=10))
@example([None] * 9 + [2.2250738585e-313])
def test_bars_and_lines_stay_within_their_drawing(values: list[float | None]) -> None:
    moment = datetime(2026, 11, 22, 10, tzinfo=UTC)
    maker = ChartMaker(DayRange.of({"range": "today"}, moment), lambda low, high: "/")
    series = [ChartSeries("a", "s1", values), ChartSeries("b", "s2", values[::-1])]
    drawn = maker.bars(ChartHead("k", "t", "v", ""), series, count)
    for step in drawn.steps:
        for part in step.parts:
            assert 0 <= part.y <= HEIGHT
            assert part.y + part.height <= 125
    assert len(drawn.rows()) == 10
    lines = maker.lines(ChartHead("k", "t", "v", ""), series, count).lines
    for points, _ in lines:
        for point in points.split():
            assert 0 <= float(point.partition(",")[2]) <= HEIGHT


@given(st.floats(1e-9, 1e15))
def test_an_axis_ends_at_the_next_round_number(value: float) -> None:
    top = round_up(value, TOPS)
    assert value * 0.99 <= top <= value * 2.01


@given(
    st.lists(
        st.builds(
            CallSums,
            value=st.text(max_size=3),
            calls=st.integers(0, 1000),
            failed=st.integers(0, 1000),
            cost=st.none() | st.decimals(0, 1000, places=6),
            unpriced=st.integers(0, 10),
            tokens=st.dictionaries(st.sampled_from(["input", "output"]), st.none() | st.integers(0, 10**6)),
        )
    )
)
def test_values_together_are_their_sums(parts: list[CallSums]) -> None:
    total = together(parts)
    assert total.calls == sum(part.calls for part in parts)
    assert total.failed == sum(part.failed for part in parts)
    known = [part.cost for part in parts if part.cost is not None]
    assert total.cost == (sum(known, Decimal()) if known else None)
    reported = [part.tokens["input"] for part in parts if part.tokens.get("input") is not None]
    assert total.tokens.get("input") == (sum(reported) if reported else None)
    # What is left of all without the first is the sum of the others.
    if parts:
        left, others = less(total, parts[0]), together(parts[1:])
        assert (left.calls, left.failed, left.unpriced) == (others.calls, others.failed, others.unpriced)
        assert (left.cost or 0) == (others.cost or 0)
        assert (left.tokens.get("input") or 0) == (others.tokens.get("input") or 0)


def test_more_values_than_are_ranked_are_others_without_a_number() -> None:
    called = [CallSums(f"user {at}", 20, 1, Decimal(RANKED - at)) for at in range(RANKED)]
    everybody = attrs.evolve(together(called), calls=50_000, cost=Decimal(600_000))
    overview = Overview(rows=called, calls=everybody, calls_before=CallSums(calls=7))
    shown, total = table(overview, Dimension("User", "user_id", "user"), lambda _value: "")
    assert shown[-1].name == "All others"
    assert total is not None
    assert sum(row.sums.calls for row in shown) == total.sums.calls == 50_000
    assert sum(row.sums.cost or 0 for row in shown) == 600_000
    few, _ = table(attrs.evolve(overview, rows=called[:20]), Dimension("User", "user_id", "user"), str)
    assert few[-1].name == "10 others"


async def seen_release(store: Database, name: str, moment: datetime, site: str = "desk") -> None:
    """As detectors count the first trace of a release at a call site."""
    await execute(
        store,
        "with bucket as (insert into tally_bucket (project_id, measure, subject, detail)"
        f" values (1, 'seen_release', 'site:{site}', '{name}') returning id)"
        " insert into tally (project_id, bucket_id, slot, bin, units, failures)"
        f" select 1, id, {slot_of(moment)}, 0, 1, 0 from bucket",
    )


async def test_a_release_that_comes_while_the_project_runs_is_marked_in_every_chart(
    owner: Visitor, store: Database
) -> None:
    await calls(store)
    today = now().replace(hour=0, minute=0, second=0, microsecond=0)
    await seen_release(store, "1.0", today - timedelta(days=9))
    await seen_release(store, "<b>2.0</b>", today - timedelta(days=2) + timedelta(hours=7))
    # Another call site got it later: it is one mark.
    await seen_release(store, "<b>2.0</b>", today - timedelta(days=1), "other")
    page = (await owner.get(f"{PAGE}?range=30d")).text
    assert page.count('<line class="release"') == page.count('<svg class="plot"') == 6
    assert page.count("<title>release &lt;b&gt;2.0&lt;/b&gt;, first seen ") == 6
    assert "<b>2.0</b>" not in page
    assert "New releases, dotted in the charts: " in page
    assert "1.0</a>" not in page
    yesterday = (await owner.get(f"{PAGE}?range=yesterday")).text
    assert 'class="release"' not in yesterday


async def test_releases_that_are_not_read_in_time_leave_no_marks_and_the_page_stands(
    owner: Visitor, store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await calls(store, 4)
    today = now().replace(hour=0, minute=0, second=0, microsecond=0)
    await seen_release(store, "1.0", today - timedelta(days=9))
    await seen_release(store, "2.0", today - timedelta(days=2))
    monkeypatch.setattr("svc.web.overview.overview.TIMEOUT_S", 3.0)

    async def locked(connection: Connection) -> Seen:
        await connection.execute("lock table tally_bucket in access exclusive mode")
        # The lock is held here while the page is read over other connections.
        page: Seen = await trio_as_aio(owner.get)(f"{PAGE}?range=30d")
        return page

    page = await store.run(locked)
    assert page.status == 200
    assert heading(page).startswith("4 traces ")
    assert 'class="release"' not in page.text
    assert 'class="release"' in (await owner.get(f"{PAGE}?range=30d")).text


def test_a_mark_stands_inside_its_step() -> None:
    period = DayRange.of({"range": "30d"}, datetime(2026, 11, 27, 10, tzinfo=UTC))
    for moment in (period.low, period.low + timedelta(days=3, hours=12), period.high):
        [(x, said)] = release_marks(period, [("2.0", moment)])
        assert 54 <= x <= 374
        assert said.startswith("release 2.0, first seen ")
    [(begin, _), (middle, _)] = release_marks(
        period, [("a", period.low), ("b", period.low + period.step / 2)]
    )
    assert middle - begin == pytest.approx(320 / len(period.starts) / 2)


@pytest.mark.parametrize("by", ["model", "tool"])
async def test_a_page_without_time_for_its_figures_says_so_and_draws_nothing(
    owner: Visitor, store: Database, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    await calls(store, 10)
    monkeypatch.setattr("svc.web.overview.overview_reads.TIMEOUT_S", 0.0)
    text = (await owner.get(f"{PAGE}?by={by}")).text
    assert "Some figures took longer than ten seconds" in text
    assert (await owner.get(f"{PAGE}/csv?by={by}")).status == 200


async def spend_beside(store: Database) -> None:
    """A call of a language model, an embedding, a failed call over MCP, and an agent that adds them up."""
    start = now() - timedelta(minutes=5)
    where: dict[str, Any] = {"trace_id": (99).to_bytes(16, "big"), "start": start}
    usage = {"gen_ai.usage.input_tokens": 1_000_000, "gen_ai.provider.name": "openai"}
    embedding = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "text-embedding-3-large"}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "librarian"}
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "query_ledger"}
    spans = [
        one(1, name="answer", attributes=agent | usage, **where),
        one(2, parent=1, name="chat", attributes=chat | usage, took_s=2, **where),
        one(3, parent=1, name="embed", attributes=embedding | usage, **where),
        one(4, parent=1, name="tools/call query_ledger", attributes=mcp, status_code=2, **where),
    ]
    await store_of(store, Clock()).write(rows(*spans))
    await settle_all(store)


async def test_what_embeddings_cost_is_spent_and_their_calls_are_calls(
    store: Database, owner: Visitor
) -> None:
    await spend_beside(store)
    kinds = {row["kind"] for row in await store.fetch("select kind from span")}
    assert kinds == {"agent", "llm", "embedding", "mcp"}
    (spent,) = await store.fetch("select sum(total_cost) as cost from span where usage_repeats is null")
    seen = await owner.get(PAGE)
    assert f"${spent['cost']:.2f} spent" in html.unescape(heading(seen)).replace("\u00a0", " ")
    for model in ("gpt-4o", "text-embedding-3-large"):
        cells = re.search(rf'title="{model}".*?</tr>', seen.text, re.S)
        assert cells is not None
        assert 'data-label="Calls">1</td>' in cells[0]
    file = await owner.get(PAGE.replace("/overview", "/overview/csv"))
    lines = list(csv.DictReader(file.text.splitlines()))
    assert sum(Decimal(line["spend_usd"] or "0") for line in lines) == pytest.approx(spent["cost"])


async def test_calls_over_mcp_are_calls_of_tools_where_there_are_no_others(
    store: Database, owner: Visitor
) -> None:
    await spend_beside(store)
    seen = await owner.get(f"{PAGE}?by=tool")
    cells = re.search(r'title="query_ledger".*?</tr>', seen.text, re.S)
    assert cells is not None
    assert 'data-label="Calls">1</td>' in cells[0]
    (address,) = [where for said, where in bars(seen.text, "Failed tool calls") if "100" in said]
    assert (await owner.get(address)).text.count("<tr data-id") == 1


async def test_a_call_over_mcp_within_one_of_a_tool_is_the_same_call(store: Database, owner: Visitor) -> None:
    where: dict[str, Any] = {"trace_id": (7).to_bytes(16, "big"), "start": now() - timedelta(minutes=5)}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "query_ledger"}
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "query_ledger"}
    await store_of(store, Clock()).write(
        rows(
            one(1, name="answer", **where),
            one(2, parent=1, name="execute_tool query_ledger", attributes=tool, **where),
            one(3, parent=2, name="tools/call query_ledger", attributes=mcp, **where),
            one(4, parent=3, name="tools/call query_ledger", attributes=mcp, **where),
        )
    )
    await settle_all(store)
    seen = await owner.get(f"{PAGE}?by=tool")
    cells = re.search(r'title="query_ledger".*?</tr>', seen.text, re.S)
    assert cells is not None
    assert 'data-label="Calls">1</td>' in cells[0]
