"""A trace is found by any part of its id, whatever is packed by then, and only little is read for it."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any

import pytest

from protocol.storage import Freed
from svc.domain.calendar import hour_of
from svc.domain.retention.terms import Terms
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates import trace_ids as packed_ids
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Database
from svc.store.reads.traces import trace_ids, trace_search
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.retention.sweep import RetentionStore
from svc.store.spans.traces import PostgresTraceStore
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

HOUR = timedelta(hours=1)


@pytest.fixture
async def clock(store: Database, monkeypatch: pytest.MonkeyPatch) -> Clock:
    assert (await ProjectStore(store).make_default()).id == 1
    monkeypatch.setattr(trace_search, "NEAR", 0)
    monkeypatch.setattr(packed_ids, "BLOCK_IDS", 3)
    monkeypatch.setattr(trace_ids, "_BLOCKS", (1, 2))
    clock = Clock()
    clock.now = NOW - timedelta(hours=10)
    return clock


def id_of(number: int) -> bytes:
    """Ids that share many of their parts; some are of sixty-four bits, filled up with zeros."""
    said = "".join(random.Random(number).choices("01f", k=32))
    return bytes.fromhex(said if number % 4 else f"{said[:16]:0>32}")


def step(number: int, dice: random.Random) -> Any:
    return one(
        number,
        trace_id=id_of(number // 2),
        name="walk",
        attributes={"gen_ai.operation.name": dice.choice(["chat", "execute_tool"])},
        status_code=2 if dice.random() < 0.2 else 0,
        start=NOW - timedelta(minutes=dice.randrange(5_000)),
    )


async def all_pages(store: Database, limit: int, **asked: Any) -> list[str]:
    reads, cursor = TraceReads(store, SpanReads(store)), None
    found: list[str] = []
    while True:
        page = await reads.page(1, TraceFilter(**asked), limit=limit, cursor=cursor)
        found += [trace["trace_id"] for trace in page["traces"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def agree(store: Database, dice: random.Random, number: int) -> int:
    """Pages of traces with a part of an id hold what asking every row answers; how many there were."""
    if number and dice.random() < 0.9:
        begin = dice.randrange(28)
        part = id_of(dice.randrange(number) // 2).hex()[begin : begin + dice.choice([5, 6, 7, 9, 16, 31])]
    else:
        part = "".join(dice.choices("01f", k=6))
    asked: dict[str, Any] = {
        "kind": dice.choice(["llm", "tool", None, None, None]),
        "status": dice.choice(["error", "ok", None, None]),
        "low": NOW - timedelta(minutes=dice.randrange(5_000)) if dice.random() < 0.3 else None,
        "high": NOW - timedelta(minutes=dice.randrange(5_000)) if dice.random() < 0.3 else None,
    }
    expected = [
        row["trace_id"].hex()
        for row in await fetch(
            store,
            "select trace_id from trace t where project_id = 1 and encode(trace_id, 'hex') like $1"
            " and ($2::text is null or exists (select from span s where s.project_id = 1"
            " and s.trace_id = t.trace_id and kind = $2)) and ($3::text is null or status = $3)"
            " and ($4::timestamptz is null or started_at >= $4)"
            " and ($5::timestamptz is null or started_at <= $5) order by started_at desc, trace_id desc",
            f"%{part}%",
            *asked.values(),
        )
    ]
    q = dice.choice([part, part.upper()])
    assert await all_pages(store, dice.choice([1, 2, 50]), q=q, **asked) == expected, (q, asked)
    return len(expected)


async def unpack(store: Database, hours: str, *values: Any) -> None:
    """Leave these hours as a release built them that had neither blocks of ids nor groups of traces."""
    await fetch(store, f"delete from trace_id_block where {hours}", *values)
    await fetch(store, f"delete from trace_group where {hours}", *values)
    await fetch(store, f"update trace_cube set held = null where {hours}", *values)


@pytest.mark.parametrize("seed", range(2))
async def test_parts_of_ids_agree_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    spans, cubes, roller = store_of(store, clock), CubeStore(store), PostgresTraceStore(store)
    number = found = 0
    freed: list[Freed] = []
    seldom = ("earlier", "start", "expire")
    for _ in range(36):
        action = dice.choice(["write", "write", "resend", "wait", "settle", "build", "one", *seldom])
        if action == "write":
            count = dice.randrange(1, 12)
            await spans.write(rows(*(step(number + n, dice) for n in range(1, count + 1))))
            number += count
        elif action == "resend" and number:
            await spans.write(rows(step(1 + dice.randrange(number), dice)))
        elif action == "wait":
            clock.now += timedelta(minutes=dice.randrange(5, 90))
        elif action in ("settle", "expire"):
            await settle_at(clock.now + timedelta(seconds=11), roller)
        if action == "expire":
            await RetentionStore(store, Terms(dice.randrange(1, 3), 0)).sweep(clock.now, freed.append)
        elif action == "earlier":
            await unpack(store, "date_part('hour', hour)::integer % 3 = $1", dice.randrange(3))
        elif action == "start":
            cubes = CubeStore(store)
        elif action in ("build", "one"):
            await cubes.build(clock.now, 100 if action == "build" else 1)
        monkeypatch.setattr(trace_ids, "_MOST_HOURS", dice.choice([0, 24, 24, 24]))
        for _ in range(4):
            found += await agree(store, dice, number)
    assert found > 20
    assert any(step.table == "trace" for step in freed)


async def written(store: Database, clock: Clock, hours: int, each: int) -> list[str]:
    """Traces of some hours, which are built, in the order in which they began."""
    writing, ids = store_of(store, clock), []
    for hour in range(hours):
        for number in range(hour * each, (hour + 1) * each):
            ids.append((number << 64 | 0xABCDE).to_bytes(16, "big"))
            start = NOW - timedelta(days=1) + timedelta(minutes=number)
            await writing.write(rows(one(number + 1, trace_id=ids[-1], name="walk", start=start)))
        clock.now += HOUR
    clock.now += HOUR
    while (await CubeStore(store).build(clock.now, 100)).more:
        pass
    return [each.hex() for each in ids]


async def test_of_a_part_that_every_id_has_only_the_newest_blocks_are_read(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await written(store, clock, hours=5, each=6)
    read: list[datetime] = []
    blocks = trace_ids.ids_in_blocks

    async def watched(*about: Any) -> AsyncGenerator[tuple[datetime, set[bytes]], None]:
        async for last, some in blocks(*about):
            read.append(last)
            yield last, some

    monkeypatch.setattr(trace_search, "ids_in_blocks", watched)
    reads = TraceReads(store, SpanReads(store))
    page = await reads.page(1, TraceFilter(q="abcde"), limit=4, cursor=None)
    assert [trace["trace_id"] for trace in page["traces"]] == ids[:-5:-1]
    assert len(read) < 5
    first = len(read)
    # Nor does the page behind it begin with the newest again.
    after = await reads.page(1, TraceFilter(q="abcde"), limit=16, cursor=page["next_cursor"])
    assert [trace["trace_id"] for trace in after["traces"]] == ids[-5:-21:-1]
    assert max(read[first:]) <= read[1]
    # What stands in no id is told by the blocks alone.
    read.clear()
    assert await all_pages(store, 50, q="fedcba98") == []
    assert read == []


async def test_hours_of_a_release_that_packed_no_ids_are_walked_and_made_up_for(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await written(store, clock, hours=5, each=4)
    packed = "select hour, place, encode(ids, 'hex'), encode(pieces, 'hex') from trace_id_block order by 1, 2"
    built = [tuple(row.values()) for row in await fetch(store, packed)]
    assert len(built) == 10
    await unpack(store, "hour < $1", hour_of(clock.now) - 4 * HOUR)
    for most in (0, 24):
        monkeypatch.setattr(trace_ids, "_MOST_HOURS", most)
        assert await all_pages(store, 50, q="abcde") == ids[::-1]
        assert await all_pages(store, 50, q=ids[1][:17]) == [ids[1]]
    # A few at a time; what a builder has made up for it does not look for again.
    cubes = CubeStore(store)
    await cubes.build(clock.now, 1)
    assert len(await fetch(store, packed)) < len(built)
    while (await cubes.build(clock.now, 1)).more:
        pass
    assert [tuple(row.values()) for row in await fetch(store, packed)] == built
    assert (await cubes.build(clock.now, 100)).hours == 0


async def test_a_trace_that_expired_stands_in_no_block_once_its_hour_is_built(
    store: Database, clock: Clock
) -> None:
    ids = await written(store, clock, hours=2, each=3)
    roller = PostgresTraceStore(store)
    await settle_at(clock.now + timedelta(minutes=1), roller)
    clock.now += timedelta(days=40)
    await RetentionStore(store, Terms(30, 0)).sweep(clock.now, lambda _: None)
    assert await fetch(store, "select from trace") == []
    assert len(await fetch(store, "select from trace_id_block")) == 2
    assert await all_pages(store, 50, q=ids[0][10:20]) == []
    await CubeStore(store).build(clock.now, 100)
    assert await fetch(store, "select from trace_id_block") == []
