"""`{p}/agent-runs`, `{p}/rca`, `{p}/agent-settings`, and the presses that have agents run.

A press is stored before it is answered. What a run came to stands in its finding or its case; `outcome`
repeats it, so none of this is shown over MCP.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from protocol.agents import DEFAULT_LIMITS, AgentSettings, ModelChoice, NotPressed, RepoChoice, RunKind
from protocol.refusals import (
    AGENTS_OFF,
    ALREADY_RESOLVED,
    BAD_MODEL_BOUNDS,
    BAD_REPOSITORY,
    NO_RUNNER,
    NO_SUCH_CASE,
    NO_SUCH_FINDING,
    NO_SUCH_INTEGRATION,
    NO_SUCH_REPORT,
    NO_SUCH_RUN,
    OVERRULED,
    RUN_IS_OVER,
    Refusal,
)
from protocol.rest.agents import (
    AgentSettingsShown,
    ModelChosen,
    ModelsChosen,
    RepoChosen,
    ReportList,
    ReportWhole,
    RunCancelled,
    RunPage,
    RunPressed,
    RunsQuery,
    RunWhole,
)
from svc.domain.agents.repositories import is_hosted_by, repository_fault
from svc.front.api.cases.findings import told_by
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.accounts.integrations import IntegrationStore
from svc.store.agents.reads import RunReads
from svc.store.agents.runs import PostgresRunStore
from svc.store.agents.settings import AgentSettingStore

#: Reports that are listed.
REPORTS: Final = 200

_RUN: Final = PROJECT + "/agent-runs/{runId}"
_REFUSED: Final = {"CLOSED": ALREADY_RESOLVED, "OVERRULED": OVERRULED}


async def pressed(call: Call[Any], kind: RunKind, subject_id: UUID) -> RunPressed | Refusal:
    """Have an agent run, or name the one that does; the refusal of whoever cannot be judged."""
    if call.means.callers.disabled:
        return AGENTS_OFF
    absent = None if call.means.runner is None else await call.means.runner.absent()
    if absent is not None:
        return NO_RUNNER.saying(NO_RUNNER.message.format(url=absent))
    press = await PostgresRunStore(call.means.database).press(
        call.project.id, kind, subject_id, call.author, call.means.now()
    )
    if isinstance(press, NotPressed):
        if press.code == "NOT_FOUND":
            return NO_SUCH_FINDING if kind == "triage" else NO_SUCH_CASE
        return told_by(_REFUSED[press.code], press.by, press.at)
    report_id = None if press.report_id is None else str(press.report_id)
    return RunPressed(str(press.run_id), press.state, press.coalesced, report_id)


async def post_triage(call: Call[None]) -> RunPressed | Refusal:
    """Have an agent judge whether a finding is real, or name the run that does."""
    return await pressed(call, "triage", call.id_of("findingId", NO_SUCH_FINDING))


async def post_rerun(call: Call[None]) -> RunPressed | Refusal:
    """Have an agent look once more for the cause that a report was about."""
    report_id = call.id_of("reportId", NO_SUCH_REPORT)
    case_id = await RunReads(call.means.questions).case_of_report(call.project.id, report_id)
    return NO_SUCH_REPORT if case_id is None else await pressed(call, "rca", case_id)


async def get_reports(call: Call[None]) -> dict[str, Any]:
    """The newest reports of root-cause analysis, by rule and by agents."""
    return {"reports": await RunReads(call.means.questions).reports(call.project.id, REPORTS)}


async def get_report(call: Call[None]) -> dict[str, Any] | Refusal:
    """One report with what it says."""
    report_id = call.id_of("reportId", NO_SUCH_REPORT)
    report = await RunReads(call.means.questions).report(call.project.id, report_id)
    return NO_SUCH_REPORT if report is None else report


async def get_runs(call: Call[None]) -> dict[str, Any]:
    """Runs of agents, newest first."""
    query: RunsQuery = call.query
    return await RunReads(call.means.questions).page(
        call.project.id, kind=query.kind, state=query.state, limit=query.limit, cursor=query.cursor
    )


async def get_run(call: Call[None]) -> dict[str, Any] | Refusal:
    """One run with what happened in it."""
    run = await RunReads(call.means.questions).one(call.project.id, call.id_of("runId", NO_SUCH_RUN))
    return NO_SUCH_RUN if run is None else run


async def post_cancel(call: Call[None]) -> RunCancelled | Refusal:
    """Have a run end. What it has cost stays counted."""
    did = await PostgresRunStore(call.means.database).cancel(
        call.project.id, call.id_of("runId", NO_SUCH_RUN), call.author, call.means.now()
    )
    return NO_SUCH_RUN if did is None else RunCancelled() if did else RUN_IS_OVER


def _settings_view(settings: AgentSettings) -> AgentSettingsShown:
    models = {
        kind: ModelChosen(
            str(choice.integration_id), choice.model, choice.output_tokens, choice.context_tokens
        )
        for kind, choice in settings.models.items()
    }
    repository = None
    if (chosen := settings.repository) is not None:
        by = None if chosen.integration_id is None else str(chosen.integration_id)
        repository = RepoChosen(chosen.clone_url, chosen.ref, by)
    return AgentSettingsShown(
        settings.triage_automatic, ModelsChosen(**models), settings.run_usd, settings.day_usd, repository
    )


async def get_settings(call: Call[None]) -> AgentSettingsShown:
    """What the project sets of its agents."""
    return _settings_view(await AgentSettingStore(call.means.database).of(call.project.id))


async def put_settings(call: Call[AgentSettingsShown]) -> AgentSettingsShown | Refusal:
    """Replace what the project sets of its agents; runs that waited for it are tried again at once."""
    models: dict[RunKind, ModelChoice] = {}
    kinds: tuple[RunKind, ...] = ("triage", "rca")
    for kind in kinds:
        chosen: ModelChosen | None = getattr(call.body.models, kind)
        if chosen is not None:
            try:
                integration_id = UUID(chosen.integration_id)
            except ValueError:
                return NO_SUCH_INTEGRATION
            bounds = DEFAULT_LIMITS[kind].of_model(chosen.output_tokens, chosen.context_tokens)
            if bounds.output_tokens > bounds.context_tokens // 2:
                return BAD_MODEL_BOUNDS
            models[kind] = ModelChoice(
                integration_id, chosen.model, chosen.output_tokens, chosen.context_tokens
            )
    body = call.body
    repository = await _repository(call)
    if isinstance(repository, Refusal):
        return repository
    settings = AgentSettings(body.triage_automatic, models, body.run_usd, body.day_usd, repository)
    stored = await AgentSettingStore(call.means.database).put(
        call.org.id, call.project.id, settings, call.caller.label
    )
    return _settings_view(settings) if stored else NO_SUCH_INTEGRATION


async def _repository(call: Call[AgentSettingsShown]) -> RepoChoice | Refusal | None:
    """The repository as it is kept; the refusal of one that may not be read, or not so."""
    choice = call.body.repository
    if choice is None:
        return None
    fault = repository_fault(choice.clone_url, choice.ref)
    if fault is not None:
        return BAD_REPOSITORY.saying(fault)
    if choice.integration_id is None:
        return RepoChoice(choice.clone_url, choice.ref)
    try:
        integration_id = UUID(choice.integration_id)
    except ValueError:
        return NO_SUCH_INTEGRATION
    integration = await IntegrationStore(call.means.questions).one(call.org.id, integration_id)
    if integration is None or integration.kind != "git":
        return NO_SUCH_INTEGRATION
    if not is_hosted_by(choice.clone_url, integration.provider, integration.base_url):
        return BAD_REPOSITORY.saying("the repository is not on the host of that integration")
    return RepoChoice(choice.clone_url, choice.ref, integration_id)


_REPORT: Final = PROJECT + "/rca/{reportId}"
_SETTINGS: Final = PROJECT + "/agent-settings"

ROUTES: Final = (
    Route(
        "POST", PROJECT + "/findings/{findingId}/triage", "ORG_MANAGE", post_triage, RunPressed, status=202,
        refusals=(NO_SUCH_FINDING, ALREADY_RESOLVED, OVERRULED, AGENTS_OFF, NO_RUNNER),
    ),
    Route("GET", PROJECT + "/rca", "ORG_VIEW", get_reports, ReportList),
    Route("GET", _REPORT, "ORG_VIEW", get_report, ReportWhole, refusals=(NO_SUCH_REPORT,)),
    Route(
        "POST", _REPORT + "/rerun", "ORG_MANAGE", post_rerun, RunPressed, status=202,
        refusals=(NO_SUCH_REPORT, AGENTS_OFF, NO_RUNNER),
    ),
    Route("GET", PROJECT + "/agent-runs", "ORG_VIEW", get_runs, RunPage, query=RunsQuery),
    Route("GET", _RUN, "ORG_VIEW", get_run, RunWhole, refusals=(NO_SUCH_RUN,)),
    Route(
        "POST", _RUN + "/cancel", "ORG_MANAGE", post_cancel, RunCancelled,
        refusals=(NO_SUCH_RUN, RUN_IS_OVER),
    ),
    Route("GET", _SETTINGS, "ORG_VIEW", get_settings, AgentSettingsShown),
    Route(
        "PUT", _SETTINGS, "ORG_ADMIN", put_settings, AgentSettingsShown, body=AgentSettingsShown,
        refusals=(NO_SUCH_INTEGRATION, BAD_REPOSITORY, BAD_MODEL_BOUNDS),
    ),
)  # fmt: skip
