"""What is switched on the page of detectors beside detectors themselves: how call sites are watched.

Forms go through the handlers of the REST API: the same bounds, refusals and audit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.classifiers import CallSitesChange
from svc.front.api import classifiers as api
from svc.web.forms import asked
from svc.web.page import PROJECT, Go, Html, PageRoute, Visit


class CallSiteSwitch(msgspec.Struct):
    """On or off."""

    enabled: bool = False


async def call_sites(visit: Visit) -> Html | Go | Refusal:
    """Tell agents that share a call site apart, or no more."""
    answer = await asked(visit, api.put_call_sites, CallSitesChange, {"by_agent": visit.form.enabled})
    return answer if isinstance(answer, Refusal) else Go(visit.base + "/detectors")


PAGES: Final = (PageRoute("POST", PROJECT + "/detectors/call-sites", "ORG_MANAGE", call_sites, form=CallSiteSwitch),)
