"""What one keeps of the list of traces: views by name, for the project, and columns, for this browser."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import BAD_REQUEST, BLANK_NAME, Refusal
from protocol.text import clean
from svc.store.accounts.saved_views import MOST_VIEWS, SavedViewStore
from svc.web.shell.page import PROJECT, Go, PageRoute, Visit
from svc.web.shell.preferences import COLUMNS_COOKIE, preference_cookie
from svc.web.traces.trace_list import COLUMNS, USUAL, Asking, chosen
from svc.web.traces.traces import VIEW_NAME_MAX


class ViewForm(msgspec.Struct):
    """A view to save or to forget; the list it belongs to, as its address has it."""

    name: str = ""
    q: str = ""
    range: str = ""
    from_: str = msgspec.field(default="", name="from")
    to: str = ""

    def asking(self, visit: Visit) -> Asking:
        """The list. Raises `Refused` for a range that cannot be read."""
        parameters = {"q": self.q, "range": self.range, "from": self.from_, "to": self.to}
        return Asking.of(visit, {name: value for name, value in parameters.items() if value})


class ColumnsForm(ViewForm):
    """The columns that were ticked, one field for each."""

    asked: str = ""
    answered: str = ""
    site: str = ""
    session: str = ""
    user: str = ""
    took: str = ""
    tokens: str = ""
    cost: str = ""
    spans: str = ""
    agents: str = ""
    feedback: str = ""
    errors: str = ""


async def save(visit: Visit) -> Go | Refusal:
    """Keep this list under a name."""
    form: ViewForm = visit.form
    name = clean(" ".join(form.name.split()))
    if not name:
        return BLANK_NAME
    if len(name) > VIEW_NAME_MAX:
        return BAD_REQUEST.saying(f"a view has a name of at most {VIEW_NAME_MAX} characters")
    asking, store = form.asking(visit), SavedViewStore(visit.means.database)
    if not await store.save(visit.project.id, name, asking.saved, visit.call.caller.label):
        return BAD_REQUEST.saying(f"a project has at most {MOST_VIEWS} saved views; forget one first")
    return Go(asking.address(saved=name))


async def forget(visit: Visit) -> Go:
    """Remove a view."""
    form: ViewForm = visit.form
    await SavedViewStore(visit.means.database).forget(visit.project.id, form.name)
    return Go(form.asking(visit).address())


async def columns(visit: Visit) -> Go:
    """Keep the ticked columns in this browser."""
    form: ColumnsForm = visit.form
    names = chosen([name for name in COLUMNS if getattr(form, name)])
    cookie_value = "" if names == USUAL else ".".join(names)
    return Go(form.asking(visit).address(), cookies=(preference_cookie(COLUMNS_COOKIE, cookie_value),))


PAGES: Final = (
    PageRoute("POST", PROJECT + "/traces/views", "ORG_MANAGE", save, form=ViewForm),
    PageRoute("POST", PROJECT + "/traces/views/forget", "ORG_MANAGE", forget, form=ViewForm),
    PageRoute("POST", PROJECT + "/traces/columns", "ORG_VIEW", columns, form=ColumnsForm),
)
