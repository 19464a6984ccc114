"""Settings: what is replaced in texts before they are stored. The form goes through the handler of the REST
API."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.masking import MaskingChange
from svc.domain.intake.masking import CLASSES
from svc.front.api.settings.masking import get_masking, put_masking
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit


class MaskingForm(msgspec.Struct):
    """A class each, and one pattern a line: its name, a blank, the pattern."""

    email: str = ""
    iban: str = ""
    card: str = ""
    phone: str = ""
    patterns: str = ""


async def page(visit: Visit) -> Html:
    """What is masked and how often, and the form."""
    return await _page(visit)


async def save(visit: Visit) -> Html | Go:
    """Replace all of it."""
    form: MaskingForm = visit.form
    lines = [line.strip() for line in form.patterns.splitlines() if line.strip()]
    pairs = [line.partition(" ") for line in lines]
    fields: dict[str, Any] = {
        "classes": [name for name in CLASSES if getattr(form, name)],
        "patterns": [{"name": name, "pattern": pattern.strip()} for name, _, pattern in pairs],
    }
    answer = await asked(visit, put_masking, MaskingChange, fields)
    return await _page(visit, answer) if isinstance(answer, Refusal) else Go(visit.base + _PATH)


async def _page(visit: Visit, refusal: Refusal | None = None) -> Html:
    masking = await get_masking(visit.call)
    patterns = "\n".join(f"{pattern.name} {pattern.pattern}" for pattern in masking.patterns)
    on = set[str](masking.classes)
    if refusal is not None:
        patterns = visit.form.patterns
        on = {name for name in CLASSES if getattr(visit.form, name)}
    context = {
        "tab": "masking",
        "masking": masking,
        "rules": [*masking.classes, *(pattern.name for pattern in masking.patterns)],
        "classes": list(CLASSES.values()),
        "on": on,
        "patterns": patterns,
        "refusal": refusal,
        "administers": visit.administers,
    }
    return Html("settings/masking", context, status=refusal.status if refusal else 200)


_PATH: Final = "/settings/masking"

PAGES: Final = (
    PageRoute("GET", PROJECT + _PATH, "ORG_VIEW", page),
    PageRoute("POST", PROJECT + _PATH, "ORG_ADMIN", save, form=MaskingForm),
)
