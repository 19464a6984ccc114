"""Purging over a real database: everything of a deleted project, nothing of another, the audit stays."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import Any

import trio

from actors.purger import Purger
from actors.supervision import Vitals
from protocol.storage import Batch
from svc.domain.intake.batches import decoder
from svc.domain.pricing.prices import PriceBook
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.retention.purge import KEPT, PostgresPurgeStore
from svc.store.spans.call_sites import CallSites
from svc.store.spans.writing import SpanStore
from tests import wire
from tests.store.spans.test_writing import on_server


async def _fetch(store: Database, sql: str, *values: Any) -> list[Any]:
    async def work(connection: Connection) -> list[Any]:
        return [tuple(row.values()) for row in await connection.fetch(sql, *values)]

    return await store.run(work)


async def _filled(store: Database, project_id: int) -> None:
    """Spans today and long ago (the default partition), with payloads, tool calls and a key."""
    now = datetime.now(UTC)
    starts = [int(now.timestamp()) * 10**9, 10**18]
    body = wire.request(
        *(
            wire.span("execute_tool x", {"gen_ai.operation.name": "execute_tool"}, start_ns=at, end_ns=at + 1)
            for at in starts
        )
    ).SerializeToString()
    days = DayPartitions(store)
    await days.make_days(now)
    spans = SpanStore(store, days, CallSites(), on_server(lambda: now))
    await spans.write(list(chain.from_iterable(decoder(PriceBook())(Batch(project_id, body, 2, now, 0.0)))))
    await PostgresKeyStore(store).create(project_id, "k", "write", actor="tests")


class Purge(PostgresPurgeStore):
    """A store that says when a project is purged."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.over = trio.Event()

    async def purged(self, project_id: int) -> None:
        await super().purged(project_id)
        self.over.set()


async def test_a_deleted_project_leaves_nothing_but_its_audit(store: Database) -> None:
    projects = ProjectStore(store)
    gone = await projects.make_default()
    other = await projects.create((await projects.the_org()).id, "other", "Other", actor="tests")
    assert other is not None
    for project_id in (gone.id, other.id):
        await _filled(store, project_id)
    purge = Purge(store)
    tables = await purge.tables()
    assert not any(kept in table for table in tables for kept in KEPT)
    await projects.delete(gone.id, actor="tests")
    (deleted,) = await purge.deleted()
    # A day on, so that nothing can come late.
    later = deleted.deleted_at.replace(year=deleted.deleted_at.year + 1)
    purger = Purger(store=purge, now=lambda: later, vitals=Vitals("purger"))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: purger.run())
            await purge.over.wait()
            nursery.cancel_scope.cancel()
    left = {
        table: (await _fetch(store, f"select count(*) from {table} where project_id = $1", gone.id))[0][0]
        for table in tables
    }
    assert not any(left.values()), left
    kept = await _fetch(store, "select count(*) from span where project_id = $1", other.id)
    assert kept == [(2,)]
    assert await _fetch(store, "select count(*) from api_key") == [(1,)]
    assert (await _fetch(store, "select count(*) from audit_row where project_id = $1", gone.id))[0][0] >= 3


async def test_a_step_takes_no_more_than_its_rows_and_a_dropped_partition_none(store: Database) -> None:
    project = await ProjectStore(store).make_default()
    for _ in range(3):
        await PostgresKeyStore(store).create(project.id, "k", "write", actor="tests")
    purge = PostgresPurgeStore(store)
    assert [await purge.purge(project.id, "api_key", 2) for _ in range(3)] == [2, 1, 0]
    assert await purge.purge(project.id, "span_19990101", 2) == 0
