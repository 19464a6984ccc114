"""Connections rest between two units of work, whatever the first one did, and never grow in number."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import asyncpg
import pytest
import trio
import trio.testing

from protocol.storage import Outage, StoreRefused
from svc.store.postgres.database import Connection, Database

#: A statement that ends with a state of our choice.
RAISES = "do $$ begin raise exception sqlstate '{}'; end $$"

Work = Callable[[Connection], Awaitable[Any]]


async def backend(connection: Connection) -> int:
    return int(await connection.fetchval("select pg_backend_pid()"))


async def timeout_of(connection: Connection) -> str:
    return str(await connection.fetchval("show lock_timeout"))


async def values(store: Database, sql: str) -> list[Any]:
    return [row[0] for row in await store.fetch(sql)]


async def bare(store: Database, work: Work) -> Any:
    return await store.run(work, transaction=False)


async def test_one_after_the_other_uses_one_connection(store: Database) -> None:
    assert len({await bare(store, backend) for _ in range(5)}) == 1
    assert store.pool_state() == {"size": 1, "idle": 1, "max": 12}


async def test_work_side_by_side_never_opens_more_than_may_be(store: Database) -> None:
    async def slowly(connection: Connection) -> int:
        await connection.execute("select pg_sleep(0.02)")
        return await backend(connection)

    pids: list[int] = []

    async def use(database: Database) -> None:
        pids.append(await bare(database, slowly))

    async with Database(store.address, pool_size=3).opened() as narrow:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(use, narrow)
        assert len(pids) == 20
        assert len(set(pids)) == 3
        assert narrow.pool_state() == {"size": 3, "idle": 3, "max": 3}
    assert narrow.pool_state()["size"] == 0


async def test_works_at_once_have_a_connection_each_and_return_in_their_order(store: Database) -> None:
    async def nth(connection: Connection, number: int) -> tuple[int, int]:
        # The first is the last to end.
        await connection.execute(f"select pg_sleep({0.1 - number / 100})")
        return number, await backend(connection)

    works = [partial(nth, number=number) for number in range(3)]
    results = await store.run_all(works, timeout_s=60)
    assert [number for number, _ in results] == [0, 1, 2]
    assert len({pid for _, pid in results}) == 3
    assert await store.run_all((), timeout_s=60) == []


async def test_the_first_of_works_at_once_that_fails_ends_the_others_and_is_what_is_raised(
    store: Database,
) -> None:
    async def fails(connection: Connection) -> None:
        await connection.execute(RAISES.format("57P03"))

    async def endless(connection: Connection) -> None:
        await connection.execute("select pg_sleep(3600)")

    with pytest.raises(Outage), trio.fail_after(60):
        await store.run_all((endless, fails), timeout_s=3600)
    assert await values(store, "select 1") == [1]


@pytest.mark.parametrize("transaction", [True, False])
async def test_work_given_up_before_the_server_began_it_lets_go_and_the_server_ends_it(
    store: Database, transaction: bool
) -> None:
    """A request to cancel that comes before the statement is ignored, so it would go on for an hour."""
    pids: list[int] = []
    given_up = trio.CancelScope()

    async def endless(connection: Connection) -> None:
        pids.append(await backend(connection))
        os.kill(pids[0], signal.SIGSTOP)
        given_up.cancel()
        await connection.execute("select pg_sleep(3600)")

    async def end_it() -> None:
        # Only this ends a wait that nothing bounds.
        await trio.sleep(60)
        os.kill(pids[0], signal.SIGCONT)
        await store.fetch("select pg_terminate_backend($1)", pids[0])
        raise TimeoutError("the work did not let go")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_it)
        with given_up:
            await store.run(endless, transaction=transaction, timeout_s=3600)
        nursery.cancel_scope.cancel()
    assert given_up.cancelled_caught
    os.kill(pids[0], signal.SIGCONT)
    with trio.fail_after(60):
        left = f"select 1 from pg_stat_activity where pid = {pids[0]}"
        while await values(store, left):  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.05)


async def test_connections_that_nobody_needs_any_more_are_ended_though_nobody_comes(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc.store.postgres.connections.REST_S", 0.05)

    async def together(connection: Connection) -> None:
        await connection.execute("select pg_sleep(0.1)")

    async with Database(store.address, pool_size=3).opened() as pool:

        async def until_the_others_are_gone(connection: Connection) -> int:
            async with asyncio.timeout(60):
                while pool.pool_state()["size"] > 1:  # noqa: ASYNC110 - a timer ends them
                    await asyncio.sleep(0.01)
            return await backend(connection)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(bare, pool, together)
        # The one in hand is not ended, however long it is.
        assert await bare(pool, until_the_others_are_gone)
        with trio.fail_after(60):
            while pool.pool_state()["size"]:  # noqa: ASYNC110 - a timer ends it
                await trio.sleep(0.01)
        assert await bare(pool, backend)


async def test_failed_work_leaves_nothing_behind(store: Database) -> None:
    async def fail(connection: Connection) -> None:
        await connection.execute("set lock_timeout = '7s'")
        raise LookupError

    with pytest.raises(LookupError):
        await bare(store, fail)
    assert await bare(store, timeout_of) == "0"
    assert store.pool_state()["size"] == 1


@pytest.mark.parametrize("error", [None, LookupError()])
async def test_a_transaction_left_open_is_rolled_back(store: Database, error: Exception | None) -> None:
    async def begin(connection: Connection) -> None:
        await connection.execute("begin")
        await connection.execute("create table left_behind ()")
        if error is not None:
            raise error

    with nullcontext() if error is None else pytest.raises(LookupError):
        await bare(store, begin)
    assert await values(store, "select to_regclass('left_behind')") == [None]


async def test_cancelled_work_ends_on_the_server_too(store: Database) -> None:
    async def sleep(connection: Connection) -> None:
        await connection.execute("select pg_sleep(60)")

    with trio.move_on_after(0.2) as scope:
        await bare(store, sleep)
    assert scope.cancelled_caught
    running = "select count(*) from pg_stat_activity where query = 'select pg_sleep(60)' and state = 'active'"
    # A server that is busy hears of it a moment later, and long before the statement would end by itself.
    with trio.fail_after(40):
        while await values(store, running) != [0]:
            pass
    state = store.pool_state()
    assert state["size"] == state["idle"] == 1


async def test_too_slow_work_is_an_outage_and_not_the_end(store: Database) -> None:
    async def sleep(connection: Connection) -> None:
        await connection.execute("select pg_sleep(60)")

    with pytest.raises(Outage):
        await store.run(sleep, timeout_s=0.1)
    assert isinstance(await bare(store, backend), int)


async def test_a_killed_connection_is_replaced(store: Database) -> None:
    pid = await bare(store, backend)
    gone = asyncio.Event()

    async def watched(connection: Connection) -> None:
        connection.add_termination_listener(lambda _connection: gone.set())

    await bare(store, watched)
    async with Database(store.address).opened() as other:
        await other.fetch("select pg_terminate_backend($1)", pid)
    # It hears of its end while it rests; until then asking through it is an outage.
    while not gone.is_set():
        await trio.lowlevel.checkpoint()
    assert await bare(store, backend) != pid
    assert store.pool_state() == {"size": 1, "idle": 1, "max": 12}


async def test_what_the_data_is_to_blame_for_costs_no_connection(store: Database) -> None:
    pid = await bare(store, backend)
    for _ in range(3):
        with pytest.raises(asyncpg.UndefinedTableError):
            await store.fetch("select * from nowhere")
    assert await bare(store, backend) == pid


async def test_closing_waits_for_the_work_under_way(store: Database) -> None:
    done = []

    async def slowly(connection: Connection) -> None:
        await connection.execute("select pg_sleep(0.1)")
        done.append(True)

    async with trio.open_nursery() as nursery:
        async with Database(store.address).opened() as other:
            nursery.start_soon(bare, other, slowly)
            await trio.testing.wait_all_tasks_blocked()
        assert done == [True]


#: What a server says in place of an answer while it goes away, comes back, or is the wrong one of several.
AWAY_STATES = [
    *("25006", "57P01", "57P02", "57P03", "57P04", "57P05", "57014", "25P03", "25P04"),
    *("08000", "08003", "08006", "53000", "53100", "53200", "53300", "58000", "58030", "58P01"),
    *("40001", "40P01", "55P03", "28000", "28P01", "3D000"),
]


@pytest.mark.parametrize("state", AWAY_STATES)
async def test_what_a_server_says_that_goes_away_is_an_outage_and_never_the_datas_fault(
    store: Database, state: str
) -> None:
    with pytest.raises(Outage):
        await store.fetch(RAISES.format(state))
    assert isinstance(await bare(store, backend), int)


@pytest.mark.parametrize("state", ["22001", "22021", "22P05", "54000"])
async def test_what_the_data_is_to_blame_for_is_no_outage(store: Database, state: str) -> None:
    with pytest.raises(StoreRefused):
        await store.fetch(RAISES.format(state))


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), BrokenPipeError(), TimeoutError(), OSError(113, "")]
)
async def test_what_the_network_says_is_an_outage(store: Database, error: OSError) -> None:
    async def fail(_connection: Connection) -> None:
        raise error

    with pytest.raises(Outage):
        await bare(store, fail)
