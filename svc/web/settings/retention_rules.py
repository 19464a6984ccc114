"""Settings: what a project keeps for fewer days because of an attribute, linked from the page of the project.

The forms go through the handlers of the REST API, which replace all rules at once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.settings import RetentionRules
from svc.front.api.settings.project_settings import get_retention
from svc.front.api.settings.retention_rules import get_rules, put_rules
from svc.store.reads.questions.attributes import AttributeReads
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit


class RetentionRuleForm(msgspec.Struct):
    """A rule as it was typed."""

    field: str = ""
    value: str = ""
    days: str = ""


async def page(visit: Visit) -> Html:
    """The rules, and a form for one more."""
    return await _page(visit)


async def _page(visit: Visit, refusal: Refusal | None = None) -> Html:
    context = {
        "tab": "project",
        "rules": (await get_rules(visit.call)).rules,
        "kept": (await get_retention(visit.call)).effective.traces,
        "fields": await AttributeReads(visit.means.questions).names(visit.project.id),
        "refusal": refusal,
        "typed": visit.form if refusal else RetentionRuleForm(),
        "administers": visit.administers,
    }
    status = refusal.status if refusal else 200
    return Html("settings/retention_rules", context, status=status)


async def add(visit: Visit) -> Html | Go:
    """One more rule, or another term for a value that has one."""
    form = visit.form
    rule = {"field": form.field, "value": form.value.strip(), "days": form.days.strip()}
    return await _replace(visit, [*await _others(visit, form.field, form.value.strip()), rule])


async def remove(visit: Visit) -> Html | Go:
    """One rule less."""
    return await _replace(visit, await _others(visit, visit.form.field, visit.form.value))


async def _others(visit: Visit, field: str, value: str) -> list[dict[str, Any]]:
    rules = (await get_rules(visit.call)).rules
    return [msgspec.structs.asdict(rule) for rule in rules if (rule.field, rule.value) != (field, value)]


async def _replace(visit: Visit, rules: list[dict[str, Any]]) -> Html | Go:
    answer = await asked(visit, put_rules, RetentionRules, {"rules": rules})
    return await _page(visit, answer) if isinstance(answer, Refusal) else Go(visit.base + _PATH)


_PATH: Final = "/settings/project/rules"

PAGES: Final = (
    PageRoute("GET", PROJECT + _PATH, "ORG_VIEW", page),
    PageRoute("POST", PROJECT + _PATH + "/add", "ORG_ADMIN", add, form=RetentionRuleForm),
    PageRoute("POST", PROJECT + _PATH + "/remove", "ORG_ADMIN", remove, form=RetentionRuleForm),
)
