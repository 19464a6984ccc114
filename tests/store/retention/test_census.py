"""The census: an id that is made once, and counts with a bound."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
import trio

from protocol.storage import Census
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.retention import census as module
from svc.store.retention.census import CensusStore
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of


async def test_the_install_id_is_made_once_whoever_asks(store: Database) -> None:
    found: list[Census] = []

    async def take() -> None:
        found.append(await CensusStore(store).take(NOW))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(take)
    assert len({census.install_id for census in found}) == 1
    assert UUID(found[0].install_id).version == 4


async def test_it_counts_living_projects_and_the_traces_of_the_last_day(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ProjectStore(store).make_default()
    clock = Clock()
    writer = store_of(store, clock)
    for number, hours in enumerate((1, 2, 30), 1):
        clock.now = NOW - timedelta(hours=hours)
        await writer.write(rows(one(1, trace_id=bytes([number]) * 16)))
    census = await CensusStore(store).take(NOW)
    assert (census.orgs, census.projects, census.traces_last_day) == (1, 1, 2)
    monkeypatch.setattr(module, "TRACES_COUNTED", 1)
    assert (await CensusStore(store).take(NOW)).traces_last_day == 1
    await fetch(store, "update project set deleted_at = now()")
    assert (await CensusStore(store).take(NOW)).projects == 0
