"""Connections to the server: at most so many, the one used last first, each at rest between two uses.

Owns when they are made, their rest and their end; `Database` lends one for each unit of work, and
`svc.store.postgres.servers` makes them. Asyncio-flavoured.

A unit of work leaves nothing behind in its session: it sets parameters with `set local`, locks until the
end of its transaction, and listens nowhere. So a connection whose work went well is at rest, and only after
a failure or a cancellation is it reset; one that is left within a transaction is closed. asyncpg's own pool
resets on every return and runs two tasks a use: a third of the processor time of a read of one row (1.5 ms,
measured November 2026, Python 3.11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from svc.store.postgres.servers import Servers
from svc.store.postgres.sessions import Connection

T = TypeVar("T")

#: How long a unit of work waits for its turn.
TURN_TIMEOUT_S: Final = 10.0
#: What a connection gets to come to rest after a failure. It bounds how much longer than its time a cancelled
#: question takes on a hung server (measured November 2026: without it ten seconds, as long as connecting).
REST_TIMEOUT_S: Final = 1.0
#: A connection that rested longer is ended: what stands between us and the server may have dropped it, and
#: its process at the server takes 2 to 8 MB (November 2026).
REST_S: Final = 300.0


class Connections:
    """The connections of one `Database`. What fails with one of `misled` was sent to the wrong server."""

    def __init__(self, source: Servers, most: int, misled: tuple[type[Exception], ...] = ()) -> None:
        self._source, self.most, self._misled = source, most, misled
        self._watch: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(most)
        self._open: set[Connection] = set()
        #: Those in use, each with the time since when.
        self._working: dict[Connection, float] = {}
        #: Each with the time since when; the one used last is the last.
        self._resting: list[tuple[Connection, float]] = []
        #: Ends those that rested for long enough, while any rests.
        self._sweep: asyncio.TimerHandle | None = None

    async def lend(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do one unit of work on one connection.

        Raises `TimeoutError` when none is free in time. Cancellation: the connection comes to rest within
        `REST_TIMEOUT_S`, or is closed.
        """
        if self._turns.locked():
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await self._turns.acquire()
        else:
            await self._turns.acquire()
        try:
            connection = self._rested() or await self._new()
            self._working[connection] = asyncio.get_running_loop().time()
            try:
                result = await work(connection)
            except BaseException as error:
                if isinstance(error, self._misled):
                    self._source.unfit(connection)
                    self._end(connection)
                else:
                    await self._calm(connection)
                raise
            finally:
                del self._working[connection]
            if _spoiled(connection):
                self._end(connection)
            else:
                self._rest(connection)
            return result
        finally:
            self._turns.release()

    def _rested(self) -> Connection | None:
        now_s = asyncio.get_running_loop().time()
        while self._resting:
            connection, since_s = self._resting.pop()
            if not connection.is_closed() and now_s - since_s < REST_S:
                return connection
            self._end(connection)
        return None

    async def _new(self) -> Connection:
        if self._source.several and self._watch is None:
            self._watch = asyncio.create_task(self._source.watch(self._working))
        connection = await self._source.connect()
        self._open.add(connection)
        return connection

    def _rest(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._resting.append((connection, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(REST_S, self._end_rested, loop)

    def _end_rested(self, loop: asyncio.AbstractEventLoop) -> None:
        """End those that rested for `REST_S`, also where nobody comes for another; and again in time."""
        self._sweep = None
        # The first rests longest.
        while self._resting and loop.time() - self._resting[0][1] >= REST_S:
            self._end(self._resting.pop(0)[0])
        if self._resting:
            self._sweep = loop.call_at(self._resting[0][1] + REST_S, self._end_rested, loop)

    async def _calm(self, connection: Connection) -> None:
        """Bring a connection to rest whose work failed; whatever is in the way of that ends it."""
        if _spoiled(connection):
            self._end(connection)
            return
        try:
            async with asyncio.timeout(REST_TIMEOUT_S):
                await connection.reset()
        except Exception:
            self._end(connection)
        except asyncio.CancelledError:
            self._end(connection)
            raise
        else:
            self._rest(connection)

    def _end(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.terminate()

    def _sweep_no_more(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    async def close(self) -> None:
        """Wait for the work under way and close everything in good order."""
        for _ in range(self.most):
            await self._turns.acquire()
        self._sweep_no_more()
        while self._resting:
            connection, _ = self._resting.pop()
            await connection.close()
            self._open.discard(connection)
        for _ in range(self.most):
            self._turns.release()

    def terminate(self) -> None:
        """Close everything at once."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._sweep_no_more()
        self._resting.clear()
        while self._open:
            self._open.pop().terminate()

    def state(self) -> dict[str, int]:
        """How many are open, how many of them rest, and how many there may be."""
        return {"size": len(self._open), "idle": len(self._resting), "max": self.most}


def _spoiled(connection: Connection) -> bool:
    """Whether the next one cannot use it. One that `watch` ended cannot be asked about its transaction."""
    return connection.is_closed() or connection.is_in_transaction()
