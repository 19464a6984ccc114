"""The demo is removed whole and alone, twice to the same, and may come again."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from protocol.detection import Ref
from svc.commands.demo import SERVICES
from svc.commands.demo_sample import traces
from svc.commands.demo_story import traces_of
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.retention.demo_removal import DemoRemoval
from svc.store.spans.traces import PostgresTraceStore
from tests.store.detection.detecting import fire, opened, seen
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of


async def send(store: Database) -> int:
    """The demo and a day of its story. Returns their traces."""
    clock = Clock()
    writer, sent = store_of(store, clock), 0
    for service, spans in traces(random.Random(1), NOW):
        await writer.write(rows(*spans, resource={"service.name": service}))
        sent += 1
    for trace in list(traces_of(6, 7, NOW.replace(hour=0)))[:20]:
        resource: dict[str, Any] = dict(trace.resource)
        await writer.write(rows(*trace.spans, resource=resource))
        sent += 1
    for _ in range(3):
        await PostgresTraceStore(store).settle(clock.now + timedelta(hours=1), 10_000)
    return sent


async def test_the_demo_goes_whole_and_nothing_else_does(store: Database) -> None:
    await ProjectStore(store).make_default()
    sent = await send(store)
    # One in a session that is named so, and one of such a service.
    named, served = (
        one(1, trace_id=b"n" * 16, attributes={"session.id": "demo-1-2"}),
        one(1, trace_id=b"s" * 16),
    )
    await store_of(store).write(rows(named, resource={"service.name": "shop"}))
    await store_of(store).write(rows(served, resource={"service.name": "parcel-desk"}))
    (row,) = await fetch(store, "select trace_id from trace where session_id ~ '^demo' limit 1 offset 3")
    await opened(store, seen(1), [Ref("member", trace_id=row["trace_id"])])
    await opened(store, seen(2), [Ref("member", trace_id=row["trace_id"]), Ref("member", trace_id=b"s" * 16)])
    removal = DemoRemoval(store, SERVICES)
    counts = await removal.remove(PROJECT)
    assert (counts["traces"], counts["findings"], counts["cases"]) == (sent, 1, 1)
    assert {row["trace_id"] for row in await fetch(store, "select trace_id from trace")} == {
        b"n" * 16,
        b"s" * 16,
    }
    assert [row["title"] for row in await fetch(store, "select title from finding")] == ["cause 2"]
    assert (await removal.remove(PROJECT))["traces"] == 0
    assert await send(store) == sent
    assert len(await fetch(store, "select from trace")) == sent + 2


async def test_a_finding_without_evidence_goes_when_nothing_else_happened_at_its_call_site(
    store: Database,
) -> None:
    await ProjectStore(store).make_default()
    await send(store)
    own = one(1, trace_id=b"o" * 16, attributes={"svc.call_site.id": "support"})
    await store_of(store).write(rows(own, resource={"service.name": "shop"}))
    await PostgresTraceStore(store).settle(NOW + timedelta(hours=2), 10_000)
    for number, call_site_id in enumerate(("ticket-summary", "support", "checkout"), 1):
        await fire(store, seen(number, call_site_id=call_site_id))
    assert (await DemoRemoval(store, SERVICES).remove(PROJECT))["findings"] == 1
    sites = {row["call_site_id"] for row in await fetch(store, "select call_site_id from finding")}
    assert sites == {"support", "checkout"}


async def test_another_projects_demo_stays(store: Database) -> None:
    await ProjectStore(store).make_default()
    sent = await send(store)
    assert (await DemoRemoval(store, SERVICES).remove(PROJECT + 1))["traces"] == 0
    assert len(await fetch(store, "select from trace")) == sent
