"""Whether what other copies announce by `NOTIFY` is heard here at all."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import trio

from svc.store.postgres.database import Database

_TRIAL: Final = "trial"
HEAR_TIMEOUT_S: Final = 5.0


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
