"""Prices: what each model that the project calls costs by the price book, and which have no price.

With `?preview=1` the page looks at some of the stored history and says what present prices would change of
it; changing it is the command's (`trace-svc reprice --apply`).
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs

from protocol.storage import Slow
from svc.domain.pricing.prices import PriceBook
from svc.store.reads.models import ModelReads, ModelUse
from svc.store.spans.reprice_preview import preview
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit

TIMEOUT_S: Final = 8.0
#: How far back calls are looked for; when that takes too long, only this far.
BACK: Final = timedelta(days=30)
BACK_NARROWED: Final = timedelta(days=1)
#: Models of the snippet for the price file.
_IN_SNIPPET: Final = 20
#: Prices are said for a million tokens, and asked for a thousand: some rise with the length of a prompt.
_ASKED: Final = 1000
_MILLION: Final = Decimal(1_000_000 // _ASKED)


@attrs.frozen
class PricedModel:
    """A model with what a million tokens of each kind cost, in USD; None where the book has no price."""

    use: ModelUse
    input: Decimal | None
    output: Decimal | None
    cache_read: Decimal | None
    cache_write: Decimal | None

    @property
    def priced(self) -> bool:
        """Whether the book knows it."""
        return self.input is not None or self.output is not None


async def prices(visit: Visit) -> Html:
    """The page."""
    now, back = visit.means.now(), BACK
    reads = ModelReads(visit.means.questions)
    try:
        used = await reads.used(visit.project.id, now - back, TIMEOUT_S)
    except Slow:
        back = BACK_NARROWED
        used = await reads.used(visit.project.id, now - back, TIMEOUT_S)
    book = visit.process_view.prices
    models = [_priced(book, use, now) for use in used]
    context = {
        "models": models,
        "missing": [model for model in models if not model.priced and model.use.unpriced],
        "version": book.version,
        "back": back,
        "tab": "prices",
        "snippet": _snippet([model for model in models if not model.priced and model.use.unpriced]),
        "preview": None,
    }
    if visit.query.get("preview"):
        repricing = await preview(visit.means.questions, visit.project.id, book)
        context["preview"] = repricing
        context["change"] = repricing.progress.after.cost - repricing.progress.before.cost
    return Html("settings/prices", context, modules=("copy",))


def _snippet(missing: list[PricedModel]) -> str:
    """The tables of a price file for these models, to be filled in."""
    tables = []
    for model in missing[:_IN_SNIPPET]:
        name = json.dumps(model.use.name[:200], ensure_ascii=False)
        provider = f"\nprovider = {json.dumps(model.use.provider[:200])}" if model.use.provider else ""
        tables.append(f"[[price]]\nmodel = {name}{provider}\ninput = 0.00\noutput = 0.00\n")
    return "\n".join(tables)


def _priced(book: PriceBook, use: ModelUse, moment: datetime) -> PricedModel:
    def million(bucket: str) -> Decimal | None:
        tokens: dict[str, Any] = {bucket: _ASKED}
        cost = book.price(provider=use.provider, model=use.name, at=moment, **tokens)
        return None if cost.total_cost is None else cost.total_cost * _MILLION

    return PricedModel(
        use,
        million("input_tokens"),
        million("output_tokens"),
        million("cache_read_tokens"),
        million("cache_write_tokens"),
    )


PAGES: Final = (PageRoute("GET", PROJECT + "/prices", "ORG_VIEW", prices),)
