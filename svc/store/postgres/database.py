"""The database border: asyncpg connections behind a Trio face.

Owns the crossing between Trio and asyncio, and the translation of connection failures into
`Outage` and of data errors into `StoreRefused`. The files beside it write asyncio-flavoured functions that
take a connection; `Database.run` takes such a function across the border once per unit of work.

Cancellation: cancelling `run` cancels the query on the server; see `svc.store.postgres.connections`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from math import inf
from typing import Any, Final, Literal, TypeVar

import asyncpg
import trio
import trio_asyncio

from protocol.database_address import Address
from protocol.storage import Outage, Slow, StoreRefused
from svc.store.postgres.connections import Connections
from svc.store.postgres.servers import CLIENT_CHECK, CONNECT_TIMEOUT_S, NoServer, Servers
from svc.store.postgres.sessions import Connection as Connection
from svc.store.postgres.together import run_together
from svc.store.postgres.transactions import one_transaction

T = TypeVar("T")

#: Longest unit of work. A write group takes well under a second; the bound is for a hung server.
WORK_TIMEOUT_S: Final = 60.0
READ_TIMEOUT_S: Final = 30.0
POOL_SIZE: Final = 12

#: What means "the server is away or says come back": waiting helps, the data is not to blame.
AWAY: Final = (
    OSError,
    asyncpg.InterfaceError,
    # What asyncpg raises when a server dies between two messages (seen November 2026, kill -9 in a loop).
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    # Shutdown, crash, recovery, a cancelled statement, a dropped database.
    asyncpg.OperatorInterventionError,
    # The server's own disk or files fail it.
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.exceptions.TransactionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)


#: What a machine of ours that died held is free again after a minute, or two where an answer was on its way.
#: By itself a server waits two hours for a client whose network is gone, or fifteen minutes, and nobody else
#: gets at what that has locked. Without effect on a Unix socket, whose other end cannot die unseen.
_DEAD_CLIENT: Final[Mapping[str, str]] = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "120000",
}

#: How soon a server notices, while a statement runs, that our end of the connection is closed: we gave it up
#: or were killed. Without it a statement runs to its end and keeps its locks.
_GONE_CLIENT_MS: Final = "5000"


def _session_settings(statement_timeout_s: float) -> dict[str, str]:
    return {
        "application_name": "trace-svc",
        "timezone": "UTC",
        "jit": "off",
        "statement_timeout": str(round(statement_timeout_s * 1000)),
        # Questions here are short: starting workers took 15 of 23 ms (measured November 2026), and the other
        # cores have spans to store.
        "max_parallel_workers_per_gather": "0",
        CLIENT_CHECK: _GONE_CLIENT_MS,
        **_DEAD_CLIENT,
    }


def left_s(until_s: float) -> float:
    """How long until then on Trio's clock, for the next of several units of work that share one bound."""
    return max(0.0, until_s - trio.current_time())


class Database:
    """A pool that survives its server: connections are made when needed, and anew after an outage.

    The server itself ends a statement after `statement_timeout_s`; 0 leaves that to the units of work.
    """

    #: What a server says that cannot be written to: the next connection is to lead elsewhere.
    _misled: tuple[type[Exception], ...] = (asyncpg.ReadOnlySQLTransactionError,)

    def __init__(
        self, address: Address, *, pool_size: int = POOL_SIZE, statement_timeout_s: float = 0.0
    ) -> None:
        self.address = address
        self._servers = Servers(address, _session_settings(statement_timeout_s))
        self._connections = Connections(self._servers, pool_size, self._misled)
        self.outages = 0
        #: When it answered last, on Trio's clock.
        self.answered_s = -inf

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Database]:
        """Hold it open. It starts without connections: an absent server is an outage at first use."""
        try:
            yield self
        finally:
            with trio.move_on_after(5.0, shield=True):
                await trio_asyncio.aio_as_trio(self._connections.close)()
            self._connections.terminate()

    async def run(
        self,
        work: Callable[[Connection], Awaitable[T]],
        *,
        transaction: bool = True,
        readonly: bool = False,
        snapshot: bool = False,
        timeout_s: float = WORK_TIMEOUT_S,
    ) -> T:
        """Do one unit of work on one connection, in one transaction, in one crossing.

        `snapshot` makes all its statements see one state of the database (`repeatable read`).

        Raises `Outage` when the server is away, busy or did not answer in `timeout_s`, and `StoreRefused`
        when it refuses the data.
        """

        async def crossing() -> T:
            return await self._connections.lend(whole if transaction else work)

        async def whole(connection: Connection) -> T:
            isolation: Literal["repeatable_read"] | None = "repeatable_read" if snapshot else None
            async with one_transaction(connection, isolation=isolation, readonly=readonly):
                return await work(connection)

        try:
            with trio.fail_after(timeout_s):
                result: T = await trio_asyncio.aio_as_trio(crossing)()
        except asyncpg.DataError as error:
            raise StoreRefused(type(error).__name__) from error
        except asyncpg.ProgramLimitExceededError as error:
            raise StoreRefused(type(error).__name__) from error
        except (TimeoutError, trio.TooSlowError) as error:
            self.outages += 1
            raise Slow("the database did not answer in time") from error
        except AWAY as error:
            raise self._away("the database is away", error) from error
        self.answered_s = trio.current_time()
        return result

    async def run_all(
        self, works: Sequence[Callable[[Connection], Awaitable[T]]], *, timeout_s: float
    ) -> list[T]:
        """Read with each on a connection of its own, at once: what they return, in their order.

        They see states of the database a moment apart. Raises what the first that fails raises; the others
        are given up.
        """
        results: dict[int, T] = {}

        async def read(number: int, work: Callable[[Connection], Awaitable[T]]) -> None:
            results[number] = await self.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)

        await run_together(*(partial(read, number, work) for number, work in enumerate(works)))
        return [results[number] for number in range(len(works))]

    async def fetch(self, sql: str, *values: Any, timeout_s: float = WORK_TIMEOUT_S) -> list[Any]:
        """The rows of one statement, which is a transaction of its own: one journey instead of three."""

        async def work(connection: Connection) -> list[Any]:
            return await connection.fetch(sql, *values)

        return await self.run(work, transaction=False, timeout_s=timeout_s)

    async def ping(self) -> None:
        """Ask over a connection there is, to see that the server answers. Raises `Outage`."""

        async def work(connection: Connection) -> None:
            # The cheapest question.
            await connection.fetchval("select 1")

        await self.run(work, transaction=False)

    async def knock(self) -> None:
        """Begin a session beside the pool and end it, to see that the server answers. Raises `Outage`."""

        async def crossing() -> None:
            try:
                connection = await self._servers.connect()
            except asyncpg.TooManyConnectionsError:
                # So says a server that is up.
                return
            try:
                await connection.fetchval("select 1")
            finally:
                connection.terminate()

        try:
            await trio_asyncio.aio_as_trio(crossing)()
        except (*AWAY, TimeoutError) as error:
            raise self._away("the database is away", error) from error
        self.answered_s = trio.current_time()

    def _away(self, text: str, error: BaseException) -> Outage:
        self.outages += 1
        return Outage(f"{text} ({error if isinstance(error, NoServer) else type(error).__name__})")

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[AsyncIterator[str]]:
        """The payloads of `NOTIFY channel`, on a connection of its own. Raises `Outage` if it cannot listen.

        So does the iterator when the connection is lost or a notice had to be dropped (64 unread ones):
        either way the reader must assume that it missed something.
        """
        send, receive = trio.open_memory_channel[str](64)

        def heard(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            try:
                send.send_nowait(str(payload))
            except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                send.close()

        async def payloads() -> AsyncGenerator[str, None]:
            async for payload in receive:
                yield payload
            raise Outage(f"the connection for notices of {channel} was lost")

        async def subscribe() -> asyncpg.Connection:
            connection = await self._servers.connect()
            connection.add_termination_listener(lambda _connection: send.close())
            await connection.add_listener(channel, heard)
            return connection

        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                connection = await trio_asyncio.aio_as_trio(subscribe)()
        except (*AWAY, TimeoutError, trio.TooSlowError) as error:
            raise self._away("cannot listen to the database", error) from error
        try:
            async with aclosing(payloads()) as stream:
                yield stream
        finally:
            connection.terminate()
            send.close()

    @property
    def server_changes(self) -> int:
        """How often its server was another one than before, where the last rows may be missing."""
        return self._servers.changes

    def pool_state(self) -> dict[str, int]:
        """Connections open and idle, for health and metrics."""
        return self._connections.state()
