"""The first look: what is broken, what is missing and what a month will come to, before anything is compared.

For the hour between the first trace and the first baseline; it can be opened afterwards as well. All its
words are those of `svc.domain.first_look.text`, which the command prints too.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.storage import Slow
from svc.domain.first_look.text import GROUPS, as_lines, basis, month_basis, month_lines
from svc.store.reads.first_look import FirstLookReads
from svc.web.detectors.detector_text import WATCHES, learned
from svc.web.detectors.empty_inbox import empty_inbox_of
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit


async def first_look(visit: Visit) -> Html:
    """The page."""
    context: dict[str, Any] = {
        "overview": None,
        "empty_inbox": await empty_inbox_of(visit),
        "learned": learned,
        "watches": WATCHES,
        "titles": GROUPS,
    }
    try:
        look = await FirstLookReads(visit.means.questions).of(visit.project.id, visit.means.now())
    except Slow:
        return Html("detectors/first_look", context)
    context |= {
        "overview": look,
        "basis": basis(look),
        "month": month_lines(look),
        "month_basis": month_basis(look),
        "text": "\n".join(as_lines(look)),
    }
    return Html("detectors/first_look", context)


PAGES: Final = (PageRoute("GET", PROJECT + "/first-look", "ORG_VIEW", first_look),)
