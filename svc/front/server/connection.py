"""One connection of the HTTP door: whatever goes wrong on it stays on it, and it ends when its client does.

Owns the one class that stands between Hypercorn and its listeners; `Door` puts it there. Hypercorn 0.18 runs
every connection in the nursery of its listeners, and its HTTP/2 side lets some things that a client can send
escape as exceptions (measured November 2026: a path outside ASCII, CONNECT without `:path`, a thousand
PRIORITY frames, DATA after the answer). One such client would end the whole service; one that does not read
its answer would keep it from stopping.
"""

from __future__ import annotations

import logging
from math import inf
from typing import Any, Final

import hypercorn.protocol as protocols
import hypercorn.trio.run as worker
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer

from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.http1 import Http1
from svc.front.server.streams import Streams
from svc.front.server.tls import TlsDoors

log = logging.getLogger(__name__)

#: A client has this long to take each piece of its answer. It is less than a stop waits for requests.
SEND_TIMEOUT_S: Final = 10.0
SEND_STEP_BYTES: Final = 64 * 1024
#: Taken from the socket at once; with Hypercorn's own 64 KiB bodies of 400 KiB cost the main process a tenth
#: more, and four times as much as this saves nothing (measured November 2026).
RECEIVE_BYTES: Final = 256 * 1024


class Connection(TCPServer):
    """Hypercorn's connection, which ends alone and in time.

    Cancellation: passes through between two pieces of an answer; only exceptions end here, and with them this
    connection and its requests.
    """

    _left = False
    #: Set for the process by `contain_connections`.
    connection_limiter: ConnectionLimiter
    #: None unless this process does TLS.
    tls: TlsDoors | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.idle_task: KeepAlive = KeepAlive(self)  # type: ignore[assignment]
        self._reading = trio.CancelScope()

    async def run(self) -> None:
        """Serve until the connection closes, in whatever way."""
        if not self.connection_limiter.enter(self):
            self.leave()
            return
        try:
            if not await self._proves():
                await super().run()
        except* Exception as group:
            log.warning("a connection was dropped: %s", ", ".join(sorted(_kinds(group))))
        finally:
            self.connection_limiter.gone(self)

    async def _proves(self) -> bool:
        """Whether the connection was a certificate authority's, and is over."""
        stream = self.stream
        return self.tls is not None and isinstance(stream, trio.SSLStream) and await self.tls.proven(stream)

    def leave(self) -> None:
        """Close at once; whoever reads or writes here is told."""
        getattr(self.stream, "transport_stream", self.stream).socket.close()

    async def _read_data(self) -> None:
        # Who reads may wait for the turn of a request that came early. When its answer is broken off nobody
        # gives it that turn, and a connection that its client has left would count for ever.
        with self._reading:
            while (data := await self._receive()) is not None:
                await self.protocol.handle(RawData(data))
                if not data:
                    break
        await self.protocol.handle(Closed())
        # The client has left. Hypercorn would wait here until the keep-alive time is over and, over HTTP/2,
        # for ever for what is still to be sent to it.
        self._left = True
        self.idle_task.end()
        for unsent in list(getattr(self.protocol.protocol, "stream_buffers", {}).values()):
            await unsent.close()

    async def _receive(self) -> bytes | None:
        """What has come, nothing at its end; None for a connection that is gone."""
        # It may be silent for long: `KeepAlive` ends it if it is idle, and the handler of a body that stalls.
        try:
            return bytes(await self.stream.receive_some(RECEIVE_BYTES))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return None

    async def protocol_send(self, event: Event) -> None:
        """Send piece by piece; Hypercorn would wait for ever, shielded, for a client that does not read."""
        if isinstance(event, Updated) and self._left:
            return
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            if isinstance(event, Closed):
                self._reading.cancel()
            return
        if not event.data:
            # The end of an answer whose length was told at its beginning.
            return
        # To wait for a lock is a turn of the loop, even for a free one.
        try:
            self.send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self.send_lock.acquire()
        try:
            await self._send(memoryview(event.data))
        finally:
            self.send_lock.release()

    async def _send(self, data: memoryview) -> None:
        try:
            for start in range(0, len(data), SEND_STEP_BYTES):
                await trio.lowlevel.checkpoint_if_cancelled()
                with trio.move_on_after(SEND_TIMEOUT_S, shield=True) as patience:
                    await self.stream.send_all(data[start : start + SEND_STEP_BYTES])
                if patience.cancelled_caught:
                    await trio.aclose_forcefully(self.stream)
                    await self._broken_off()
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._broken_off()

    async def _broken_off(self) -> None:
        """What is sent reaches nobody any more."""
        await self.protocol.handle(Closed())
        self._reading.cancel()


class KeepAlive:
    """Closes its connection when that was idle for too long, or is idle when the service stops.

    One task for the whole connection in place of Hypercorn's `TrioSingleTask`, which starts a new one for
    each request. A connection that is busy when the service stops is closed by Hypercorn after its answer.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._patience: trio.CancelScope | None = None
        self._idle = False

    async def restart(self, group: TaskGroup, _action: object) -> None:
        """The connection is idle from now on."""
        self._idle = True
        self._connection.connection_limiter.silent(self._connection)
        if self._patience is None:
            assert group._nursery is not None
            self._patience = trio.CancelScope()
            group._nursery.start_soon(self._watch, self._patience)
        self._patience.deadline = trio.current_time() + self._connection.config.keep_alive_timeout

    async def stop(self) -> None:
        """The connection is busy."""
        self._idle = False
        self._connection.connection_limiter.busy(self._connection)
        if self._patience is not None:
            self._patience.deadline = inf

    def end(self) -> None:
        """The connection is closed."""
        self._idle = False
        if self._patience is not None:
            self._patience.cancel()

    async def _watch(self, patience: trio.CancelScope) -> None:
        with patience:
            await self._connection.context.terminated.wait()
        self._patience = None
        if self._idle:
            with trio.CancelScope(shield=True):
                await self._connection._initiate_server_close()


def _kinds(error: BaseException) -> set[str]:
    """The types at the leaves; their texts may quote what the client sent."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for inner in error.exceptions for kind in _kinds(inner)}
    return {type(error).__name__}


def contain_connections(connection_limiter: ConnectionLimiter, tls: TlsDoors | None = None) -> None:
    """Make Hypercorn's Trio worker use `Connection`, `Http1` and `Streams`; it offers no other way in."""
    Connection.connection_limiter, Connection.tls = connection_limiter, tls
    worker.TCPServer = Connection  # type: ignore[attr-defined,assignment]
    protocols.H11Protocol = Http1  # type: ignore[attr-defined,assignment]
    protocols.H2Protocol = Streams  # type: ignore[attr-defined,assignment]
