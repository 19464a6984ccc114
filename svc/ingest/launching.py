"""The service's end of the decoder processes: how one is launched, and what it is told first.

Owns the memory of seen texts that all decoders of a service share, and the processes that load their code
while the service loads its own. `svc.commands.serve` begins those, the wiring hands `process` to the actors
that keep one each; what runs in the child is `svc.ingest.decoder`, of which nothing is imported here.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from protocol.database_address import Address
from protocol.decoding import SEEN_BYTES, Begin, Prices, frame
from svc.runtime.child import END_TIMEOUT_S, begin_child, child_stream

if TYPE_CHECKING:
    from svc.domain.pricing.prices import PriceBook


class DecoderLauncher:
    """Launches decoder processes, which share one memory of seen texts for as long as this lives."""

    def __init__(self) -> None:
        self._seen_fd = _shared_memory(SEEN_BYTES)
        self._waiting: list[trio.Process] = []

    @asynccontextmanager
    async def ahead(self, count: int) -> AsyncIterator[None]:
        """Begin so many at once; the first that are launched are these. Leaving ends those that were not."""
        try:
            for _ in range(count):
                self._waiting.append(await self._begin())
            yield
        finally:
            for process in self._waiting:
                # It was told nothing yet, so it has nothing to give up.
                process.kill()
                with trio.CancelScope(shield=True), trio.move_on_after(END_TIMEOUT_S):
                    await process.wait()

    def process(
        self,
        address: Address,
        log_level: str,
        log_format: str,
        prices: PriceBook,
        *,
        pool_size: int,
        trace_days: int,
    ) -> Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]:
        """How to launch a decoder that writes to this database and begins with the prices in force then.

        It has `pool_size` connections; `trace_days` is the install's term of retention.
        """

        @asynccontextmanager
        async def launched() -> AsyncIterator[trio.abc.Stream]:
            process = self._waiting.pop() if self._waiting else await self._begin()
            begin = Begin(
                address=address,
                log_level=log_level,
                log_format=log_format,
                seen_fd=self._seen_fd,
                pool_size=pool_size,
                trace_days=trace_days,
                prices=None if prices.own is None else Prices(prices.own.path, prices.own.text),
            )
            async with child_stream(process, b"".join(frame(begin))) as stream:
                yield stream

        return launched

    async def _begin(self) -> trio.Process:
        return await begin_child("svc.ingest.decoder", pass_fds=(self._seen_fd,))


def _shared_memory(size_bytes: int) -> int:
    """A file without a name that other processes can map, all zero."""
    if sys.platform == "linux":
        fd = os.memfd_create("seen-texts")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, size_bytes)
    return fd
