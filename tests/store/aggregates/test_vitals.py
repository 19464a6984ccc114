"""Vitals from the hourly cubes say what counting the rows says, whatever is written and built between."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from svc.domain.calendar import hour_of
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.vitals import MOST_SUBJECTS, SOURCES, What
from svc.store.postgres.database import Database
from svc.store.reads.usage.vitals import NOTHING, VitalsReads, Window
from svc.store.spans.traces import PostgresTraceStore
from tests.store.reads.test_column_answers import HOUR
from tests.store.reads.test_reads import Explaining
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of


@pytest.fixture
async def clock(store: Database) -> Clock:
    assert (await ProjectStore(store).make_default()).id == 1
    clock = Clock()
    clock.now = NOW - timedelta(days=3)
    return clock


def call(number: int, dice: random.Random, clock: Clock, start: datetime | None = None) -> Any:
    """A span of one of a few traces, which began up to some hours ago, or then."""
    attributes = {
        "svc.call_site.id": f"site{dice.randrange(3)}",
        "gen_ai.operation.name": dice.choice(["chat", "execute_tool"]),
        "gen_ai.request.model": dice.choice(["gpt-4o", "unheard-of"]),
        "gen_ai.usage.input_tokens": dice.randrange(1000),
        # Some libraries name the span of a tool after it, others call all of them alike.
        **({"gen_ai.tool.name": f"n{number % 3}"} if number % 2 else {}),
    }
    return one(
        number, trace_id=bytes([1 + number % 40]) * 16, attributes=attributes, name=f"n{dice.randrange(3)}",
        start=start or clock.now - timedelta(minutes=dice.choice([1, 30, 200])), took_s=dice.random() * 9,
        status_code=dice.choice([0, 0, 2]),
    )  # fmt: skip


async def counted(store: Database, what: What, low: Any, high: Any) -> dict[str, tuple[Any, ...]]:
    """The same from the rows, one by one."""
    source = SOURCES[what]
    found: dict[str, list[Any]] = {}
    for row in await fetch(
        store,
        f"select {source.subject.replace('$1', '1')} as subject, status, total_cost::float8 as cost,"
        f" date_part('epoch', ended_at - started_at) * 1000 as ms from {source.dataset.table}"
        f" where {source.condition} and started_at >= $1 and started_at < $2",
        low,
        high,
    ):
        if row["subject"] is not None:
            found.setdefault(row["subject"], []).append(row)
    return {
        subject: (
            len(all_), sum(row["status"] == "error" for row in all_),
            pytest.approx(sum(row["cost"] or 0 for row in all_)),
            sum(row["cost"] is not None for row in all_),
            {bin_of(row["ms"], UNIT_MS) for row in all_ if row["ms"] is not None},
        )
        for subject, all_ in found.items()
    }  # fmt: skip


def told(window: Window) -> tuple[Any, ...]:
    return (window.n, window.failed, window.cost or 0, window.priced)


async def agree(store: Database, clock: Clock, what: What, hours: int, *, aligned: bool) -> None:
    end = clock.now
    middle = end - timedelta(hours=hours)
    middle = hour_of(middle) if aligned else middle
    start = middle - timedelta(hours=hours)
    vitals = await VitalsReads(store).of(1, what, start, middle, end, 9)
    for low, high, of in ((middle, end, "now"), (start, middle, "before")):
        expected = await counted(store, what, low, high)
        assert {vital.subject for vital in vitals if getattr(vital, of) != NOTHING} == set(expected)
        for vital in vitals:
            window: Window = getattr(vital, of)
            if vital.subject not in expected:
                assert window == NOTHING
                continue
            assert told(window) == expected[vital.subject][:4]
            bins = expected[vital.subject][4]
            if window.p95_ms is not None:
                assert bin_of(window.p95_ms * 1.0001, UNIT_MS) + 1 >= min(bins)
                assert bin_of(window.p95_ms * 0.9999, UNIT_MS) <= max(bins)


async def test_tools_are_told_apart_by_what_they_are_called_and_not_by_their_spans(
    store: Database, clock: Clock
) -> None:
    tools = ("find", "find", "refund", None)
    spans = [
        one(number, name="ai.toolCall", attributes={"gen_ai.operation.name": "execute_tool"} | (
            {"gen_ai.tool.name": tool} if tool else {}), start=clock.now)
        for number, tool in enumerate(tools, 1)
    ]  # fmt: skip
    await store_of(store, clock).write(rows(*spans))
    end = clock.now + timedelta(minutes=1)
    vitals = await VitalsReads(store).of(1, "tools", end - 2 * HOUR, end - HOUR, end, 9)
    assert {vital.subject: vital.now.n for vital in vitals} == {"find": 2, "refund": 1, "ai.toolCall": 1}


class Walk:
    """Calls that are written, sent again, waited for and built, as the dice say."""

    def __init__(self, store: Database, clock: Clock, dice: random.Random) -> None:
        self.store, self.clock, self.dice = store, clock, dice
        self.spans, self.cubes, self.traces = (
            store_of(store, clock),
            CubeStore(store),
            PostgresTraceStore(store),
        )
        self.number = 0

    async def step(self, *more: str) -> None:
        """One thing that may happen; `more` are others besides."""
        dice, clock = self.dice, self.clock
        action = dice.choice(["write", "write", "resend", *more, "wait", "build", "build one"])
        if action == "write":
            count = dice.randrange(1, 8)
            calls = rows(*(call(self.number + n + 1, dice, clock) for n in range(count)))
            for made in calls[::2]:
                # As if its trace had settled.
                made.row.attributes += ("agent_path", f"agent {dice.randrange(3)}")
            await self.spans.write(calls)
            self.number += count
        elif action == "resend" and self.number:
            again = 1 + dice.randrange(self.number)
            (row,) = await fetch(
                self.store, "select started_at from span where span_id = $1", again.to_bytes(8, "big")
            )
            await self.spans.write(rows(call(again, dice, clock, row["started_at"])))
        elif action == "settle":
            await self.traces.settle(clock.now + timedelta(seconds=11), 100)
        elif action == "wait":
            clock.now += timedelta(minutes=dice.choice([dice.randrange(5, 90), dice.randrange(300, 900)]))
        else:
            await self.cubes.build(clock.now, 100 if action == "build" else 1)


@pytest.mark.parametrize("seed", range(2))
async def test_vitals_agree_with_the_rows_at_every_moment(store: Database, clock: Clock, seed: int) -> None:
    dice = random.Random(seed)
    walk = Walk(store, clock, dice)
    for _ in range(36):
        await walk.step("settle")
        what: What = dice.choice(["sites", "agents", "models", "tools"])
        await agree(store, clock, what, dice.choice([1, 6, 24]), aligned=dice.random() < 0.8)


async def test_what_a_repricing_changes_is_counted_again(store: Database, clock: Clock) -> None:
    spans, cubes, traces = store_of(store, clock), CubeStore(store), PostgresTraceStore(store)
    dice = random.Random(3)
    await spans.write(rows(*(call(n + 1, dice, clock) for n in range(20))))
    clock.now += timedelta(hours=3)
    await cubes.build(clock.now, 100)
    await spans.write(rows(call(41, dice, clock)))
    await settle_at(clock.now + timedelta(seconds=11), traces)
    marked = await fetch(store, "select dataset from cube_dirty where dataset = 'traces'")
    assert len(marked) == 1
    for _ in range(2):
        await agree(store, clock, "sites", 24, aligned=True)
        await cubes.build(clock.now, 100)
    assert await fetch(store, "select 1 from cube_dirty") == []


async def test_an_hour_of_names_that_never_come_again_keeps_the_busiest(
    store: Database, clock: Clock
) -> None:
    hour = hour_of(clock.now)
    await fetch(
        store,
        "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, ended_at,"
        " created_at, call_site_id, tagged, frame)"
        " select 1, decode(lpad(to_hex(n), 32, '0'), 'hex'), '\\x01', 'tool',"
        " case when n < 100 then 'often' else 'n' || n end, 'ok', $1, $1, $1, 's', true, n"
        " from generate_series(1, 1500) n",
        hour,
    )
    await CubeStore(store).build(hour + timedelta(hours=3), 100)
    kept = await fetch(store, "select subject, n, bins from vital_cube where what = 'tools' order by n desc")
    assert len(kept) == MOST_SUBJECTS
    assert tuple(kept[0].values()) == ("often", 99, [0])


async def test_two_weeks_are_read_by_the_hour(store: Database, clock: Clock) -> None:
    until = hour_of(clock.now)
    await fetch(
        store,
        "insert into vital_cube select 1 + n % 2, 'sites', $1::timestamptz - n * interval '1 hour',"
        " $1::timestamptz - n * interval '1 hour', 's' || m, 5, 1, 0.5, 5, '{10, 20}', '{2, 3}'"
        " from generate_series(1, 1500) n, generate_series(1, 10) m",
        until,
    )
    await fetch(store, "insert into cube_progress values (1, 'traces', $1)", until)
    await fetch(store, "analyze vital_cube")
    explaining: Any = Explaining(store)
    middle = until - timedelta(days=1)
    vitals = await VitalsReads(explaining).of(1, "sites", middle - timedelta(days=1), middle, until, 9)
    assert [(vital.subject, vital.now.n, vital.before.failed) for vital in vitals][:2] == [
        ("s1", 60, 12), ("s10", 60, 12),
    ]  # fmt: skip
    (plan,) = [plan for plan in explaining.plans if "vital_cube" in plan]
    assert "vital_cube_began" in plan
    assert "Seq Scan on vital_cube" not in plan
