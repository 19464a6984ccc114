"""The part of the wiring that concerns the web pages: what they are handed of the running process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version

import attrs
import trio

from actors.keys import Grant
from protocol.refusals import Refusal
from svc.config.table import Settings
from svc.domain.pricing import PriceBook
from svc.front.auth.calls import Means
from svc.front.health import Health
from svc.front.otlp.intake import Held, Intake, Large
from svc.web.assets import Assets
from svc.web.instruments import Demo, DemoState, IngestLight, Instruments, OwnerLink, Rate
from svc.web.render import Renderer
from svc.web.site import Site
from svc.web.table import PAGES


def site(means: Means, instruments: Instruments) -> Site:
    """The pages, with everything they call inwards."""
    return Site(means, instruments, PAGES, Renderer(Assets.read()))


def instruments_of(
    settings: Settings, intake: Intake, health: Health, owner_link: OwnerLink, demo: Demo, prices: PriceBook
) -> Instruments:
    """What the pages read of the process itself."""
    return Instruments(
        ingest=_ingest(intake, health),
        refused=lambda: intake.tally.lately.told(),
        owner_link=owner_link,
        send=_send(intake),
        demo=demo,
        prices=prices,
        grpc_port=settings.grpc_port if settings.transport in ("GRPC", "BOTH") else None,
        version=version("trace-svc"),
    )


@attrs.define(eq=False)
class DemoProcess:
    """Runs `trace-svc demo` against this very process, as an operator would beside it.

    It ends by itself: when the service goes away, it finds nobody to send to.
    """

    #: The address of the door from this machine, once it is bound.
    url: str = ""
    _process: trio.Process | None = None

    def state(self) -> DemoState:
        """Whether it runs, and how the last one ended."""
        if self._process is None:
            return "idle"
        ended = self._process.poll()
        return "running" if ended is None else "failed" if ended else "done"

    async def start(self) -> None:
        """Start it, unless it runs."""
        if self.state() == "running":
            return
        self._process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "svc", "demo", "--url", self.url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


def _ingest(intake: Intake, health: Health) -> Callable[[], IngestLight]:
    rate = Rate(lambda: intake.tally.spans, trio.current_time)

    def light() -> IngestLight:
        refused = sum(int(one["count"]) for one in intake.tally.lately.told())
        report = health.ingest()
        return IngestLight(
            rate.per_s(), refused, int(report["details"]["dead_lettered"]), report["status"] == "UP"
        )

    return light


def _send(intake: Intake) -> Callable[[int, bytes], Awaitable[str | None]]:
    async def send(project_id: int, body: bytes) -> str | None:
        with intake.spool.reservation() as room:
            taken = intake.take(Grant("pages", project_id, "write"), body, "identity", "json", room)
            if isinstance(taken, Held | Large):
                taken = await intake.settled(taken)
        return taken.message if isinstance(taken, Refusal) else None

    return send
