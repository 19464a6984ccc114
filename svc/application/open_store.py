"""Opening the database, embedded or served, for the service and for every command beside it.

Owns the start of the embedded server and the wait for a served one that is not there yet. Never decides what
is done with the store.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from protocol.database_address import Address, parse_url
from protocol.memory import usable_memory_bytes
from protocol.storage import Outage
from svc.config.profile import SMALL_BYTES
from svc.config.table import Settings
from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.postgres.database import AWAY, Database
from svc.store.postgres.embedded.server import EmbeddedServer, open_embedded
from svc.store.postgres.migrate import migrate
from svc.store.postgres.pools import COMMAND_CONNECTIONS

log = logging.getLogger(__name__)

#: How long a start waits for a served database that is not there yet, as in a compose stack.
DATABASE_PATIENCE_S: Final = 60.0


@attrs.frozen
class Store:
    """The open database, and the embedded server behind it when there is one."""

    database: Database
    embedded: EmbeddedServer | None


@asynccontextmanager
async def open_store(settings: Settings, *, as_it_is: bool = False) -> AsyncIterator[Store]:
    """Open the database, start the embedded one if no other is named, bring the schema up to date.

    `as_it_is` leaves the schema alone and does not wait for a database that is away; an embedded one may run
    in another container on the same folder.
    """
    async with asyncio_loop(AWAY), _database(settings, as_it_is=as_it_is) as store:
        if not as_it_is:
            await _migrated(store.database)
        yield store


@asynccontextmanager
async def _database(settings: Settings, *, as_it_is: bool) -> AsyncIterator[Store]:
    address = served_address(settings)
    if address is not None:
        async with Database(address, pool_size=COMMAND_CONNECTIONS).opened() as database:
            yield Store(database, None)
        return
    async with open_embedded(
        settings.data_dir,
        memory_bytes=min(SMALL_BYTES, usable_memory_bytes()) if settings.small else None,
        budget_bytes=settings.disk_budget_bytes,
        as_it_is=as_it_is,
    ) as embedded:
        served = embedded.served
        address = Address(str(served.socket_dir), served.port, served.user, served.password, served.database)
        async with Database(address, pool_size=COMMAND_CONNECTIONS).opened() as database:
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


def replica_address(settings: Settings) -> Address | None:
    """The replica that the settings name, if any; what its URL leaves out is the primary's."""
    if settings.read_url is None:
        return None
    return parse_url(
        settings.read_url, user=settings.db_user, password=settings.db_password, database=settings.db_name
    )


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
                log.info("migrated the schema to step %d", applied[-1])
            return
