"""What the roller has yet to look at: new traces, changed ones, and those that the release before writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import attrs

from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SETTLED
from svc.store.retention.projects import sweep_traces
from svc.store.retention.traces import ERASED, EXPIRED, delete_traces
from svc.store.spans import traces as trace_statements
from svc.store.spans.traces import QUIET_WITHOUT_ROOT, PostgresTraceStore
from tests.store.spans.test_writing import NOW, PROJECT, TRACE, Clock, fetch, on_server, one, rows, store_of

LATER = NOW + timedelta(minutes=1)
DUE = "select next_at from trace_due"


async def test_a_trace_that_never_changes_is_written_once(store: Database) -> None:
    written = "select xmin::text, md5(t::text) as said from trace t"
    await store_of(store).write(rows(one(1)))
    before = await fetch(store, written)
    assert (await PostgresTraceStore(store).settle(LATER, 10)).settled == 1
    assert await fetch(store, written) == before
    assert await fetch(store, DUE) == []
    assert [row["trace_id"] for row in await fetch(store, "select trace_id from fold_due")] == [TRACE]


async def test_a_new_trace_is_settled_when_it_was_quiet_and_a_changed_one_when_it_is_rolled_up(
    store: Database,
) -> None:
    spans = attrs.evolve(store_of(store), clock=server_clock)
    settled = f"select {SETTLED} as is_settled, stale from trace"
    await spans.write(rows(one(1)))
    assert [tuple(row) for row in await fetch(store, settled)] == [(False, False)]
    await fetch(store, "update trace set due_at = now() - interval '1 second'")
    assert [tuple(row) for row in await fetch(store, settled)] == [(True, False)]
    # Quiet for long, and not rolled up yet.
    await spans.write(rows(one(2, parent=1)))
    await fetch(store, "update trace set due_at = now() - interval '1 second'")
    assert [tuple(row) for row in await fetch(store, settled)] == [(False, True)]
    later = await store.run(server_clock) + timedelta(minutes=1)
    assert (await PostgresTraceStore(store).settle(later, 10)).settled == 1
    assert [tuple(row) for row in await fetch(store, settled)] == [(True, False)]


async def test_a_new_trace_that_changes_is_looked_at_no_later_than_it_was_to_be(store: Database) -> None:
    moment = NOW
    spans = attrs.evolve(store_of(store), clock=on_server(lambda: moment))
    await spans.write(rows(one(2, parent=1)))
    moment += timedelta(seconds=5)
    await spans.write(rows(one(3, parent=1)))
    assert [row["next_at"] for row in await fetch(store, DUE)] == [NOW + QUIET_WITHOUT_ROOT]
    # Its root brings the look forward that was put off to wait for it.
    await spans.write(rows(one(1)))
    assert [row["next_at"] for row in await fetch(store, DUE)] == [moment + timedelta(seconds=2)]


async def test_a_round_that_is_not_the_last_says_when_the_next_is(store: Database) -> None:
    moment = NOW
    spans, traces = attrs.evolve(store_of(store), clock=on_server(lambda: moment)), PostgresTraceStore(store)
    await spans.write(rows(one(2, parent=1)))
    moment += timedelta(seconds=5)
    await spans.write(rows(one(3, parent=1)))
    assert (await traces.settle(NOW + timedelta(seconds=11), 10)).settled == 0
    (due,) = await fetch(store, DUE)
    assert NOW + timedelta(seconds=11) < due["next_at"] <= moment + QUIET_WITHOUT_ROOT
    assert (await traces.settle(NOW, 10)).next_at == due["next_at"]
    assert (await traces.settle(LATER, 10)).settled == 1


async def test_what_the_release_before_changes_is_settled_by_this_one(store: Database) -> None:
    await store_of(store).write(rows(one(1)))
    traces = PostgresTraceStore(store)
    assert (await traces.settle(LATER, 10)).settled == 1
    await fetch(store, "update trace set stale = true, next_at = due_at")
    assert len(await fetch(store, DUE)) == 1
    assert (await traces.settle(LATER, 10)).settled == 1
    assert await fetch(store, DUE) == []
    assert await fetch(store, "select from trace where next_at is not null") == []


async def test_a_trace_that_the_release_before_inserts_is_due(store: Database) -> None:
    await store_of(store).write(rows(one(1)))
    (due,) = await fetch(store, DUE)

    async def work(connection: Connection) -> None:
        await connection.execute("create temporary table came on commit drop as table trace")
        await connection.execute("update came set next_at = due_at")
        await connection.execute("delete from trace")
        await connection.execute("delete from trace_due")
        await connection.execute("insert into trace table came")

    await store.run(work)
    assert await fetch(store, DUE) == [due]


async def test_of_a_trace_that_the_release_before_deleted_nothing_stays_due(store: Database) -> None:
    traces = PostgresTraceStore(store)
    await store_of(store).write(rows(one(1)))
    await fetch(store, "delete from trace")
    # It may come again before it is noticed.
    await fetch(store, "delete from span")
    await store_of(store, Clock(LATER)).write(rows(one(1)))
    assert [row["next_at"] > LATER for row in await fetch(store, DUE)] == [True]
    await fetch(store, "delete from trace")
    assert (await traces.settle(LATER + timedelta(minutes=1), 10)).seen == 0
    assert (await traces.settle(LATER + timedelta(minutes=1), 10)).next_at is None


async def test_two_rounds_that_saw_the_same_trace_have_it_counted_once(store: Database) -> None:
    await store_of(store).write(rows(one(1)))

    async def settle(connection: Connection) -> None:
        await connection.execute(trace_statements._SETTLE, [PROJECT], [TRACE])

    await store.run(settle)
    await store.run(settle)
    assert len(await fetch(store, "select from fold_due")) == 1


async def test_a_trace_that_is_deleted_is_not_due_any_more(store: Database) -> None:
    spans = store_of(store)
    for delete in (ERASED, EXPIRED):
        await spans.write(rows(one(1)))

        async def work(connection: Connection, reason: Any = delete) -> None:
            await delete_traces(connection, PROJECT, [TRACE], NOW, reason)

        await store.run(work)
        assert await fetch(store, "select from trace") == await fetch(store, DUE) == []
    await spans.write(rows(one(1)))
    await fetch(store, "delete from span")
    await sweep_traces(store, PROJECT, LATER, NOW, lambda _freed: None)
    assert await fetch(store, "select from trace") == await fetch(store, DUE) == []


async def test_what_comes_late_to_a_settled_trace_is_settled_soon_where_its_root_is_there(
    store: Database,
) -> None:
    moment = NOW
    spans = attrs.evolve(store_of(store), clock=on_server(lambda: moment))
    await spans.write(rows(one(1), one(2, trace_id=bytes([9]) * 16, parent=1)))
    assert (await PostgresTraceStore(store).settle(LATER, 10)).settled == 2
    moment = LATER
    await spans.write(rows(one(3, parent=1), one(3, trace_id=bytes([9]) * 16, parent=1)))
    found = await fetch(store, "select trace_id, next_at from trace_due")
    assert {row["trace_id"]: row["next_at"] - LATER for row in found} == {
        TRACE: timedelta(seconds=2),
        bytes([9]) * 16: QUIET_WITHOUT_ROOT,
    }
