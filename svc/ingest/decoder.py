"""A decoder process: reads batches from standard input, decodes and stores them, answers on standard output.

Two ends of one pipe: `decoder_process` is what the service holds (the `Launch` port of `actors.decoders`),
`main` is what runs in the child, as `python -m svc.ingest.decoder`. The child has a pool of database
connections and a memory of its own; what it remembers only saves work. It never listens, never outlives its
parent (standard input ends), and leaves signals to it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Final

import trio

from actors.exporters import ExporterWriter
from actors.supervision import Vitals, keep
from protocol.database_address import Address
from protocol.decoding import (
    Begin,
    Begun,
    FromDecoder,
    Prices,
    Write,
    frame,
    outcome,
    read_to_decoder,
    sent_batches,
)
from protocol.framing import Frames
from protocol.storage import Outage, StoreRefused, WriteFailed, Written
from svc.domain.exporters.counters import Observations
from svc.domain.intake.batches import decoder
from svc.domain.intake.packing import SEEN_BYTES, Seen
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import OwnPrices
from svc.ingest.attributes import opened_exchange
from svc.ingest.masking import MaskingExchange
from svc.ingest.prices import parse_prices
from svc.ingest.project_prices import ProjectPriceExchange
from svc.ingest.writer import Ingest
from svc.runtime.asyncio_loop import asyncio_loop
from svc.runtime.child import END_TIMEOUT_S, child, parent_pipe, run_for_parent
from svc.runtime.clock import now
from svc.runtime.garbage import collect_seldom
from svc.runtime.logging import set_up
from svc.store.postgres.database import AWAY, WORK_TIMEOUT_S, Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.spans.call_sites import CallSites
from svc.store.spans.exporters import ExporterStore
from svc.store.spans.writing import SpanStore

log = logging.getLogger(__name__)

#: Decoders take what the doors and the database leave. Measured November 2026 on two cores with two decoders:
#: requests of one span 1,106/s against 610, stored in a flood 7,594 spans/s against 6,718.
NICENESS: Final = 5

#: A little more than a write group gets; the server itself ends what nobody else does.
STATEMENT_TIMEOUT_S: Final = WORK_TIMEOUT_S + 2.0

_RECEIVE_BYTES: Final = 1 << 20


def decoder_process(
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

    All that are launched share one memory of seen texts, which lasts as long as this process.
    """
    seen_fd = _shared_memory(SEEN_BYTES)

    @asynccontextmanager
    async def launched() -> AsyncIterator[trio.abc.Stream]:
        async with child("svc.ingest.decoder", pass_fds=(seen_fd,)) as stream:
            begin = Begin(
                address=address,
                log_level=log_level,
                log_format=log_format,
                seen_fd=seen_fd,
                pool_size=pool_size,
                trace_days=trace_days,
                prices=own_prices(prices),
            )
            with trio.fail_after(END_TIMEOUT_S):
                await stream.send_all(b"".join(frame(begin)))
            yield stream

    return launched


def own_prices(prices: PriceBook) -> Prices | None:
    """The operator's prices as a decoder hears them."""
    return None if prices.own is None else Prices(prices.own.path, prices.own.text)


def _shared_memory(size_bytes: int) -> int:
    """A file without a name that other processes can map, all zero."""
    if sys.platform == "linux":
        fd = os.memfd_create("seen-texts")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, size_bytes)
    return fd


def main() -> None:
    """Run in the child until standard input ends."""
    # A terminal sends its signals to the whole group; the parent decides what they mean.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    run_for_parent(_serve, *parent_pipe())


async def _serve(orders_fd: int, answers_fd: int) -> None:
    answers = trio.Lock()
    async with trio.lowlevel.FdStream(orders_fd) as orders, trio.lowlevel.FdStream(answers_fd) as replies:

        async def answer(message: FromDecoder) -> None:
            async with answers:
                for piece in frame(message):
                    await replies.send_all(piece)

        frames = Frames()
        first = await _next(orders, frames)
        if first is None:
            return
        begin = read_to_decoder(first)
        assert isinstance(begin, Begin)
        set_up(begin.log_level, begin.log_format)
        async with (
            asyncio_loop(AWAY),
            Database(
                begin.address, pool_size=begin.pool_size, statement_timeout_s=STATEMENT_TIMEOUT_S
            ).opened() as database,
            trio.open_nursery() as nursery,
        ):
            prices, observations = PriceBook(), Observations()
            prices.adopt(None if begin.prices is None else _own_prices(begin.prices))
            spans = SpanStore(database, DayPartitions(database, begin.trace_days), CallSites())
            attributes = await opened_exchange(database, spans.codes)
            counts = Seen(mmap(begin.seen_fd, SEEN_BYTES))
            os.close(begin.seen_fd)
            masking = attributes.masking = MaskingExchange(database)
            attributes.prices = ProjectPriceExchange(database, prices)
            decode = decoder(
                prices, observations, counts, attributes.reader, attributes.census, masking.masker
            )
            ingest = Ingest(decode, spans, attributes.ensure)

            async def write_exporters() -> None:
                await ExporterStore(database).add(observations.take(), {}, now())
                await attributes.exchange(database, now())

            vitals = Vitals("exporter-writer of a decoder")
            await nursery.start(
                partial(keep, lambda: ExporterWriter(write=write_exporters, vitals=vitals), vitals)
            )
            collect_seldom()
            # A parent that is gone wants no answer; the end of its orders says so.
            with suppress(trio.BrokenResourceError):
                await answer(Begun())
                while (data := await _next(orders, frames)) is not None:
                    match read_to_decoder(data):
                        case Write() as order:
                            nursery.start_soon(_write, ingest, order, answer)
                        case Prices() as own:
                            prices.adopt(_own_prices(own))
                        case Begin():
                            raise AssertionError("a decoder begins once")
            nursery.cancel_scope.cancel()
            with trio.move_on_after(END_TIMEOUT_S / 2, shield=True), suppress(Outage):
                await write_exporters()


async def _write(ingest: Ingest, order: Write, answer: Callable[[FromDecoder], Awaitable[None]]) -> None:
    result: Written | Exception
    try:
        result = await ingest.write(sent_batches(order))
    except (Outage, StoreRefused, WriteFailed) as error:
        result = error
    with suppress(trio.BrokenResourceError):
        await answer(outcome(order.number, result))


def _own_prices(prices: Prices) -> OwnPrices:
    return parse_prices(Path(prices.path), prices.text)


async def _next(stream: trio.lowlevel.FdStream, frames: Frames) -> bytes | memoryview | None:
    """The next message; None when the parent is gone."""
    while (message := frames.next()) is None:
        data = await stream.receive_some(_RECEIVE_BYTES)
        if not data:
            return None
        frames.feed(data)
    return message


if __name__ == "__main__":
    main()
