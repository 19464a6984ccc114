"""One connection of the HTTP door: whatever goes wrong on it stays on it.

Owns the one class that stands between Hypercorn and its listeners; `Door` puts it there. Hypercorn 0.18 runs
every connection in the nursery of its listeners, and its HTTP/2 side lets some things that a client can send
escape as exceptions (measured November 2026: a path outside ASCII, CONNECT without `:path`, a thousand
PRIORITY frames, DATA after the answer). One such client would end the whole service.
"""

from __future__ import annotations

import logging

import hypercorn.trio.run as worker
from hypercorn.trio.tcp_server import TCPServer

log = logging.getLogger(__name__)


class Connection(TCPServer):
    """Hypercorn's connection, which ends alone.

    Cancellation: passes through; only exceptions end here, and with them this connection and its requests.
    """

    async def run(self) -> None:
        """Serve until the connection closes, in whatever way."""
        try:
            await super().run()
        except* Exception as group:
            log.warning("a connection was dropped: %s", ", ".join(sorted(_kinds(group))))

    async def _read_data(self) -> None:
        await super()._read_data()
        # Else a client that left without a request would be waited for until the keep-alive time is over.
        await self.idle_task.stop()


def _kinds(error: BaseException) -> set[str]:
    """The types at the leaves; their texts may quote what the client sent."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for inner in error.exceptions for kind in _kinds(inner)}
    return {type(error).__name__}


def contain_connections() -> None:
    """Make Hypercorn's Trio worker use `Connection`; it offers no other way in."""
    worker.TCPServer = Connection  # type: ignore[attr-defined]
