"""The part of the wiring that concerns the web pages: what they are handed of the running process."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from actors.keys import Grant
from actors.ports import BatchSink
from protocol.refusals import Refusal
from protocol.release import release
from protocol.storage import Batch, Written
from svc.application.addresses import sso_redirect_uri
from svc.application.brokers import bring_home
from svc.config.table import Settings
from svc.domain.pricing.prices import PriceBook
from svc.front.auth.calls import Context
from svc.front.health import Health
from svc.front.metrics import Metrics
from svc.front.otlp.intake import Held, Intake, Large
from svc.runtime.child import program
from svc.store.spans.dead_letters import DeadLetterStore
from svc.web.account.kept_form import signed_out
from svc.web.shell.assets import Assets
from svc.web.shell.process_view import (
    Demo,
    DemoState,
    IngestLight,
    OwnerLink,
    ProcessView,
    Rate,
    SignOnState,
    UntilVisible,
)
from svc.web.shell.render import Renderer
from svc.web.shell.site import Site
from svc.web.table import PAGES

log = logging.getLogger(__name__)


def site(means: Context, process_view: ProcessView) -> Site:
    """The pages, with everything they call inwards."""
    base_path = means.surroundings.base_path
    renderer = Renderer(Assets.read(base_path=base_path), base_path)
    return Site(means, process_view, PAGES, renderer, signed_out)


def process_view_of(
    settings: Settings,
    intake: Intake,
    process: RunningProcess,
    owner_link: OwnerLink,
    demo: Demo,
    prices: PriceBook,
) -> ProcessView:
    """What the pages read of the process itself."""
    sso = settings.sso_issuer_url if settings.sso_client_id and settings.sso_api_key else None
    return ProcessView(
        ingest=_ingest(intake, process),
        quotas=intake.quotas.uses,
        refused=lambda: intake.tally.lately.told(),
        owner_link=owner_link,
        send=_send(intake),
        demo=demo,
        prices=prices,
        grpc_port=settings.grpc_port if settings.transport in ("GRPC", "BOTH") else None,
        version=release(),
        process=process,
        sign_on=None if sso is None else SignOnState(sso, sso_redirect_uri(settings)),
    )


@attrs.define(eq=False)
class RunningProcess:
    """This process, as its pages and dead letters know it. Implements `Process` and `Replays`."""

    settings: Settings
    reports: Health
    metrics: Metrics
    sink: BatchSink
    letters: DeadLetterStore
    #: Spans that left the dead letters by hand since the start.
    gone_spans: int = 0

    async def health(self) -> dict[str, Any]:
        """What `/actuator/health` says."""
        return (await self.reports.report())[1]

    def until_visible(self) -> UntilVisible:
        """From the histogram of the metrics: the bound of the bucket in which a share of the batches lies."""
        return UntilVisible(*self.metrics.until_queryable())

    def disk_free(self) -> int | None:
        """Bytes that are free where the embedded database lies."""
        if not self.settings.embedded:
            return None
        return shutil.disk_usage(self.settings.data_dir).free

    async def write(self, batch: Batch) -> Written:
        """Store one batch as the drainers do."""
        return await self.sink.write([batch])

    def unburied(self, spans: int) -> None:
        """Count them out of what every page says of dead letters."""
        self.gone_spans += spans

    def buried(self) -> int:
        """Spans among the dead letters, as far as this process knows."""
        dead_lettered = int(self.reports.ingest()["details"]["dead_lettered"])
        return max(dead_lettered - self.gone_spans, 0)

    @property
    def broker(self) -> bool:
        """Whether dead letters lie in a broker until they are fetched."""
        return self.settings.spool_mode == "kafka"

    async def bring_home(self) -> int:
        """Move letters from the topic of broker mode to the table."""
        return await bring_home(self.settings, self.letters) if self.broker else 0


@attrs.define(eq=False)
class DemoProcess:
    """Runs `trace-svc demo` against this very process, as an operator would beside it.

    It ends by itself: when the service goes away, it finds nobody to send to.
    """

    #: The address of the door from this machine, once it is bound.
    url: str = ""
    _process: trio.Process | None = None
    _refused: bool = False

    def state(self) -> DemoState:
        """Whether it runs, and how the last one ended."""
        if self._process is None:
            return "failed" if self._refused else "idle"
        status = self._process.poll()
        return "running" if status is None else "failed" if status else "done"

    async def start(self) -> None:
        """Start it, unless it runs."""
        if self.state() == "running":
            return
        demo = program("svc", "demo", "--url", self.url)
        null = subprocess.DEVNULL
        try:
            self._process = await trio.lowlevel.open_process(
                demo.words, cwd=demo.cwd, stdin=null, stdout=null
            )
        except OSError as error:
            self._process, self._refused = None, True
            log.warning("the demo could not start: %s", error)


def _ingest(intake: Intake, process: RunningProcess) -> Callable[[], IngestLight]:
    rate = Rate(lambda: intake.tally.spans, trio.current_time)

    def light() -> IngestLight:
        refused = sum(int(refusal["count"]) for refusal in intake.tally.lately.told())
        well = process.reports.ingest()["status"] == "UP"
        return IngestLight(rate.per_s(), refused, process.buried(), well)

    return light


def _send(intake: Intake) -> Callable[[int, bytes], Awaitable[str | None]]:
    async def send(project_id: int, body: bytes) -> str | None:
        with intake.spool.reservation() as room:
            taking = intake.take(Grant("pages", project_id, "write"), body, "identity", "json", room)
            if isinstance(taking, Held | Large):
                taking = await intake.settled(taking)
        return taking.message if isinstance(taking, Refusal) else None

    return send
