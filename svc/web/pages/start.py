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
from svc.store.reads.sessions import SessionReads
from svc.store.reads.spans import SpanReads
from svc.web.page import PROJECT, Go, PageRoute, Sent, Visit
from svc.web.render import query

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
        orgs = [place.org for place in places]
    elif visit.means.callers.disabled:
        orgs = [await projects.the_org()]
    else:
        return API_UNAUTHORIZED
    for org in orgs:
        there = await projects.list(org.id)
        last = next((one for one in there if (org.slug, one.slug) == visit.look.last), None)
        if last is not None or there:
            return Go(f"/orgs/{org.slug}/projects/{(last or there[0]).slug}/triage")
    return NO_SUCH_PROJECT.saying("there is no project; trace-svc keys create makes the first one anew")


async def project(visit: Visit) -> Go:
    """A project's address leads to what needs somebody."""
    return Go(visit.base + "/triage")


async def go(visit: Visit) -> Go:
    """What somebody typed into the palette: an id leads to its page, anything else is searched for."""
    wanted = clean(visit.query.get("q", "").strip())
    if _TRACE.fullmatch(wanted):
        return Go(f"{visit.base}/traces/{wanted.lower()}")
    if _SPAN.fullmatch(wanted):
        trace_id = await _trace_of(visit, bytes.fromhex(wanted))
        if trace_id is not None:
            return Go(f"{visit.base}/traces/{trace_id.hex()}?span={wanted.lower()}")
    if _CASE.fullmatch(wanted):
        return Go(f"{visit.base}/cases/{wanted.upper()}")
    if _KEY.fullmatch(wanted):
        # Only its public beginning goes on: the rest is a secret that somebody pasted.
        return Go(query(f"{visit.base}/settings/keys", prefix=wanted[:14]))
    if 0 < len(wanted) <= MOST_ID_CHARS and await _is_session(visit, wanted):
        return Go(query(f"{visit.base}/session", id=wanted))
    return Go(query(f"{visit.base}/traces", q=wanted, range="all" if _SPAN.fullmatch(wanted) else ""))


async def _trace_of(visit: Visit, span_id: bytes) -> bytes | None:
    try:
        reads = SpanReads(visit.means.history)
        return await reads.trace_of(visit.project.id, span_id, timeout_s=SPAN_TIMEOUT_S)
    except Slow:
        return None


async def _is_session(visit: Visit, wanted: str) -> bool:
    return await SessionReads(visit.means.history).known(visit.project.id, wanted)


async def views(visit: Visit) -> Sent:
    """The saved views, for the palette: names and where they lead."""
    saved = await SavedViewStore(visit.means.database).list(visit.project.id)
    return Sent(msgspec.json.encode([(view.name, f"{visit.base}/traces?{view.query}") for view in saved]))


async def pulse(visit: Visit) -> Sent:
    """A few numbers, for a page that stays open."""
    around = await FrameReads(visit.means.database).pulse(visit.project.id)
    light = visit.instruments.ingest()
    told = {
        "spans_per_s": round(light.spans_per_s, 1),
        "refused": light.refused,
        "dead_lettered": light.dead_lettered,
        "well": light.well,
        "light": light.text,
        "open_cases": around.open_cases,
        "newest": around.newest,
    }
    return Sent(msgspec.json.encode(told))


PAGES: Final = (
    PageRoute("GET", "/", "SIGNED_IN", start),
    PageRoute("GET", PROJECT, "ORG_VIEW", project),
    PageRoute("GET", PROJECT + "/", "ORG_VIEW", project),
    PageRoute("GET", PROJECT + "/go", "ORG_VIEW", go),
    PageRoute("GET", PROJECT + "/views", "ORG_VIEW", views),
    PageRoute("GET", PROJECT + "/pulse", "ORG_VIEW", pulse),
)
