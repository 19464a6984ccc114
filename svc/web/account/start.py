"""The ways in: `/`, which leads to the last project, `…/go` of the palette, and the pulse of a project."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from protocol.refusals import API_UNAUTHORIZED, NO_SUCH_PROJECT, Refusal
from protocol.storage import Slow
from protocol.text import clean
from svc.front.auth.callers import Person
from svc.store.accounts.projects import ProjectStore
from svc.store.accounts.saved_views import SavedViewStore
from svc.store.reads.frame import FrameReads
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.usage.sessions import SessionReads
from svc.web.shell.page import PROJECT, Go, PageRoute, Sent, Visit
from svc.web.shell.render import query

#: How long a span is looked for by its id alone.
SPAN_TIMEOUT_S: Final = 5.0
#: Longer ones are texts.
MOST_ID_CHARS: Final = 200

_TRACE: Final = re.compile(r"[0-9a-fA-F]{32}")
_SPAN: Final = re.compile(r"[0-9a-fA-F]{16}")
_CASE: Final = re.compile(r"[cC]-\d{1,9}")
_KEY: Final = re.compile(r"svc_[wqa]_[A-Za-z0-9_-]{0,40}")


async def start(visit: Visit) -> Go | Refusal:
    """The last project, or the first one."""
    projects = ProjectStore(visit.means.database)
    if isinstance(visit.call.caller, Person):
        places = await visit.means.accounts.places(visit.call.caller.login.account_id)
        if not places:
            return NO_SUCH_PROJECT.saying("you belong to no organization; ask an owner to add you")
        orgs = [(membership.org, membership.project_ids) for membership in places]
    elif visit.means.callers.disabled:
        orgs = [(await projects.the_org(), None)]
    else:
        return API_UNAUTHORIZED
    for org, visible_ids in orgs:
        org_projects = [
            candidate
            for candidate in await projects.list(org.id)
            if visible_ids is None or candidate.id in visible_ids
        ]
        last_project = next(
            (candidate for candidate in org_projects if (org.slug, candidate.slug) == visit.preferences.last),
            None,
        )
        if last_project is not None or org_projects:
            return Go(f"/orgs/{org.slug}/projects/{(last_project or org_projects[0]).slug}/triage")
    if any(visible_ids is not None for _, visible_ids in orgs):
        return NO_SUCH_PROJECT.saying("you have a role in no project; ask an owner or admin for one")
    return NO_SUCH_PROJECT.saying("there is no project; trace-svc keys create makes the first one anew")


async def project(visit: Visit) -> Go:
    """A project's address leads to what needs somebody."""
    return Go(visit.base + "/triage")


async def go(visit: Visit) -> Go:
    """What somebody typed into the palette: an id leads to its page, anything else is searched for."""
    text = clean(visit.query.get("q", "").strip())
    if _TRACE.fullmatch(text):
        return Go(f"{visit.base}/traces/{text.lower()}")
    if _SPAN.fullmatch(text):
        trace_id = await _trace_of(visit, bytes.fromhex(text))
        if trace_id is not None:
            return Go(f"{visit.base}/traces/{trace_id.hex()}?span={text.lower()}")
    if _CASE.fullmatch(text):
        return Go(f"{visit.base}/cases/{text.upper()}")
    if _KEY.fullmatch(text):
        # Only its public beginning goes on: the rest is a secret that somebody pasted.
        return Go(query(f"{visit.base}/settings/keys", prefix=text[:14]))
    if 0 < len(text) <= MOST_ID_CHARS and await _is_session(visit, text):
        return Go(query(f"{visit.base}/session", id=text))
    return Go(query(f"{visit.base}/traces", q=text, range="all" if _SPAN.fullmatch(text) else ""))


async def _trace_of(visit: Visit, span_id: bytes) -> bytes | None:
    try:
        reads = SpanReads(visit.means.history)
        return await reads.trace_of(visit.project.id, span_id, timeout_s=SPAN_TIMEOUT_S)
    except Slow:
        return None


async def _is_session(visit: Visit, session_id: str) -> bool:
    return await SessionReads(visit.means.history).known(visit.project.id, session_id)


async def views(visit: Visit) -> Sent:
    """The saved views, for the palette: names and where they lead."""
    saved = await SavedViewStore(visit.means.database).list(visit.project.id)
    base = visit.means.surroundings.base_path + visit.base
    return Sent(msgspec.json.encode([(view.name, f"{base}/traces?{view.query}") for view in saved]))


async def pulse(visit: Visit) -> Sent:
    """A few numbers, for a page that stays open."""
    around = await FrameReads(visit.means.database).pulse(visit.project.id)
    light = visit.process_view.ingest()
    numbers = {
        "spans_per_s": round(light.spans_per_s, 1),
        "refused": light.refused,
        "dead_lettered": light.dead_lettered,
        "well": light.well,
        "light": light.text,
        "open_cases": around.open_cases,
        "newest": around.newest,
    }
    return Sent(msgspec.json.encode(numbers))


PAGES: Final = (
    PageRoute("GET", "/", "SIGNED_IN", start),
    PageRoute("GET", PROJECT, "ORG_VIEW", project),
    PageRoute("GET", PROJECT + "/", "ORG_VIEW", project),
    PageRoute("GET", PROJECT + "/go", "ORG_VIEW", go),
    PageRoute("GET", PROJECT + "/views", "ORG_VIEW", views),
    PageRoute("GET", PROJECT + "/pulse", "ORG_VIEW", pulse),
)
