"""Laws of the pools: together they fit the server whatever the settings say, and none starves another."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

from protocol.storage import Outage
from svc.front.health import PULSE_S, Pulse
from svc.store.postgres.connections import REST_TIMEOUT_S
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.pools import (
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
        with trio.fail_after(60):
            for pool in (pools.admission, pools.ingest, pools.upkeep):
                assert await pool.fetch("select 1")
        nursery.cancel_scope.cancel()


async def test_the_server_itself_ends_a_statement_of_a_kind(store: Database) -> None:
    async with AsyncExitStack() as stack:
        quick = Database(store.address, pool_size=1, statement_timeout_s=0.2)
        await stack.enter_async_context(quick.opened())
        with trio.fail_after(60), pytest.raises(Outage):
            await quick.fetch("select pg_sleep(60)")
        assert await quick.fetch("select 1")


async def never() -> None:
    await trio.sleep_forever()


async def test_busy_is_not_down_and_away_is(store: Database) -> None:
    async def sleep(connection: Connection) -> None:
        await connection.execute("select pg_sleep(60)")

    narrow = Database(store.address, pool_size=1)

    async def ping() -> None:
        await narrow.fetch("select 1")

    async with narrow.opened(), trio.open_nursery() as nursery:
        assert await Pulse(ping, never, lambda: 0.0).beat() == ("UP", {})
        nursery.start_soon(narrow.run, sleep)
        while narrow.pool_state()["idle"]:  # noqa: ASYNC110 - the pool tells nobody
            await trio.sleep(0.01)
        # It begins another session, or has answered somebody else meanwhile.
        status, details = await Pulse(ping, narrow.knock, lambda: 0.0).beat()
        assert (status, list(details)) == ("UP", ["busy"])
        status, details = await Pulse(ping, never, trio.current_time).beat()
        assert (status, list(details)) == ("UP", ["busy"])
        status, details = await Pulse(ping, never, lambda: 0.0).beat()
        assert (status, list(details)) == ("DOWN", ["error"])
        nursery.cancel_scope.cancel()


async def test_a_database_that_does_not_answer_is_down_within_five_seconds(autojump_clock: MockClock) -> None:
    answers = True

    async def ping() -> None:
        if not answers:
            await never()

    pulse = Pulse(ping, never, lambda: 0.0)
    assert (await pulse.beat())[0] == "UP"
    answers, gone_s = False, trio.current_time()
    # The last answer holds for a second.
    assert (await pulse.beat())[0] == "UP"
    await trio.sleep(PULSE_S)
    assert (await pulse.beat())[0] == "DOWN"
    # A question that is given up may take so much longer.
    assert trio.current_time() - gone_s + REST_TIMEOUT_S <= 5.0


async def test_a_process_that_stood_still_itself_calls_nobody_away(mock_clock: MockClock) -> None:
    answered = trio.Event()

    async def stand_still() -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(30.0)
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stand_still)
        assert await Pulse(answered.wait, never, lambda: 0.0).beat() == ("UP", {})


async def test_all_who_ask_within_a_second_share_one_ping() -> None:
    asked: list[float] = []

    async def ping() -> None:
        asked.append(trio.current_time())
        await trio.sleep(0.05)

    pulse = Pulse(ping, never, lambda: 0.0)
    async with trio.open_nursery() as nursery:
        for _ in range(500):
            nursery.start_soon(pulse.beat)
    assert len(asked) == 1


async def test_who_asks_for_all_may_be_cancelled() -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def ping() -> None:
        begun.set()
        await go_on.wait()

    pulse = Pulse(ping, never, lambda: 0.0)
    async with trio.open_nursery() as first, trio.open_nursery() as others:
        first.start_soon(pulse.beat)
        await begun.wait()
        others.start_soon(pulse.beat)
        first.cancel_scope.cancel()
        others.cancel_scope.shield = True
        go_on.set()
    assert (await pulse.beat())[0] == "UP"
