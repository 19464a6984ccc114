"""The wiring: the one file that knows every class. Starts inside out, stops outside in.

`serve` runs the whole service; `svc.wiring.open_store` opens the database for it and for every other command.

Ordering of a stop, within `SVC_SHUTDOWN_DRAIN_SECONDS`: the doors refuse new requests and finish the old;
the spool closes; the drainers empty it and go home; the loops are cancelled; the pool, the embedded server
and the asyncio loop close.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve as serve_http

from actors.decoders import DecoderProcess, Decoders, Lane
from actors.drainer import Drainer, Tally
from actors.exporters import ExporterWriter
from actors.hours import CUBES_ROUND_S, ROLLUPS_ROUND_S, HourBuilder
from actors.keys import HASHERS, MAILBOX_BOUND, KeyCache, KeyNews, Keys, Verdicts, Verify
from actors.keys import snapshot as keys_snapshot
from actors.partitions import Partitioner
from actors.ports import BatchSink, Hours
from actors.purger import Purger
from actors.roller import RollerTally, TraceRoller
from actors.supervision import Actor, Board, Vitals, keep
from actors.sweeper import SweepTally
from protocol.decoding import Prices
from protocol.storage import Batch
from svc.config.table import Settings
from svc.domain.exporters import Observations
from svc.domain.intake import decoder, split
from svc.domain.pricing import PriceBook
from svc.domain.rates import OwnPrices
from svc.front.api.routes import Api
from svc.front.api.table import ROUTES
from svc.front.app import App
from svc.front.health import Health, Ledger
from svc.front.mcp.endpoint import Mcp
from svc.front.mcp.handlers import Reads
from svc.front.metrics import Metrics, Sources
from svc.front.otlp.grpc import OtlpGrpc
from svc.front.otlp.http import OtlpHttp
from svc.front.otlp.intake import Intake
from svc.front.server.connection import contain_connections
from svc.front.server.door import Door
from svc.ingest.decoder import decoder_process
from svc.ingest.prices import BadPrices, price_book, read_prices
from svc.ingest.writer import Ingest
from svc.store.accounts.audit import SYSTEM
from svc.store.accounts.keys import KeyStore, matches
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.rollups import RollupStore
from svc.store.postgres.database import Connection
from svc.store.postgres.partitions import DayPartitions
from svc.store.reads.query import QueryStore
from svc.store.retention.purge import PurgeStore
from svc.store.spans.call_sites import CallSites
from svc.store.spans.dead_letters import DeadLetterStore
from svc.store.spans.exporters import ExporterStore
from svc.store.spans.traces import TraceStore
from svc.store.spans.writing import SpanStore
from svc.wiring.keeping import optional_loops, retention_report
from svc.wiring.open_store import Store, now, open_store
from svc.wiring.people import means, sign_ins
from svc.wiring.spools import Spooling, drainers

log = logging.getLogger(__name__)

#: What Hypercorn may take beyond the doors' own drain; its idle connections are of no interest by then.
HTTP_GRACE_S: Final = 1.0


@attrs.frozen
class Ready:
    """What `serve` tells its starter once every door is open.

    Secrets: `first_keys` are the plaintext of a write key and a query key, on a first start only.
    """

    http_url: str
    grpc_port: int | None
    first_keys: tuple[str, str] | None = attrs.field(repr=False)


class _House:
    """Everything between the database and the doors, built once."""

    def __init__(self, settings: Settings, store: Store, prices: PriceBook, *, buried_before: int) -> None:
        self.settings, self.store = settings, store
        self.board = Board()
        self.tally, self.roller_tally, self.sweep_tally = Tally(), RollerTally(), SweepTally()
        dead_letters = DeadLetterStore(store.database)
        self.spooling = Spooling(settings, self.board, self.tally, dead_letters=dead_letters, now=now)
        self.spool = self.spooling.spool
        self.verdicts = Verdicts()
        send, self.questions = trio.open_memory_channel[Verify](MAILBOX_BOUND)
        self.keys = Keys(self.verdicts, send)
        self.days = DayPartitions(store.database)
        self.shelf = KeyStore(store.database)
        self.metrics = Metrics()
        self.intake = Intake(self.spool, settings.max_body_bytes, now, trio.current_time)
        self.prices, self.observations = prices, Observations()
        self.decoders = tuple(
            Lane(self.board.enrol(f"decoder-{number}")) for number in range(1, settings.decoders + 1)
        )
        self.sink: BatchSink
        if self.decoders:
            self.sink = Decoders(self.decoders)
        else:
            spans = SpanStore(store.database, self.days, CallSites(), now)
            self.sink = Ingest(decoder(prices, self.observations), spans)
        self.drainer_vitals = tuple(
            self.board.enrol(f"drainer-{number}") for number in range(1, drainers(settings) + 1)
        )
        self.health = Health(
            spool=self.spool.state,
            tally=self.tally,
            drainers=self.drainer_vitals,
            spool_vitals=self.spooling.vitals,
            board=self.board,
            ping=self._ping,
            pool=store.database.pool_state,
            embedded=None if store.embedded is None else store.embedded.snapshot,
            max_lag_ms=settings.spool_max_lag_ms,
            buried_before=buried_before,
            ledger=self.ledger,
            retention=lambda: retention_report(settings, self.sweep_tally),
        )
        queries = QueryStore(store.database)
        self.hashers = trio.CapacityLimiter(HASHERS)
        self.means = means(settings, store.database, self.keys, self.hashers, now)
        app = App(self.keys, queries, self.health, self.metrics, Api(self.means, ROUTES)).build()
        mcp = Mcp(
            self.keys,
            Reads.of(store.database, queries, now),
            enabled=not settings.auth_disabled,
            own_hosts=own_hosts(settings),
        )
        http = OtlpHttp(
            self.intake, self.keys, enabled=settings.transport in ("HTTP", "BOTH"), callers=self.means.callers
        )
        self.door = Door(otlp=http, mcp=mcp, app=app)  # type: ignore[arg-type]  # Quart's ASGI types are narrower
        self.grpc = OtlpGrpc(intake=self.intake, keys=self.keys, callers=self.means.callers)
        self.metrics.watch(
            Sources(
                spool=self.spool.state,
                intake=self.intake.tally,
                tally=self.tally,
                roller=self.roller_tally,
                sweep=self.sweep_tally,
                keys=lambda: keys_snapshot(self.verdicts),
                sign_ins=lambda: sign_ins(self.means),
                pool=store.database.pool_state,
                outages=lambda: store.database.outages,
                board=self.board,
                in_flight=lambda: self.door.in_flight,
                ledger=self.ledger,
            )
        )

    def ledger(self) -> Ledger:
        """Where every span of this process went."""
        spool = self.spool.state()
        rejected = self.intake.tally.rejected_spans
        return Ledger(
            received=spool.accepted_spans + rejected,
            recovered=spool.recovered_spans,
            rejected=rejected,
            stored=self.tally.stored,
            duplicates=self.tally.duplicates,
            waiting=spool.waiting_spans,
            dead_lettered=self.tally.dead_lettered,
        )

    async def _ping(self) -> None:
        async def work(connection: Connection) -> None:
            # The cheapest question.
            await connection.fetchval("select 1")

        await self.store.database.run(work, transaction=False, timeout_s=2.0)

    def _builder(self, hours: Hours, name: str, round_s: float) -> tuple[Callable[[], Actor], Vitals]:
        vitals = self.board.enrol(name)
        return lambda: HourBuilder(hours=hours, now=now, vitals=vitals, round_s=round_s), vitals

    def loops(self) -> list[tuple[Callable[[], Actor], Vitals]]:
        """The actors that run until they are cancelled, in the order of their start."""
        cache, news = self.board.enrol("key-cache"), self.board.enrol("key-news")
        roller, partitioner = self.board.enrol("trace-roller"), self.board.enrol("partitioner")
        exporters = self.board.enrol("exporter-writer")
        purger = self.board.enrol("purger")
        loops: list[tuple[Callable[[], Actor], Vitals]] = [
            (
                lambda: KeyCache(
                    verdicts=self.verdicts,
                    mailbox=self.questions,
                    shelf=self.shelf,
                    matches=matches,
                    now=now,
                    vitals=cache,
                    hashers=self.hashers,
                ),
                cache,
            ),
            (lambda: KeyNews(verdicts=self.verdicts, shelf=self.shelf, vitals=news), news),
            self._builder(CubeStore(self.store.database), "cube-builder", CUBES_ROUND_S),
            (lambda: ExporterWriter(write=self._write_exporters, vitals=exporters), exporters),
            self._builder(RollupStore(self.store.database), "rollup-writer", ROLLUPS_ROUND_S),
            (lambda: Purger(shelf=PurgeStore(self.store.database), now=now, vitals=purger), purger),
            (lambda: Partitioner(calendar=self.days, now=now, vitals=partitioner), partitioner),
            (
                lambda: TraceRoller(
                    shelf=TraceStore(self.store.database), now=now, tally=self.roller_tally, vitals=roller
                ),
                roller,
            ),
        ]
        loops += optional_loops(self.settings, self.store.database, self.board, self.sweep_tally)
        launch = decoder_process(self.store.database.address, self.settings.log_level, self.prices)
        for lane in self.decoders:
            loops.append((lambda lane=lane: DecoderProcess(lane=lane, launch=launch), lane.vitals))  # type: ignore[misc]
        embedded = self.store.embedded
        if embedded is not None:
            loops.insert(0, (lambda: embedded, self.board.enrol("embedded-postgres")))
        return loops

    async def _write_exporters(self) -> None:
        rejected = self.intake.tally.take_rejections()
        await ExporterStore(self.store.database).add(self.observations.take(), rejected, now())

    def adopt(self, own: OwnPrices) -> None:
        """Price by these from now on, in every process."""
        self.prices.adopt(own)
        if isinstance(self.sink, Decoders):
            self.sink.adopt(Prices(own.path, own.text))

    def drainer(self, vitals: Vitals) -> Drainer:
        """One lane from the spool to the store."""
        return Drainer(
            spool=self.spool,
            split=split,
            sink=self.sink,
            graveyard=self.spooling.graveyard,
            tally=self.tally,
            vitals=vitals,
            on_stored=self._stored,
        )

    def _stored(self, batch: Batch) -> None:
        self.metrics.queryable_s.observe(trio.current_time() - batch.received_s)


def own_hosts(settings: Settings) -> frozenset[str]:
    """The hosts that a page of ours can be served from, besides addresses."""
    front = None if settings.frontend_url is None else urlsplit(settings.frontend_url).hostname
    return frozenset(host for host in (settings.site_domain, front) if host)


async def serve(
    settings: Settings,
    *,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[Ready] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the service until SIGTERM, SIGINT or `stop`. Tells `task_status` when every door is open."""
    stop = trio.Event() if stop is None else stop
    prices = price_book(settings)
    async with open_store(settings) as store:
        buried = await DeadLetterStore(store.database).count_spans()
        house = _House(settings, store, prices, buried_before=buried)
        async with trio.open_nursery() as loops:
            # To the very end: a supervisor may signal twice, and the second must not cut the drain off.
            loops.start_soon(_signals, stop)
            if settings.prices_file is not None:
                loops.start_soon(_new_prices, settings.prices_file, house)
            for build, vitals in house.loops():
                await loops.start(partial(keep, build, vitals))
            async with house.spooling.opened(loops), trio.open_nursery() as lanes:
                for vitals in house.drainer_vitals:
                    await lanes.start(partial(keep, partial(house.drainer, vitals), vitals))
                async with trio.open_nursery() as doors:
                    task_status.started(await _open_doors(house, doors))
                    await stop.wait()
                    # From here on everything must be over in time: requests first, then the spool.
                    lanes.cancel_scope.deadline = trio.current_time() + settings.shutdown_drain_s
                    await _close_doors(house, settings.shutdown_drain_s)
                    doors.cancel_scope.cancel()
                house.spool.close()
            left = house.spool.state()
            if left.depth and house.spool.durable:
                log.warning("stopped with %d batches in the spool; the next start stores them", left.depth)
            elif left.depth:
                log.error("stopped with %d batches (%d bytes) not stored", left.depth, left.bytes)
            loops.cancel_scope.cancel()
    log.info("stopped")


async def _signals(stop: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
        async for number in arriving:
            log.info(
                "%s on %s", "still stopping" if stop.is_set() else "stopping", signal.Signals(number).name
            )
            stop.set()


async def _new_prices(path: Path, house: _House) -> None:
    """Read the price file anew on each SIGHUP; one that is not right leaves the old prices in force."""
    with trio.open_signal_receiver(signal.SIGHUP) as arriving:
        async for _ in arriving:
            try:
                house.adopt(await trio.to_thread.run_sync(read_prices, path))
            except BadPrices as bad:
                log.warning("%s; the old prices stay", bad)
            else:
                log.info("prices are now %s", house.prices.version)


async def _open_doors(house: _House, doors: trio.Nursery) -> Ready:
    settings = house.settings
    contain_connections()
    host, port = settings.http_bind
    grpc_port = None
    if settings.transport in ("GRPC", "BOTH"):
        await house.grpc.open(host, settings.grpc_port)
        grpc_port = settings.grpc_port
    door: Any = house.door  # Hypercorn spells out ASGI's dictionaries, key by key
    binds: list[str] = await doors.start(
        partial(serve_http, door, _hypercorn(host, port), mode="asgi", shutdown_trigger=trio.sleep_forever)
    )
    return Ready(binds[0].removesuffix("/"), grpc_port, await _first_keys(house.store))


def _hypercorn(host: str, port: int) -> HypercornConfig:
    config = HypercornConfig()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    config.graceful_timeout = HTTP_GRACE_S
    config.backlog = 1024
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.loglevel = "WARNING"
    config.h11_max_incomplete_size = 64 * 1024
    config.keep_alive_timeout = 75.0
    # An exporter keeps one connection for its whole life.
    config.keep_alive_max_requests = 1_000_000
    return config


async def _close_doors(house: _House, timeout_s: float) -> None:
    async with trio.open_nursery() as closing:
        closing.start_soon(_close_http, house, timeout_s)
        closing.start_soon(house.grpc.close, timeout_s)


async def _close_http(house: _House, timeout_s: float) -> None:
    if not await house.door.close(timeout_s):
        log.warning("%d requests were still inside when the time to stop was over", house.door.in_flight)


async def _first_keys(store: Store) -> tuple[str, str] | None:
    """A write key and a query key for the default project, if this instance has no key at all yet."""

    async def has_keys(connection: Connection) -> bool:
        # Whether any key was ever made here.
        return bool(await connection.fetchval("select exists (select from api_key)"))

    if await store.database.run(has_keys, readonly=True):
        return None
    project = await ProjectStore(store.database).make_default()
    keys = KeyStore(store.database)
    write = await keys.create(project.id, "first write key", "write", actor=SYSTEM)
    query = await keys.create(project.id, "first query key", "query", actor=SYSTEM)
    return write.plaintext, query.plaintext
