"""Everything between the database and the doors, built once: what is plugged into what.

`svc/serve.py` builds one `Service` and runs it. Holds no rule of its own: what an actor or a handler needs of
another room is handed to it here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import trio

from actors.alerts import AlertTally
from actors.compiled import CompiledModules, awaited
from actors.decoders import DecoderProcess, Decoders, Lane
from actors.detecting import Detecting
from actors.drainer import GROUP, SMALL_GROUP, Drainer, Tally
from actors.hours import CUBES_ROUND_S, ROLLUPS_ROUND_S, HourBuilder
from actors.keys import HASHERS, MAILBOX_BOUND, KeyCache, Keys, RevocationListener, Verdicts, Verify
from actors.keys import snapshot as keys_snapshot
from actors.partitions import Partitioner
from actors.ports import BatchSink, Hours
from actors.purger import Purger
from actors.roller import ROUND_TRACES, RollerTally, TraceRoller
from actors.rounds import Repeating
from actors.supervision import Board, Loop, Vitals
from actors.sweeper import SweepTally
from actors.tee import TeeForwarder
from protocol.decoding import Prices
from protocol.storage import Batch
from svc.application.alert_dispatcher import AlertDispatcher
from svc.application.bounds import ingest_limits
from svc.application.demo_process import DemoProcess
from svc.application.ingest_sizes import drainers, sizes_for
from svc.application.open_store import Store
from svc.application.runner_presence import NamedRunnerPresence
from svc.application.safekeeping import Safekeeping
from svc.application.shared_prices import SharedPrices
from svc.application.teeing import Teeing
from svc.config.table import Settings
from svc.domain.exporters.counters import EXPORTERS_ROUND_S, Observations
from svc.domain.intake.batches import decoder, split
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import OwnPrices
from svc.front.api.routes import Api
from svc.front.api.table import ROUTES
from svc.front.app import App
from svc.front.health import Health, Ledger, Pulse
from svc.front.mcp.endpoint import Mcp
from svc.front.metrics import Metrics, Sources
from svc.front.otlp.grpc import OtlpGrpc
from svc.front.otlp.http import OtlpHttp
from svc.front.otlp.intake import Intake
from svc.front.otlp.quotas import Quotas, QuotaSizes
from svc.front.otlp.signals import OTHERS
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.door import Door
from svc.front.server.sub_path import SubPath
from svc.ingest.attributes import AttributeExchange
from svc.ingest.launching import DecoderLauncher
from svc.ingest.masking import MaskingExchange
from svc.ingest.project_prices import ProjectPriceExchange
from svc.ingest.writer import Ingest
from svc.runtime.clock import now
from svc.runtime.files import connections_allowed
from svc.runtime.watchdog import LoopWatchdog
from svc.store.accounts.keys import PostgresKeyStore, matches
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.rollups import RollupStore
from svc.store.postgres.clock import server_clock
from svc.store.postgres.partitions import DayPartitions
from svc.store.postgres.pools import Pools
from svc.store.reads.questions.query import QueryStore
from svc.store.replicas.prices import OwnPricesStore
from svc.store.retention.purge import PostgresPurgeStore
from svc.store.spans.call_sites import CallSites
from svc.store.spans.dead_letters import DeadLetterStore
from svc.store.spans.exporters import ExporterStore
from svc.store.spans.traces import PostgresTraceStore
from svc.store.spans.writing import SpanStore
from svc.web.shell.process_view import OwnerLink
from svc.web.shell.site import Site
from svc.wiring.agents import agent_loops, launcher_state, run_requests
from svc.wiring.alerts import alert_loops, own_checks
from svc.wiring.detecting import detecting_loop
from svc.wiring.keeping import leases, optional_loops, retention_report
from svc.wiring.mcp import mcp_endpoint
from svc.wiring.pages import process_view_of, running_process, site
from svc.wiring.people import invitation_loop, means
from svc.wiring.replicas import attempt_loops, price_loop, shared_attempts
from svc.wiring.safekeeping import safekeeping_loops
from svc.wiring.spools import spooling
from svc.wiring.tls import Tls


class Service:
    """Everything between the database and the doors, built once."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        pools: Pools,
        prices: PriceBook,
        launcher: DecoderLauncher,
        *,
        buried_before: int,
        tls: Tls | None = None,
    ) -> None:
        self.settings, self.store, self.pools, self.tls = settings, store, pools, tls
        self.sizes, self.watchdog = sizes_for(settings), LoopWatchdog()
        self.board = Board()
        self.tally, self.roller_tally, self.sweep_tally = Tally(), RollerTally(), SweepTally()
        self.detection, self.alerts = Detecting(self.board), AlertTally()
        self.launcher, self.decoder_launcher = launcher_state(settings), launcher
        #: The port of the front, once it is bound.
        self.port = settings.http_bind[1]
        dead_letters = DeadLetterStore(pools.ingest)
        self.spooling = spooling(settings, self.board, self.tally, dead_letters)
        self.spool = self.spooling.spool
        self.verdicts = Verdicts()
        send, self.questions = trio.open_memory_channel[Verify](MAILBOX_BOUND)
        self.keys = Keys(self.verdicts, send)
        self.server_time = partial(pools.upkeep.run, server_clock, transaction=False)
        self.days = DayPartitions(pools.upkeep, settings.trace_ttl_days)
        self.hashers = trio.CapacityLimiter(HASHERS)
        self.key_store = PostgresKeyStore(pools.admission, self.hashers)
        self.metrics = Metrics()
        self.safekeeping, self.teeing = Safekeeping.of(settings), Teeing.of(settings)
        self.intake = self._intake()
        self.prices, self.observations = prices, Observations()
        self.attributes = AttributeExchange()
        self.shared_prices = SharedPrices(OwnPricesStore(pools.upkeep), self.adopt)
        self.decoders = tuple(
            Lane(self.board.enrol(f"decoder-{number}"), on_demand=number > 1)
            for number in range(1, self.sizes.decoders + 1)
        )
        self.sink = self._sink()
        self.drainer_vitals = tuple(
            self.board.enrol(f"drainer-{number}") for number in range(1, drainers(settings) + 1)
        )
        self.health = self._health(buried_before)
        queries = QueryStore(pools.history)
        self.process = running_process(
            settings, self.health, self.metrics, self.sink, DeadLetterStore(pools.questions)
        )
        databases = (pools.admission, pools.questions)
        runner = NamedRunnerPresence.of(settings)
        self.means = means(
            settings, *databases, self.keys, self.hashers, now, self.process, pools.history, runner
        )
        self.dispatcher = cast(AlertDispatcher, self.means.alerts)
        self.owner_link, self.demo = OwnerLink(now), DemoProcess()
        limiter = self.connection_limiter = ConnectionLimiter(connections_allowed)
        mcp = mcp_endpoint(settings, pools, self.keys, self.means, queries)
        self.door = self._door(mcp, queries)
        self.grpc = OtlpGrpc(intake=self.intake, keys=self.keys, callers=self.means.callers, limiter=limiter)
        self.metrics.watch(self._sources())

    def _intake(self) -> Intake:
        sizes = QuotaSizes(
            key_bytes_per_minute=self.settings.quota_key_bytes_per_minute,
            trace_spans=self.settings.quota_trace_spans,
            names_per_day=self.settings.quota_names_per_day,
        )
        return Intake(
            self.spool,
            self.settings.max_body_bytes,
            now,
            trio.current_time,
            ingest_limits(self.settings),
            quotas=Quotas(sizes),
            no_disk=self.safekeeping.refuses,
            hears=self.teeing.hears,
            others=OTHERS if self.settings.genai_events else (),
        )

    def _door(self, mcp: Mcp, queries: QueryStore) -> Door:
        transport, tally = self.settings.transport, self.intake.tally
        api, refusals = Api(self.means, ROUTES), (tally.signals, tally.lately)
        app: Any = App(self.keys, queries, self.health, self.metrics, api, self._pages(), *refusals).build()
        http = OtlpHttp(
            self.intake, self.keys, enabled=transport in ("HTTP", "BOTH"), callers=self.means.callers
        )
        grpc_port = self.settings.grpc_port if transport in ("GRPC", "BOTH") else None
        plain = None if self.tls is None else self.tls.plain
        sub_path = SubPath(self.settings.base_path) if self.settings.base_path else None
        return Door(
            otlp=http.by_path(),
            mcp=mcp,
            app=app,
            grpc_port=grpc_port,
            plain=plain,
            sub_path=sub_path,
            lately=tally.lately,
        )

    def _sink(self) -> BatchSink:
        if self.decoders:
            return Decoders(self.decoders)
        pool, attributes = self.pools.ingest, self.attributes
        spans = SpanStore(pool, DayPartitions(pool, self.settings.trace_ttl_days), CallSites())
        masking = attributes.masking = MaskingExchange(pool)
        attributes.prices = ProjectPriceExchange(pool, self.prices)
        attributes.codes, known = spans.codes, (attributes.reader, attributes.census, masking.masker)
        return Ingest(decoder(self.prices, self.observations, None, *known), spans, attributes.ensure)

    def _pages(self) -> Site:
        process_view = process_view_of(
            self.settings, self.intake, self.process, self.owner_link, self.demo, self.prices
        )
        return site(self.means, process_view)

    def _health(self, buried_before: int) -> Health:
        embedded = self.store.embedded
        return Health(
            spool=self.spool.state,
            tally=self.tally,
            drainers=self.drainer_vitals,
            spool_vitals=self.spooling.vitals,
            board=self.board,
            pulse=Pulse(self.pools.admission.ping, self.pools.admission.knock, self.pools.answered_s),
            pools=self.pools.state,
            embedded=None if embedded is None else embedded.snapshot,
            max_lag_ms=self.settings.spool_max_lag_ms,
            buried_before=buried_before,
            ledger=self.ledger,
            retention=lambda: retention_report(self.settings, self.sweep_tally),
            refused=lambda: self.intake.tally.lately.told(),
            signals=lambda: self.intake.tally.signals.recent(),
            log_records=self.intake.log_records,
            tls=None if self.tls is None else self.tls.report,
            more=lambda: self.safekeeping.health() | self.teeing.health() | self.alerts.health(),
            loop=self.watchdog.snapshot,
            agents=None if self.settings.auth_disabled else self.launcher.snapshot,
            replica=None if self.pools.replica is None else self.pools.replica.snapshot,
        )

    def _sources(self) -> Sources:
        return Sources(
            spool=self.spool.state,
            intake=self.intake.tally,
            quotas=self.intake.quotas,
            tally=self.tally,
            roller=self.roller_tally,
            tallying=lambda: self.detection.counts("trace-folder"),
            sweep=self.sweep_tally,
            keys=lambda: keys_snapshot(self.verdicts),
            sign_ins=lambda: self.means.sign_ins(),
            pools=self.pools.state,
            outages=self.pools.outages,
            shed=lambda: self.connection_limiter.shed,
            turned_away=lambda: self.means.concurrency.refused,
            board=self.board,
            in_flight=lambda: self.door.in_flight,
            loop=self.watchdog.snapshot,
            ledger=self.ledger,
            certificate_left_s=lambda: None if self.tls is None else self.tls.left_s(),
            backups=self.safekeeping.backups,
            disk=self.safekeeping.disk,
            tee=self.teeing.tally(),
            alerts=self.alerts,
            replica=None if self.pools.replica is None else self.pools.replica.snapshot,
        )

    def ledger(self) -> Ledger:
        """Where every span of this process went."""
        return Ledger.of(self.spool.state(), self.intake.tally.rejected_spans, self.tally)

    def _builder(self, hours: Hours, name: str, round_s: float) -> Loop:
        build = partial(HourBuilder, hours=hours, now=self.server_time, round_s=round_s)
        return self.board.spare(name, build)

    def _roller(self, name: str, store: PostgresTraceStore, traces: int) -> Loop:
        now, tally = self.server_time, self.roller_tally
        return self.board.spare(name, partial(TraceRoller, store=store, now=now, tally=tally, traces=traces))

    def loops(self) -> list[Loop]:
        """The actors that run until they are cancelled, in the order of their start."""
        purge = PostgresPurgeStore(self.pools.upkeep)
        loops: list[Loop] = [
            self.board.needed(
                "key-cache",
                partial(
                    KeyCache,
                    verdicts=self.verdicts,
                    mailbox=self.questions,
                    store=self.key_store,
                    matches=matches,
                    now=now,
                    hashers=self.hashers,
                ),
            ),
            self.board.needed(
                "key-news", partial(RevocationListener, verdicts=self.verdicts, store=self.key_store)
            ),
            self._builder(CubeStore(self.pools.upkeep), "cube-builder", CUBES_ROUND_S),
            self.board.spare("exporter-writer", partial(Repeating, self._write_exporters)),
            self._builder(RollupStore(self.pools.upkeep), "rollup-writer", ROLLUPS_ROUND_S),
            self.board.spare("purger", partial(Purger, store=purge, now=now)),
            self.board.spare("partitioner", partial(Partitioner, calendar=self.days, now=now)),
            self._roller("trace-roller", PostgresTraceStore(self.pools.upkeep), ROUND_TRACES),
            # One at a time: each is a transaction of its own.
            self._roller("large-trace-roller", PostgresTraceStore(self.pools.upkeep, large=True), 1),
            detecting_loop(
                self.settings,
                self.store.database.address,
                self.detection,
                lambda: self.spool.waiting_spans,
                lambda: self.door.arrived + self.tally.groups,
                self.board,
            ),
        ]
        return [*self._embedded(), *loops, *self._duties(), *self._decoding(), *self._replicas()]

    def _embedded(self) -> list[Loop]:
        embedded = self.store.embedded
        return [] if embedded is None else [(lambda: embedded, self.board.enrol("embedded-postgres"))]

    def _duties(self) -> list[Loop]:
        """What is done now and then, some of it by one replica alone."""
        own = own_checks(self.settings, self.dispatcher, self.health.ingest, self.safekeeping, self.tls)
        requests = run_requests(
            self.settings, self.pools.upkeep, self.key_store, self.keys, lambda: self.port
        )
        loops = alert_loops(self.pools, self.board, own, self.alerts)
        if self.teeing.endpoint is not None:
            forwarder = partial(TeeForwarder, tee=self.teeing.tee, send=self.teeing.endpoint.send)
            loops.append(self.board.spare("tee", forwarder))
        loops += agent_loops(self.settings, self.pools.upkeep, requests, self.launcher, self.board)
        duties = leases(self.settings)
        loops.append(invitation_loop(self.means, self.board))
        loops += optional_loops(self.settings, self.pools.upkeep, self.board, self.sweep_tally, duties)
        loops += safekeeping_loops(
            self.settings, self.store, self.pools.upkeep, self.board, self.safekeeping, duties
        )
        if self.tls is not None:
            loops += self.tls.loops(self.board, self.pools.admission, duties)
        return loops

    def _decoding(self) -> list[Loop]:
        launch = self.decoder_launcher.process(
            self.store.database.address,
            self.settings.log_level,
            self.settings.log_format,
            self.prices,
            pool_size=self.sizes.per_decoder,
            trace_days=self.settings.trace_ttl_days,
        )
        loops: list[Loop] = [
            (partial(DecoderProcess, lane=lane, launch=launch), lane.vitals) for lane in self.decoders
        ]
        if isinstance(self.sink, Decoders) and awaited():
            look = CompiledModules(self.sink).look
            loops.append(self.board.spare("compiled-modules", partial(Repeating, look)))
        return loops

    def _replicas(self) -> list[Loop]:
        """What replicas on one served database tell one another, and the server that is read beside it."""
        if self.settings.embedded:
            return []
        window_s = self.settings.auth_tries_window_s
        attempts = shared_attempts(self.means.attempts, self.pools.admission, window_s)
        loops = [price_loop(self.shared_prices, self.board), *attempt_loops(attempts, self.board)]
        if self.pools.replica is not None:
            loops.append(self.board.spare("read-replica", partial(Repeating, self.pools.replica.look)))
        return loops

    def bound_to(self, port: int) -> None:
        """The front listens there."""
        self.port = self.dispatcher.port = port

    async def _write_exporters(self) -> float:
        rejected = self.intake.tally.take_rejections()
        await ExporterStore(self.pools.upkeep).add(self.observations.take(), rejected, now())
        await self.attributes.exchange(self.pools.upkeep, now())
        return EXPORTERS_ROUND_S

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
            group=SMALL_GROUP if self.settings.small else GROUP,
        )

    def _stored(self, batch: Batch) -> None:
        self.metrics.queryable_s.observe(trio.current_time() - batch.received_s)
