"""Searches for texts and rare values find what reading every row would find, whatever is indexed by then."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates import blocks as search_blocks
from svc.store.aggregates import cubes as cubes_built
from svc.store.aggregates import trace_ids as packed_ids
from svc.store.aggregates import trace_values
from svc.store.aggregates import values as search_values
from svc.store.aggregates.blocks import LACKING_ERRORS, grams_of, hashed
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Connection, Database
from svc.store.reads import search
from svc.store.reads.traces import trace_groups, trace_ids, trace_search
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.spans.traces import PostgresTraceStore
from tests.examples import first_always
from tests.store.as_json import JsonQueries
from tests.store.reads.test_query import question
from tests.store.reads.test_reads import Explaining
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of
from tests.wire import event

WORDS = (
    "parcel",
    "Refund",
    "ÄRGER",
    "straße",
    "100%",
    "a_b",
    "back\\slash",
    "配送状況",
    "İstanbul",
    "x",
    "no",
)
ASKED = (
    *WORDS,
    "parc",
    "arcel ref",
    "d Ä",
    "ärger",
    "STRASSE",
    "送状",
    "istanbul",
    "0% a_b",
    "zzz",
    " ",
    "l  p",
)


@pytest.fixture
async def clock(store: Database) -> Clock:
    assert (await ProjectStore(store).make_default()).id == 1
    clock = Clock()
    clock.now = NOW - timedelta(hours=10)
    return clock


def chat(number: int, dice: random.Random, took_s: float = 1.0) -> Any:
    said = " ".join(dice.choice(WORDS) for _ in range(dice.randrange(4)))
    return one(
        number,
        trace_id=bytes([1 + number % 250]) * 16,
        name=f"step {dice.choice(WORDS)}",
        attributes={"input.value": said, "openinference.span.kind": "CHAIN"},
        took_s=took_s,
        **failure(dice),
    )


def failure(dice: random.Random) -> dict[str, Any]:
    """How some spans fail, and what they say then."""
    if dice.random() < 0.7:
        return {}
    raised = event("exception", {"exception.type": f"{dice.choice(WORDS)}Error"})
    return {
        "status_code": 2,
        "status_message": dice.choice(["", f"{dice.choice(WORDS)} was {dice.choice(WORDS)}"]),
        "events": dice.choice([[], [raised]]),
    }


def page_size(dice: random.Random, count: int) -> int:
    """One row a page, a few, or all at once; no more pages than show that one follows the other."""
    return max(dice.choice([1, 3, 50]), count // 8)


async def agree(store: Database, dice: random.Random) -> None:
    """Both searches, page by page, answer what asking every row answers."""
    q = dice.choice(ASKED)
    like = q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    expected = [
        row["span_id"].hex()
        for row in await fetch(
            store,
            "select span_id from span where project_id = 1 and"
            " (name ilike $1 or input_preview ilike $1 or output_preview ilike $1"
            " or error_type ilike $1 or error_message ilike $1)"
            " order by created_at desc, trace_id desc, span_id desc",
            f"%{like}%",
        )
    ]
    limit = page_size(dice, len(expected))
    cursor: str | None = None
    if q.strip():
        found: list[str] = []
        while True:
            page = await JsonQueries(store).search(question(), q, None, limit, cursor)
            found += [row["id"].split(":")[1] for row in page["rows"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert found == expected, q
    read: list[str] = []
    while True:
        page = await SpanReads(store).page(1, SpanFilter(q=q), payload=False, limit=limit, cursor=cursor)
        read += [row["span_id"] for row in page["spans"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert read == expected, q


async def agree_on_values(store: Database, dice: random.Random) -> None:
    """Pages narrowed to a value that has no index, in both APIs, hold what asking every row answers."""
    asked: dict[str, Any] = {"name": f"step {dice.choice(WORDS)}"}
    if dice.random() < 0.4:
        asked["kind"] = dice.choice(["step", "llm"])
    within = dict(asked)
    if dice.random() < 0.3:
        within["status"] = "ok"
    expected = [
        row["span_id"].hex()
        for row in await fetch(
            store,
            "select span_id from span where project_id = 1 and "
            + " and ".join(f"{field} = ${place}" for place, field in enumerate(within, 1))
            + " order by created_at desc, trace_id desc, span_id desc",
            *within.values(),
        )
    ]
    limit = page_size(dice, len(expected))
    found: list[str] = []
    read: list[str] = []
    cursor = None
    while True:
        rows = await JsonQueries(store).search(question(**within), None, None, limit, cursor)
        found += [row["id"].split(":")[1] for row in rows["rows"]]
        cursor = rows["next_cursor"]
        if cursor is None:
            break
    while True:
        page = await SpanReads(store).page(1, SpanFilter(**within), payload=False, limit=limit, cursor=cursor)
        read += [row["span_id"] for row in page["spans"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == read == expected, within


async def moments(
    store: Database, clock: Clock, dice: random.Random, make: Callable[..., Any], *actions: str
) -> AsyncIterator[str]:
    """Forty steps of a life, each told when it is done: spans come and come again, hours pass and are built.

    `make(number, dice, took_s)` makes a span; `actions` may happen besides, "settle" with the traces.
    """
    spans, cubes, roller = store_of(store, clock), CubeStore(store), PostgresTraceStore(store)
    number = 0
    for _ in range(40):
        action = dice.choice(["write", "write", "resend", "wait", "build", "build one", *actions])
        if action == "write":
            count = dice.randrange(1, 8)
            await spans.write(rows(*(make(number + n + 1, dice) for n in range(count))))
            number += count
        elif action == "resend" and number:
            await spans.write(rows(make(dice.randrange(number) + 1, dice, dice.choice([0.5, 2.0, 3.0]))))
        elif action == "wait":
            clock.now += timedelta(minutes=dice.randrange(5, 90))
        elif action == "settle":
            await settle_at(clock.now + timedelta(seconds=11), roller)
        else:
            await cubes.build(clock.now, 1 if action == "build one" else 100)
        yield action


@pytest.mark.parametrize("seed", first_always(range(3)))
async def test_a_search_agrees_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_blocks, "BLOCK_ROWS", 3)
    monkeypatch.setattr(search_blocks, "BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(search_blocks, "MOST_GRAMS", 30)
    monkeypatch.setattr(search_values, "FEW_ROWS", 2)
    monkeypatch.setattr(search, "_FIRST_STRETCHES", 2)
    monkeypatch.setattr(search, "FEW_BLOCKS", 3)
    monkeypatch.setattr(search, "_NEWEST", 3)
    dice = random.Random(seed)
    async for _action in moments(store, clock, dice, chat):
        for _ in range(3):
            await agree(store, dice)
            await agree_on_values(store, dice)
        await agree_on_ids(store, dice)


async def agree_on_ids(store: Database, dice: random.Random) -> None:
    """A span is found by its id alone, and one that is nowhere is not."""
    for number in (dice.randrange(1, 40), 999):
        span_id = number.to_bytes(8, "big")
        held = {
            row["trace_id"]
            for row in await fetch(store, "select trace_id from span where span_id = $1", span_id)
        }
        found = await SpanReads(store).trace_of(1, span_id, timeout_s=9)
        assert found in held if held else found is None


async def test_an_id_is_looked_for_where_it_may_be_and_in_hours_that_a_release_before_built(
    store: Database, clock: Clock
) -> None:
    spans, cubes = store_of(store, clock), CubeStore(store)
    for number in range(1, 4):
        await spans.write(rows(one(number, trace_id=bytes([number]) * 16)))
        clock.now += timedelta(hours=1)
    while (await cubes.build(clock.now, 100)).more:
        pass
    # As it leaves an hour.
    await fetch(store, "delete from span_ids where hour = (select min(hour) from span_ids)")
    for number in range(1, 4):
        explaining: Any = Explaining(store)
        found = await SpanReads(explaining).trace_of(1, number.to_bytes(8, "big"), timeout_s=9)
        assert found == bytes([number]) * 16
        assert "stretch" in explaining.plans[-1]
    assert await SpanReads(store).trace_of(1, bytes(8), timeout_s=9) is None


async def test_what_failures_said_is_found_in_hours_that_a_release_before_built(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, cubes, roller = store_of(store, clock), CubeStore(store), PostgresTraceStore(store)
    reads, expected = TraceReads(store, SpanReads(store)), []
    # As it built them: without what failures said.
    searched = tuple(column for column in SPANS.searched if not column.startswith("error_"))
    earlier = attrs.evolve(SPANS, searched=searched)
    with monkeypatch.context() as patch:
        patch.setitem(cubes_built.BUILT, "spans", earlier)
        for number in range(1, 4):
            trace_id = bytes([number]) * 16
            said = {"status_code": 2, "status_message": "ECONNREFUSED 10.0.0.7:6379"}
            await spans.write(rows(one(number, trace_id=trace_id, start=clock.now, **said)))
            expected.insert(0, trace_id.hex())
            clock.now += timedelta(hours=1)
        clock.now += timedelta(hours=1)
        while (await cubes.build(clock.now, 100)).more:
            pass
    await settle_at(clock.now + timedelta(seconds=11), roller)
    await fetch(store, "update search_block set with_errors = false")
    monkeypatch.setattr(trace_search, "NEAR", 0)
    asked = TraceFilter(q="connrefused 10.0")
    assert (await reads.page(1, asked, limit=9, cursor=None))["traces"] == []
    # The newest first, and no more at once than are asked for.
    assert (await cubes.build(clock.now, 1)).more
    rows_now = (await reads.page(1, asked, limit=9, cursor=None))["traces"]
    assert [row["trace_id"] for row in rows_now] == expected[:1]
    while (await cubes.build(clock.now, 100)).more:
        pass
    rows_now = (await reads.page(1, asked, limit=9, cursor=None))["traces"]
    assert [row["trace_id"] for row in rows_now] == expected
    assert not await fetch(store, LACKING_ERRORS, 9)


async def agree_on_tool_calls(store: Database, dice: random.Random) -> None:
    """Pages of tool calls that are narrowed to a text or to values hold what asking every row answers."""
    q = dice.choice([*ASKED, None, None])
    fields = {
        "name": f"tool {dice.choice(WORDS)}",
        "status": dice.choice(["ok", "error"]),
        "error_type": "Late",
        "call_site_id": dice.choice(["here", "there"]),
    }
    within = {name: value for name, value in fields.items() if dice.random() < 0.3}
    like = None if q is None else q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    clauses = [f"{field} = ${place}" for place, field in enumerate(within, 2)]
    expected = [
        f"{row['trace_id'].hex()}:{row['span_id'].hex()}:{row['index']}"
        for row in await fetch(
            store,
            "select trace_id, span_id, index from tool_call where project_id = 1"
            " and ($1::text is null or name ilike $1 or error_type ilike $1 or error_message ilike $1)"
            f"{''.join(f' and {clause}' for clause in clauses)}"
            " order by created_at desc, trace_id desc, span_id desc, index desc",
            None if like is None or not like.strip() else f"%{like}%",
            *within.values(),
        )
    ]
    limit = page_size(dice, len(expected))
    found: list[str] = []
    cursor = None
    while True:
        asked = question("tool_calls", **within)
        page = await JsonQueries(store).search(asked, q, None, limit, cursor)
        found += [row["id"] for row in page["rows"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == expected, (q, within)


def tool(number: int, dice: random.Random, took_s: float = 1.0) -> Any:
    """A tool span that says something when it fails."""
    failed = dice.random() < 0.5
    return one(
        number,
        trace_id=bytes([1 + number % 250]) * 16,
        name="execute_tool",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": f"tool {dice.choice(WORDS)}",
            "svc.call_site.id": dice.choice(["here", "there"]),
            **({"error.type": "Late"} if failed else {}),
        },
        status_code=2 if failed else 0,
        status_message=f"{dice.choice(WORDS)} was {dice.choice(WORDS)}" if failed else "",
        took_s=took_s,
    )


@pytest.mark.parametrize("seed", first_always(range(3)))
async def test_a_search_of_tool_calls_agrees_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_blocks, "BLOCK_ROWS", 3)
    monkeypatch.setattr(search_blocks, "BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(search_values, "FEW_ROWS", 2)
    monkeypatch.setattr(search, "_FIRST_STRETCHES", 2)
    dice = random.Random(seed)
    async for _action in moments(store, clock, dice, tool):
        for _ in range(4):
            await agree_on_tool_calls(store, dice)


def step_of_a_trace(number: int, trace: int, dice: random.Random, took_s: float = 1.0) -> Any:
    """A span of one of a few traces, with a model that has a name of its own, one of another's, or none."""
    attributes = {
        "gen_ai.operation.name": dice.choice(["chat", "execute_tool"]),
        "svc.call_site.id": dice.choice(["here", "there"]),
        "input.value": " ".join(dice.choice(WORDS) for _ in range(dice.randrange(3))),
        "session.id": f"session {dice.choice(WORDS)}",
        "user.id": dice.choice(WORDS),
    }
    model = dice.choice(["gpt-4o", "gpt-4o-2024-08-06", "unheard-of", None])
    if model is not None:
        attributes["gen_ai.request.model"] = model
    return one(
        number,
        trace_id=bytes([1 + trace]) * 16,
        name=f"step {dice.choice(WORDS)}",
        attributes=attributes,
        start=NOW - timedelta(minutes=dice.randrange(10_000)),
        took_s=took_s,
        **failure(dice),
    )


#: What is left out, and what a trace is asked for itself with the clause that says so.
WITHOUT: tuple[tuple[str, str], ...] = (
    ("model", "gpt-4o"),
    ("model", "unheard-of"),
    ("kind", "tool"),
    ("call_site_id", "there"),
    ("user_id", "parcel"),
    ("session_id", "session Refund"),
)
OWN: tuple[dict[tuple[str, Any], str], ...] = (
    {("user_id", "no"): " and user_id = 'no'"},
    {("slower_than", timedelta(seconds=1)): " and ended_at - started_at >= interval '1 second'"},
    {("faster_than", timedelta(seconds=90)): " and ended_at - started_at <= interval '90 seconds'"},
    {("status", "ok"): " and status = 'ok'", ("unpriced", False): " and unpriced_spans = 0"},
    {("failed_spans", True): " and error_count > 0"},
    {("dearer_than", Decimal("0.001")): " and total_cost >= 0.001"},
    {("slower_than", timedelta(seconds=2)): " and ended_at - started_at >= interval '2 seconds'",
     ("user_id", "x"): " and user_id = 'x'"},
)  # fmt: skip


def left_out(holds: str, field: str, value: str) -> str:
    """The clause that a trace has no such value."""
    if field in ("user_id", "session_id"):
        return f" and {field} is distinct from '{value}'"
    columns = ("s.model_id", "s.provided_model_name") if field == "model" else (f"s.{field}",)
    return f" and not {holds} ({' or '.join(f'{column} = {value!r}' for column in columns)}))"


#: Parts of the ids of these traces, and a whole one.
IDS = ("01", "0101", "a1", "1A1", "1a1b", "1b" * 16, "0" * 32, "1A1a1", "b1b1b1b", "01" * 15, "1a1a1b1b")


async def agree_on_traces(store: Database, dice: random.Random, *, settled: bool) -> None:
    """Pages of traces hold what asking every row answers.

    A trace stands where its last roll-up puts it, and says what that said: texts and parts of pages are
    compared only when nothing is left to be rolled up.
    """
    model = dice.choice(["gpt-4o", "gpt-4o-2024-08-06", "unheard-of", "nobody's", None])
    kind = dice.choice(["llm", "tool", "agent", None, None])
    site = dice.choice(["here", "nowhere", None, None])
    q = dice.choice([*ASKED, *IDS, *[None] * 20]) if settled else None
    low = NOW - timedelta(minutes=dice.randrange(10_000)) if dice.random() < 0.3 else None
    holds = "exists (select from span s where s.project_id = 1 and s.trace_id = t.trace_id and"
    like = None if q is None else q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    said = " or ".join(
        f"{text} ilike $5"
        for text in (
            "name",
            "input_preview",
            "output_preview",
            "session_id",
            "user_id",
            "encode(trace_id, 'hex')",
        )
    )
    said += f" or {holds} (error_type ilike $5 or error_message ilike $5))"
    without = tuple(dice.sample(WITHOUT, dice.choice([0, 0, 1, 2])))
    own = dice.choice([{}, {}, *OWN])
    expected = [
        row["trace_id"].hex()
        for row in await fetch(
            store,
            f"select trace_id from trace t where project_id = 1{''.join(own.values())}"
            f"{''.join(left_out(holds, field, value) for field, value in without)}"
            f" and ($1::text is null or {holds} (model_id = $1 or provided_model_name = $1)))"
            f" and ($2::text is null or {holds} kind = $2))"
            " and ($3::timestamptz is null or started_at >= $3)"
            f" and ($4::text is null or {holds} s.call_site_id = $4))"
            f" and ($5::text is null or ({said}))"
            " order by started_at desc, trace_id desc",
            model,
            kind,
            low,
            site,
            None if like is None else f"%{like}%",
        )
    ]
    asked = TraceFilter(
        model=model, kind=kind, low=low, call_site_id=site, q=q, without=without, **dict(own.keys())
    )
    limit = page_size(dice, len(expected)) if settled else 50
    reads = TraceReads(store, SpanReads(store))
    found: list[str] = []
    cursor = None
    while True:
        page = await reads.page(1, asked, limit=limit, cursor=cursor)
        found += [trace["trace_id"] for trace in page["traces"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == expected, asked


@pytest.mark.parametrize("seed", first_always(range(4)))
async def test_pages_of_traces_agree_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_blocks, "BLOCK_ROWS", 3)
    monkeypatch.setattr(search_blocks, "BLOCKS_AT_ONCE", 2)
    monkeypatch.setattr(search_blocks, "MOST_GRAMS_OF_IDS", 20)
    monkeypatch.setattr(search_values, "FEW_ROWS", 2)
    monkeypatch.setattr(search, "_FEW_FOR_ONE", 1)
    monkeypatch.setattr(trace_search, "FIRST_STRETCHES", 1)
    monkeypatch.setattr(trace_values, "MOST_TRACES", 3)
    monkeypatch.setattr(packed_ids, "BLOCK_IDS", 2)
    monkeypatch.setattr(trace_ids, "_BLOCKS", (1, 2))
    dice = random.Random(seed)
    traces: dict[int, int] = {}

    def make(number: int, dice: random.Random, took_s: float = 1.0) -> Any:
        return step_of_a_trace(number, traces.setdefault(number, dice.randrange(40)), dice, took_s)

    async for action in moments(store, clock, dice, make, "settle", "settle"):
        for _ in range(12 if action == "settle" else 4):
            monkeypatch.setattr(trace_search, "NEAR", dice.choice([0, 0, 2, 256]))
            monkeypatch.setattr(trace_search, "FEW_BLOCKS", dice.choice([0, 32]))
            monkeypatch.setattr(trace_search, "RARE", dice.choice([3, 5_000, 5_000]))
            monkeypatch.setattr(trace_search, "NEWEST_HOURS", dice.choice([1, 2, 64]))
            monkeypatch.setattr(trace_search, "MOST_STRETCHES", dice.choice([2, 128, 128]))
            monkeypatch.setattr(trace_groups, "NEWEST_HOURS", dice.choice([1, 2, 64]))
            monkeypatch.setattr(trace_ids, "_MOST_HOURS", dice.choice([0, 24, 24]))
            await agree_on_traces(store, dice, settled=action == "settle")


async def test_a_page_of_traces_waits_for_what_came_long_ago_and_began_late(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_search, "NEAR", 0)
    monkeypatch.setattr(trace_search, "FIRST_STRETCHES", 1)
    monkeypatch.setattr(trace_search, "NEWEST_HOURS", 2)
    monkeypatch.setattr(search, "_FEW_FOR_ONE", 1)
    first, writing = clock.now, store_of(store, clock)
    # An hour each, in the order they came: how many hours ago the traces began.
    number = 0
    for ago in ([0], [50, 60, 70, 80], [20, 30, 40, 45], []):
        for hours in ago:
            number += 1
            start = NOW - timedelta(hours=hours)
            attributes = {"gen_ai.request.model": "m"}
            sent = one(number, trace_id=bytes([number]) * 16, start=start, attributes=attributes)
            await writing.write(rows(sent))
        clock.now += timedelta(hours=1)
    await CubeStore(store).build(first + timedelta(hours=5), 100)
    reads = TraceReads(store, SpanReads(store))
    page = await reads.page(1, TraceFilter(model="m"), limit=1, cursor=None)
    assert [trace["trace_id"][:2] for trace in page["traces"]] == ["01"]
    after = await reads.page(1, TraceFilter(model="m"), limit=9, cursor=page["next_cursor"])
    assert [trace["trace_id"][:2] for trace in after["traces"]] == [
        f"{number:02x}" for number in (6, 7, 8, 9, 2, 3, 4, 5)
    ]


async def test_of_a_few_rows_the_moments_are_placed_and_of_many_the_hour(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_values, "FEW_ROWS", 2)
    writing, first = store_of(store, clock), clock.now
    for number, model in enumerate(("rare", "common", "common", "common"), 1):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        await writing.write(rows(one(number, trace_id=bytes([number]) * 16, attributes=attributes)))
        clock.now += timedelta(minutes=1)
    await CubeStore(store).build(first + timedelta(hours=2), 10)
    hour = hour_of(first)

    async def placed(model: str) -> list[search.Stretch]:
        async def work(connection: Connection) -> search.Stretches | None:
            values = {"provided_model_name": model}
            return await search.stretches_with(connection, SPANS, 1, values, hour, hour + timedelta(hours=1))

        found = await store.run(work, snapshot=True)
        assert found is not None
        return list(found.near)

    assert await placed("unheard-of") == []
    (row,) = await fetch(store, "select created_at from span where provided_model_name = 'rare'")
    moment = row["created_at"]
    assert await placed("rare") == [
        search.Stretch(moment, moment + timedelta(microseconds=1), NOW, NOW, few=True)
    ]
    (common,) = await placed("common")
    assert (common.low, common.high, common.last, common.few) == (hour, hour + timedelta(hours=1), NOW, False)


async def test_rows_of_stretches_come_down_an_index_and_blocks_may_be_found_by_theirs_again(
    store: Database,
) -> None:
    async def work(connection: Connection) -> tuple[str, str]:
        asked = "select current_setting('enable_bitmapscan')"
        (meanwhile,) = await search.fetch_in_stretches(connection, asked)
        return meanwhile[0], await connection.fetchval(asked)

    assert await store.run(work) == ("off", "on")


async def test_no_more_hours_of_a_value_are_looked_into_than_hold_a_page(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_values, "FEW_ROWS", 0)
    writing, first = store_of(store, clock), hour_of(clock.now)
    for hour in range(6):
        clock.now = first + timedelta(hours=hour, minutes=5)
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        ids = [10 * hour + number for number in range(1, 4)]
        await writing.write(rows(*(one(n, trace_id=bytes([n]) * 16, attributes=attributes) for n in ids)))
    end = first + timedelta(hours=6)
    await CubeStore(store).build(end + timedelta(hours=1), 10)

    async def hours(enough: int, high: datetime | None) -> list[int]:
        async def work(connection: Connection) -> search.Stretches | None:
            values = {"provided_model_name": "m"}
            return await search.stretches_with(connection, SPANS, 1, values, first, high, enough=enough)

        found = await store.run(work, snapshot=True)
        assert found is not None
        return [(stretch.low - first) // timedelta(hours=1) for stretch in found.near if stretch.low < end]

    assert await hours(3, end + timedelta(hours=1)) == [5]
    assert await hours(4, end + timedelta(hours=1)) == [5, 4]
    # A page that begins within the newest hour may have some of its rows behind it.
    assert await hours(3, end) == [5, 4]
    assert await hours(100, end) == [5, 4, 3, 2, 1, 0]


async def test_a_block_names_the_days_to_look_into_and_one_without_is_looked_for_in_all(
    store: Database, clock: Clock
) -> None:
    recent, old = clock.now, clock.now - timedelta(days=20)
    sent = rows(one(1, name="needle", start=old), one(2, name="needle", start=recent))
    await store_of(store, clock).write(sent)
    await CubeStore(store).build(clock.now + timedelta(hours=3), 10)
    looked: list[list[search.Stretch]] = []

    async def work(connection: Connection) -> None:
        hour = hour_of(clock.now)
        found = await search.stretches(connection, SPANS, 1, "needle", hour, hour + timedelta(hours=1))
        assert found is not None
        looked.append([stretch for stretch in found.near if stretch.first != search.BEGINNING])

    await store.run(work)
    ((block,),) = looked
    assert (block.first, block.last) == (old, recent)
    # As in a block that an earlier release made.
    await fetch(store, "update search_block set first_started_at = null, last_started_at = null returning 1")
    await store.run(work)
    assert looked[1] == []
    page = await SpanReads(store).page(1, SpanFilter(q="needle"), payload=False, limit=5, cursor=None)
    assert len(page["spans"]) == 2


async def test_a_word_that_stands_nowhere_is_answered_from_the_index_alone(
    store: Database, clock: Clock
) -> None:
    await store_of(store, clock).write(rows(*(chat(n, random.Random(n)) for n in range(1, 9))))
    await CubeStore(store).build(clock.now + timedelta(hours=3), 10)

    async def work(connection: Connection) -> tuple[search.Stretches | None, ...]:
        low, high = hour_of(clock.now), hour_of(clock.now) + timedelta(hours=1)
        return (
            await search.stretches(connection, SPANS, 1, "needle in a haystack", low, high),
            await search.stretches(connection, SPANS, 1, "step", low, high),
            await search.stretches(connection, SPANS, 2, "step", low, high),
            await search.stretches(connection, SPANS, 1, "ab cd", low, high),
        )

    nowhere, somewhere, elsewhere, too_short = await store.run(work, snapshot=True)
    assert nowhere is not None
    assert (nowhere.near, nowhere.rest) == ([], None)
    assert somewhere is not None
    assert len(somewhere.near) == 1
    # Another project has no hour built, and a question without a piece is not the index's.
    assert elsewhere is None
    assert too_short is None


async def test_a_block_whose_texts_tell_nothing_is_always_looked_into(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_blocks, "MOST_GRAMS", 2)
    await store_of(store, clock).write(rows(chat(1, random.Random(1))))
    await CubeStore(store).build(clock.now + timedelta(hours=3), 10)
    assert [row["grams"] for row in await fetch(store, "select grams from search_block")] == [None]
    page = await JsonQueries(store).search(question(), "step", None, 10, None)
    assert len(page["rows"]) == 1


TEXT = st.text(st.sampled_from("aAbB cC\t\n%_ßİ配"), max_size=30)


@given(TEXT, TEXT, TEXT)
def test_a_text_around_a_question_has_all_its_pieces(before: str, q: str, after: str) -> None:
    assert grams_of([q]) <= grams_of(["other", before + q + after])


@given(st.sets(st.text(min_size=3, max_size=3)), st.integers(1, 2**62))
def test_pieces_are_stored_as_integers_of_postgresql(grams: set[str], project_id: int) -> None:
    assert all(-(2**31) <= number < 2**31 for number in hashed(project_id, "spans", grams))


async def test_blocks_are_found_by_their_pieces_and_not_read_through(store: Database) -> None:
    async def work(connection: Connection) -> str:
        await connection.execute(
            "insert into search_block (project_id, dataset, ids, hour, low, high, grams)"
            " select 1, 'spans', true, $1::timestamptz + n * interval '1 hour', $1, $1,"
            " (select array_agg((n * 7919 + k * 104729) % 1000003) from generate_series(1, 100) k)"
            " from generate_series(1, 3000) n",
            NOW,
        )
        await connection.execute("analyze search_block")
        await connection.execute("set local enable_seqscan = off")
        asked = (1, "spans", NOW, NOW + timedelta(days=30), [], [1, 2, 3])
        plan = await connection.fetch(f"explain {search.BLOCKS}", *asked, NOW + timedelta(days=30))
        newest = await connection.fetch(f"explain {search.NEWEST_BLOCKS}", *asked, 16)
        return "\n".join(row[0] for row in (*plan, *newest))

    plan = await store.run(work)
    assert "Bitmap Index Scan on search_block_grams" in plan
    assert "search_block_blind" in plan
    assert "Index Scan Backward using search_block_hour" in plan
    assert "Seq Scan" not in plan
