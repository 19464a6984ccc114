"""Settings: what was erased and how far that is, and the form that asks for it.

The pages of a trace and of a session link here with what they are about; nothing is erased before somebody
has confirmed it here. The form goes through the handlers of the REST API.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.erasures import ErasureRequest
from svc.front.api.settings.erasures import get_erasures, post_erasure
from svc.store.retention.erasing import Erasing
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

KINDS: Final = {"trace": "a trace", "session": "a session", "user": "all data of a user"}


class EraseForm(msgspec.Struct):
    """What to erase, as it was typed, and whether somebody is sure."""

    kind: str = "user"
    id: str = ""
    sure: str = ""


async def page(visit: Visit) -> Html:
    """The newest erasures, and the form, filled in by a link perhaps."""
    kind = visit.query.get("kind", "")
    subject = visit.query.get("id", "")
    form = EraseForm(kind, subject) if kind in KINDS and subject else EraseForm()
    return await _page(visit, form, asks=bool(form.id) and visit.manages)


async def erase(visit: Visit) -> Html | Go:
    """Ask whether somebody is sure; then erase."""
    form: EraseForm = visit.form
    form.id = form.id.strip()
    if form.kind == "trace":
        form.id = form.id.lower()
    if not form.sure:
        return await _page(visit, form, asks=form.kind in KINDS and bool(form.id))
    answer = await asked(visit, post_erasure, ErasureRequest, {"kind": form.kind, "id": form.id})
    if isinstance(answer, Refusal):
        return await _page(visit, form, refusal=answer)
    return Go(visit.base + _PATH)


async def _page(visit: Visit, form: EraseForm, *, asks: bool = False, refusal: Refusal | None = None) -> Html:
    is_trace_id = len(form.id) == 32 and all(digit in "0123456789abcdef" for digit in form.id)
    counts = None
    if asks and form.kind == "trace" and is_trace_id:
        # One look; what a user or a session has takes walking the traces, which the command does.
        counts = await Erasing(visit.means.questions).preview(visit.project.id, "trace", form.id)
    erasures = (await get_erasures(visit.call)).erasures
    context = {
        "tab": "masking",
        "kinds": KINDS,
        "typed": form,
        "asks": asks,
        "counts": counts,
        "refusal": refusal,
        "erasures": erasures,
        "working": sum(erasure.finished_at is None for erasure in erasures),
        "manages": visit.manages,
    }
    return Html("settings/erasing", context, status=refusal.status if refusal else 200)


_PATH: Final = "/settings/erasing"

PAGES: Final = (
    PageRoute("GET", PROJECT + _PATH, "ORG_VIEW", page),
    PageRoute("POST", PROJECT + _PATH, "ORG_MANAGE", erase, form=EraseForm),
)
