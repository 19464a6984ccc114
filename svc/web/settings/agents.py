"""Settings: agents. Which model judges and which looks for causes, what a run and a day may cost, what ran.

What is set is kept by the handler of the REST API. Never begins or ends a run: that is done on the page of a
finding or a case.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.agents import DEFAULT_LIMITS, RUN_KINDS, RunKind
from protocol.refusals import Refusal
from protocol.rest.agents import AgentSettingsShown, RunsQuery
from svc.front.api.cases import agents as api
from svc.front.api.settings import integrations
from svc.web.cases.agent_view import PARKED
from svc.web.settings import settings_text
from svc.web.shell import words
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

#: What each kind of run is called.
LANES: Final[dict[RunKind, str]] = {"triage": "Reviewing findings", "rca": "Investigating cases"}
#: Runs that the page lists.
LISTED: Final = 20


class AgentsForm(msgspec.Struct):
    """The settings as they were typed."""

    triage_automatic: str = ""
    triage_integration: str = ""
    triage_model: str = ""
    triage_output: str = ""
    triage_context: str = ""
    rca_integration: str = ""
    rca_model: str = ""
    rca_output: str = ""
    rca_context: str = ""
    run_usd: str = ""
    day_usd: str = ""
    repo_url: str = ""
    repo_ref: str = ""
    repo_integration: str = ""

    def chosen(self, kind: RunKind) -> dict[str, str | None] | None:
        """The model of a lane; None: what the runner's environment says."""
        integration: str = getattr(self, f"{kind}_integration")
        model: str = getattr(self, f"{kind}_model").strip()
        if not integration:
            return None
        return {
            "integration_id": integration,
            "model": model,
            "output_tokens": getattr(self, f"{kind}_output").strip() or None,
            "context_tokens": getattr(self, f"{kind}_context").strip() or None,
        }


def _typed(settings: AgentSettingsShown) -> AgentsForm:
    form = AgentsForm(
        triage_automatic="on" if settings.triage_automatic else "",
        run_usd="" if settings.run_usd is None else words.typed(settings.run_usd),
        day_usd=words.typed(settings.day_usd),
    )
    for kind in RUN_KINDS:
        chosen = getattr(settings.models, kind)
        if chosen is not None:
            setattr(form, f"{kind}_integration", chosen.integration_id)
            setattr(form, f"{kind}_model", chosen.model)
            setattr(form, f"{kind}_output", str(chosen.output_tokens or ""))
            setattr(form, f"{kind}_context", str(chosen.context_tokens or ""))
    if settings.repository is not None:
        form.repo_url, form.repo_ref = settings.repository.clone_url, settings.repository.ref or ""
        form.repo_integration = settings.repository.integration_id or ""
    return form


async def page(visit: Visit) -> Html:
    """What is set, and the newest runs."""
    return await _page(visit)


async def _page(visit: Visit, refusal: Refusal | None = None, form: AgentsForm | None = None) -> Html:
    if form is None:
        form = _typed(await api.get_settings(visit.call))
    chosen_ids = {form.repo_integration, *(getattr(form, f"{kind}_integration") for kind in RUN_KINDS)}
    listed = [
        integration
        for integration in await integrations.get_integrations(visit.call)
        if visit.sees_org or integration.id in chosen_ids
    ]
    runs = await asked(visit, api.get_runs, query=RunsQuery(limit=LISTED))
    context = {
        "tab": "agents",
        "lanes": LANES,
        "limits": DEFAULT_LIMITS,
        "day_usd": AgentSettingsShown().day_usd,
        "texts": settings_text,
        "providers": [integration for integration in listed if integration.kind == "model_provider"],
        "hosts": [integration for integration in listed if integration.kind == "git"],
        "form": form,
        "runs": runs["runs"],
        "more": runs["next_cursor"] is not None,
        "parked": PARKED,
        "refusal": refusal,
        "administers": visit.administers,
    }
    return Html("settings/agents", context, status=refusal.status if refusal else 200)


async def keep(visit: Visit) -> Html | Go:
    """Replace what is set."""
    form: AgentsForm = visit.form
    fields: dict[str, Any] = {
        "triage_automatic": bool(form.triage_automatic),
        "models": {kind: chosen for kind in RUN_KINDS if (chosen := form.chosen(kind)) is not None},
    }
    if form.run_usd.strip():
        fields["run_usd"] = form.run_usd.strip()
    if form.day_usd.strip():
        fields["day_usd"] = form.day_usd.strip()
    if form.repo_url.strip():
        fields["repository"] = {
            "clone_url": form.repo_url.strip(),
            "ref": form.repo_ref.strip() or None,
            "integration_id": form.repo_integration or None,
        }
    answer = await asked(visit, api.put_settings, AgentSettingsShown, fields)
    if isinstance(answer, Refusal):
        return await _page(visit, answer, form)
    return Go(visit.base + "/settings/agents")


_AGENTS: Final = PROJECT + "/settings/agents"

PAGES: Final = (
    PageRoute("GET", _AGENTS, "ORG_VIEW", page),
    PageRoute("POST", _AGENTS, "ORG_ADMIN", keep, form=AgentsForm),
)
