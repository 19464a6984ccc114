"""Spans, traces, sessions and call sites read back: filters, order, pages, payloads, plans."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import md5
from typing import Any
from uuid import UUID

import attrs
import pytest

from svc.domain.feedback.entries import AskedFeedback
from svc.store.accounts.projects import ProjectStore
from svc.store.accounts.saved_views import SavedViewStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.vitals import SOURCES
from svc.store.detection.taxonomy import ModeFilter, TaxonomyStore
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from svc.store.postgres.keyset import Keyset
from svc.store.reads.frame import FrameReads
from svc.store.reads.onboarding import OnboardingReads
from svc.store.reads.payloads import PAYLOAD_FIELDS, ROOM_BYTES, Opening
from svc.store.reads.projects import ProjectReads
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.reads.usage.agent_paths import AgentPathReads
from svc.store.reads.usage.call_sites import SITES_BYTES, SITES_SHOWN, CallSiteReads
from svc.store.reads.usage.models import ModelReads
from svc.store.reads.usage.sessions import SessionReads
from svc.store.reads.usage.vitals import VitalsReads
from svc.store.spans.traces import PostgresTraceStore
from tests.conftest import copied, filled_once
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, TRACE, Clock, fetch, one, rows, store_of

SITES = ("checkout", "search")
#: A set of people.
SET = UUID(int=7)


def trace_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def story(number: int) -> list[Any]:
    """A root and a model call; every third fails, sessions hold four traces each."""
    who = {"session.id": f"s{number // 4}", "user.id": "u", "svc.call_site.id": SITES[number % 2]}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o" if number % 2 else "gpt-4o-mini",
        "gen_ai.usage.input_tokens": 100 + number,
        "gen_ai.input.messages": [
            {"role": "user", "parts": [{"type": "text", "content": f"question {number} 100%"}]}
        ],
        **who,
    }
    start = NOW + timedelta(minutes=number)
    failed = 2 if number % 3 == 0 else 0
    common: dict[str, Any] = {"trace_id": trace_id(number), "start": start, "status_code": failed}
    return [
        one(1, name=f"ask {number}", attributes=who, **common),
        one(2, parent=1, name="chat", attributes=chat, took_s=0.5, **common),
    ]


@attrs.frozen
class Filled:
    """A store with 24 traces, and its readers."""

    database: Database
    spans: SpanReads
    traces: TraceReads
    sessions: SessionReads


async def _tell(store: Database) -> None:
    clock = Clock()
    writer = store_of(store, clock)
    for number in range(1, 25):
        await writer.write(rows(*story(number)))
        await writer.write(rows(one(3, trace_id=trace_id(number), start=NOW, name="foreign"), project=2))
    traces = PostgresTraceStore(store)
    await settle_at(clock.now + timedelta(seconds=11), traces)


def _read(store: Database) -> Filled:
    spans = SpanReads(store)
    return Filled(store, spans, TraceReads(store, spans), SessionReads(store))


@pytest.fixture
async def filled(asyncio_loop: None, served: Served) -> AsyncIterator[Filled]:
    """The traces, written once for all tests that only read."""
    async with filled_once(served, "told_traces", _tell) as database:
        yield _read(database)


@pytest.fixture
async def changing(asyncio_loop: None, served: Served) -> AsyncIterator[Filled]:
    """The traces in a database of the test's own."""
    async with copied(served, "told_traces", _tell) as database:
        yield _read(database)


async def spans_of(filled: Filled, **asked: Any) -> list[dict[str, Any]]:
    """Every span of a filter, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await filled.spans.page(PROJECT, SpanFilter(**asked), payload=False, limit=7, cursor=cursor)
        found += page["spans"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def traces_of(filled: Filled, **asked: Any) -> list[str]:
    """The names of every trace of a filter, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = await filled.traces.page(PROJECT, TraceFilter(**asked), limit=5, cursor=cursor)
        found += [trace["name"] for trace in page["traces"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def test_pages_of_spans_are_newest_first_and_hold_each_once(filled: Filled) -> None:
    spans = await spans_of(filled)
    keys = [(span["created_at"], span["trace_id"], span["span_id"]) for span in spans]
    assert keys == sorted(keys, reverse=True)
    assert len(set(keys)) == 48
    assert "foreign" not in {span["name"] for span in spans}


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"kind": "llm"}, 24),
        ({"status": "error"}, 16),
        ({"status": "error", "call_site_id": "search"}, 8),
        ({"model_id": "gpt-4o"}, 12),
        ({"name": "ask 3"}, 1),
        ({"session_id": "s1"}, 8),
        ({"trace_id": trace_id(5)}, 2),
        ({"trace_id": trace_id(99)}, 0),
        ({"q": "QUESTION 7 100%"}, 1),
        ({"q": "7_100"}, 0),
        ({"low": NOW, "high": NOW + timedelta(hours=1)}, 48),
        ({"high": NOW - timedelta(hours=1)}, 0),
    ],
)
async def test_filters_of_spans(filled: Filled, asked: dict[str, Any], count: int) -> None:
    assert len(await spans_of(filled, **asked)) == count


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({"status": "error"}, range(24, 0, -3)),
        ({"model": "gpt-4o"}, range(23, 0, -2)),
        ({"kind": "llm", "call_site_id": "checkout"}, range(24, 0, -2)),
        ({"kind": "tool"}, []),
        ({"q": "question 24"}, [24]),
        ({"q": trace_id(7).hex()[-8:]}, [7]),
        # Both bounds are inside.
        ({"low": NOW + timedelta(minutes=3), "high": NOW + timedelta(minutes=6)}, [6, 5, 4, 3]),
    ],
)
async def test_filters_of_traces(filled: Filled, asked: dict[str, Any], numbers: Any) -> None:
    assert await traces_of(filled, **asked) == [f"ask {number}" for number in numbers]


async def test_a_trace_comes_with_its_spans_oldest_first(filled: Filled) -> None:
    trace = await filled.traces.one(PROJECT, trace_id(4), payload=False)
    assert trace is not None
    assert [span["name"] for span in trace["spans"]] == ["ask 4", "chat"]
    assert (trace["span_count"], trace["total_tokens"], trace["is_settled"]) == (2, 104, True)
    assert trace["latency_ms"] == 1000.0
    assert trace["spans_truncated"] is False
    assert await filled.traces.one(2, trace_id(99), payload=False) is None


async def test_a_large_trace_is_cut_at_200_spans_and_says_so(store: Database) -> None:
    await store_of(store).write(rows(*(one(n, parent=min(n - 1, 1)) for n in range(1, 203))))
    trace = await TraceReads(store, SpanReads(store)).one(PROJECT, bytes(range(1, 17)), payload=False)
    assert trace is not None
    assert (len(trace["spans"]), trace["span_count"], trace["spans_truncated"]) == (200, 202, True)


async def test_a_payload_stands_in_place_of_the_previews(filled: Filled) -> None:
    asked = SpanFilter(trace_id=trace_id(4))
    page = await filled.spans.page(PROJECT, asked, payload=True, limit=5, cursor=None)
    chat = next(span for span in page["spans"] if span["name"] == "chat")
    assert chat.keys().isdisjoint({"input_preview", "output_preview"})
    assert chat["input"][0]["role"] == "user"
    assert chat["attributes"]["gen_ai.request.model"] == "gpt-4o-mini"
    assert chat["provided_usage"] == {"gen_ai.usage.input_tokens": 104}
    span = await filled.spans.one(PROJECT, trace_id(4), (2).to_bytes(8, "big"))
    assert span is not None
    assert {name: span[name] for name in chat} == chat
    assert span["input_preview"] == "question 4 100%"


async def test_a_payload_that_aged_out_is_said_to(changing: Filled) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("delete from span_payload")

    await changing.database.run(work)
    span = await changing.spans.one(PROJECT, trace_id(4), (2).to_bytes(8, "big"))
    assert span is not None
    assert span["payload_available"] is False
    assert span["input"] is span["output"] is span["attributes"] is None
    assert not any(row["payload_available"] for row in await spans_of(changing))


async def test_usage_that_repeats_is_not_shown_as_the_spans_own(store: Database) -> None:
    usage = {"gen_ai.usage.input_tokens": 100, "gen_ai.request.model": "gpt-4o"}
    await store_of(store).write(
        rows(
            one(1, attributes={"gen_ai.operation.name": "invoke_agent", **usage}),
            one(2, parent=1, attributes={"gen_ai.operation.name": "chat", **usage}),
        )
    )
    trace = await TraceReads(store, SpanReads(store)).one(PROJECT, bytes(range(1, 17)), payload=True)
    assert trace is not None
    agent, chat = trace["spans"]
    assert (agent["total_tokens"], agent["total_cost"]) == (None, None)
    assert (agent.get("input_tokens"), chat["input_tokens"]) == (None, 100)
    assert agent["provided_usage"]["gen_ai.usage.input_tokens"] == 100
    assert chat["total_tokens"] == trace["total_tokens"] == 100
    assert chat["total_cost"] == trace["total_cost"]


async def test_sessions_are_most_recently_active_first(filled: Filled) -> None:
    names: list[str] = []
    cursor = None
    while True:
        page = await filled.sessions.page(PROJECT, limit=3, cursor=cursor)
        assert all(
            row.keys() == {"id", "user_id", "started_at", "last_activity_at"} for row in page["sessions"]
        )
        names += [row["id"] for row in page["sessions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]


async def test_a_session_sums_its_traces(filled: Filled) -> None:
    session = await filled.sessions.one(PROJECT, "s2")
    assert session is not None
    assert [trace["name"] for trace in session["traces"]] == [f"ask {n}" for n in (8, 9, 10, 11)]
    assert (session["trace_count"], session["span_count"], session["error_count"]) == (4, 8, 2)
    assert session["total_tokens"] == 108 + 109 + 110 + 111
    assert session["total_cost"] == pytest.approx(sum(trace["total_cost"] for trace in session["traces"]))
    assert (session["unsettled_traces"], session["traces_truncated"]) == (0, False)
    assert await filled.sessions.one(PROJECT, "nobody") is None


async def test_an_unsettled_trace_is_counted_in_its_session(changing: Filled) -> None:
    spans = attrs.evolve(store_of(changing.database), clock=server_clock)
    await spans.write(
        rows(one(9, trace_id=trace_id(50), attributes={"session.id": "s2"}, start=NOW + timedelta(days=1)))
    )
    session = await changing.sessions.one(PROJECT, "s2")
    assert session is not None
    assert session["unsettled_traces"] == 1
    assert session["total_tokens"] == 438


async def test_call_sites_are_measured_over_their_newest_spans(filled: Filled) -> None:
    found, left_out = await CallSiteReads(filled.database).page(PROJECT, NOW, ["search"])
    assert ([site["id"] for site in found], left_out) == (["search", "checkout"], 0)
    sites = {site["id"]: site for site in found}
    assert sites.keys() == set(SITES)
    checkout = sites["checkout"]
    assert checkout["tagged"] is True
    assert checkout["observed"]["error_rate"] == pytest.approx(1 / 3)
    assert checkout["observed"]["p50_latency_ms"] == 750.0
    assert checkout["observed"]["cost_per_call"] > 0
    later, _ = await CallSiteReads(filled.database).page(PROJECT, NOW + timedelta(days=30), [])
    assert later[0]["observed"] == dict.fromkeys(checkout["observed"])


async def test_a_call_site_names_the_model_that_its_newest_spans_call(store: Database) -> None:
    def call(number: int, model: str, provider: str) -> Any:
        said = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.provider.name": provider,
        }
        return one(number, attributes={**said, "svc.call_site.id": "writer"}, start=NOW)

    spans = store_of(store, Clock())
    await spans.write(rows(call(1, "gpt-4o", "openai")))
    await spans.write(rows(*(call(number, "claude-haiku-4-5", "anthropic") for number in range(2, 5))))
    [site], _ = await CallSiteReads(store).page(PROJECT, NOW, [])
    assert (site["model"], site["provider"]) == ("claude-haiku-4-5", "anthropic")
    # Of what is too old to be observed the first word is all that is known.
    [site], _ = await CallSiteReads(store).page(PROJECT, NOW + timedelta(days=30), [])
    assert (site["model"], site["provider"]) == ("gpt-4o", "openai")


async def test_call_sites_are_bounded_in_number_and_bytes_and_say_what_is_left_out(store: Database) -> None:
    reads, many = CallSiteReads(store), SITES_SHOWN + 50
    await fetch(
        store,
        "insert into call_site (project_id, id, tagged, first_seen_at)"
        " select $1, 'site ' || lpad(n::text, 4, '0'), true, $2 from generate_series(1, $3::int) n"
        " returning 1",
        PROJECT,
        NOW,
        many,
    )
    found, left_out = await reads.page(PROJECT, NOW, ["site 0250", "site 0249"])
    assert [site["id"] for site in found[:3]] == ["site 0250", "site 0249", "site 0001"]
    assert (len(found), left_out) == (SITES_SHOWN, 50)
    long = "x" * (SITES_BYTES // 3)
    await fetch(store, "update call_site set model = $1 returning 1", long)
    found, left_out = await reads.page(PROJECT, NOW, [])
    assert (len(found), left_out) == (2, many - 2)
    # One is shown, however long it is.
    await fetch(store, "update call_site set model = $1 returning 1", 4 * long)
    found, left_out = await reads.page(PROJECT, NOW, [])
    assert (len(found), left_out) == (1, many - 1)


async def test_payloads_that_cannot_fit_are_not_opened(store: Database) -> None:
    """Opened, each of these takes most of a second of the processor, and leaves nothing in the answer."""
    text = " ".join(f"word {number}" for number in range(10_000))
    said = [
        one(number, attributes={"gen_ai.operation.name": "chat", "gen_ai.prompt": f"{number} {text}"})
        for number in range(1, 17)
    ]
    await store_of(store).write(rows(*said))
    reads = TraceReads(store, SpanReads(store))
    opening = Opening()
    room_bytes = len(text) + 50_000
    trace = await reads.one(PROJECT, TRACE, payload=True, room_bytes=room_bytes, opening=opening)
    assert trace is not None
    assert [span["payload_truncated"]["missing"] for span in trace["spans"]] == [list(PAYLOAD_FIELDS)] * 16
    assert opening == Opening()
    # Where there is room they are, for all answers of a batch together.
    trace = await reads.one(PROJECT, TRACE, payload=True, opening=opening)
    assert trace is not None
    assert all("payload_truncated" not in span for span in trace["spans"])
    assert opening.left_bytes < ROOM_BYTES - 16 * len(text)
    trace = await reads.one(PROJECT, TRACE, payload=True, opening=Opening(2 * len(text) + 10_000))
    assert trace is not None
    assert ["payload_truncated" in span for span in trace["spans"]] == [False] * 2 + [True] * 14


async def test_a_project_counts_what_it_holds(store: Database) -> None:
    project = await ProjectStore(store).make_default()
    await store_of(store).write(rows(*story(1), *story(2), project=project.id))
    found = await ProjectReads(store).one(project.id, NOW + timedelta(hours=1))
    assert found is not None
    assert (found["slug"], found["org"], found["packs"]) == ("default", "default", [])
    assert found["counts"] | {"traces": 2, "sessions": 1, "call_sites": 2} == found["counts"]
    assert found["traces_last_day"] == 2
    assert await ProjectReads(store).one(99, NOW) is None


@pytest.mark.parametrize("cursor", ["", "x", "!!", "é", "W10", "WyJzcGFucyJd", "WyJ0cmFjZXMiLDFd", "bnVsbA"])
async def test_an_unreadable_or_foreign_cursor_restarts_at_the_newest_page(
    filled: Filled, cursor: str
) -> None:
    first = await filled.spans.page(PROJECT, SpanFilter(), payload=False, limit=3, cursor=None)
    assert await filled.spans.page(PROJECT, SpanFilter(), payload=False, limit=3, cursor=cursor) == first
    sessions = await filled.sessions.page(PROJECT, limit=3, cursor=first["next_cursor"])
    assert sessions == await filled.sessions.page(PROJECT, limit=3, cursor=None)


def test_a_cursor_gives_back_the_place_it_was_made_of() -> None:
    keyset = Keyset("list", (("at", "moment"), ("id", "bytes"), ("text", "text"), ("n", "integer")))
    row = {"at": NOW, "id": b"\x00\xff", "text": "grüße", "n": 3}
    assert keyset.place(keyset.cursor(row)) == list(row.values())


# --- plans ------------------------------------------------------------------------------------------------

DAY = NOW.replace(hour=0)
SOME_TRACE = trace_id(20000)
SOME_CALL = {
    "trace_id": SOME_TRACE.hex(),
    "span_id": (20000).to_bytes(8, "big").hex(),
    "kind": "llm",
    "started_at": (DAY + timedelta(seconds=20)).isoformat(),
}


@pytest.fixture
async def many(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """Enough rows that the planner would rather read a table than an index it cannot use."""
    async with filled_once(served, "many_traces", _fill) as database:
        yield database


async def _fill(store: Database) -> None:
    await ProjectStore(store).make_default()

    async def work(connection: Connection) -> None:
        # 40,000 traces of one span each over two projects, one in a thousand failed.
        await connection.execute(
            "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, ended_at,"
            " created_at, call_site_id, tagged, session_id, provided_model_name, model_id, frame)"
            " select 1 + n % 2, decode(lpad(to_hex(n), 32, '0'), 'hex'),"
            " decode(lpad(to_hex(n), 16, '0'), 'hex'),"
            " 'llm', 'n' || n % 50, case when n % 1000 < 2 then 'error' else 'ok' end,"
            " $1::timestamptz + n * interval '1 ms', $1::timestamptz + n * interval '2 ms',"
            " $1::timestamptz + n * interval '1 ms', 'site' || n % 100, true, 's' || n % 500, 'm',"
            " 'm' || n % 5, n"
            " from generate_series(1, 40000) n",
            DAY,
        )
        await connection.execute(
            "insert into span_payload (project_id, trace_id, started_at, frame, body)"
            " select project_id, trace_id, date_trunc('day', started_at, 'UTC'), frame, 'x' from span"
            " where trace_id <> $1",
            SOME_TRACE,
        )
        await connection.execute(
            "insert into trace (project_id, trace_id, name, started_at, first_started_at, last_started_at,"
            " root_seen, session_id, call_site_id, span_count, error_count, status, unpriced_spans,"
            " created_at, stale, due_at)"
            " select project_id, trace_id, name, started_at, started_at, started_at, true, session_id,"
            " call_site_id, 1, 0, status, 0, created_at, false, created_at from span"
        )
        await connection.execute(
            "insert into trace_set_entry (project_id, set_id, trace_id, added_by)"
            " select project_id, $1, trace_id, 'ann' from span where frame % 500 < 2 on conflict do nothing",
            SET,
        )
        await connection.execute(
            "insert into trace_set_entry (project_id, set_id, trace_id, added_by)"
            " select project_id, md5((frame % 30)::text)::uuid, trace_id, 'ann' from span where frame % 5 < 2"
            " on conflict do nothing"
        )
        await connection.execute(
            "insert into attribute_value (project_id, field, value, code) select n % 2 + 1, 'agent_path',"
            " 'agent ' || n, chr(n + 100) from generate_series(1, 4000) as n"
        )
        # Of a hundred traces of a project one was given feedback, one has a mark, and one a firing.
        await connection.execute(
            "insert into feedback (project_id, source, id, name, trace_id, number, firing_id, judged_at,"
            " created_at) select project_id, 'api', frame::text, 'n' || frame % 7, trace_id, frame % 2,"
            " gen_random_uuid(), created_at, created_at from span where frame % 100 < 2"
        )
        await connection.execute(
            "insert into classifier_event (project_id, classifier_id, severity, subject_kind,"
            " subject_trace_id, summary, created_at)"
            " select project_id, case when frame % 3 = 0 then 'same_call_again' else 'secret_leak' end,"
            " 'low', 'span', trace_id, 'said', created_at from span where frame / 2 % 50 = 0"
        )
        await connection.execute(
            "insert into session select project_id, session_id, null, min(started_at), max(started_at)"
            " from span group by 1, 2"
        )
        await connection.execute(
            "insert into call_site select distinct project_id, call_site_id, true, 'm', 'p', $1::timestamptz"
            " from span",
            DAY,
        )

    await store.run(work)

    async def analyze(connection: Connection) -> None:
        await connection.execute("analyze")

    await store.run(analyze, transaction=False)


@attrs.define(eq=False)
class Explaining:
    """Stands between a reader and its database, and keeps the plan of every statement."""

    database: Database
    plans: list[str] = attrs.field(factory=list)

    async def run(self, work: Any, **_options: Any) -> Any:
        plans = self.plans

        class Seen:
            def __init__(self, connection: Connection) -> None:
                self._connection = connection

            def transaction(self, **options: Any) -> Any:
                return self._connection.transaction(**options)

            def __getattr__(self, verb: str) -> Any:
                async def asked(sql: str, *values: Any) -> Any:
                    if sql.startswith("set local"):
                        return await getattr(self._connection, verb)(sql)
                    plan = await self._connection.fetch(f"explain {sql}", *values)
                    plans.append("\n".join(row[0] for row in plan))
                    return await getattr(self._connection, verb)(sql, *values)

                return asked

        return await self.database.run(lambda connection: work(Seen(connection)))

    async def fetch(self, sql: str, *values: Any, **_options: Any) -> Any:
        return await self.run(lambda connection: connection.fetch(sql, *values))


def reads_of(explaining: Any) -> dict[str, Any]:
    spans = SpanReads(explaining)
    traces = TraceReads(explaining, spans)
    week: dict[str, datetime] = {"low": DAY, "high": DAY + timedelta(days=7)}

    def of_spans(**asked: Any) -> Any:
        return spans.page(1, SpanFilter(**asked), payload=False, limit=50, cursor=None)

    def of_traces(**asked: Any) -> Any:
        return traces.page(1, TraceFilter(**asked), limit=50, cursor=None)

    return {
        "spans": lambda: of_spans(),
        "spans of a range": lambda: of_spans(**week),
        "failed spans": lambda: of_spans(status="error"),
        "failed spans of a call site": lambda: of_spans(status="error", call_site_id="site1"),
        "spans of a call site": lambda: of_spans(call_site_id="site1"),
        "spans of a session": lambda: of_spans(session_id="s1"),
        "spans of a trace": lambda: of_spans(trace_id=SOME_TRACE),
        "a span": lambda: spans.one(1, SOME_TRACE, (20000).to_bytes(8, "big")),
        "traces": lambda: of_traces(),
        "traces of a range": lambda: of_traces(**week),
        "traces of a model": lambda: of_traces(model="m1", kind="llm", call_site_id="site1"),
        "failed traces": lambda: of_traces(status="error", q="n"),
        "a trace": lambda: traces.one(1, SOME_TRACE, payload=False),
        "agents above spans": lambda: AgentPathReads(explaining).add_to(1, [SOME_CALL]),
        "agents of traces": lambda: AgentPathReads(explaining).of_traces(1, [SOME_TRACE]),
        "sessions": lambda: SessionReads(explaining).page(1, limit=50, cursor=None),
        "a session": lambda: SessionReads(explaining).one(1, "s1"),
        "call sites": lambda: CallSiteReads(explaining).page(1, DAY + timedelta(days=1), []),
        "a project": lambda: ProjectReads(explaining).one(1, DAY + timedelta(days=1)),
        "failure modes": lambda: TaxonomyStore(explaining).failure_modes(1, ModeFilter()),
    }


@pytest.mark.parametrize("read", reads_of(None))
async def test_no_read_reads_a_whole_table(many: Database, read: str) -> None:
    explaining = Explaining(many)
    await reads_of(explaining)[read]()
    assert explaining.plans
    for plan in explaining.plans:
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
        small = {"organization", "project", "call_site", "call_site_intent", "pack", "failure_mode"} | {
            "chain", "detection_case", "finding", "project_count", "cube_progress", "cube_dirty",
            "tally_bucket", "span_slice",
            "cube",  # Empty here; plans over cubes have tests of their own.
        }  # fmt: skip
        grown = {table for table in scanned if not table.endswith("_default")} - small
        assert not grown, plan
        # A sort of a whole project would show as a plain Sort above more rows than a page.
        for rows_sorted in re.findall(r"^\s*(?:->\s+)?Sort .*rows=(\d+)", plan, re.MULTILINE):
            assert int(rows_sorted) <= 1100, plan


@pytest.mark.parametrize(
    "asked", [{"model": "rare"}, {"kind": "tool"}, {"call_site_id": "rare"}, {"q": "rare"}], ids=str
)
async def test_rare_traces_are_read_by_their_keys(store: Database, asked: dict[str, Any]) -> None:
    await _fill(store)
    await store.fetch(
        "update span set provided_model_name = 'rare', kind = 'tool', call_site_id = 'rare', name = 'so rare'"
        " where trace_id = $1",
        SOME_TRACE,
    )
    await store.fetch("update trace set name = 'so rare' where trace_id = $1", SOME_TRACE)
    while (await CubeStore(store).build(DAY + timedelta(days=1), 1000)).more:
        pass
    await store.fetch("analyze")
    explaining = Explaining(store)
    reads = TraceReads(explaining, SpanReads(store))  # type: ignore[arg-type]
    page = await reads.page(1, TraceFilter(**asked), limit=50, cursor=None)
    assert [trace["trace_id"] for trace in page["traces"]] == [SOME_TRACE.hex()]
    near, more, *looked = [
        plan for plan in explaining.plans if re.search(r" on (trace|span)(?!_payload|_slice)", plan)
    ]
    # The newest of the traces by their index, then the spans by their time, and nothing else of the traces.
    for plan in (near, more):
        assert "Limit" in plan
        assert "trace_started" in plan
    spans = [plan for plan in looked if "on span" in plan and "on trace" not in plan]
    assert spans
    assert all("project_id_created_at" in plan or "call_site" in plan for plan in spans)
    assert any("trace_pkey" in plan for plan in looked)
    assert not any("trace_started" in plan for plan in looked)


async def test_what_a_filter_leaves_is_read_from_groups(store: Database) -> None:
    await _fill(store)
    while (await CubeStore(store).build(DAY + timedelta(days=1), 1000)).more:
        pass
    await store.fetch("analyze")
    none: tuple[dict[str, Any], ...] = (
        {"slower_than": timedelta(seconds=5)},
        {"dearer_than": Decimal(1), "unpriced": False},
        {"user_id": "nobody", "without": (("session_id", "s1"), ("kind", "tool"))},
        {"without": (("model", "m"), ("call_site_id", "site1"))},
    )
    for asked in none:
        explaining = Explaining(store)
        reads = TraceReads(explaining, SpanReads(store))  # type: ignore[arg-type]
        page = await reads.page(1, TraceFilter(**asked), limit=50, cursor=None)
        assert page["traces"] == []
        near, more, *looked = [plan for plan in explaining.plans if re.search(r" on (trace|span)", plan)]
        for plan in (near, more):
            assert "Limit" in plan
            assert "trace_started" in plan
        assert any("trace_group" in plan for plan in looked)
        # Beside the groups only what no group tells of.
        assert not any("trace_started" in plan or "Seq Scan on trace " in plan for plan in looked)
        for index in ("trace_next", "trace_created"):
            assert any(index in plan for plan in looked), (index, looked[-1])
        explaining = Explaining(store)
        counts: Any = TraceCounts(explaining)  # type: ignore[arg-type]
        assert (
            await counts.histogram(1, TraceFilter(**asked), timedelta(hours=1), timeout_s=9, budget_s=9)
        ).count == 0
        assert (await counts.facets(1, TraceFilter(**asked), timeout_s=9)).over == 0
        for plan in explaining.plans:
            assert "trace_started" not in plan, plan
            assert "Seq Scan on trace " not in plan, plan
        # A text is looked for in these, by their keys.
        explaining.plans.clear()
        said = TraceFilter(**asked, q="no")
        drawn = await counts.histogram(1, said, timedelta(hours=1), timeout_s=9, budget_s=9)
        assert (drawn.count, drawn.since) == (0, None)
        (look,) = [plan for plan in explaining.plans if " on trace t" in plan]
        assert "CTE newest" in look
        assert "trace_pkey" in look
        assert "trace_started" not in look
        assert "Seq Scan on trace " not in look


async def test_a_part_of_an_id_is_looked_for_in_blocks_and_a_shorter_one_in_the_index_alone(
    store: Database,
) -> None:
    await _fill(store)
    await store.run(
        lambda connection: connection.execute("update trace set trace_id = decode(md5(trace_id), 'hex')")
    )
    while (await CubeStore(store).build(DAY + timedelta(days=1), 1000)).more:
        pass
    await store.run(lambda connection: connection.execute("vacuum analyze trace"), transaction=False)
    explaining = Explaining(store)
    reads = TraceReads(explaining, SpanReads(store))  # type: ignore[arg-type]
    some = md5(SOME_TRACE, usedforsecurity=False).hexdigest()
    for part in (some, some[20:], some[-4:]):
        explaining.plans.clear()
        page = await reads.page(1, TraceFilter(q=part), limit=50, cursor=None)
        assert some in [trace["trace_id"] for trace in page["traces"]]
        told = [plan for plan in explaining.plans if " on span_payload" not in plan]
        plans = [plan for plan in told if "(project_id = " in plan][-2:]
        assert not any("Seq Scan" in plan for plan in plans)
        if part == some:
            assert plans[-1].count("trace_pkey") == 2
        elif len(part) > 4:
            # The blocks that may have it, then their traces by key.
            assert "Index Scan using trace_id_block_latest" in plans[0]
            assert "Sort" not in plans[0]
            assert "Index Scan using trace_pkey" in plans[1]
        else:
            assert "Index Only Scan using trace_started" in plans[-1]


def counts_of(explaining: Any) -> dict[str, Any]:
    counts = TraceCounts(explaining)
    week: dict[str, Any] = {"low": DAY, "high": DAY + timedelta(days=7)}
    hour = timedelta(hours=1)
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "failed": {"status": "error"},
        "a session": {"session_id": "s1"},
        "a user": {"user_id": "u1"},
        "slow": {"slower_than": timedelta(seconds=5), "faster_than": timedelta(seconds=50)},
        "dear": {"dearer_than": Decimal("0.1"), "cheaper_than": Decimal(7)},
        "unpriced": {"unpriced": True},
        "failed spans": {"failed_spans": True},
        "a model": {"model": "m1"},
        "a kind": {"kind": "llm"},
        "a call site": {"call_site_id": "site1"},
        "a text": {"q": "rare"},
        "a mark": {"marks": ("same_call_again",)},
        "a mark of a model": {"marks": ("same_call_again",), "model": "m1"},
        "low feedback": {"feedback": (AskedFeedback("n3", "<", 0.5),)},
        "no such feedback": {"without_feedback": (AskedFeedback("n3"),)},
        "a set": {"set_id": SET},
        "not a mark": {"without_marks": ("same_call_again",)},
        "no such values": {
            "without": (("model", "m1"), ("kind", "tool"), ("session_id", "s1"), ("user_id", "u"))
        },
        "not one of a text": {"q": "rare", "status": "error", "without": (("call_site_id", "site1"),)},
    }

    def page(asked: dict[str, Any]) -> Any:
        reads = TraceReads(explaining, SpanReads(explaining))
        return lambda: reads.page(1, TraceFilter(**asked, **week), limit=50, cursor=None)

    def histogram(asked: dict[str, Any]) -> Any:
        return lambda: counts.histogram(1, TraceFilter(**asked, **week), hour, timeout_s=9, budget_s=9)

    def facets(asked: dict[str, Any]) -> Any:
        return lambda: counts.facets(1, TraceFilter(**asked, **week), timeout_s=9)

    def vitals(what: Any, start: datetime) -> Any:
        middle, end = start + timedelta(hours=3), start + timedelta(hours=6)
        return lambda: VitalsReads(explaining).of(1, what, start, middle, end, 9)

    return {
        **{f"page of {name}": page(asked) for name, asked in filters.items()},
        **{f"histogram of {name}": histogram(asked) for name, asked in filters.items()},
        **{f"facets of {name}": facets(asked) for name, asked in filters.items()},
        "a span by its id": lambda: SpanReads(explaining).trace_of(
            1, (20000).to_bytes(8, "big"), timeout_s=9
        ),
        "a session by its id": lambda: SessionReads(explaining).known(1, "s1"),
        "saved views": lambda: SavedViewStore(explaining).list(1),
        **{
            f"vitals of {what} by {unit}": vitals(what, start)
            for what in SOURCES
            for unit, start in (("hours", DAY), ("rows", DAY + timedelta(minutes=5)))
        },
        "models": lambda: ModelReads(explaining).used(1, DAY, 9),
        "nearest": lambda: counts.nearest(1, DAY, DAY + timedelta(days=1)),
        "ends": lambda: counts.ends(1),
        "onboarding": lambda: OnboardingReads(explaining).steps(1),
        "pulse": lambda: FrameReads(explaining).pulse(1),
        "frame": lambda: FrameReads(explaining).of(1, 1, None),
        "frame of few": lambda: FrameReads(explaining).of(1, 1, frozenset({1})),
    }


@pytest.mark.parametrize("read", counts_of(None))
async def test_no_page_of_the_web_reads_a_whole_table(many: Database, read: str) -> None:
    explaining = Explaining(many)
    await counts_of(explaining)[read]()
    assert explaining.plans
    for plan in explaining.plans:
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
        small = {
            "project",
            "organization",
            "detection_case",
            "api_key",
            "cube_progress",
            "span_slice",
            "vital_slice",
            "model_slice",
            "cube_dirty",
            "cube",
            "saved_view",
            "vital_cube",  # Empty here, as the other cubes.
            "model_cube",
            "trace_cube",
            "trace_group",
            "attribute_value",
        }
        assert not {table for table in scanned if not table.endswith("_default")} - small, plan


async def test_a_drawing_adds_up_to_its_range(filled: Filled) -> None:
    counts = TraceCounts(filled.database)
    whole = await counts.histogram(PROJECT, TraceFilter(), timedelta(minutes=5), timeout_s=9, budget_s=9)
    assert (whole.count, whole.failed) == (24, 8)
    assert all(bucket.start.minute % 5 == 0 for bucket in whole.buckets)
    found = await counts.facets(PROJECT, TraceFilter(status="error"), timeout_s=9)
    assert found.over == 8
    assert found.whole
    assert dict(found.fields["status"]) == {"error": 8}
    assert dict(found.fields["call_site_id"]) == {"checkout": 4, "search": 4}
    assert dict(found.fields["model"]) == {"gpt-4o": 4, "gpt-4o-mini": 4}
    assert sum(count for _, count in found.fields["session_id"]) == 8


async def test_the_nearest_traces_of_an_empty_range_are_told(filled: Filled) -> None:
    counts = TraceCounts(filled.database)
    first, last = NOW + timedelta(minutes=1), NOW + timedelta(minutes=24)
    assert await counts.ends(PROJECT) == (first, last)
    assert await counts.nearest(PROJECT, last + timedelta(hours=1), last + timedelta(hours=2)) == (last, None)
    assert await counts.nearest(PROJECT, first - timedelta(hours=2), first - timedelta(hours=1)) == (
        None,
        first,
    )
    assert await counts.ends(99) is None
