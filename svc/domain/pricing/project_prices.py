"""What a project says that its models cost, asked before the operator's prices and the price book. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

import attrs

from svc.domain.pricing.rates import OwnPrice, OwnPrices

_PATTERN: Final = re.compile(r"([*?[])")


class BadPrice(ValueError):
    """Prices that cannot be kept together; the text names the model."""


@attrs.frozen
class ModelPrice:
    """Dollars a million tokens of one model, of one provider or of any; from the cache None: as input.

    `cache_write_1h`, for what is kept an hour, None: as `svc.domain.pricing.rates` says.
    """

    model: str
    provider: str | None
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What it is for."""
        return price_key(self.model, self.provider)


def price_key(model: str, provider: str | None) -> tuple[str, str]:
    """A model and its provider as prices are kept: however they were written, blank for any provider."""
    return model.strip().lower(), (provider or "").strip().lower()


def check_prices(prices: Sequence[ModelPrice]) -> None:
    """Raise `BadPrice` where a model is blank or has two prices."""
    keys = set()
    for price in prices:
        if not price.key[0]:
            raise BadPrice("a price needs the name of its model")
        if price.key in keys:
            raise BadPrice(f"{price.model[:100]} has two prices")
        keys.add(price.key)


def ranked_prices(prices: Iterable[ModelPrice]) -> OwnPrices | None:
    """The same as a price book asks them, those of one provider first; None without any."""
    ranked = sorted(prices, key=lambda price: (not price.key[1], price.key))
    if not ranked:
        return None
    digest = hashlib.sha256(repr(ranked).encode()).hexdigest()[:8]
    return OwnPrices(f"project {digest}", tuple(_own_price(price) for price in ranked))


def _own_price(price: ModelPrice) -> OwnPrice:
    rates = {"input": price.input, "output": price.output}
    if price.cache_read is not None:
        rates["cache_read"] = price.cache_read
    if price.cache_write is not None:
        rates["cache_write"] = price.cache_write
    if price.cache_write_1h is not None:
        rates["cache_write_1h"] = price.cache_write_1h
    # A name that holds a character of patterns stands for itself.
    model, provider = price.key
    return OwnPrice(_PATTERN.sub(r"[\1]", model), provider or None, rates=rates)
