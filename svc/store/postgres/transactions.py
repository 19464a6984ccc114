"""A transaction on a connection that was lent, undone in time when its work is given up.

Called by `Database.run`, and by units of work that make several transactions. Asyncio-flavoured.

Cancellation: Trio cancels a unit of work once, so nothing ends a wait that begins after that. asyncpg undoes
a transaction when the cancelled statement has ended, and a server that gets the request before it began the
statement ignores it: that then takes as long as it takes, an hour in a test on a busy machine, November 2026.
So what is not undone in `REST_TIMEOUT_S` is left to `Connections.lend`, which ends the connection, and the
server ends a statement whose client is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

from svc.store.postgres.connections import REST_TIMEOUT_S
from svc.store.postgres.sessions import Connection


@asynccontextmanager
async def one_transaction(
    connection: Connection, *, isolation: Literal["repeatable_read"] | None = None, readonly: bool = False
) -> AsyncIterator[None]:
    """Do all statements within it, or none of them."""
    begun = connection.transaction(isolation=isolation, readonly=readonly)
    await begun.__aenter__()
    try:
        yield
    except asyncio.CancelledError as error:
        with suppress(Exception):
            async with asyncio.timeout(REST_TIMEOUT_S):
                await begun.__aexit__(type(error), error, error.__traceback__)
        raise
    except BaseException as error:
        await begun.__aexit__(type(error), error, error.__traceback__)
        raise
    await begun.__aexit__(None, None, None)
