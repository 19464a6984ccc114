"""The counts of a project equal its rows at every moment: whatever comes, goes, is folded or rolled back."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
import trio

from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.counts import FEW, fold
from svc.store.postgres.database import Connection, Database
from svc.store.reads.projects import ProjectReads
from svc.store.spans.sessions import move_sessions
from tests.store.spans.test_writing import NOW, PROJECT, Clock, one, rows, store_of


async def agree(store: Database) -> None:
    """What is kept is what is there."""
    project = await ProjectReads(store).one(PROJECT, NOW)
    assert project is not None
    counted = await store.fetch(
        "select (select count(*) from trace where project_id = $1) as traces,"
        " (select count(*) from session where project_id = $1) as sessions",
        PROJECT,
    )
    assert {name: project["counts"][name] for name in ("traces", "sessions")} == dict(counted[0])


async def kept(store: Database) -> int:
    found: Any = await store.fetch("select count(*) as n from project_count")
    return int(found[0]["n"])


def chat(number: int) -> Any:
    return one(1, trace_id=number.to_bytes(16, "big"), attributes={"session.id": f"s{number % 7}"})


@pytest.mark.parametrize("seed", range(3))
async def test_a_count_is_what_is_there_at_every_moment(store: Database, seed: int) -> None:
    await ProjectStore(store).make_default()
    dice = random.Random(seed)
    spans = store_of(store, Clock())

    async def go(connection: Connection, number: int) -> None:
        for table in ("trace", "span", "span_payload"):
            await connection.execute(
                f"delete from {table} where project_id = $1 and trace_id >= $2",
                PROJECT,
                number.to_bytes(16, "big"),
            )
        await move_sessions(connection, {}, [(PROJECT, f"s{n}") for n in range(7)])

    for _ in range(60):
        match dice.choice(["come", "come", "come", "go", "fail", "fold"]):
            case "come":
                some = {dice.randrange(1, 60) for _ in range(dice.randrange(1, 5))}
                await spans.write(rows(*map(chat, sorted(some)), project=dice.choice([PROJECT, 2])))
            case "go":
                number = dice.randrange(1, 60)
                await store.run(lambda connection, number=number: go(connection, number))  # type: ignore[misc]
            case "fail":

                async def fail(connection: Connection) -> None:
                    await go(connection, 1)
                    raise LookupError

                with pytest.raises(LookupError):
                    await store.run(fail)
            case _:
                await fold(store)
        await agree(store)


async def test_folding_keeps_the_sums_and_few_rows(store: Database) -> None:
    await ProjectStore(store).make_default()
    clock = Clock()
    spans = store_of(store, clock)
    for number in range(1, FEW + 10):
        clock.now += timedelta(seconds=1)
        await spans.write(rows(chat(number)))
    assert await kept(store) > FEW
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(fold, store)
        nursery.start_soon(spans.write, rows(chat(200)))
    await agree(store)
    assert await kept(store) < FEW
