"""What a filter of duration, cost, user or session leaves of groups of traces, it leaves of their rows."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from protocol.database_address import Address
from svc.domain.calendar import hour_of
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates import trace_codes, trace_values
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Database
from svc.store.postgres.migrate import migrate
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from tests.debian_postgres import DebianPostgres
from tests.store.aggregates.test_vitals import NOW, clock
from tests.store.reads.test_reads import Explaining
from tests.store.spans.test_writing import Clock, fetch

__all__ = ["clock"]

#: Texts whose order depends on how it is asked for.
_SAID = ("a", "A", "b", "ä", "ab", "a-b", "zz", "'", "")


async def fill(store: Database, clock: Clock, dice: random.Random, many: int, wide: int) -> None:
    """Traces of a few hours: some have not ended, some have no price, many say what others say."""

    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.15 else value

    start = hour_of(clock.now)
    rows = [
        (
            number.to_bytes(16, "big"),
            start + timedelta(hours=3 * number / many),
            maybe(timedelta(microseconds=dice.randrange(wide) * 1000)),
            maybe(Decimal(dice.randrange(wide)) / 1000),
            maybe(f"{dice.choice(_SAID)}{dice.randrange(wide) % 9}"),
            maybe(f"{dice.choice(_SAID)}{dice.randrange(wide)}"),
        )
        for number in range(many)
    ]
    await fetch(
        store,
        "insert into trace (project_id, trace_id, name, started_at, ended_at, first_started_at,"
        " last_started_at, root_seen, session_id, user_id, span_count, error_count, status, total_cost,"
        " unpriced_spans, created_at, stale, due_at, call_site_id) select 1, id, 'n', at, at + took, at, at,"
        " true, session, who, 1, 0, 'ok', cost, 0, at, false, at, 'here' from unnest($1::bytea[],"
        " $2::timestamptz[], $3::interval[], $4::numeric[], $5::text[], $6::text[])"
        " as one (id, at, took, cost, who, session)",
        *(list(column) for column in zip(*rows, strict=True)),
    )
    clock.now += timedelta(hours=5)


def some_filter(dice: random.Random) -> tuple[dict[str, Any], str]:
    """A filter, and what it says of each trace by itself."""
    took_us = dice.choice([-1, 0, 1000, 7001, 39_000, 5_000_000, 9_999_000, 10**14])
    took, spelled = timedelta(microseconds=took_us), f"interval '{took_us} microseconds'"
    cost = dice.choice([Decimal(0), Decimal("0.002"), Decimal("0.0205"), Decimal("4.5"), Decimal("1e30")])
    who, session = (f"{dice.choice(_SAID)}{dice.randrange(40)}" for _ in range(2))
    every: tuple[tuple[dict[str, Any], str], ...] = (
        ({"slower_than": took}, f"ended_at - started_at >= {spelled}"),
        ({"faster_than": took}, f"ended_at - started_at <= {spelled}"),
        ({"dearer_than": cost}, f"total_cost >= {cost:f}"),
        ({"cheaper_than": cost}, f"total_cost <= {cost:f}"),
        ({"user_id": who}, f"user_id = {quoted(who)}"),
        ({"without": (("user_id", who),)}, f"user_id is distinct from {quoted(who)}"),
        ({"without": (("session_id", session),)}, f"session_id is distinct from {quoted(session)}"),
    )  # fmt: skip
    asked: dict[str, Any] = {}
    clauses = ["true"]
    for of, clause in dice.sample(every, dice.choice([1, 1, 2, 3])):
        if not asked.keys() & of.keys():
            asked |= of
            clauses.append(clause)
    return asked, " and ".join(clauses)


def quoted(text: str) -> str:
    """A text as SQL says it."""
    return "'" + text.replace("'", "''") + "'"


async def agree(store: Any, asked: dict[str, Any], clause: str) -> int:
    """The drawing says what each trace says for itself. Returns how many there are."""
    ((expected,),) = [
        row.values() for row in await fetch(store, f"select count(*) from trace where {clause}")
    ]
    drawn = await TraceCounts(store).histogram(
        1, TraceFilter(**asked), timedelta(hours=1), timeout_s=9, budget_s=9
    )
    assert drawn.count == expected, (asked, clause)
    return drawn.count


@pytest.mark.parametrize("seed", range(3))
async def test_codes_tell_what_the_rows_tell(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    # Of a few traces, over the edge of what is packed at once, and as many as there may be.
    monkeypatch.setattr(trace_values, "MOST_TRACES", (7, 130, 4096)[seed])
    monkeypatch.setattr(trace_codes, "MOST_BESIDE", (1, 20, 256)[seed])
    monkeypatch.setattr(trace_codes, "PAGE_VALUES", (2, 3, 64)[seed])
    await fill(store, clock, dice, (60, 700, 13_500)[seed], (40, 300, 10_000)[seed])
    await CubeStore(store).build(clock.now, 100)
    assert await fetch(store, "select from trace_code_page limit 1")
    found = 0
    for _ in range(50):
        found += await agree(store, *some_filter(dice)) > 0
    assert found > 10


async def test_an_older_postgresql_tells_the_same(asyncio_loop: None, postgres: DebianPostgres) -> None:
    address = Address("127.0.0.1", postgres.port, "owner", "secret of the test", "postgres")
    async with Database(address).opened() as store:
        await migrate(store)
        assert (await ProjectStore(store).make_default()).id == 1
        clock, dice = Clock(), random.Random(4)
        clock.now = NOW - timedelta(days=3)
        await fill(store, clock, dice, 700, 300)
        await CubeStore(store).build(clock.now, 100)
        for _ in range(20):
            asked, clause = some_filter(dice)
            counted = await agree(store, asked, clause)
            reads = TraceReads(store, SpanReads(store))
            page = await reads.page(1, TraceFilter(**asked), limit=50, cursor=None)
            assert len(page["traces"]) == min(counted, 50)


async def test_groups_of_a_release_before_are_read_row_by_row_until_they_have_codes(
    store: Database, clock: Clock
) -> None:
    dice = random.Random(4)
    await fill(store, clock, dice, 300, 40)
    await CubeStore(store).build(clock.now, 100)

    async def earlier() -> None:
        for table in ("trace_code", "trace_code_page"):
            await fetch(store, f"delete from {table}")
        await fetch(store, "update trace_group set coded = false")

    await earlier()
    for _ in range(6):
        await agree(store, *some_filter(dice))
    # What needs no codes is still told by the groups.
    explaining: Any = Explaining(store)
    await TraceCounts(explaining).histogram(
        1, TraceFilter(unpriced=True), timedelta(hours=1), timeout_s=9, budget_s=9
    )
    assert any("on trace_group" in plan and "never executed" not in plan for plan in explaining.plans)
    assert (await CubeStore(store).build(clock.now, 2)).more
    assert len(await fetch(store, "select distinct hour from trace_group where not coded")) == 1
    for _ in range(6):
        await agree(store, *some_filter(dice))
    assert not (await CubeStore(store).build(clock.now, 100)).more
    assert not await fetch(store, "select from trace_group where not coded")
    # And says the same as an hour that this release built.
    told = "select field, began, part, known::text, planes::text, numbers::text, texts::text from trace_code"
    made = {tuple(row.values()) for row in await fetch(store, told)}
    await fetch(store, "insert into cube_dirty select project_id, 'traces', hour, now() from trace_group")
    await CubeStore(store).build(clock.now, 100)
    assert {tuple(row.values()) for row in await fetch(store, told)} == made
    for _ in range(6):
        await agree(store, *some_filter(dice))
