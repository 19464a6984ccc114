"""`{p}/prices`: what a project says that its models cost, asked before the prices of the service."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.rest.prices import ModelPriceShown, PricesChange, PricesShown
from svc.domain.pricing.project_prices import BadPrice, ModelPrice, check_prices
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.spans.project_prices import ProjectPriceStore


async def get_prices(call: Call[Any]) -> PricesShown:
    """The prices that the project has set itself."""
    return _shown(await ProjectPriceStore(call.means.database).of(call.project.id))


async def put_prices(call: Call[PricesChange]) -> PricesShown | Refusal:
    """Replace the project's prices; calls that arrive from a few seconds later on are priced by them."""
    prices = [
        ModelPrice(
            price.model.strip(),
            (price.provider or "").strip() or None,
            Decimal(str(price.input)),
            Decimal(str(price.output)),
            _decimal(price.cache_read),
            _decimal(price.cache_write),
            _decimal(price.cache_write_1h),
        )
        for price in call.body.prices
    ]
    try:
        check_prices(prices)
    except BadPrice as fault:
        return BAD_REQUEST.saying(str(fault))
    store = ProjectPriceStore(call.means.database)
    await store.replace(call.project.id, prices, actor=call.caller.label, slug=call.project.slug)
    return _shown(await store.of(call.project.id))


def _decimal(amount: float | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))


def _float(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _shown(prices: Sequence[ModelPrice]) -> PricesShown:
    return PricesShown(
        [
            ModelPriceShown(
                model=price.model,
                provider=price.provider,
                input=float(price.input),
                output=float(price.output),
                cache_read=_float(price.cache_read),
                cache_write=_float(price.cache_write),
                cache_write_1h=_float(price.cache_write_1h),
            )
            for price in prices
        ]
    )


_PATH: Final = PROJECT + "/prices"

ROUTES: Final = (
    Route("GET", _PATH, "ORG_VIEW", get_prices, PricesShown),
    Route("PUT", _PATH, "ORG_ADMIN", put_prices, PricesShown, body=PricesChange, refusals=(BAD_REQUEST,)),
)
