"""The life of a runner: its door opens, runs are taken, and a stop cancels them within its time.

`serve_runner` is called by the command `sandbox-runner`. A runner that is a child of the service ends with
it.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve as serve_http

from svc.domain.pricing.prices import PriceBook
from svc.outside.models.provider import Surrounding
from svc.runner.agent_loop import AgentLoop
from svc.runner.repository import clear_left
from svc.runner.runs import RunTable
from svc.runner.sandbox import SandboxBackend
from svc.runner.sandboxes.local_cli import LocalCli
from svc.runner.server import RunnerDoor

log = logging.getLogger(__name__)

#: What runs get to end in after a stop (they are cancelled at once).
DRAIN_S: Final = 20.0
#: How often it is looked whether sandboxes can be used.
LOOK_S: Final = 60.0


async def serve_runner(
    bind: str,
    *,
    key: str,
    version: str,
    around: Surrounding,
    backend: SandboxBackend,
    prices: PriceBook,
    cli: LocalCli | None = None,
    stop: trio.Event,
    ready: Callable[[str], None],
) -> None:
    """Serve until `stop`. `ready` is told the address. A `cli` does the runs that name no provider."""
    agent_loop = AgentLoop(around, backend, prices, lambda: datetime.now(UTC), cli)
    table = RunTable(agent_loop.work)
    mode = around.mode if cli is None else "local"
    door: Any = RunnerDoor(table, backend, key, version, mode, str if cli is None else cli.fault)
    await trio.to_thread.run_sync(clear_left)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: table.run(task_status=task_status))
        await backend.look()
        nursery.start_soon(_looking, backend)
        binds: list[str] = await nursery.start(
            partial(serve_http, door, _hypercorn(bind), mode="asgi", shutdown_trigger=trio.sleep_forever)
        )
        ready(binds[0].removesuffix("/"))
        await stop.wait()
        table.drain()
        with trio.move_on_after(DRAIN_S):
            await table.rest()
        nursery.cancel_scope.cancel()


async def _looking(backend: SandboxBackend) -> None:
    while True:
        await trio.sleep(LOOK_S)
        await backend.look()


def _hypercorn(bind: str) -> HypercornConfig:
    config = HypercornConfig()
    config.bind = [bind]
    config.graceful_timeout = 1.0
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.loglevel = "WARNING"
    config.keep_alive_timeout = 75.0
    return config


async def stop_on_signals(stop: trio.Event) -> None:
    """Set the event on SIGTERM and SIGINT."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
        async for number in arriving:
            log.info("stopping on %s", signal.Signals(number).name)
            stop.set()
