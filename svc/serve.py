"""The life of the service: starts inside out, stops outside in.

`serve` runs the whole of it. What is plugged into what is `svc.wiring.service`.

A process that stops in favour of its successor keeps the listening sockets open and refuses nothing: what is
inside is answered, and who connects then waits for the next process to accept.

Ordering of a stop, within `SVC_SHUTDOWN_DRAIN_SECONDS`: the listeners refuse new requests and finish the old;
the spool closes; the drainers empty it and go home; the loops are cancelled; the pool, the embedded server
and the asyncio loop close.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import attrs
import trio
from hypercorn.trio import serve as serve_http

from actors.supervision import keep
from protocol.storage import Outage
from svc.application.ingest_sizes import sizes_for, warn_of_fewer_decoders
from svc.application.open_store import Store, open_store, replica_address
from svc.application.safekeeping import free_wal
from svc.application.start_checks import check_budget, check_spool_folder, sign_up_warnings
from svc.config.table import Settings
from svc.domain.pricing.prices import PriceBook
from svc.front.server.connection import contain_connections
from svc.front.server.hypercorn import HttpConfig
from svc.front.server.listening import bound
from svc.ingest.launching import DecoderLauncher
from svc.ingest.prices import BadPrices, price_book
from svc.runtime.child import own_command
from svc.runtime.files import quiet_capacity_errors, raise_file_limit
from svc.runtime.garbage import collect_seldom
from svc.runtime.handover import Inherited, Successor, rehearse
from svc.store.accounts.audit import SYSTEM
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.pools import open_pools
from svc.store.spans.dead_letters import DeadLetterStore
from svc.wiring.service import Service
from svc.wiring.tls import Tls, open_tls

log = logging.getLogger(__name__)


@attrs.frozen
class Ready:
    """What `serve` tells its starter once every door is open.

    Secrets: `first_keys` are the plaintext of a write key and a query key, on a first start only; whoever has
    `owner_url` can own the instance.
    """

    http_url: str
    grpc_port: int | None
    first_keys: tuple[str, str] | None = attrs.field(repr=False)
    #: While nobody has signed up: where the owner does. It serves once, for an hour.
    owner_url: str | None = attrs.field(default=None, repr=False)


async def serve(
    settings: Settings,
    launcher: DecoderLauncher,
    *,
    stop: trio.Event | None = None,
    successor: Successor | None = None,
    task_status: trio.TaskStatus[Ready | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the service until SIGTERM, SIGINT or `stop`; with a `successor`, until SIGUSR2 in favour of it.

    Tells `task_status` when every listener is open, or None when it was stopped before that.

    Cancellation: a stop that comes while it starts (it may wait a minute for its database) cancels the start.
    From the moment the listeners open something may have been taken, and a stop drains.
    """
    stop = trio.Event() if stop is None else stop
    opening = trio.Event()
    async with trio.open_nursery() as service_nursery:
        # To the very end: a supervisor may signal twice, and the second must not cut the drain off.
        service_nursery.start_soon(_signals, stop, opening, successor)
        with trio.CancelScope() as starting:
            service_nursery.start_soon(_give_up, starting, stop, opening)
            await _live(settings, launcher, stop, opening, task_status, successor)
        if starting.cancelled_caught:
            task_status.started(None)
        service_nursery.cancel_scope.cancel()
    log.info("stopped")


def check(settings: Settings) -> None:
    """Raise `OperatorError` where a start would, for what it reads before it begins anything."""
    _read_files(settings)


def _read_files(settings: Settings) -> tuple[PriceBook, Tls | None]:
    prices, tls = price_book(settings.prices_file), open_tls(settings)
    check_spool_folder(settings)
    return prices, tls


async def _give_up(starting: trio.CancelScope, stop: trio.Event, opening: trio.Event) -> None:
    await stop.wait()
    if not opening.is_set():
        starting.cancel()


async def _live(
    settings: Settings,
    launcher: DecoderLauncher,
    stop: trio.Event,
    opening: trio.Event,
    task_status: trio.TaskStatus[Ready | None],
    successor: Successor | None,
) -> None:
    prices, tls = _read_files(settings)
    raise_file_limit()
    quiet_capacity_errors()
    with _open_front(settings, tls) as front:
        await _run(settings, launcher, stop, opening, task_status, prices, front, successor)


@attrs.frozen
class _Front:
    """The addresses of the listeners, taken before anything else; `tls` where this process does TLS."""

    plain: socket.socket
    grpc: socket.socket | None
    tls: tuple[socket.socket, Tls] | None

    @property
    def sockets(self) -> list[socket.socket]:
        """All of them."""
        secure = None if self.tls is None else self.tls[0]
        return [sock for sock in (self.plain, self.grpc, secure) if sock is not None]

    def http(self) -> HttpConfig:
        """What Hypercorn serves; it closes copies of these sockets."""
        return HttpConfig(self.plain, None if self.tls is None else (self.tls[0], self.tls[1].doors.https))


@contextmanager
def _open_front(settings: Settings, tls: Tls | None) -> Iterator[_Front]:
    inherited = Inherited.take(os.environ)
    with ExitStack() as sockets:

        def take(host: str, port: int, variable: str) -> socket.socket:
            return sockets.enter_context(bound(host, port, variable, inherited.at(port)))

        host, grpc, secure = settings.http_bind[0], None, None
        plain = take(*settings.http_bind, "SVC_HTTP_BIND")
        if settings.transport in ("GRPC", "BOTH"):
            grpc = take(host, settings.grpc_port, "SVC_INGEST_OTLP_GRPC_PORT")
        if tls is not None:
            secure = (take(*settings.https_bind, "SVC_HTTPS_BIND"), tls)
        inherited.close()
        yield _Front(plain, grpc, secure)


async def _run(
    settings: Settings,
    launcher: DecoderLauncher,
    stop: trio.Event,
    opening: trio.Event,
    task_status: trio.TaskStatus[Ready | None],
    prices: PriceBook,
    front: _Front,
    successor: Successor | None,
) -> None:
    async with open_store(settings) as store:
        await check_budget(settings, store.database)
        await free_wal(settings, store.database)
        buried = await DeadLetterStore(store.database).count_spans()
        warn_of_fewer_decoders(settings)
        for warning in await sign_up_warnings(settings, store.database):
            log.warning(warning)
        async with (
            open_pools(
                store.database.address,
                sizes_for(settings),
                replica=replica_address(settings),
                max_lag_s=settings.read_max_lag_s,
            ) as pools,
            trio.open_nursery() as loop_nursery,
        ):
            tls = None if front.tls is None else front.tls[1]
            service = Service(settings, store, pools, prices, launcher, buried_before=buried, tls=tls)
            if settings.prices_file is not None or tls is not None:
                loop_nursery.start_soon(_read_anew, service)
            for build, vitals in service.loops():
                await loop_nursery.start(partial(keep, build, vitals))
            async with service.spooling.opened(loop_nursery), trio.open_nursery() as drainer_nursery:
                for vitals in service.drainer_vitals:
                    await drainer_nursery.start(partial(keep, partial(service.drainer, vitals), vitals))
                async with trio.open_nursery() as server_nursery:
                    opening.set()
                    # Before anybody waits for an answer: it held the loop for 0.12 s (measured 2026-11).
                    collect_seldom()
                    http = front.http()
                    task_status.started(await _open_listeners(service, server_nursery, front, http))
                    with service.watchdog.watching():
                        await stop.wait()
                    # From here on everything must be over in time: requests first, then the spool.
                    drainer_nursery.cancel_scope.deadline = trio.current_time() + settings.shutdown_drain_s
                    if successor is not None and successor.awaited:
                        successor.keep(*front.sockets)
                        await _leave_listeners(service, http, settings.shutdown_drain_s)
                    else:
                        await _close_listeners(service, settings.shutdown_drain_s)
                        server_nursery.cancel_scope.cancel()
                service.spool.close()
                await service.teeing.flushed(drainer_nursery.cancel_scope.deadline - trio.current_time())
            spool = service.spool.state()
            if spool.depth and service.spool.durable:
                log.warning("stopped with %d batches in the spool; the next start stores them", spool.depth)
            elif spool.depth:
                log.error("stopped with %d batches (%d bytes) not stored", spool.depth, spool.bytes)
            loop_nursery.cancel_scope.cancel()


async def _signals(stop: trio.Event, opening: trio.Event, successor: Successor | None) -> None:
    anew = () if successor is None else (signal.SIGUSR2,)
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *anew) as arriving:
            async for number in arriving:
                name = signal.Signals(number).name
                if successor is None or number != signal.SIGUSR2:
                    log.info("%s on %s", "still stopping" if stop.is_set() else "stopping", name)
                    if successor is not None:
                        # Whoever stops it wants it gone, and not another one.
                        successor.awaited = False
                    stop.set()
                elif not opening.is_set() or stop.is_set() or successor.rehearsing:
                    moment = "stop" if stop.is_set() else "restart" if opening.is_set() else "start"
                    log.info("%s is ignored in a %s", name, moment)
                else:
                    successor.rehearsing = True
                    nursery.start_soon(_make_way, stop, successor)


async def _make_way(stop: trio.Event, successor: Successor) -> None:
    """Stop in favour of the successor, unless it would not start."""
    fault = await rehearse(own_command())
    successor.rehearsing = False
    if fault is not None:
        log.error("the next process would not start, so this one keeps running: %s", fault)
    elif not stop.is_set():
        log.info("handing over to the next process")
        successor.awaited = True
        stop.set()


async def _read_anew(service: Service) -> None:
    """On each SIGHUP: prices and certificate. What is not right leaves the old in force."""
    with trio.open_signal_receiver(signal.SIGHUP) as arriving:
        async for _ in arriving:
            if service.tls is not None:
                service.tls.nudge.push()
            path = service.settings.prices_file
            if path is None:
                continue
            try:
                await service.shared_prices.read_anew(path)
            except BadPrices as bad:
                log.warning("%s; keeping the old prices", bad)
            except Outage as outage:
                log.warning("the new prices are in use here, but other copies were not notified: %s", outage)
            else:
                log.info("prices are now %s", service.prices.version)


async def _open_listeners(
    service: Service, server_nursery: trio.Nursery, front: _Front, http: HttpConfig
) -> Ready:
    settings = service.settings
    secure, tls = (None, None) if front.tls is None else front.tls
    contain_connections(service.connection_limiter, None if tls is None else tls.doors)
    service.bound_to(front.plain.getsockname()[1])
    service.demo.url = _near(front.plain if secure is None else secure, secure is not None)
    if front.grpc is not None:
        await service.grpc.open(front.grpc, None if tls is None else tls.doors.grpc)
    grpc_port = None if front.grpc is None else settings.grpc_port
    door: Any = service.door  # Hypercorn spells out ASGI's dictionaries, key by key
    binds: list[str] = await server_nursery.start(
        partial(serve_http, door, http, mode="asgi", shutdown_trigger=http.shut.wait)
    )
    url = binds[0].removesuffix("/") if tls is None else f"https://{settings.site_domain}"
    url += settings.base_path
    return Ready(url, grpc_port, await _first_keys(service.store), await _owner_url(service, url))


def _near(door: socket.socket, secure: bool) -> str:
    """How a process on this machine reaches this door."""
    host, port = door.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


async def _close_listeners(service: Service, timeout_s: float) -> None:
    async with trio.open_nursery() as closing:
        closing.start_soon(_close_http, service, timeout_s)
        closing.start_soon(service.grpc.close, timeout_s)


async def _leave_listeners(service: Service, http: HttpConfig, timeout_s: float) -> None:
    """Refuse nothing: answer what is inside, and leave who comes to the successor."""
    async with trio.open_nursery() as leaving:
        leaving.start_soon(http.leave, timeout_s)
        leaving.start_soon(service.grpc.leave, timeout_s)


async def _close_http(service: Service, timeout_s: float) -> None:
    if not await service.door.close(timeout_s):
        log.warning("%d requests were still open when the drain deadline passed", service.door.in_flight)


async def _owner_url(service: Service, url: str) -> str | None:
    """The address of the owner's sign-up, while nobody has signed up with a password."""
    means = service.means
    if means.callers.disabled or not means.passwords or await means.accounts.any():
        return None
    return f"{means.landing or url}/signup?owner={service.owner_link.make()}"


async def _first_keys(store: Store) -> tuple[str, str] | None:
    """A write key and a query key for the default project, if this instance has no key at all yet."""
    if await store.database.fetch("select from api_key limit 1"):
        return None
    project = await ProjectStore(store.database).make_default()
    if project is None:
        return None
    keys = PostgresKeyStore(store.database)
    write = await keys.create(project.id, "first write key", "write", actor=SYSTEM)
    query = await keys.create(project.id, "first query key", "query", actor=SYSTEM)
    return write.plaintext, query.plaintext
