"""Prices: what each model that the project calls costs by the price book, and which have no price."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs

from protocol.storage import Slow
from svc.domain.pricing import PriceBook
from svc.store.reads.models import ModelReads, ModelUse
from svc.web.page import PROJECT, Html, PageRoute, Visit

TIMEOUT_S: Final = 8.0
#: How far back calls are looked for; when that takes too long, only this far.
BACK: Final = timedelta(days=30)
BACK_NARROWED: Final = timedelta(days=1)
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
    book = visit.instruments.prices
    models = [_priced(book, use, now) for use in used]
    context = {
        "models": models,
        "missing": [model for model in models if not model.priced and model.use.unpriced],
        "version": book.version,
        "back": back,
        "tab": "prices",
    }
    return Html("pages/prices", context)


def _priced(book: PriceBook, use: ModelUse, at: datetime) -> PricedModel:
    def million(bucket: str) -> Decimal | None:
        tokens: dict[str, Any] = {bucket: _ASKED}
        found = book.price(provider=use.provider, model=use.name, at=at, **tokens)
        return None if found.total_cost is None else found.total_cost * _MILLION

    return PricedModel(
        use,
        million("input_tokens"),
        million("output_tokens"),
        million("cache_read_tokens"),
        million("cache_write_tokens"),
    )


PAGES: Final = (PageRoute("GET", PROJECT + "/prices", "ORG_VIEW", prices),)
