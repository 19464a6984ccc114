"""Laws of the pools: together they fit the server whatever the settings say, and none starves another."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

from protocol.storage import Outage
from svc.front.health import Pulse
from svc.store.postgres.database import Connection, Database
from svc.wiring.pools import (
    EMBEDDED_CONNECTIONS,
    SERVED_CONNECTIONS,
    PoolSizes,
    open_pools,
    pool_sizes,
)


@pytest.mark.parametrize("embedded", [True, False])
def test_all_connections_fit_whatever_the_settings_say(embedded: bool) -> None:
    for decoders in range(33):
        for drainers in (1, 2, 16, 64):
            sizes = pool_sizes(decoders=decoders, drainers=drainers, embedded=embedded)
            assert sizes.total <= (EMBEDDED_CONNECTIONS if embedded else SERVED_CONNECTIONS)
            assert sizes.ingest > 0
            assert bool(sizes.decoders) == bool(decoders)
            assert not decoders or sizes.per_decoder > 0


async def test_a_kind_that_has_no_connection_left_leaves_the_others_theirs(store: Database) -> None:
    sizes = PoolSizes(admission=2, questions=2, ingest=1, upkeep=1, decoders=0, per_decoder=0)

    async def sleep(connection: Connection) -> None:
        await connection.execute("select pg_sleep(60)")

    async def blocked(pool: Database) -> None:
        await pool.run(sleep)

    async with open_pools(store.address, sizes) as pools, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(blocked, pools.questions)
        while pools.questions.pool_state()["size"] < 2:  # noqa: ASYNC110 - the pool tells nobody
            await trio.sleep(0.01)
        with trio.fail_after(5):
            for pool in (pools.admission, pools.ingest, pools.upkeep):
                assert await pool.fetch("select 1")
        nursery.cancel_scope.cancel()


async def test_the_server_itself_ends_a_statement_of_a_kind(store: Database) -> None:
    async with AsyncExitStack() as stack:
        quick = Database(store.address, pool_size=1, statement_timeout_s=0.2)
        await stack.enter_async_context(quick.opened())
        with trio.fail_after(10), pytest.raises(Outage):
            await quick.fetch("select pg_sleep(60)")
        assert await quick.fetch("select 1")


async def test_busy_is_not_down_and_away_is(store: Database) -> None:
    async def sleep(connection: Connection) -> None:
        await connection.execute("select pg_sleep(60)")

    narrow = Database(store.address, pool_size=1)

    async def ping() -> None:
        await narrow.fetch("select 1", timeout_s=0.3)

    async with narrow.opened(), trio.open_nursery() as nursery:
        assert await Pulse(ping, lambda: narrow.answered_s).beat() == ("UP", {})
        nursery.start_soon(narrow.run, sleep)
        while narrow.pool_state()["idle"]:  # noqa: ASYNC110 - the pool tells nobody
            await trio.sleep(0.01)
        status, details = await Pulse(ping, lambda: narrow.answered_s).beat()
        assert (status, list(details)) == ("UP", ["busy"])
        # Nobody has had an answer for a long time.
        status, details = await Pulse(ping, lambda: narrow.answered_s - 3600).beat()
        assert (status, list(details)) == ("DOWN", ["error"])
        nursery.cancel_scope.cancel()


async def test_all_who_ask_within_a_second_share_one_ping() -> None:
    asked: list[float] = []

    async def ping() -> None:
        asked.append(trio.current_time())
        await trio.sleep(0.05)

    pulse = Pulse(ping, lambda: 0.0)
    async with trio.open_nursery() as nursery:
        for _ in range(500):
            nursery.start_soon(pulse.beat)
    assert len(asked) == 1


async def test_who_asks_for_all_may_be_cancelled() -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def ping() -> None:
        begun.set()
        await go_on.wait()

    pulse = Pulse(ping, lambda: 0.0)
    async with trio.open_nursery() as first, trio.open_nursery() as others:
        first.start_soon(pulse.beat)
        await begun.wait()
        others.start_soon(pulse.beat)
        first.cancel_scope.cancel()
        others.cancel_scope.shield = True
        go_on.set()
    assert (await pulse.beat())[0] == "UP"
