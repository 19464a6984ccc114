"""Settings: the attributes of a project. Which are fields of its spans, which could be, and switching them.

Reads `svc.store.reads.questions.attributes`; `svc.store.spans.attribute_keys` changes and audits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.storage import Slow
from svc.domain.attributes.census import MOST_DISTINCT, PROMOTED_AFTER
from svc.domain.attributes.conventions import MOST_KEYS, MOST_VALUES, PREFIX
from svc.store.reads.questions.attributes import AttributeReads, FieldCost
from svc.store.spans.attribute_keys import AttributeKeys
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

#: Keys that are no fields, shown of the most frequent.
SHOWN: Final = 100


class FieldForm(msgspec.Struct):
    """The field that is meant, by its key, and what it shall be called."""

    field: str = ""
    name: str = ""


async def page(visit: Visit) -> Html:
    """The fields and the keys."""
    return await _page(visit)


async def _page(visit: Visit, refusal: Refusal | None = None) -> Html:
    reads = AttributeReads(visit.means.questions)
    fields = await reads.fields(visit.project.id)
    costs: Mapping[str, FieldCost] = {}
    with suppress(Slow):
        costs = await reads.costs(visit.project.id)
    active = [field for field in fields if field.state in ("convention", "promoted")]
    others = [field for field in fields if field.state in ("seen", "hidden")]
    context = {
        "tab": "attributes",
        "active": [field for field in active if field.values or field.state == "promoted"],
        "silent": [field for field in active if not field.values and field.state == "convention"],
        "others": others[:SHOWN],
        "all_others": len(others),
        "costs": costs,
        "prefix": PREFIX,
        "bounds": {
            "spans": PROMOTED_AFTER,
            "distinct": MOST_DISTINCT,
            "most_keys": MOST_KEYS,
            "most_values": MOST_VALUES,
        },
        "refusal": refusal,
        "manages": visit.manages,
    }
    status = refusal.status if refusal else 200
    return Html("settings/attributes", context, status=status)


async def promote(visit: Visit) -> Html | Go:
    """Make a field of a key, or show a hidden one again."""
    keys, actor = AttributeKeys(visit.means.database), visit.call.caller.label
    reason = await keys.promote(visit.project.id, visit.form.field, visit.means.now(), actor)
    if reason is not None:
        return await _page(visit, BAD_REQUEST.saying(reason))
    return Go(visit.base + "/settings/attributes")


async def rename(visit: Visit) -> Html | Go:
    """Call a field of one's own otherwise; its values come along."""
    keys, form = AttributeKeys(visit.means.database), visit.form
    reason = await keys.rename(visit.project.id, form.field, form.name, visit.call.caller.label)
    if reason is not None:
        return await _page(visit, BAD_REQUEST.saying(reason))
    return Go(visit.base + "/settings/attributes")


async def hide(visit: Visit) -> Html | Go:
    """No field any more; its values are deleted."""
    keys, actor = AttributeKeys(visit.means.database), visit.call.caller.label
    if not await keys.hide(visit.project.id, visit.form.field, visit.means.now(), actor):
        return await _page(visit, BAD_REQUEST.saying("No span has this attribute."))
    return Go(visit.base + "/settings/attributes")


_SETTINGS: Final = PROJECT + "/settings/attributes"

PAGES: Final = (
    PageRoute("GET", _SETTINGS, "ORG_VIEW", page),
    PageRoute("POST", _SETTINGS + "/promote", "ORG_MANAGE", promote, form=FieldForm),
    PageRoute("POST", _SETTINGS + "/rename", "ORG_MANAGE", rename, form=FieldForm),
    PageRoute("POST", _SETTINGS + "/hide", "ORG_MANAGE", hide, form=FieldForm),
)
