"""Of several servers the one that can be written to is used, and one that hangs is left for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import attrs
import pytest
import trio

from protocol.database_address import Address, Host, Target
from protocol.storage import Outage, Slow
from svc.store.postgres import servers
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.replica import ReplicaFirst
from tests.debian_postgres import DebianPostgres
from tests.service import free_port


@attrs.define(eq=False)
class Relay:
    """A server of its own to whoever connects: what it gets goes to another one, until it is frozen."""

    host: Host
    sessions: int = 0
    frozen: bool = False
    _thawed: trio.Event = attrs.field(factory=trio.Event)

    def freeze(self) -> None:
        """Accept, and answer nothing any more."""
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self._thawed.set()
        self._thawed = trio.Event()

    async def carry(self, source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
        async for data in source:
            while self.frozen:
                await self._thawed.wait()
            await sink.send_all(data)


@asynccontextmanager
async def relay(behind: Address) -> AsyncIterator[Relay]:
    """In front of a server on a Unix socket."""

    async def serve(stream: trio.abc.Stream) -> None:
        door.sessions += 1
        socket = await trio.open_unix_socket(f"{behind.host}/.s.PGSQL.{behind.port}")
        async with socket, stream, trio.open_nursery() as both:

            async def carry(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await door.carry(source, sink)
                both.cancel_scope.cancel()

            both.start_soon(carry, stream, socket)
            both.start_soon(carry, socket, stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        door = Relay(("127.0.0.1", listener.socket.getsockname()[1]))
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield door
        nursery.cancel_scope.cancel()


def of(store: Database, *hosts: Host, target: Target = "read-write") -> Address:
    """The database of the test, at other servers."""
    (name, port), *further = hosts
    return attrs.evolve(
        store.address, host=name, port=port, further=tuple(further), target=target, tls="disable"
    )


async def backend(connection: Connection) -> int:
    return int(await connection.fetchval("select pg_backend_pid()"))


@pytest.fixture
def gone() -> Host:
    """Nobody listens there."""
    return "127.0.0.1", free_port()


@pytest.mark.parametrize("refused", ["-7", "soon"])
async def test_a_server_that_cannot_look_after_its_clients_is_used_all_the_same(
    store: Database, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr("svc.store.postgres.database._GONE_CLIENT_MS", refused)
    async with Database(store.address).opened() as database:
        (row,) = await database.fetch(
            "select current_setting($1), current_setting('jit')", servers.CLIENT_CHECK
        )
        assert tuple(row) == ("0", "off")
    (row,) = await store.fetch("select current_setting($1)", servers.CLIENT_CHECK)
    assert row[0] == "5s"


async def test_a_server_that_is_away_does_not_hide_the_next_one(store: Database, gone: Host) -> None:
    async with Database(of(store, gone, store.address.hosts[0])).opened() as database:
        assert await database.run(backend) > 0
        await database.knock()
        async with database.listening("news") as news:
            await database.fetch("select pg_notify('news', 'hello')")
            with trio.fail_after(30):
                assert await anext(news) == "hello"


async def test_without_a_fitting_server_the_outage_says_what_each_of_them_is(
    store: Database, gone: Host
) -> None:
    address = of(store, gone, ("127.0.0.1", free_port()))
    async with Database(address).opened() as database:
        for attempt in (database.ping, database.knock):
            with pytest.raises(Outage, match=rf"{gone[1]} cannot be reached; 127.*cannot be reached"):
                await attempt()


async def test_a_frozen_server_is_tried_once_and_then_last(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SERVER_TIMEOUT_S", 0.3)
    async with relay(store.address) as frozen:
        frozen.freeze()
        address = of(store, frozen.host, store.address.hosts[0])
        async with Database(address).opened() as database:
            assert await database.run(backend) > 0
            await database.knock()
            assert frozen.sessions == 1
        # Nor does it use up the time of everybody who has little.
        async with Database(address).opened() as database:
            with pytest.raises(Slow):
                await database.run(backend, timeout_s=0.1)
            assert await database.run(backend) > 0
            assert frozen.sessions == 2


async def test_work_on_a_server_that_freezes_is_an_outage_and_goes_on_with_another_one(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SERVER_TIMEOUT_S", 0.3)
    monkeypatch.setattr(servers, "SILENT_S", 0.1)
    monkeypatch.setattr(servers, "LOOK_S", 0.05)
    async with (
        relay(store.address) as freezing,
        Database(of(store, freezing.host, store.address.hosts[0])).opened() as database,
        database.listening("news") as news,
    ):
        assert await database.run(backend) > 0
        assert freezing.sessions == 2
        freezing.freeze()
        with trio.fail_after(30):
            with pytest.raises(Outage) as outage:
                await database.ping()
            assert not isinstance(outage.value, Slow)
            assert await database.run(backend) > 0
            # Whoever listens there hears that it may have missed something.
            with pytest.raises(Outage, match="notices of news was lost"):
                await anext(news)
        assert database.pool_state() == {"size": 1, "idle": 1, "max": 12}
        assert database.server_changes == 1


async def test_long_work_on_a_server_that_answers_is_left_alone(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SILENT_S", 0.05)
    monkeypatch.setattr(servers, "LOOK_S", 0.02)
    async with (
        relay(store.address) as busy,
        Database(of(store, busy.host, store.address.hosts[0])).opened() as database,
    ):
        assert await database.fetch("select pg_sleep(0.5)")
        assert busy.sessions > 1
        assert database.outages == 0


async def test_a_server_that_hangs_is_waited_for_while_no_other_one_will_do(
    store: Database, gone: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SERVER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(servers, "SILENT_S", 0.05)
    monkeypatch.setattr(servers, "LOOK_S", 0.02)
    async with (
        relay(store.address) as hanging,
        Database(of(store, hanging.host, gone)).opened() as database,
    ):
        await database.ping()
        hanging.freeze()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.ping)
            with trio.fail_after(30):
                while hanging.sessions < 2:
                    await trio.lowlevel.checkpoint()
            hanging.thaw()
        assert database.outages == 0


async def test_a_server_that_may_only_be_read_costs_its_connection(store: Database) -> None:
    async def write(connection: Connection) -> None:
        await connection.execute("set default_transaction_read_only = on")
        await connection.execute("create table nowhere ()")

    pid = await store.run(backend, transaction=False)
    with pytest.raises(Outage):
        await store.run(write, transaction=False)
    assert await store.run(backend, transaction=False) != pid


@contextmanager
def following(folder: Path, primary: DebianPostgres) -> Iterator[DebianPostgres]:
    standby = DebianPostgres(folder / "standby", follows=primary)
    try:
        yield standby
    finally:
        standby.stop()


async def test_a_standby_is_left_for_the_primary_until_it_is_promoted(
    store: Database, postgres: DebianPostgres, open_folder: Path
) -> None:
    with following(open_folder, postgres) as standby:
        hosts: list[Host] = [("127.0.0.1", standby.port), ("127.0.0.1", postgres.port)]
        address = Address(
            *hosts[0], "owner", "secret of the test", "postgres", further=(hosts[1],), target="read-write"
        )
        recovers = "select pg_is_in_recovery() as recovers"

        async def ask(target: Target) -> bool:
            async with Database(attrs.evolve(address, target=target)).opened() as asked:
                return bool((await asked.fetch(recovers))[0]["recovers"])

        assert [await ask(target) for target in ("any", "standby", "prefer-standby")] == [True] * 3
        assert [await ask(target) for target in ("read-write", "primary")] == [False] * 2
        async with Database(address).opened() as database:
            await database.ping()
            postgres.stop()
            # The connection that has ended, or none at all.
            with pytest.raises(Outage):
                await database.ping()
            with pytest.raises(Outage, match=r"is not the one that is wanted; .* cannot be reached"):
                await database.ping()
            standby.promote()
            assert (await database.fetch(recovers))[0]["recovers"] is False
        postgres.start()


async def test_one_of_several_replicas_that_was_promoted_is_left(store: Database) -> None:
    hosts = [store.address.hosts[0]] * 2
    replica = ReplicaFirst(
        of(store, *hosts, target="prefer-standby"), store, max_lag_s=3.0, pool_size=2, statement_timeout_s=5.0
    )
    async with replica.opened():
        await replica.look()
        assert replica.state == "stranger"
        assert replica.pool_state()["size"] == 0
