"""The connections between two parts, which a test cuts, silences and mends: a proxy before a port."""

from __future__ import annotations

import random
import socket
import struct
import threading
from types import TracebackType
from typing import Final

import trio

_PIECE_BYTES: Final = 65_536
#: Closed so, a connection is reset: its other end learns it at once.
_RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """A port through which another one is reached, as long as it is not cut or silent.

    Cut, every connection is reset, new ones too. Silent, nothing comes through and nobody is told; what waits
    goes on when it is mended, unless it was cut meanwhile. Forgotten, the connections that there are stay
    silent for ever and new ones work, as behind a router that lost its state.
    """

    def __init__(self, target: int, port: int = 0) -> None:
        """Before a port of this machine, at `port` or at any."""
        self.port, self._target = port, target
        self._is_cut, self._flows = False, trio.Event()
        self._generation = 0
        self._carrying: set[trio.CancelScope] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), daemon=True)

    def __enter__(self) -> Link:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        trio.from_thread.run_sync(self._scope.cancel, trio_token=self._token)
        self._thread.join(60)

    def cut(self) -> None:
        """Reset every connection, and every new one."""
        trio.from_thread.run_sync(self._cut, trio_token=self._token)

    def silence(self) -> None:
        """Let nothing through, and tell nobody."""
        trio.from_thread.run_sync(self._silence, trio_token=self._token)

    def forget(self) -> None:
        """Let nothing through on the connections that there are, for ever, and tell nobody."""
        trio.from_thread.run_sync(self._forget, trio_token=self._token)

    def mend(self) -> None:
        """Let everything through again, but what is forgotten."""
        trio.from_thread.run_sync(self._mend, trio_token=self._token)

    def fail(self, dice: random.Random) -> None:
        """Fail in one of four ways, for up to eight seconds, and work again."""
        way = dice.choice(("cut", "silent", "silent, then cut", "forgotten"))
        {"cut": self.cut, "forgotten": self.forget}.get(way, self.silence)()
        # How long it lasts is the matter: shorter and longer than the deadlines of those who wait.
        threading.Event().wait(dice.uniform(0.1, 8))
        if way == "silent, then cut":
            self.cut()
        self.mend()

    def _cut(self) -> None:
        self._is_cut = True
        for scope in self._carrying:
            scope.cancel()

    def _silence(self) -> None:
        if self._flows.is_set():
            self._flows = trio.Event()

    def _forget(self) -> None:
        self._generation += 1

    def _mend(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._flows.set()
        (listener,) = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            self._ready.set()
            await trio.serve_listeners(self._carry, [listener], handler_nursery=nursery)

    async def _carry(self, client: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._carrying.add(scope)
            try:
                if not self._is_cut:
                    await self._flows.wait()
                    await self._joined(client)
            finally:
                self._carrying.discard(scope)
                _reset(client)

    async def _joined(self, client: trio.SocketStream) -> None:
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self._target)
        except OSError:
            return
        generation = self._generation

        async def pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
            try:
                while piece := await source.receive_some(_PIECE_BYTES):
                    await self._passable(generation)
                    await sink.send_all(piece)
                await self._passable(generation)
                await sink.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # One end is gone, and the connection with it.
                nursery.cancel_scope.cancel()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pump, client, server)
                nursery.start_soon(pump, server, client)
        finally:
            _reset(server)

    async def _passable(self, generation: int) -> None:
        """Wait until a connection lets something through."""
        await self._flows.wait()
        if generation < self._generation:
            await trio.sleep_forever()


def _reset(stream: trio.SocketStream) -> None:
    """Close at once; what is already sent and read orderly by the other end stays so."""
    if stream.socket.fileno() >= 0:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        stream.socket.close()
