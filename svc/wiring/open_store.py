"""Opening the database, embedded or served, for the service and for every command beside it.

Owns the asyncio loop that the database border runs on, the start of the embedded server, and the wait for a
served one that is not there yet. Never decides what is done with the store.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import trio
import trio_asyncio

from protocol.storage import Outage
from svc.config.table import Settings
from svc.store.postgres.database import AWAY, Address, Database, parse_url
from svc.store.postgres.embedded.server import EmbeddedServer, open_embedded
from svc.store.postgres.migrate import migrate

log = logging.getLogger(__name__)

#: How long a start waits for a served database that is not there yet, as in a compose stack.
DATABASE_PATIENCE_S: Final = 60.0


def now() -> datetime:
    """The wall clock: aware UTC."""
    return datetime.now(UTC)


@attrs.frozen
class Store:
    """The open database, and the embedded server behind it when there is one."""

    database: Database
    embedded: EmbeddedServer | None


@asynccontextmanager
async def open_store(settings: Settings, *, as_it_is: bool = False) -> AsyncIterator[Store]:
    """Open the database, start the embedded one if no other is named, bring the schema up to date.

    `as_it_is` leaves the schema alone and does not wait for a database that is away.
    """
    async with asyncio_loop(), _database(settings) as store:
        if not as_it_is:
            await _migrated(store.database)
        yield store


@asynccontextmanager
async def asyncio_loop() -> AsyncIterator[None]:
    """The loop that the database border and the gRPC door run on."""
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(_stray)
        yield


def _stray(_loop: object, context: dict[str, Any]) -> None:
    """An asyncio callback failed with nobody waiting for it. By default that would end the whole service.

    A remark without an exception, or a connection that died with its server, is an outage, not a bug; whoever
    used the connection hears of it on its own way.
    """
    error = context.get("exception")
    outage = error is None or isinstance(error, AWAY)
    log.log(
        logging.WARNING if outage else logging.ERROR,
        "a stray asyncio failure: %s (%s)",
        str(context.get("message")).partition(" <")[0],
        type(error).__name__,
    )


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Store]:
    address = served_address(settings)
    if address is not None:
        async with Database(address).opened() as database:
            yield Store(database, None)
        return
    async with open_embedded(settings.data_dir) as embedded:
        served = embedded.served
        address = Address(str(served.socket_dir), served.port, served.user, served.password, served.database)
        async with Database(address).opened() as database:
            yield Store(database, embedded)


def served_address(settings: Settings) -> Address | None:
    """The served database that the settings name, or None for the embedded one."""
    if settings.jdbc_url is not None:
        return parse_url(
            settings.jdbc_url,
            user=settings.db_user,
            password=settings.db_password,
            database=settings.db_name,
        )
    if settings.db_host is not None:
        return Address(
            settings.db_host, settings.db_port, settings.db_user, settings.db_password, settings.db_name
        )
    return None


async def _migrated(database: Database) -> None:
    deadline = trio.current_time() + DATABASE_PATIENCE_S
    while True:
        try:
            applied = await migrate(database)
        except Outage as outage:
            if trio.current_time() > deadline:
                raise
            log.warning("waiting for the database %s: %s", database.address.label(), outage)
            await trio.sleep(1.0)
        else:
            if applied:
                log.info("schema brought to step %d", applied[-1])
            return
