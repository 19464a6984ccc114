"""The one asyncio loop of a process, for the two libraries that need it: asyncpg and grpclib.

Opened once, around everything else, by whoever opens the database. Never lets a stray callback end the
process.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio_asyncio

log = logging.getLogger(__name__)


@asynccontextmanager
async def asyncio_loop(outages: tuple[type[BaseException], ...]) -> AsyncIterator[None]:
    """The loop that the database border and the gRPC door run on.

    `outages` are the errors by which connections die with their server.
    """
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(partial(_stray, outages))
        # asyncio checks in its debug mode alone that a callback is no coroutine; here it was 3 % of the
        # processor time of a tool call (November 2026).
        loop._check_callback = _unchecked
        yield


def _unchecked(_callback: object, _method: str) -> None:
    """In place of asyncio's check."""


def _stray(outages: tuple[type[BaseException], ...], _loop: object, context: dict[str, Any]) -> None:
    """An asyncio callback failed with nobody waiting for it. By default that would end the whole service.

    A remark without an exception, or a connection that died with its server, is an outage, not a bug; whoever
    used the connection hears of it on its own way.
    """
    error = context.get("exception")
    outage = error is None or isinstance(error, outages)
    log.log(
        logging.WARNING if outage else logging.ERROR,
        "a stray asyncio failure: %s (%s)",
        str(context.get("message")).partition(" <")[0],
        type(error).__name__,
    )
