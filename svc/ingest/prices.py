"""The operator's own prices: `SVC_PRICES_FILE`, a TOML file of `[[price]]` tables.

Owns the form of that file and its errors; the README shows it. The wiring reads it at the start and on
SIGHUP, commands that price read it once. What a price does is `svc.domain.pricing.rates`.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.operator import OperatorError
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import RATE_NAMES, OwnPrice, OwnPrices, OwnTier

#: A million tokens for more than this is a slip of the pen.
_MOST_USD: Final = Decimal(1_000_000)
_MOST_BYTES: Final = 4 * 1024 * 1024


class BadPrices(OperatorError):
    """A price file that cannot be read. The text names the file, the place and what was expected."""


class _Rates(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    input_audio: Decimal | None = None
    output_audio: Decimal | None = None

    def given(self) -> dict[str, Decimal]:
        return {name: rate for name in RATE_NAMES if (rate := getattr(self, name)) is not None}


class _Tier(_Rates, forbid_unknown_fields=True, kw_only=True):
    above: int


class _Price(_Rates, forbid_unknown_fields=True, kw_only=True):
    model: str
    provider: str | None = None
    service_tier: str | None = None
    # TOML has dates of its own, with and without a time.
    start: Any = msgspec.field(name="from", default=None)
    id: str | None = None
    request: Decimal | None = None
    multiplier: Decimal | None = None
    tiers: list[_Tier] = msgspec.field(name="tier", default_factory=list)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    price: list[_Price] = []


def price_book(own: Path | None) -> PriceBook:
    """The price book, with the operator's file before it when there is one. Raises `BadPrices`."""
    return PriceBook(None if own is None else read_prices(own))


def read_prices(path: Path) -> OwnPrices:
    """The prices of a file; their version is made of its content. Raises `BadPrices`."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _bad(
            path, f"cannot be read: {error.strerror or error}; SVC_PRICES_FILE names it, unset it or mend it"
        ) from None
    return parse_prices(path, raw)


def parse_prices(path: Path, raw: bytes) -> OwnPrices:
    """The prices in the text of a file; `path` is for the errors. Raises `BadPrices`."""
    if len(raw) > _MOST_BYTES:
        raise _bad(path, f"is larger than {_MOST_BYTES} bytes")
    try:
        document = tomllib.loads(raw.decode(), parse_float=Decimal)
        file_ = msgspec.convert(document, _File, strict=True)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(path, f"is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise _bad(path, str(error)) from None
    prices = tuple(_own(path, f"price[{index}]", price) for index, price in enumerate(file_.price))
    return OwnPrices(f"own {hashlib.sha256(raw).hexdigest()[:8]}", prices, str(path), raw)


def _own(path: Path, entry: str, price: _Price) -> OwnPrice:
    for name, rate in _amounts(price):
        if not (rate.is_finite() and 0 <= rate <= _MOST_USD):
            raise _bad(path, f"`{entry}.{name}` is {rate}; expected an amount from 0 to {_MOST_USD}")
    if not price.model.strip():
        raise _bad(path, f"`{entry}.model` is blank; expected a model's name or a pattern such as gpt-4o*")
    rates = price.given()
    if price.multiplier is not None and (rates or price.tiers or price.request is not None):
        raise _bad(path, f"`{entry}` has a multiplier and rates; expected one or the other")
    if price.multiplier is None and not rates and price.request is None:
        raise _bad(path, f"`{entry}` has no rate; expected {', '.join(RATE_NAMES)}, request or multiplier")
    if any(tier.above < 0 for tier in price.tiers):
        raise _bad(path, f"`{entry}.tier` has a negative `above`; expected a number of input tokens")
    return OwnPrice(
        model=price.model.strip().lower(),
        provider=price.provider,
        service_tier=price.service_tier,
        start=_start(path, entry, price.start),
        model_id=price.id,
        rates=rates,
        tiers=tuple(OwnTier(tier.above, tier.given()) for tier in price.tiers),
        request=price.request or Decimal(0),
        multiplier=price.multiplier,
    )


def _amounts(price: _Price) -> Iterator[tuple[str, Decimal]]:
    amounts: Mapping[str, Decimal | None] = {"request": price.request, "multiplier": price.multiplier}
    yield from price.given().items()
    yield from ((name, amount) for name, amount in amounts.items() if amount is not None)
    for index, tier in enumerate(price.tiers):
        yield from ((f"tier[{index}].{name}", rate) for name, rate in tier.given().items())


def _start(path: Path, entry: str, start: Any) -> datetime | None:
    match start:
        case None:
            return None
        case datetime():
            return start.replace(tzinfo=UTC) if start.tzinfo is None else start
        case date():
            return datetime(start.year, start.month, start.day, tzinfo=UTC)
        case _:
            raise _bad(path, f"`{entry}.from` is {start!r}; expected a date such as 2026-11-20, unquoted")


def _bad(path: Path, sentence: str) -> BadPrices:
    return BadPrices(f"the price file {path}: {sentence}")
