"""Settings: the project itself (name, terms, another project, its end), and what exporters send."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.rest.orgs import ProjectChange, ProjectNew
from protocol.rest.settings import RetentionChange, RetentionTerms
from svc.domain.retention.terms import Override, Terms
from svc.front.api.accounts import projects
from svc.front.api.settings import project_settings
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.spans.exporters import ExporterStore
from svc.web.connect.connect import KEY_NAME
from svc.web.settings.retention_view import forecast_of, frees
from svc.web.settings.settings_text import blank_term
from svc.web.shell.forms import NoFields, asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

#: What a quota bounds, by its setting.
QUOTA_NAMES: Final = {
    "SVC_QUOTA_TRACE_SPANS": "Spans of one trace",
    "SVC_QUOTA_NAMES_PER_DAY": "Distinct span names per day",
}
#: How far back sources are looked at.
SOURCES_DAYS: Final = 7


class NameForm(msgspec.Struct):
    """A name."""

    name: str = ""


class SlugForm(msgspec.Struct):
    """The slug of what goes, typed by hand."""

    slug: str = ""


class TermsForm(msgspec.Struct):
    """Days as they were typed; blank is the install's default."""

    traces: str = ""
    detections: str = ""
    #: Typed again after what a shorter term deletes was shown.
    sure: str = ""


async def page(visit: Visit) -> Html:
    """The project."""
    return await _page(visit)


async def _page(visit: Visit, refusal: Refusal | None = None, **asks: Any) -> Html:
    context = {
        "tab": "project",
        "terms": await project_settings.get_retention(visit.call),
        "refusal": refusal,
        "frees": None,
        "typed": {},
        "blank_term": blank_term,
        **asks,
        "manages": visit.manages,
        "manages_org": visit.manages_org,
        "administers": visit.administers,
        "project": visit.project,
    }
    status = refusal.status if refusal else 200
    return Html("settings/project", context, status=status)


async def forecast(visit: Visit) -> Html:
    """How much comes in, and what that comes to: it reads a week, so it is a part that comes later."""
    project_terms = await project_settings.get_retention(visit.call)
    terms = Terms(project_terms.effective.traces, project_terms.effective.detections)
    context = {"forecast": await forecast_of(visit, terms), "days": terms.traces}
    return Html("settings/retention_forecast", context, part=True)


async def _done(visit: Visit, answer: object, location: str = "") -> Html | Go:
    if isinstance(answer, Refusal):
        return await _page(visit, answer)
    return Go(location or visit.base + "/settings/project")


async def rename(visit: Visit) -> Html | Go:
    """Give the project another name."""
    fields = {"name": visit.form.name}
    return await _done(visit, await asked(visit, projects.patch_project, ProjectChange, fields))


async def retention(visit: Visit) -> Html | Go:
    """Replace both terms; what a shorter one deletes is shown first."""
    fields: dict[str, Any] = {}
    for name, typed in (("traces", visit.form.traces), ("detections", visit.form.detections)):
        if typed.strip():
            fields[name] = typed.strip()

    async def change(call: Any) -> Any:
        new_terms = Override(call.body.traces, call.body.detections).over(visit.means.terms)
        project_terms = await project_settings.get_retention(visit.call)
        if not visit.form.sure and _shorter(new_terms, project_terms.effective):
            return new_terms
        return await project_settings.put_retention(call)

    answer = await asked(visit, change, RetentionChange, fields)
    if isinstance(answer, Terms):
        return await _page(visit, frees=await frees(visit, answer), wanted=answer, typed=fields)
    return (
        await _page(visit, answer, typed=fields)
        if isinstance(answer, Refusal)
        else await _done(visit, answer)
    )


def _shorter(new_terms: Terms, now: RetentionTerms) -> bool:
    """Whether either of the terms deletes more than it did; 0 keeps for ever."""
    pairs = ((new_terms.traces, now.traces), (new_terms.detections, now.detections))
    return any(new and (not old or new < old) for new, old in pairs)


async def create(visit: Visit) -> Html | Go:
    """Make another project and go there."""
    answer = await asked(visit, projects.post_project, ProjectNew, {"name": visit.form.name})
    location = "" if isinstance(answer, Refusal) else f"/orgs/{visit.org.slug}/projects/{answer.slug}/connect"
    return await _done(visit, answer, location)


async def delete(visit: Visit) -> Html | Go:
    """Delete the project: its slug is asked for."""
    if visit.form.slug.strip() != visit.project.slug:
        return await _page(visit, BAD_REQUEST.saying(f"type {visit.project.slug} to delete the project"))
    return await _done(visit, await asked(visit, projects.delete_project), "/")


async def sources(visit: Visit) -> Html:
    """Who sends spans, what is understood of them, and what to change."""
    return await _sources(visit)


async def _sources(visit: Visit, plaintext: str | None = None) -> Html:
    store = ExporterStore(visit.means.questions)
    options = f"--org {visit.org.slug} --project {visit.project.slug}"
    report = await store.report(visit.project.id, visit.means.now(), SOURCES_DAYS, options)
    context = {
        "tab": "sources",
        "report": report,
        "days": SOURCES_DAYS,
        # They are those of every project.
        "refused": visit.process_view.refused() if visit.sees_org else [],
        "quotas": visit.process_view.quotas(visit.project.id),
        "quota_names": QUOTA_NAMES,
        "plaintext": plaintext,
        "manages": visit.manages,
    }
    return Html("settings/sources", context, secret=plaintext is not None)


async def source_key(visit: Visit) -> Html:
    """A write key as a ready-made header (spec, "Key management and audit")."""
    store = PostgresKeyStore(visit.means.database, visit.means.accounts.hashers)
    minted = await store.create(visit.project.id, KEY_NAME, "write", actor=visit.call.caller.label)
    return await _sources(visit, minted.plaintext)


_SETTINGS: Final = PROJECT + "/settings"

PAGES: Final = (
    PageRoute("GET", _SETTINGS + "/project", "ORG_VIEW", page),
    PageRoute("GET", _SETTINGS + "/project/forecast", "ORG_VIEW", forecast),
    PageRoute("POST", _SETTINGS + "/project/name", "ORG_MANAGE", rename, form=NameForm),
    PageRoute("POST", _SETTINGS + "/project/retention", "ORG_ADMIN", retention, form=TermsForm),
    PageRoute("POST", _SETTINGS + "/project/new", "ORG_MANAGE", create, form=NameForm, of_org=True),
    PageRoute("POST", _SETTINGS + "/project/delete", "ORG_ADMIN", delete, form=SlugForm),
    PageRoute("GET", _SETTINGS + "/sources", "ORG_VIEW", sources),
    PageRoute("POST", _SETTINGS + "/sources/key", "ORG_MANAGE", source_key, form=NoFields),
)
