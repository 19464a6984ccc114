"""Wiring of the web pages: what they are handed of the running process."""

from __future__ import annotations

import trio

from actors.ports import BatchSink
from protocol.release import release
from svc.application.addresses import sso_redirect_uri
from svc.application.running_process import RunningProcess
from svc.config.table import Settings
from svc.domain.pricing.prices import PriceBook
from svc.front.auth.calls import Context
from svc.front.health import Health
from svc.front.metrics import Metrics
from svc.front.otlp.intake import Intake
from svc.store.spans.dead_letters import DeadLetterStore
from svc.web.account.kept_form import signed_out
from svc.web.shell.assets import Assets
from svc.web.shell.process_view import Demo, OwnerLink, ProcessView, Rate, SignOnState
from svc.web.shell.render import Renderer
from svc.web.shell.site import Site
from svc.web.table import PAGES


def site(means: Context, process_view: ProcessView) -> Site:
    """The pages, with everything they call inwards."""
    base_path = means.surroundings.base_path
    renderer = Renderer(Assets.read(base_path=base_path), base_path)
    return Site(means, process_view, PAGES, renderer, signed_out)


def running_process(
    settings: Settings, health: Health, metrics: Metrics, sink: BatchSink, letters: DeadLetterStore
) -> RunningProcess:
    """This process, as pages and dead letters know it."""
    return RunningProcess(settings, health.report, health.ingest, metrics.until_queryable, sink, letters)


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
        rate=Rate(lambda: intake.tally.spans, trio.current_time),
        quotas=intake.quotas.uses,
        refused=intake.tally.lately.told,
        owner_link=owner_link,
        send=intake.take_json,
        demo=demo,
        prices=prices,
        grpc_port=settings.grpc_port if settings.transport in ("GRPC", "BOTH") else None,
        version=release(),
        process=process,
        sign_on=None if sso is None else SignOnState(sso, sso_redirect_uri(settings)),
    )
