"""Re-pricing and re-mapping: a preview changes nothing, the real thing ends where writing anew would."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pytest
import trio

import svc.store.spans.rework as rework_module
from protocol.otlp.reading import WireSpan
from svc.domain.attributes.reading import AttributeReader
from svc.domain.intake.rework import Totals, remapped, repriced
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import OwnPrice, OwnPrices
from svc.domain.spans.span import SpanRow
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Connection, Database
from svc.store.spans.rework import AlreadyAtWork, Kind, ReworkStore
from svc.store.spans.rework_progress import Progress
from svc.store.spans.traces import PostgresTraceStore
from tests.store.aggregates.test_cubes import agree
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, on_server, one, rows, store_of

BOOK = PriceBook()
FIELDS = AttributeReader()
DEAR = PriceBook(
    OwnPrices(
        "dear",
        (
            OwnPrice("gpt-4o", rates={"input": Decimal(100), "output": Decimal(100)}),
            OwnPrice("house-7", rates={"input": Decimal(1), "output": Decimal(1)}),
        ),
    )
)


def rework_of(
    store: Database, kind: Kind, prices: PriceBook = BOOK, clock: Clock | None = None
) -> ReworkStore:
    pairs_of = partial(FIELDS.pairs, PROJECT)

    def remake(row: SpanRow, span: WireSpan | None) -> SpanRow:
        return repriced(row, prices) if span is None else remapped(row, span, prices, pairs_of)

    return ReworkStore(store, PROJECT, kind, prices.version, remake, on_server(clock or Clock()))


async def run(work: ReworkStore, *, apply: bool) -> Progress:
    progress = await work.resumed() if apply else Progress()
    while not progress.finished:
        progress = await (work.apply(progress) if apply else work.preview(progress))
    return progress


def story(number: int) -> list[Any]:
    """A trace of an agent: a model that calls a tool, the tool, an answer, and totals said twice."""
    trace_id = number.to_bytes(2, "big") * 8
    usage = {"gen_ai.usage.input_tokens": 1000 + number, "gen_ai.usage.output_tokens": 100}
    asked = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": f"c{number}", "name": "look", "arguments": {}}],
        }
    ]
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": ("gpt-4o", "house-7")[number % 2],
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": "ask " * 80}]}]
        ),
        "session.id": f"s{number % 5}",
        "user.id": f"u{number % 3}",
        "gen_ai.output.messages": json.dumps(asked),
        **usage,
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": f"clerk{number % 4}", **usage}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": f"c{number}",
    }
    given = {"operation.cost": 0.25} if number % 7 == 0 else {}
    return [
        one(1, trace_id=trace_id, name="invoke_agent", attributes=agent, took_s=9),
        one(2, trace_id=trace_id, parent=1, name="chat", attributes={**chat, **given}),
        one(3, trace_id=trace_id, parent=1, name="execute_tool look", attributes=tool),
    ]


async def told(store: Database, count: int = 12) -> None:
    """Stories written and settled."""
    assert (await ProjectStore(store).make_default()).id == PROJECT
    await store_of(store).write(rows(*(span for number in range(1, count + 1) for span in story(number))))
    await settled(store)


async def settled(store: Database) -> None:
    traces = PostgresTraceStore(store)
    for _ in range(3):
        await traces.settle(NOW + timedelta(minutes=5), 1000)


async def everything(store: Database) -> dict[str, list[Any]]:
    """All rows that mapping and pricing decide, without the times of work."""
    tables = {}
    for table, order in (
        ("span", "trace_id, span_id"),
        ("tool_call", "trace_id, span_id, index"),
        ("trace", "trace_id"),
        ("session", "id"),
        ("call_site", "id"),
    ):
        found = await fetch(store, f"select * from {table} order by {order}")
        skip = {"due_at", "next_at", "stale"}
        tables[table] = [{k: v for k, v in row.items() if k not in skip} for row in found]
    return tables


async def execute(store: Database, *statements: str) -> None:
    async def work(connection: Connection) -> None:
        for statement in statements:
            await connection.execute(statement)

    await store.run(work)


#: What a mapping that knows less would have stored.
FORGET = (
    "update span set kind = 'step', provided_model_name = null, model_id = null, input_tokens = null,"
    " output_tokens = null, input_cost = null, output_cost = null, total_cost = null, cost_source = null,"
    " session_id = 'old', user_id = null, call_site_id = 'old', usage_repeats = null, price_book = null",
    "delete from tool_call",
    "delete from session",
    "insert into session values (1, 'old', null, now(), now())",
    "update trace set session_id = 'old', user_id = null, stale = true, next_at = first_started_at",
)


async def test_remapping_ends_where_writing_anew_would(store: Database) -> None:
    await told(store)
    right = await everything(store)
    await execute(store, *FORGET)
    await settled(store)
    assert (await everything(store))["trace"] != right["trace"]
    done = await run(rework_of(store, "remap"), apply=True)
    assert (done.spans, done.changed_spans, done.traces, done.changed_traces) == (36, 36, 12, 12)
    assert await everything(store) == right
    again = await run(rework_of(store, "remap"), apply=True)
    assert (again.spans, again.changed_spans) == (36, 0)
    assert await everything(store) == right


async def test_remapping_finds_the_failures_that_only_results_and_exceptions_tell(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == PROJECT
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    failed = {**tool, "gen_ai.tool.call.result": '{"isError": true}'}
    await store_of(store).write(
        rows(one(1, attributes=tool), one(2, parent=1, attributes=failed), one(3, parent=1, attributes=tool))
    )
    await settled(store)
    right = await everything(store)
    assert [row["status"] for row in right["span"]] == ["ok", "error", "ok"]
    assert (right["trace"][0]["error_count"], right["tool_call"][1]["error_type"]) == (1, "tool_error")
    # What the mapping stored that knew status codes only.
    await execute(
        store,
        "update span set status = 'ok', error_type = null",
        "update tool_call set status = 'ok', error_type = null",
        "update trace set stale = true, next_at = first_started_at",
    )
    await settled(store)
    assert (await everything(store))["trace"][0]["error_count"] == 0
    done = await run(rework_of(store, "remap"), apply=True)
    assert (done.spans, done.changed_spans) == (3, 1)
    assert await everything(store) == right


async def test_remapping_brings_along_parts_of_usage_and_outcomes_of_tools_that_are_read_since(
    store: Database,
) -> None:
    assert (await ProjectStore(store).make_default()).id == PROJECT
    usage = {
        "input_tokens": 20,
        "output_tokens": 30,
        "cache_creation_input_tokens": 40,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30},
    }
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-4-5"}
    tool = {
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "read_file",
        "gen_ai.tool.call_id": "c1",
        "gen_ai.output.messages": '{"status":"error","response":{"errorType":"file_not_found"}}',
    }
    asks = [{"role": "assistant", "tool_calls": [{"id": "c2", "function": {"name": "look"}}]}]
    model = {**call, "x.usage": json.dumps(usage), "input": json.dumps(asks)}
    spans = (one(1, attributes=model), one(2, parent=1, attributes=tool))
    await store_of(store).write(rows(*spans, scope="pipecat"))
    await settled(store)
    right = await everything(store)
    assert [row["cache_write_1h_tokens"] for row in right["span"]] == [30, None]
    assert [row["error_type"] for row in right["tool_call"]] == [None, "file_not_found"]
    # What the mapping before stored.
    await execute(
        store,
        "update span set cache_write_1h_tokens = null, cache_write_cost = 0.00015, total_cost = 0.00066"
        " where kind = 'llm'",
        "update span set status = 'ok', error_type = null where kind = 'tool'",
        "update tool_call set status = 'ok', error_type = null",
        "delete from tool_call where index >= 1000",
        "update trace set stale = true, next_at = first_started_at",
    )
    await settled(store)
    assert await everything(store) != right
    await run(rework_of(store, "remap"), apply=True)
    assert await everything(store) == right
    # From then on the row alone is enough.
    done = await run(rework_of(store, "reprice"), apply=True)
    assert (done.changed_spans, done.before) == (0, done.after)


async def test_a_preview_changes_nothing_and_says_what_the_real_thing_then_does(store: Database) -> None:
    await told(store)
    for work in (rework_of(store, "remap", DEAR), rework_of(store, "reprice", DEAR)):
        before = await everything(store)
        preview = await run(work, apply=False)
        assert await everything(store) == before
        done = await run(work, apply=True)
        assert done == preview
        assert [total["sum"] for total in await fetch(store, "select sum(total_cost) from trace")] == [
            done.after.cost
        ]


async def test_repricing_changes_the_costs_that_were_worked_out_and_no_others(store: Database) -> None:
    await told(store)
    given = "select trace_id, total_cost from span where cost_source = 'provided' order by 1"
    before = [dict(row) for row in await fetch(store, given)]
    done = await run(rework_of(store, "reprice", DEAR), apply=True)
    assert (done.before.unpriced, done.after.unpriced) == (5, 0)
    assert done.before.tokens == done.after.tokens
    assert [dict(row) for row in await fetch(store, given)] == before
    assert len(before) == 1
    (row,) = await fetch(
        store,
        "select s.total_cost, s.price_book, t.total_cost as whole, t.unpriced_spans from span s join trace t"
        " using (trace_id) where s.span_id = $1 and s.trace_id = $2",
        (2).to_bytes(8, "big"),
        (2).to_bytes(2, "big") * 8,
    )
    assert row["total_cost"] == row["whole"] == Decimal(1102) * 100 / 10**6
    assert (row["price_book"], row["unpriced_spans"]) == (DEAR.version, 0)
    back = await run(rework_of(store, "reprice", BOOK), apply=True)
    assert (back.before, back.after) == (done.after, done.before)


async def test_repricing_depends_on_tier_and_audio_as_the_first_pricing_did(store: Database) -> None:
    await ProjectStore(store).make_default()
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 10**6,
    }
    audio = {"gen_ai.request.model": "gpt-realtime", "gen_ai.usage.details.input_audio_tokens": 10**5}
    await store_of(store).write(
        rows(
            one(1, attributes={**call, "openai.response.service_tier": "flex"}),
            one(2, attributes={**call, **audio}),
        )
    )
    await settled(store)
    done = await run(rework_of(store, "reprice"), apply=True)
    assert (done.changed_spans, done.before) == (0, done.after)
    assert done.before.cost == Decimal("0.625") + Decimal("3.6") + Decimal("3.2")


async def test_cubes_stay_exact_through_a_rework(store: Database) -> None:
    await told(store)
    cubes, later = CubeStore(store), NOW + timedelta(hours=3)
    await cubes.build(later, 100)
    await execute(store, FORGET[0], FORGET[1])
    clock = Clock()
    clock.now = later
    await run(rework_of(store, "remap", BOOK, clock), apply=True)
    dice = random.Random(0)
    for _ in range(3):
        await agree(store, None, None, dice)
    marked = await fetch(store, "select dataset from cube_dirty order by dataset")
    assert [row["dataset"] for row in marked] == ["spans", "tool_calls", "traces"]
    await cubes.build(later, 100)
    for _ in range(3):
        await agree(store, None, None, dice)


async def test_a_killed_run_goes_on_where_it_was(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rework_module, "STEP_TRACES", 2)
    await told(store)
    whole = await run(rework_of(store, "reprice", DEAR), apply=False)
    work = rework_of(store, "reprice", DEAR)
    progress = await work.resumed()
    for _ in range(3):
        progress = await work.apply(progress)
    with trio.move_on_after(0.001):
        # Cut off in the middle of a step: it is done or it is not.
        await work.apply(progress)
    taken_up = await rework_of(store, "reprice", DEAR).resumed()
    assert taken_up.traces in (6, 8)
    assert await run(rework_of(store, "reprice", DEAR), apply=True) == whole


async def test_other_prices_start_from_the_beginning(store: Database) -> None:
    await told(store)
    work = rework_of(store, "reprice", DEAR)
    await work.apply(await work.resumed())
    assert (await rework_of(store, "reprice", BOOK).resumed()).traces == 0


async def test_two_runs_at_once_are_one_too_many(store: Database) -> None:
    await told(store)
    work = rework_of(store, "reprice", DEAR)
    start = await work.resumed()
    await work.apply(start)
    with pytest.raises(AlreadyAtWork):
        await work.apply(start)


#: As if the frame of one span of each trace had aged out.
_WITHOUT_PAYLOAD: Final = "update span set frame = 0 where span_id = '\\x0000000000000002'"


async def test_a_span_whose_payload_has_aged_out_is_left_as_it_is(store: Database) -> None:
    await told(store, 2)
    await execute(store, FORGET[0], _WITHOUT_PAYLOAD)
    done = await run(rework_of(store, "remap"), apply=True)
    assert (done.without_payload, done.changed_spans) == (2, 4)
    kinds = await fetch(store, "select kind from span where trace_id = $1 order by span_id", b"\x00\x01" * 8)
    assert [row["kind"] for row in kinds] == ["agent", "step", "tool"]


async def test_spans_that_arrive_meanwhile_are_neither_lost_nor_counted_twice(store: Database) -> None:
    await told(store, 40)
    spans = store_of(store)

    async def write() -> None:
        for number in range(1, 60):
            await spans.write(rows(*story(number)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await run(rework_of(store, "reprice", DEAR), apply=True)
    await settled(store)
    await run(rework_of(store, "reprice", DEAR), apply=True)
    await run(rework_of(store, "reprice", BOOK), apply=True)
    ended = await everything(store)
    assert len(ended["span"]) == 59 * 3
    assert await run(rework_of(store, "remap"), apply=False) == await run(
        rework_of(store, "reprice"), apply=False
    )


async def test_nothing_stored_is_nothing_to_do(store: Database) -> None:
    await ProjectStore(store).make_default()
    done = await run(rework_of(store, "remap"), apply=True)
    assert (done.spans, done.before, done.finished) == (0, Totals(), True)


async def test_a_twin_in_a_trace_of_its_own_is_counted_once_for_good(store: Database) -> None:
    await ProjectStore(store).make_default()
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.id": "msg_1",
        "gen_ai.usage.input_tokens": 1000,
    }
    wrapper = one(1, trace_id=b"\x01" * 16, name="openai.chat", attributes=call, took_s=5)
    native = one(
        2, trace_id=b"\x02" * 16, name="POST", attributes=call, took_s=4, start=NOW + timedelta(seconds=1)
    )
    late = one(3, trace_id=b"\x02" * 16, name="later", start=NOW + timedelta(seconds=9))
    total = "select sum(input_tokens)::bigint as tokens, sum(total_cost) as cost from trace"
    spans = store_of(store)
    for group in ([wrapper, native], [late]):
        await spans.write(rows(*group))
        await settled(store)
        assert dict((await fetch(store, total))[0]) == {"tokens": 1000, "cost": Decimal("0.0025")}
    for kind in ("remap", "reprice"):
        done = await run(rework_of(store, kind), apply=True)  # type: ignore[arg-type]
        assert (done.before.tokens, done.after.tokens) == (1000, 1000)
    marks = await fetch(store, "select usage_repeats from span order by started_at")
    assert [row["usage_repeats"] for row in marks] == [None, "twin", None]
