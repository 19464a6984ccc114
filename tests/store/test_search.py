"""Searches for texts and rare values find what reading every row would find, whatever is indexed by then."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.calendar import hour_of
from svc.store import search, search_blocks
from svc.store.cubes import CubeStore
from svc.store.database import Connection, Database
from svc.store.projects import ProjectStore
from svc.store.query import QueryStore
from svc.store.search_blocks import grams_of, hashed
from svc.store.span_reads import SpanFilter, SpanReads
from svc.store.trace_reads import TraceFilter, TraceReads
from svc.store.traces import TraceStore
from tests.store.test_query import question
from tests.store.test_spans import NOW, Clock, fetch, one, rows, store_of

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
    )


async def agree(store: Database, dice: random.Random) -> None:
    """Both searches, page by page, answer what asking every row answers."""
    q = dice.choice(ASKED)
    like = q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    expected = [
        row["span_id"].hex()
        for row in await fetch(
            store,
            "select span_id from span where project_id = 1 and"
            " (name ilike $1 or input_preview ilike $1 or output_preview ilike $1)"
            " order by created_at desc, trace_id desc, span_id desc",
            f"%{like}%",
        )
    ]
    limit = dice.choice([1, 3, 50])
    cursor: str | None = None
    if q.strip():
        found: list[str] = []
        while True:
            page = await QueryStore(store).search(question(), q, None, limit, cursor)
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
    limit = dice.choice([1, 2, 50])
    found: list[str] = []
    read: list[str] = []
    cursor = None
    while True:
        rows = await QueryStore(store).search(question(**within), None, None, limit, cursor)
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


@pytest.mark.parametrize("seed", range(3))
async def test_a_search_agrees_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_blocks, "BLOCK_ROWS", 3)
    monkeypatch.setattr(search_blocks, "MOST_GRAMS", 30)
    monkeypatch.setattr(search, "_FIRST_STRETCHES", 2)
    monkeypatch.setattr(search, "_FEW_BLOCKS", 3)
    monkeypatch.setattr(search, "_NEWEST", 3)
    dice = random.Random(seed)
    spans, cubes = store_of(store, clock), CubeStore(store)
    number = 0
    for _ in range(40):
        action = dice.choice(["write", "write", "resend", "wait", "build", "build one"])
        if action == "write":
            count = dice.randrange(1, 8)
            await spans.write(rows(*(chat(number + n + 1, dice) for n in range(count))))
            number += count
        elif action == "resend" and number:
            await spans.write(rows(chat(dice.randrange(number) + 1, dice, dice.choice([0.5, 2.0, 3.0]))))
        elif action == "wait":
            clock.now += timedelta(minutes=dice.randrange(5, 90))
        else:
            await cubes.build(clock.now, 1 if action == "build one" else 100)
        for _ in range(3):
            await agree(store, dice)
            await agree_on_values(store, dice)


def step_of_a_trace(number: int, trace: int, dice: random.Random, took_s: float = 1.0) -> Any:
    """A span of one of a few traces, with a model that has a name of its own, one of another's, or none."""
    attributes = {"gen_ai.operation.name": dice.choice(["chat", "execute_tool"])}
    model = dice.choice(["gpt-4o", "gpt-4o-2024-08-06", "unheard-of", None])
    if model is not None:
        attributes["gen_ai.request.model"] = model
    return one(
        number,
        trace_id=bytes([1 + trace]) * 16,
        attributes=attributes,
        start=NOW - timedelta(minutes=dice.randrange(10_000)),
        took_s=took_s,
    )


async def agree_on_traces(store: Database, dice: random.Random) -> None:
    """Pages of traces that hold a span of a model or a kind hold what asking every row answers."""
    model = dice.choice(["gpt-4o", "gpt-4o-2024-08-06", "unheard-of", "nobody's", None])
    kind = dice.choice(["llm", "tool", "agent", None, None])
    low = NOW - timedelta(minutes=dice.randrange(10_000)) if dice.random() < 0.3 else None
    holds = "exists (select from span s where s.project_id = 1 and s.trace_id = t.trace_id and"
    expected = [
        row["trace_id"].hex()
        for row in await fetch(
            store,
            "select trace_id from trace t where project_id = 1"
            f" and ($1::text is null or {holds} (model_id = $1 or provided_model_name = $1)))"
            f" and ($2::text is null or {holds} kind = $2))"
            " and ($3::timestamptz is null or started_at >= $3)"
            " order by started_at desc, trace_id desc",
            model,
            kind,
            low,
        )
    ]
    asked, limit = TraceFilter(model=model, kind=kind, low=low), dice.choice([1, 2, 50])
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


@pytest.mark.parametrize("seed", range(3))
async def test_traces_of_a_value_agree_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    spans, cubes, roller = store_of(store, clock), CubeStore(store), TraceStore(store)
    traces: list[int] = []
    for _ in range(40):
        action = dice.choice(["write", "write", "resend", "wait", "build", "build one", "settle"])
        if action == "write":
            known = len(traces)
            traces += [dice.randrange(40) for _ in range(dice.randrange(1, 8))]
            new = range(known, len(traces))
            await spans.write(rows(*(step_of_a_trace(n + 1, traces[n], dice) for n in new)))
        elif action == "resend" and traces:
            n = dice.randrange(len(traces))
            again = step_of_a_trace(n + 1, traces[n], dice, dice.choice([0.5, 2.0, 3.0]))
            await spans.write(rows(again))
        elif action == "wait":
            clock.now += timedelta(minutes=dice.randrange(5, 90))
        elif action == "settle":
            await roller.settle(clock.now + timedelta(seconds=11), 10)
        else:
            await cubes.build(clock.now, 1 if action == "build one" else 100)
        for _ in range(4):
            monkeypatch.setattr(search, "RARE", dice.choice([0, 3, 20, 5_000]))
            await agree_on_traces(store, dice)


async def test_a_rare_value_names_its_traces_and_a_common_one_does_not(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = store_of(store, clock)
    number = 0
    for model, count in (("rare", 1), ("common", 9), ("common", 9), ("common", 9), ("now and then", 3)):
        for _ in range(count):
            number += 1
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
            await writing.write(rows(one(number, trace_id=bytes([number]) * 16, attributes=attributes)))
        clock.now += timedelta(hours=1)
    await CubeStore(store).build(clock.now + timedelta(hours=1), 10)
    await writing.write(rows(one(90, trace_id=bytes([90]) * 16, attributes={"gen_ai.request.model": "rare"})))

    async def asked(model: str, wanted: int = 1) -> set[int] | None:
        async def work(connection: Connection) -> list[bytes] | None:
            return await search.rare_traces(connection, 1, ("provided_model_name",), model, wanted)

        found = await store.run(work, snapshot=True)
        return None if found is None else {trace_id[0] for trace_id in found}

    assert await asked("rare") == {1, 90}
    assert await asked("unheard-of") == set()
    # Its newest hour alone would fill the page, and there are others to look into.
    assert await asked("common") is None
    assert await asked("common", 50) == set(range(2, 29))
    monkeypatch.setattr(search, "RARE", 1)
    assert await asked("common", 50) is None
    # One is in the cubes and one beside them: more than a few after all.
    assert await asked("rare") is None


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
        found = await search.stretches(connection, 1, "needle", hour, hour + timedelta(hours=1))
        assert found is not None
        looked.append([stretch for stretch in found.near if stretch.first != search._BEGINNING])

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

    async def work(connection: Connection) -> tuple[search.Found | None, ...]:
        low, high = hour_of(clock.now), hour_of(clock.now) + timedelta(hours=1)
        return (
            await search.stretches(connection, 1, "needle in a haystack", low, high),
            await search.stretches(connection, 1, "step", low, high),
            await search.stretches(connection, 2, "step", low, high),
            await search.stretches(connection, 1, "ab cd", low, high),
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
    page = await QueryStore(store).search(question(), "step", None, 10, None)
    assert len(page["rows"]) == 1


TEXT = st.text(st.sampled_from("aAbB cC\t\n%_ßİ配"), max_size=30)


@given(TEXT, TEXT, TEXT)
def test_a_text_around_a_question_has_all_its_pieces(before: str, q: str, after: str) -> None:
    assert grams_of([q]) <= grams_of(["other", before + q + after])


@given(st.sets(st.text(min_size=3, max_size=3)), st.integers(1, 2**62))
def test_pieces_are_stored_as_integers_of_postgresql(grams: set[str], project_id: int) -> None:
    assert all(-(2**31) <= number < 2**31 for number in hashed(project_id, grams))


async def test_blocks_are_found_by_their_pieces_and_not_read_through(store: Database) -> None:
    async def work(connection: Connection) -> str:
        await connection.execute(
            "insert into search_block select 1, $1::timestamptz + n * interval '1 hour', $1, $1,"
            " (select array_agg((n * 7919 + k * 104729) % 1000003) from generate_series(1, 100) k)"
            " from generate_series(1, 3000) n",
            NOW,
        )
        await connection.execute("analyze search_block")
        await connection.execute("set local enable_seqscan = off")
        asked = (1, NOW, NOW + timedelta(days=30), [], [1, 2, 3])
        plan = await connection.fetch(f"explain {search.BLOCKS}", *asked, NOW + timedelta(days=30))
        newest = await connection.fetch(f"explain {search.NEWEST_BLOCKS}", *asked, 16)
        return "\n".join(row[0] for row in (*plan, *newest))

    plan = await store.run(work)
    assert "Bitmap Index Scan on search_block_grams" in plan
    assert "search_block_blind" in plan
    assert "Index Scan Backward using search_block_hour" in plan
    assert "Seq Scan" not in plan
