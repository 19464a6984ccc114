"""What people say of the names of feedback: which end of the numbers is good, which categories are bad.

The forms stand on the page *Feedback*, and lead back to it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.feedback import BadCategoriesBody, BetterBody
from svc.front.api.traces import feedback
from svc.web.feedback.feedback_view import back
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, PageRoute, Visit


class BetterForm(msgspec.Struct):
    """Which end of a name's numbers is the good one; empty leaves it to the name."""

    name: str
    better: str = ""


async def better(visit: Visit) -> Go | Refusal:
    """Say which end of a name's numbers is the good one."""
    form: BetterForm = visit.form
    answer = await asked(
        visit, feedback.put_better, BetterBody, {"better": form.better or None}, path={"name": form.name}
    )
    return answer if isinstance(answer, Refusal) else Go(back(visit, visit.base + "/feedback"))


class BadForm(msgspec.Struct):
    """Which categories of a name are bad."""

    name: str
    category: list[str] = msgspec.field(default_factory=list)


async def bad(visit: Visit) -> Go | Refusal:
    """Say which categories of a name are bad."""
    form: BadForm = visit.form
    answer = await asked(
        visit, feedback.put_bad, BadCategoriesBody, {"categories": form.category}, path={"name": form.name}
    )
    return answer if isinstance(answer, Refusal) else Go(back(visit, visit.base + "/feedback"))


PAGES: Final = (
    PageRoute("POST", PROJECT + "/feedback/better", "ORG_MANAGE", better, form=BetterForm),
    PageRoute("POST", PROJECT + "/feedback/bad", "ORG_MANAGE", bad, form=BadForm),
)
