"""Large traces are rolled up by the database, and by the same rules as small ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import attrs
import msgspec
import pytest
from trio_asyncio import trio_as_aio

from svc.domain.spans.span import SpanRow, ToolCall
from svc.domain.traces.rollup import MOST_TOKENS, TraceRollup, roll_up
from svc.store.detection.counting.settled_traces import TRACE_SPANS, due_traces
from svc.store.postgres.database import Connection, Database
from svc.store.spans.copying import copy_spans
from svc.store.spans.large_traces import roll_large
from svc.store.spans.trace_rollups import SMALL_CALLS, SMALL_SPANS, roll_small
from svc.store.spans.traces import PostgresTraceStore, _round, insert_or_lock, touch
from svc.store.spans.writing import TOOL_CALL_COLUMNS, tool_call_records
from tests.domain import mapped
from tests.examples import first_always
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

BASE: Final = mapped({}, name="span")
#: The projects whose traces are rolled up by Python and by the database.
PYTHON, DATABASE = 1, 2
LATER: Final = NOW + timedelta(hours=3)
TRACES: Final = 150

KINDS: Final = ("llm", "llm", "agent", "tool", "tool", "mcp", "step", "workflow", "embedding", "reranker")
COSTS: Final = (None, None, Decimal("0.5"), Decimal("0.000123"), Decimal(0))


def random_trace(chance: random.Random, number: int) -> list[SpanRow]:
    """Spans of one trace: few names, ids and moments, so that much of it meets."""
    size = chance.choice((1, 2, 3, 5, 8, 13, 30, 60))
    links = chance.choice(("tree", "tree", "chain", "any"))
    moments = chance.choice((1, 5, 100))
    wordless = chance.random() < 0.3

    def parent(own: int) -> bytes | None:
        if links == "chain":
            return (own - 1).to_bytes(8, "big") if own > 1 else None
        if chance.random() < 0.1:
            return chance.choice((None, own, size + 5, None)) and (size + 5).to_bytes(8, "big")
        highest = own - 1 if links == "tree" else size
        return chance.randint(1, highest).to_bytes(8, "big") if highest else None

    def tokens() -> int | None:
        return chance.choice((None, None, 0, 1, 1, 2, 3, 10, 2**63 - 1 if number % 10 == 0 else 4))

    spans = []
    for own in range(1, size + 1):
        kind: Any = chance.choice(KINDS)
        start = BASE.started_at + timedelta(microseconds=chance.randint(0, moments))
        length = chance.choice((None, 0, 1, 5, 100))
        answer = "" if wordless else chance.choice((None, "", "text", '{"a": 1}', "[1]", "other"))
        reported = chance.random() < 0.6
        cost = chance.choice(COSTS) if chance.random() < 0.5 else None
        book = chance.choice((None, "book"))
        repeats: Any = chance.choice((None, None, None, None, "twin", "descendant", "response"))
        source: Any = chance.choice((None, "provided", "inferred", "unpriced"))
        span = msgspec.structs.replace(
            BASE,
            trace_id=number.to_bytes(16, "big"),
            span_id=own.to_bytes(8, "big"),
            parent_span_id=own.to_bytes(8, "big") if chance.random() < 0.03 else parent(own),
            kind=kind,
            name=f"name {chance.randint(1, 4)}",
            status=chance.choice(("ok", "ok", "ok", "error")),
            started_at=start,
            ended_at=None if length is None else start + timedelta(microseconds=length),
            call_site_id=f"site {chance.randint(1, 3)}",
            tagged=chance.random() < 0.2,
            session_id=chance.choice((None, None, "", "s", f"s{own}")),
            user_id=chance.choice((None, None, "", f"u{own}")),
            response_id=chance.choice((None, None, "r1", "r2", f"own {own}")),
            input_tokens=tokens() if reported else None,
            output_tokens=tokens() if reported else None,
            cache_read_tokens=tokens() if reported and chance.random() < 0.2 else None,
            cache_write_tokens=tokens() if reported and chance.random() < 0.2 else None,
            reasoning_tokens=tokens() if reported and chance.random() < 0.2 else None,
            input_cost=cost,
            output_cost=chance.choice((None, cost)),
            cache_read_cost=chance.choice((None, cost)),
            total_cost=cost,
            cost_source=None if repeats else source,
            input_preview=answer and f"{answer} in {own}",
            output_preview=chance.choice((None, answer)),
            usage_repeats=repeats,
            price_book=book,
        )
        span.tool_calls = random_calls(chance, span)
        spans.append(span)
    return spans


def random_calls(chance: random.Random, span: SpanRow) -> tuple[ToolCall, ...]:
    tool = span.kind in ("tool", "mcp")
    count = chance.choice((0, 1, 1, 1, 2)) if tool else chance.choice((0, 0, 1, 3)) * (span.kind == "llm")
    # The first ones may be gone already.
    indexes = sorted(chance.sample(range(6), count))
    return tuple(
        ToolCall(
            index,
            chance.choice(("f", "f", "g", "h", f"only {span.span_id[-1]}")),
            chance.choice((None, None, "", "a", "b", f"id {span.span_id[-1]}")),
            chance.choice(("ok", "ok", "error")),
            None,
            None,
        )
        for index in indexes
    )


async def put(connection: Connection, project_id: int, traces: Sequence[Sequence[SpanRow]]) -> None:
    """Store spans as they stand, and rows of traces that say next to nothing of them."""
    spans = [span for trace in traces for span in trace]
    await copy_spans(connection, ((project_id, NOW, 1, 1, span) for span in spans))
    calls = [record for span in spans for record in tool_call_records(project_id, span, NOW)]
    await connection.copy_records_to_table("tool_call", columns=TOOL_CALL_COLUMNS, records=calls)
    empty = [msgspec.structs.replace(BASE, trace_id=trace[0].trace_id) for trace in traces]
    known: dict[tuple[int, bytes], TraceRollup] = {
        (project_id, span.trace_id): roll_up([span]) for span in empty
    }
    await insert_or_lock(connection, known, NOW)
    await touch(connection, {(project_id, trace[0].trace_id): roll_up(trace) for trace in traces}, NOW)


ROWS: Final = (
    "select project_id, trace_id, due_at, first_started_at, last_started_at from trace"
    " where project_id = $1 order by trace_id"
)


async def state(connection: Connection, project_id: int) -> dict[str, list[Any]]:
    """All that a roll-up may change, without the project."""
    questions = {
        "trace": "select t.trace_id, column_.key, column_.value from trace t,"
        " jsonb_each(to_jsonb(t) - '{project_id,large}'::text[]) as column_"
        " where project_id = $1 order by trace_id, key",
        "span": "select trace_id, span_id, usage_repeats, cost_source from span"
        " where project_id = $1 order by trace_id, span_id",
        "tool_call": "select trace_id, span_id, index from tool_call"
        " where project_id = $1 order by trace_id, span_id, index",
        "fold_due": "select trace_id from fold_due where project_id = $1 order by trace_id",
        "cube_dirty": "select dataset, hour from cube_dirty where project_id = $1 order by dataset, hour",
    }
    return {
        table: [tuple(row.values()) for row in await connection.fetch(sql, project_id)]
        for table, sql in questions.items()
    }


@pytest.mark.parametrize("seed", first_always(range(4)))
async def test_both_ways_agree_on_every_trace(store: Database, seed: int) -> None:
    """Whatever the links, the times, the answers and the calls: in every column, mark and dropped call."""
    chance = random.Random(seed)
    traces = [random_trace(chance, number) for number in range(1, TRACES + 1)]

    async def work(connection: Connection) -> None:
        for project_id in (PYTHON, DATABASE):
            await put(connection, project_id, traces)
        before = await state(connection, PYTHON)
        # The second time over what the first one left.
        for turn in range(2):
            for row in await connection.fetch(ROWS, PYTHON):
                assert await roll_small(connection, row, LATER)
            for row in await connection.fetch(ROWS, DATABASE):
                assert await roll_large(connection, row, LATER)
            by_python, by_database = await state(connection, PYTHON), await state(connection, DATABASE)
            for table, expected in by_python.items():
                pairs = zip(expected, by_database[table], strict=True)
                assert [pair for pair in pairs if pair[0] != pair[1]] == [], (turn, table)
            assert turn or by_python["span"] != before["span"]
            assert turn or len(by_python["tool_call"]) < len(before["tool_call"])

    await store.run(work)


async def settled(traces: PostgresTraceStore, clock: Clock) -> int:
    """How many traces were settled by rounds until nothing was due."""
    count = 0
    while (done := await traces.settle(clock.now + timedelta(seconds=11), 10)).seen:
        count += done.settled
    return count


async def test_a_trace_that_outgrows_python_is_rolled_up_by_the_database_from_then_on(
    store: Database,
) -> None:
    clock = Clock()
    spans, small, large = (
        store_of(store, clock),
        PostgresTraceStore(store),
        PostgresTraceStore(store, large=True),
    )
    await spans.write(rows(one(1)))
    for first in range(2, SMALL_SPANS + 2, 100):
        await spans.write(rows(*(one(number, parent=1) for number in range(first, first + 100))))
    assert await settled(small, clock) == 0
    assert await fetch(store, "select from trace where large and stale")
    assert await settled(large, clock) == 1
    [trace] = await fetch(store, "select span_count, next_at, stale from trace")
    assert tuple(trace.values()) == (SMALL_SPANS + 1, None, False)
    assert len(await fetch(store, "select from fold_due")) == 1
    # The next change is no matter of the small round any more.
    await spans.write(rows(one(999, parent=1)))
    assert await settled(small, clock) == 0
    assert await settled(large, clock) == 1
    assert [row["span_count"] for row in await fetch(store, "select span_count from trace")] == [
        SMALL_SPANS + 2
    ]


async def test_a_trace_with_more_tool_calls_than_python_takes_is_large(store: Database) -> None:
    answer = msgspec.structs.replace(
        BASE,
        kind="llm",
        tool_calls=tuple(ToolCall(index, "f", None, "ok", None, None) for index in range(SMALL_CALLS + 1)),
    )
    tool = msgspec.structs.replace(
        BASE, kind="tool", span_id=b"toolspan", tool_calls=(ToolCall(0, "f", None, "ok", None, None),)
    )

    async def work(connection: Connection) -> None:
        await put(connection, DATABASE, [[answer, tool]])
        [row] = await connection.fetch(ROWS, DATABASE)
        assert await roll_small(connection, row, LATER) is None
        assert await roll_large(connection, row, LATER)
        assert len((await state(connection, DATABASE))["tool_call"]) == SMALL_CALLS + 1

    await store.run(work)


async def test_tokens_beyond_what_the_database_holds_stop_at_the_most_it_holds(store: Database) -> None:
    """Such a trace settles as others do: an error would come again for ever."""
    spans = [
        msgspec.structs.replace(
            BASE, span_id=number.to_bytes(8, "big"), kind="llm", input_tokens=MOST_TOKENS, response_id=None
        )
        for number in (1, 2)
    ]

    async def work(connection: Connection) -> None:
        for project_id, roll in ((PYTHON, roll_small), (DATABASE, roll_large)):
            await put(connection, project_id, [spans])
            [row] = await connection.fetch(ROWS, project_id)
            assert await roll(connection, row, LATER)
            [sums] = await connection.fetch(
                "select input_tokens, total_tokens from trace where project_id = $1", project_id
            )
            assert tuple(sums.values()) == (MOST_TOKENS, MOST_TOKENS)

    await store.run(work)


async def test_what_is_written_while_the_database_adds_up_is_added_at_the_next_turn(store: Database) -> None:
    """The trace is not locked meanwhile, and does not settle without it."""
    clock = Clock()
    spans, large = store_of(store, clock), PostgresTraceStore(store, large=True)
    await spans.write(rows(one(1)))
    await spans.write(rows(one(2, parent=1)))
    await fetch(store, "update trace set large = true returning 1")

    async def work(connection: Connection) -> None:
        # The row as it was when the round began.
        [row] = await connection.fetch(ROWS, PYTHON)
        await trio_as_aio(spans.write)(rows(one(3, parent=1)))
        assert not await roll_large(connection, row, LATER)

    await store.run(work)
    [trace] = await fetch(store, "select span_count, stale, next_at from trace")
    assert (trace["span_count"], trace["stale"]) == (3, True)
    assert trace["next_at"] > LATER
    assert await settled(large, Clock()) == 0
    assert (await large.settle(LATER + timedelta(minutes=1), 1)).settled == 1
    assert not await fetch(store, "select from trace where stale")


async def test_a_large_trace_that_another_replica_adds_up_is_left_to_it(store: Database) -> None:
    clock = Clock()
    await store_of(store, clock).write(rows(one(1)))
    await fetch(store, "update trace set large = true, stale = true, next_at = due_at returning 1")
    replicas = PostgresTraceStore(store, large=True), PostgresTraceStore(store, large=True)

    async def work(connection: Connection) -> None:
        assert (await _round(connection, LATER, 1, large=True)).settled == 1
        assert (await trio_as_aio(replicas[0].settle)(LATER, 1)).seen == 0

    await store.run(work)
    assert (await replicas[1].settle(LATER, 1)).seen == 0
    assert not await fetch(store, "select from trace where next_at is not null")


async def test_a_large_trace_without_spans_settles(store: Database) -> None:
    clock = Clock()
    await store_of(store, clock).write(rows(one(1)))
    await fetch(store, "update trace set large = true, stale = true, next_at = due_at returning 1")
    await fetch(store, "delete from span returning 1")
    assert await settled(PostgresTraceStore(store, large=True), clock) == 1


@attrs.define
class Counted:
    """A connection, and how many rows of what was asked came over it."""

    connection: Connection
    rows: int = 0

    async def fetch(self, *asked: Any) -> list[Any]:
        found: list[Any] = await self.connection.fetch(*asked)
        self.rows += len(found)
        return found

    async def cursor(self, *asked: Any) -> Any:
        counted, cursor = self, await self.connection.cursor(*asked)

        class Counting:
            async def fetch(self, size: int) -> list[Any]:
                found: list[Any] = await cursor.fetch(size)
                counted.rows += len(found)
                return found

        return Counting()


async def test_the_fold_reads_no_more_of_a_trace_than_it_counts(store: Database) -> None:
    """Neither spans nor their tool calls, however many there are."""
    call = ToolCall(0, "f", None, "ok", None, None)
    spans = [
        msgspec.structs.replace(
            BASE, kind="tool", span_id=number.to_bytes(8, "big"), tool_calls=(call,), usage_repeats=None
        )
        for number in range(1, 2 * TRACE_SPANS)
    ]

    async def work(connection: Connection) -> None:
        await put(connection, DATABASE, [spans])
        [row] = await connection.fetch(ROWS, DATABASE)
        assert await roll_large(connection, row, LATER)
        counted = Counted(connection)
        due = await due_traces(counted, DATABASE)
        [trace] = due.traces
        assert len(trace.rows) == TRACE_SPANS
        assert all(row.tool_calls for row in trace.rows)
        assert counted.rows < 2 * TRACE_SPANS + 10

    await store.run(work)
