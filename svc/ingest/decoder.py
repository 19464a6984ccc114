"""A decoder process: reads batches from standard input, decodes and stores them, answers on standard output.

`main` is what runs in the child; the service's end of the pipe is `svc.ingest.launching`. The child has a
pool of database connections and a memory of its own; what it remembers only saves work. It never listens,
never outlives its parent (standard input ends), and leaves signals to it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Final

import trio

from actors.child_pipe import next_message
from actors.rounds import Repeating
from actors.supervision import Vitals, keep
from protocol.decoding import (
    SEEN_BYTES,
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
from svc.domain.exporters.counters import EXPORTERS_ROUND_S, Observations
from svc.domain.intake.batches import decoder
from svc.domain.intake.packing import Seen
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import OwnPrices
from svc.ingest.attributes import opened_exchange
from svc.ingest.masking import MaskingExchange
from svc.ingest.prices import parse_prices
from svc.ingest.project_prices import ProjectPriceExchange
from svc.ingest.writer import Ingest
from svc.runtime.asyncio_loop import asyncio_loop
from svc.runtime.child import END_TIMEOUT_S, parent_pipe, run_for_parent
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
        begin = await next_message(orders, frames, read_to_decoder)
        if begin is None:
            return
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

            async def write_exporters() -> float:
                await ExporterStore(database).add(observations.take(), {}, now())
                await attributes.exchange(database, now())
                return EXPORTERS_ROUND_S

            vitals = Vitals("exporter-writer of a decoder")
            await nursery.start(partial(keep, partial(Repeating, write_exporters, vitals), vitals))
            collect_seldom()
            # A parent that is gone wants no answer; the end of its orders says so.
            with suppress(trio.BrokenResourceError):
                await answer(Begun())
                while (message := await next_message(orders, frames, read_to_decoder)) is not None:
                    match message:
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


if __name__ == "__main__":
    main()
