"""Metric roll-ups: each closed hour and day once, the same after a crash, zero rows nowhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio

from protocol.storage import Outage
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.rollups import RollupStore, note_evals
from svc.store.postgres.database import Connection, Database
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of


async def filled(store: Database) -> int:
    """Three hours of traces (one span, then two, then none, then one) and some evaluations."""
    project = await ProjectStore(store).make_default()
    clock = Clock()
    writer = store_of(store, clock)
    for hour, spans in ((0, 1), (1, 2), (3, 1), (20, 3)):
        clock.now = NOW + timedelta(hours=hour, minutes=5)
        trace = bytes([hour + 1]) * 16
        made = [one(n + 1, parent=min(n, 1), trace_id=trace, start=clock.now) for n in range(spans)]
        await writer.write(rows(*made, project=project.id))

    async def work(connection: Connection) -> None:
        for _ in range(2):
            await note_evals(connection, project.id, {"groundedness": 5}, NOW + timedelta(minutes=59))

    await store.run(work)
    return project.id


async def rollups(store: Database, granularity: str) -> dict[tuple[str, int], int]:
    found = await fetch(
        store, "select metric, bucket_start, value from metric_rollup where granularity = $1", granularity
    )
    day = NOW.replace(hour=0)
    return {
        (row["metric"], int((row["bucket_start"] - day).total_seconds() // 3600)): int(row["value"])
        for row in found
    }


HOURS = {
    ("ingested_spans", 12): 1, ("ingested_traces", 12): 1, ("l1_evals", 12): 10,
    ("ingested_spans", 13): 2, ("ingested_traces", 13): 1, ("l1_evals", 13): 0,
    ("ingested_spans", 15): 1, ("ingested_traces", 15): 1, ("l1_evals", 15): 0,
    ("ingested_spans", 32): 3, ("ingested_traces", 32): 1, ("l1_evals", 32): 0,
}  # fmt: skip
DAYS = {("ingested_spans", 0): 4, ("ingested_traces", 0): 3, ("l1_evals", 0): 10}


@pytest.mark.parametrize("cubes_first", [False, True])
async def test_closed_hours_and_days_are_rolled_up(store: Database, cubes_first: bool) -> None:
    await filled(store)
    at = NOW + timedelta(hours=22)
    if cubes_first:
        await CubeStore(store).build(at, 100)
    built = await RollupStore(store).build(at, 100)
    assert (built.hours, built.more) == (4, False)
    assert await rollups(store, "hour") == HOURS
    assert await rollups(store, "day") == DAYS


async def test_an_open_hour_and_an_open_day_are_not_rolled_up(store: Database) -> None:
    await filled(store)
    builder = RollupStore(store)
    await builder.build(NOW + timedelta(hours=1, minutes=1), 100)
    assert await rollups(store, "hour") == {}
    await builder.build(NOW + timedelta(hours=1, minutes=2), 100)
    assert await rollups(store, "hour") == {key: n for key, n in HOURS.items() if key[1] == 12}
    await builder.build(NOW + timedelta(hours=11, minutes=59), 100)
    assert await rollups(store, "day") == {}
    await builder.build(NOW + timedelta(hours=12, minutes=2), 100)
    assert await rollups(store, "day") == DAYS


async def test_rolling_up_again_changes_nothing(store: Database) -> None:
    await filled(store)
    builder, at = RollupStore(store), NOW + timedelta(hours=22)
    await builder.build(at, 100)
    # As after a crash that lost the progress, and with two replicas at work.
    await store.run(lambda connection: connection.execute("delete from metric_rollup_progress"))
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(builder.build, at, 100)
    assert await rollups(store, "hour") == HOURS
    assert await rollups(store, "day") == DAYS
    assert (await builder.build(at, 100)).hours == 0


async def test_a_crash_between_hours_goes_on_where_it_stopped(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store)
    builder, at, times = RollupStore(store), NOW + timedelta(hours=22), 0
    run = store.run

    async def crashing(*arguments: Any, **options: Any) -> Any:
        nonlocal times
        times += 1
        if times % 3 == 0:
            raise Outage("gone")
        return await run(*arguments, **options)

    monkeypatch.setattr(store, "run", crashing)
    for _ in range(20):
        try:
            if not (await builder.build(at, 1)).more:
                break
        except Outage:
            continue
    monkeypatch.undo()
    await builder.build(at, 100)
    assert await rollups(store, "hour") == HOURS
    assert await rollups(store, "day") == DAYS
