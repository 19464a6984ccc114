"""A provider's bill beside what was traced: an export as text in, a table by day and model out.

A file is read by the browser into the text of the form, or pasted there. Nothing of it is kept: the answer is
the page. The comparison is the REST API's.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.rest.bills import BilledDay, BillReconciled, BillSent
from svc.domain.quantities import typed
from svc.front.api.settings.bills import post_reconcile
from svc.web.shell import words
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit

#: What a form may bring; the REST API and the command line take larger files.
MAX_CHARS: Final = 256 * 1024
ROWS_SHOWN: Final = 200


class BillForm(msgspec.Struct):
    """An export as text."""

    text: str = ""


async def page(visit: Visit) -> Html:
    """The form."""
    return _page(None)


async def compare(visit: Visit) -> Html:
    """The comparison, or what is wrong with the file."""
    form: BillForm = visit.form
    if len(form.text) > MAX_CHARS:
        too_long = f"a file of more than {words.size(MAX_CHARS)} is compared by trace-svc reconcile"
        return _page(BAD_REQUEST.saying(too_long))
    answer = await asked(visit, post_reconcile, BillSent, {"text": form.text})
    if isinstance(answer, Refusal):
        return _page(answer, text=form.text)
    return _page(None, answer=answer)


def _page(refusal: Refusal | None, *, text: str = "", answer: BillReconciled | None = None) -> Html:
    rows = [] if answer is None else sorted(answer.rows, key=lambda row: (row.day, row.model))
    context: dict[str, Any] = {
        "tab": "prices",
        "refusal": refusal,
        "text": text,
        "most": words.size(MAX_CHARS),
        "most_chars": MAX_CHARS,
        "answer": answer,
        "heading": "Compare with a provider's bill" if answer is None else _heading(answer),
        "rows": rows[:ROWS_SHOWN],
        "rows_left": 0 if answer is None else answer.all_rows - len(rows[:ROWS_SHOWN]),
        "differing": [] if answer is None else _differing(answer),
        "amount": amount,
    }
    return Html("settings/reconcile", context, status=refusal.status if refusal else 200)


def _differing(answer: BillReconciled) -> list[BilledDay]:
    return [row for row in answer.rows if not row.agrees][:ROWS_SHOWN]


def _heading(answer: BillReconciled) -> str:
    if answer.agreeing_rows == answer.all_rows:
        return "The bill agrees"
    if answer.billed_cost is None or answer.difference is None:
        return f"{words.counted(answer.all_rows - answer.agreeing_rows, 'row')} of the bill differ"
    difference = Decimal(answer.difference)
    if not difference:
        return "The totals agree, but not every day and model"
    direction = "more" if difference > 0 else "less"
    return f"{amount(typed(abs(difference)))} {direction} was billed than was traced"


def amount(text: str | None) -> str:
    """Money to the digit, without zeros that say nothing."""
    if text is None:
        return words.NOT_KNOWN
    dollars, _, fraction = text.lstrip("-").partition(".")
    fraction = fraction.rstrip("0").ljust(2, "0")
    sign = "−" if text.startswith("-") else ""
    return f"{sign}${int(dollars):,}.{fraction}"


_PATH: Final = PROJECT + "/prices/reconcile"

PAGES: Final = (
    PageRoute("GET", _PATH, "ORG_VIEW", page),
    PageRoute("POST", _PATH, "ORG_VIEW", compare, form=BillForm),
)
