"""What is switched on the page of detectors beside them: how call sites are watched, and single marks.

Forms go through the handlers of the REST API: the same bounds, refusals and audit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.classifiers import CallSitesChange
from protocol.rest.marks import MarkChange
from svc.front.api.cases import classifiers as api
from svc.front.api.cases.marks import put_mark
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit


class CallSiteSwitch(msgspec.Struct):
    """On or off."""

    enabled: bool = False


class MarkSwitch(msgspec.Struct):
    """Either of a mark's settings as its button sends it."""

    enabled: str | None = None
    muted: str | None = None


async def call_sites(visit: Visit) -> Html | Go | Refusal:
    """Tell agents that share a call site apart, or no more."""
    answer = await asked(visit, api.put_call_sites, CallSitesChange, {"by_agent": visit.form.enabled})
    return answer if isinstance(answer, Refusal) else Go(visit.base + "/detectors")


async def mark(visit: Visit) -> Html | Go | Refusal:
    """State a mark or not, report a rise of it or not."""
    fields = {
        name: typed == "true"
        for name in ("enabled", "muted")
        if (typed := getattr(visit.form, name)) is not None
    }
    path = {"mark": visit.call.path["mark"]}
    answer = await asked(visit, put_mark, MarkChange, fields, path=path)
    return answer if isinstance(answer, Refusal) else Go(visit.base + "/detectors/marks#marks")


_HERE: Final = PROJECT + "/detectors"

PAGES: Final = (
    PageRoute("POST", _HERE + "/call-sites", "ORG_MANAGE", call_sites, form=CallSiteSwitch),
    PageRoute("POST", _HERE + "/marks/{mark}", "ORG_MANAGE", mark, form=MarkSwitch),
)
