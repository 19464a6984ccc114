"""The database's clock, which all replicas share.

Whatever decides into which hour a row falls, and which hours are closed, asks this one: a replica whose own
clock is late would write into hours that others have counted already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from svc.store.postgres.database import Connection

#: Tells the time on a connection. Tests hand in one of their own.
Clock = Callable[[Connection], Awaitable[datetime]]


async def server_clock(connection: Connection) -> datetime:
    """The time of the server, now, not of the beginning of the transaction."""
    # The server's clock.
    now: datetime = await connection.fetchval("select clock_timestamp()")
    return now
