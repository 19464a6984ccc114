"""Hearing what other copies announce by `NOTIFY`, and whether that works here at all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final
from uuid import uuid4

import trio

from protocol.storage import Outage
from svc.store.postgres.database import Database

_TRIAL: Final = "trial"
HEAR_TIMEOUT_S: Final = 5.0


@asynccontextmanager
async def notices(database: Database, channel: str) -> AsyncIterator[AsyncIterator[str]]:
    """The payloads of a channel. The iterator raises `Outage` when it goes deaf."""
    async with database.listening(channel) as payloads:

        async def heard() -> AsyncGenerator[str, None]:
            async for payload in payloads:
                yield payload
            raise Outage(f"the connection for notices of {channel} was lost")

        async with aclosing(heard()) as stream:
            yield stream


async def hears_itself(database: Database) -> bool:
    """Whether what is announced is heard: behind a pooler of transactions it is not. Raises `Outage`."""
    word = str(uuid4())
    async with database.listening(_TRIAL) as payloads:
        # To everybody, ourselves included.
        await database.fetch("select pg_notify($1, $2)", _TRIAL, word)
        with trio.move_on_after(HEAR_TIMEOUT_S):
            async for payload in payloads:
                if payload == word:
                    return True
    return False
