"""Rates in dollars a token, compiled once a model from the price book and from the operator's own prices.

Owns: `Rates`, `RateEntry` and the rules which rates hold when: by start, by time of day, by service tier and
by the length of the input. `svc.domain.pricing.prices` compiles and caches; nothing here looks a model up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from svc.domain.spans.values import COST_STEP

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

#: The rates that a price may give, in dollars a million tokens, as the operator's file names them.
RATE_NAMES: Final = (
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "reasoning",
    "input_audio",
    "output_audio",
)
#: The same in the book's words.
_BOOK_KEYS: Final = (
    "input_mtok",
    "output_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_1h_mtok",
    "output_reasoning_mtok",
    "input_audio_mtok",
    "output_audio_mtok",
)
#: Words for the tier that a call without one has.
STANDARD_TIERS: Final = frozenset({"", "auto", "default", "standard", "on_demand"})

_PER_TOKEN: Final = Decimal("1e-6")
_ZERO: Final = Decimal(0)
#: Anthropic asks so many times the input for what is kept for an hour.
_AN_HOUR: Final = 2
#: More overrides of one tier than any model in the book has.
_MAX_VARIANTS: Final = 4


@attrs.frozen(eq=False)
class Rates:
    """Dollars a token for each bucket, and dollars a request; None where nobody has named a rate."""

    input: Decimal | None
    output: Decimal | None
    cache_read: Decimal | None
    cache_write: Decimal | None
    cache_write_1h: Decimal | None
    reasoning: Decimal | None
    input_audio: Decimal | None
    output_audio: Decimal | None
    request: Decimal


@attrs.frozen
class OwnTier:
    """The rates of an own price for calls of more input than `above` tokens."""

    above: int
    rates: Mapping[str, Decimal]


@attrs.frozen
class OwnPrice:
    """One price of the operator's: for models that match a pattern, of one provider and tier or of any.

    `model` is a shell pattern in lower case. `rates` are dollars a million tokens by `RATE_NAMES`; without
    any, `multiplier` scales what the book says. `request` is dollars a request.
    """

    model: str
    provider: str | None = None
    service_tier: str | None = None
    start: datetime | None = None
    model_id: str | None = None
    rates: Mapping[str, Decimal] = attrs.field(factory=dict)
    tiers: tuple[OwnTier, ...] = ()
    request: Decimal = _ZERO
    multiplier: Decimal | None = None


@attrs.frozen
class OwnPrices:
    """The operator's prices, the first that matches and has begun wins; `version` names them.

    `path` and `text` are the file they were read from, so that another process can read the very same.
    """

    version: str
    prices: tuple[OwnPrice, ...]
    path: str = ""
    text: bytes = attrs.field(default=b"", repr=False)


class _Constraint(Protocol):
    def active(self, request_timestamp: datetime) -> bool: ...


@attrs.frozen(eq=False)
class _Since:
    start: datetime

    def active(self, request_timestamp: datetime) -> bool:
        return request_timestamp >= self.start


@attrs.frozen(eq=False)
class _All:
    parts: tuple[_Constraint, ...]

    def active(self, request_timestamp: datetime) -> bool:
        return all(part.active(request_timestamp) for part in self.parts)


@attrs.frozen(eq=False)
class Period:
    """The rates that hold while `constraint` does (None: always), by the input tokens they start above."""

    constraint: _Constraint | None
    steps: tuple[tuple[int, Rates], ...]


@attrs.frozen(eq=False)
class RateEntry:
    """One model: its periods, of which the first that is active holds, and the provider it was found by.

    `by_maker`: it was found by the maker in its id, because the provider that was named does not list it.
    """

    model_id: str
    periods: tuple[Period, ...]
    provider: str | None = None
    by_maker: bool = False

    def rates(self, at: datetime, input_tokens: int) -> Rates | None:
        """The rates of a call at this time with this much input, cached or not."""
        periods = self.periods
        period = periods[0]
        if period.constraint is not None:
            current = next((p for p in periods if p.constraint is None or p.constraint.active(at)), None)
            if current is None:
                return None
            period = current
        steps = period.steps
        if len(steps) > 1:
            # Crossing a threshold prices every token at the new rate, not only those above it.
            return next((rates for start, rates in reversed(steps) if input_tokens > start), steps[0][1])
        return steps[0][1]


def own_periods(price: OwnPrice, book: Sequence[Period]) -> Iterable[Period]:
    """The periods of an own price; `book` are those that a multiplier scales."""
    since = None if price.start is None else _Since(price.start.astimezone(UTC))
    if price.multiplier is None:
        yield Period(since, _own_steps(price))
        return
    for period in book:
        yield Period(
            _conjunction(since, period.constraint),
            tuple((start, _scaled(rates, price.multiplier)) for start, rates in period.steps),
        )


def book_periods(model: ModelInfo, tier: str | None) -> tuple[Period, ...]:
    """What the book says of a model, for calls of a service tier (None: the standard one).

    A tier that the book has no prices for costs what the standard one does. The book names tiers in three
    ways: as the service tier, as the processing (`batch`) and as the speed (`fast`).
    """
    prices = model.prices
    # The book reads its list from the end, and takes the first when nothing is active.
    standard: list[tuple[_Constraint | None, ModelPrice]] = []
    if not isinstance(prices, list):
        standard.append((None, prices))
    else:
        for index, conditional in enumerate(prices):
            standard.insert(0, (conditional.constraint if index else None, conditional.prices))
    variants = [
        variant
        for variant in model.price_variants or ()
        if tier is not None
        and variant.when.keys() <= {"service_tier", "processing", "speed"}
        and set(variant.when.values()) == {tier}
    ][:_MAX_VARIANTS]
    always = [variant for variant in variants if variant.constraint is None]
    dated = [variant for variant in variants if variant.constraint is not None]
    periods = []
    for constraint, base in standard:
        # The largest set of overrides that has begun is the one that holds.
        for size in range(len(dated), -1, -1):
            for overrides in combinations(dated, size):
                chosen = [variant.prices for variant in variants if variant in always or variant in overrides]
                parts = [variant.constraint for variant in overrides if variant.constraint is not None]
                combined = _conjunction(constraint, _All(tuple(parts)) if parts else None)
                periods.append(Period(combined, _book_steps([*chosen, base])))
    return tuple(periods)


def _conjunction(constraint: _Constraint | None, other: _Constraint | None) -> _Constraint | None:
    if constraint is None or other is None:
        return constraint or other
    return _All((constraint, other))


def _book_steps(layers: Sequence[ModelPrice]) -> tuple[tuple[int, Rates], ...]:
    """The steps of a price, each key from the first layer that has it."""
    prices = [_first(getattr(layer, key) for layer in layers) for key in _BOOK_KEYS]
    starts = {tier.start for price in prices if not isinstance(price, Decimal | None) for tier in price.tiers}
    fee = _first(layer.requests_kcount for layer in layers)
    request = (fee / 1000).quantize(COST_STEP) if isinstance(fee, Decimal) else _ZERO
    steps = (-1, *sorted(starts))
    return tuple((start, _filled([_book_rate(price, start) for price in prices], request)) for start in steps)


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _book_rate(price: Decimal | TieredPrices | None, start: int) -> Decimal | None:
    if not isinstance(price, Decimal | None):
        price = next((tier.price for tier in reversed(price.tiers) if tier.start <= start), price.base)
    return None if price is None else (price * _PER_TOKEN).quantize(COST_STEP)


def _own_steps(price: OwnPrice) -> tuple[tuple[int, Rates], ...]:
    steps: list[tuple[int, Mapping[str, Decimal]]] = [(-1, price.rates)]
    for tier in sorted(price.tiers, key=lambda tier: tier.above):
        # What a tier does not name stays as it is below.
        steps.append((tier.above, {**steps[-1][1], **tier.rates}))
    return tuple(
        (start, _filled([_own_rate(rates.get(name)) for name in RATE_NAMES], price.request))
        for start, rates in steps
    )


def _own_rate(rate: Decimal | None) -> Decimal | None:
    return None if rate is None else (rate * _PER_TOKEN).quantize(COST_STEP)


def _scaled(rates: Rates, factor: Decimal) -> Rates:
    def scaled(rate: Decimal | None) -> Decimal | None:
        return None if rate is None else (rate * factor).quantize(COST_STEP)

    request = (rates.request * factor).quantize(COST_STEP)
    return _filled([scaled(getattr(rates, name)) for name in RATE_NAMES], request)


def _filled(prices: Sequence[Decimal | None], request: Decimal) -> Rates:
    input_rate, output_rate, cache_read, cache_write, hour_rate, reasoning, audio_in, audio_out = prices
    if hour_rate is None:
        # Whoever names no price of writes asks the input's for them, however long they are kept.
        hour_rate = input_rate if input_rate is None or cache_write is None else input_rate * _AN_HOUR
    return Rates(
        input=input_rate,
        output=output_rate,
        cache_read=input_rate if cache_read is None else cache_read,
        cache_write=input_rate if cache_write is None else cache_write,
        cache_write_1h=cache_write if hour_rate is None else hour_rate,
        reasoning=output_rate if reasoning is None else reasoning,
        input_audio=input_rate if audio_in is None else audio_in,
        output_audio=output_rate if audio_out is None else audio_out,
        request=request,
    )
