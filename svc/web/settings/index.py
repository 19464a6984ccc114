"""Settings: all of its pages in their groups, and the search among them."""

from __future__ import annotations

from typing import Final

from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.settings_pages import seen_groups

#: What is looked for is cut here.
Q_CHARS: Final = 100


async def page(visit: Visit) -> Html:
    """The pages of Settings, those that the search is about."""
    q = visit.query.get("q", "")[:Q_CHARS].strip()
    return Html("settings/index", {"tab": "", "q": q, "found": seen_groups(sees_org=visit.sees_org, q=q)})


PAGES: Final = (PageRoute("GET", PROJECT + "/settings", "ORG_VIEW", page),)
