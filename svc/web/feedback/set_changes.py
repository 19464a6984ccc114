"""Changing a set: notes on its entries, removing one or all. Forms over the handlers of the REST API.

`traces.into_set` fills a set.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.sets import SetNoteBody
from svc.front.api.traces import sets as api
from svc.web.feedback.feedback_view import back
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, PageRoute, Visit


class SetEntryForm(msgspec.Struct):
    """A set, and perhaps one entry of it, and what is written about that."""

    set: str
    trace_id: str = ""
    span_id: str = ""
    note: str = ""


async def annotate(visit: Visit) -> Go | Refusal:
    """Write about an entry."""
    form: SetEntryForm = visit.form
    answer = await asked(visit, api.put_note, SetNoteBody, {"note": form.note}, path=_path(form))
    return answer if isinstance(answer, Refusal) else Go(back(visit, f"{visit.base}/sets/{form.set}"))


async def remove(visit: Visit) -> Go | Refusal:
    """Take one entry out of a set."""
    form: SetEntryForm = visit.form
    answer = await asked(visit, api.delete_entry, path=_path(form))
    return answer if isinstance(answer, Refusal) else Go(f"{visit.base}/sets/{form.set}")


async def forget(visit: Visit) -> Go | Refusal:
    """Remove a set."""
    form: SetEntryForm = visit.form
    answer = await asked(visit, api.delete_set, path=_path(form))
    return answer if isinstance(answer, Refusal) else Go(f"{visit.base}/sets")


def _path(form: SetEntryForm) -> dict[str, str]:
    return {"set": form.set, "entry": f"{form.trace_id}-{form.span_id}" if form.span_id else form.trace_id}


PAGES: Final = (
    PageRoute("POST", PROJECT + "/sets/note", "ORG_MANAGE", annotate, form=SetEntryForm),
    PageRoute("POST", PROJECT + "/sets/remove", "ORG_MANAGE", remove, form=SetEntryForm),
    PageRoute("POST", PROJECT + "/sets/forget", "ORG_MANAGE", forget, form=SetEntryForm),
)
