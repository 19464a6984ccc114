"""A server to try something out on: a folder and a socket of its own, and both are removed.

Called by those who restore a backup, or rehearse an upgrade, without touching the instance.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs

from protocol.database_address import Address
from protocol.operator import OperatorError
from svc.domain.quantities import size
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import open_embedded

#: What filling a database takes beside the size that it has then: its log, and the sorting of indexes.
ROOM: Final = 1.3
_MEMORY_BYTES: Final = 2 * 1024**3


class NoRoom(OperatorError):
    """The folder has too little room for what is to be tried out."""


@attrs.frozen
class ScratchServer:
    """The server: its first database, and the folder that goes with it."""

    database: Database
    folder: Path

    @asynccontextmanager
    async def another(self, name: str) -> AsyncIterator[Database]:
        """One more database of it."""
        await self.database.run(
            lambda connection: connection.execute(f"create database {name}"), transaction=False
        )
        async with Database(attrs.evolve(self.database.address, database=name)).opened() as database:
            yield database


@asynccontextmanager
async def scratch_server(
    purpose: str,
    size_bytes: float,
    parent: Path | None,
    remedy: str,
    filled: Callable[[Path], Awaitable[None]] | None = None,
) -> AsyncIterator[ScratchServer]:
    """Start one for a database of this size, in a folder under `parent` or where temporary files go.

    `purpose` is a word; `remedy` ends the sentence of `NoRoom`; `filled` puts a cluster into its data folder
    first. Raises `EmbeddedServerError` too.
    """
    with tempfile.TemporaryDirectory(prefix=f"trace-svc-{purpose}-", dir=parent) as folder:
        # The database's account passes through, and lists nothing.
        os.chmod(folder, 0o711)  # noqa: S103
        needed, free = size_bytes * ROOM, shutil.disk_usage(folder).free
        if free < needed:
            raise NoRoom(
                f"{Path(folder).parent} has {size(free)} free, and to {purpose} wants {size(needed)}:"
                f" {remedy}"
            )
        if filled is not None:
            await filled(Path(folder) / "data")
        async with open_embedded(Path(folder) / "data", memory_bytes=_MEMORY_BYTES) as embedded:
            served = embedded.served
            address = Address(
                str(served.socket_dir), served.port, served.user, served.password, served.database
            )
            async with Database(address).opened() as database:
                yield ScratchServer(database, Path(folder))
