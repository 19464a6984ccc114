"""What a model call costs, from the price book bundled with genai-prices.

Owns: `PriceBook`, the folding of provider spellings, and the rates compiled from the book. The mapper asks
once a span. Never leaves the machine: the book's updater is not started. Never calls an unknown price zero.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

import attrs
from genai_prices.data_snapshot import find_provider_by_id, get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

from svc.domain.values import COST_BOUND, COST_STEP, NAME_CHARS

#: Spellings that the price book's own matching would miss or take for another provider.
PROVIDERS: Final[Mapping[str, str]] = {
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "azure-openai": "azure",
    "azure_openai": "azure",
    "azureopenai": "azure",
    "azure_ai": "azure",
    "azure-ai": "azure",
    "aws.bedrock": "aws",
    "bedrock": "aws",
    "gcp": "google",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "vertexai": "google",
    "palm": "google",
    "xai": "x-ai",
    "x_ai": "x-ai",
    "grok": "x-ai",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "moonshot_ai": "moonshotai",
    "together_ai": "together",
    "togetherai": "together",
    "together.ai": "together",
    "fireworks_ai": "fireworks",
    "fireworks-ai": "fireworks",
    "fireworks.ai": "fireworks",
    "perplexity_ai": "perplexity",
    "deep_seek": "deepseek",
    "copilot": "github-copilot",
    "z.ai": "zai",
}
#: Runtimes on the caller's own machines: the name of a model there has no list price.
SELF_HOSTED: Final = frozenset(
    {"ollama", "vllm", "llamacpp", "llama.cpp", "llama_cpp", "lmstudio", "lm_studio"}
    | {"localai", "sglang", "tgi", "mlx"}
)

_PER_TOKEN: Final = Decimal("1e-6")
_ZERO: Final = Decimal(0)
_UNUSED: Final = (None, None, None, None, None)
_CACHED_LOOKUPS: Final = 4096


@attrs.frozen(eq=False)
class Rates:
    """Dollars a token for each bucket, and dollars a request; None where the book has no rate."""

    input: Decimal | None
    output: Decimal | None
    cache_read: Decimal | None
    cache_write: Decimal | None
    reasoning: Decimal | None
    request: Decimal


@attrs.frozen(eq=False)
class _Period:
    """The rates that hold while `constraint` does (None: always), by the input tokens they start above."""

    constraint: Any
    steps: tuple[tuple[int, Rates], ...]


@attrs.frozen(eq=False)
class _Entry:
    """One model: its periods, the first that is active holds, and the last when none is."""

    model_id: str
    periods: tuple[_Period, ...]

    def rates(self, at: datetime, input_tokens: int) -> Rates:
        periods = self.periods
        period = periods[-1]
        if len(periods) > 1:
            period = next((p for p in periods if p.constraint is None or p.constraint.active(at)), period)
        steps = period.steps
        if len(steps) > 1:
            # Crossing a threshold prices every token at the new rate, not only those above it.
            return next((rates for start, rates in reversed(steps) if input_tokens > start), steps[0][1])
        return steps[0][1]


@attrs.define(eq=False)
class Priced:
    """A resolved model and the four cost buckets in USD; `total_cost` is their sum, None when not known."""

    model_id: str | None
    provider: str | None
    input_cost: Decimal | None = None
    output_cost: Decimal | None = None
    cache_read_cost: Decimal | None = None
    cache_write_cost: Decimal | None = None
    total_cost: Decimal | None = None


class PriceBook:
    """The bundled prices. `version` names the book; look-ups are cached, 4096 at most.

    Cached tokens cost the input rate where the book knows no cache rate, reasoning the output rate where it
    knows no other. A fee for each request counts into the input bucket. A bucket with tokens but no rate,
    or a total of a billion dollars, leaves the call without a price.
    """

    def __init__(self) -> None:
        self._providers: list[Provider] = get_snapshot().providers
        self.version = f"genai-prices {version('genai-prices')}"
        self._entry = functools.lru_cache(_CACHED_LOOKUPS)(self._find_entry)
        self._folded = functools.lru_cache(_CACHED_LOOKUPS)(self._fold)

    def price(
        self,
        *,
        provider: str | None,
        model: str | None,
        at: datetime,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> Priced:
        """The folded provider, the book's id of the model, and what five disjoint buckets cost then."""
        # Cut before the look-ups, which remember what they were asked.
        folded = None if provider is None else self._folded(provider[:NAME_CHARS])
        entry = None if model is None or len(model) > NAME_CHARS else self._entry(folded, model)
        if entry is None:
            return Priced(None, folded)
        buckets = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens)
        if buckets == _UNUSED:
            return Priced(entry.model_id, folded)
        rates = entry.rates(at, (input_tokens or 0) + (cache_read_tokens or 0) + (cache_write_tokens or 0))
        try:
            spoken = _cost(output_tokens, rates.output)
            thought = _cost(reasoning_tokens, rates.reasoning)
            read = _cost(cache_read_tokens, rates.cache_read)
            written = _cost(cache_write_tokens, rates.cache_write)
            heard = _cost(input_tokens, rates.input)
        except _NoRate:
            return Priced(entry.model_id, folded)
        if rates.request:
            heard = (heard or _ZERO) + rates.request
        answered = spoken if thought is None else thought if spoken is None else spoken + thought
        total = (heard or _ZERO) + (answered or _ZERO) + (read or _ZERO) + (written or _ZERO)
        if total >= COST_BOUND:
            return Priced(entry.model_id, folded)
        return Priced(entry.model_id, folded, heard, answered, read, written, total)

    def _fold(self, provider: str) -> str:
        """A provider's spelling as the book's id, else in lower case without the name of an API behind it."""
        name = provider.strip().lower()
        if name in PROVIDERS:
            return PROVIDERS[name]
        # Vercel and others append the API: `openai.responses`, `azure.chat`, `fake.chat`.
        head = name.partition(".")[0]
        if head in PROVIDERS or head in SELF_HOSTED:
            return PROVIDERS.get(head, head)
        known = find_provider_by_id(self._providers, head) or find_provider_by_id(self._providers, name)
        return known.id if known is not None else head if "." in name and head else name

    def _find_entry(self, provider: str | None, model: str) -> _Entry | None:
        model_ref = model.strip().lower()
        if not model_ref:
            return None
        found = self._find_model(provider, model_ref)
        return None if found is None else _compiled(found)

    def _find_model(self, provider: str | None, model_ref: str) -> ModelInfo | None:
        maker, _, bare = model_ref.rpartition("/")
        named = None if provider is None else find_provider_by_id(self._providers, provider)
        if named is not None:
            found = self._in(named, model_ref, bare)
            # Gateways speak OpenAI's API for every maker's models; on others the book has the last word.
            if found is not None or named.id != "openai":
                return found
        elif provider in SELF_HOSTED:
            return None
        if maker:
            prefix = find_provider_by_id(self._providers, self._folded(maker.rpartition("/")[2]))
            if prefix is not None and (found := self._in(prefix, model_ref, bare)) is not None:
                return found
        for ref in dict.fromkeys((model_ref, bare)):
            for candidate in self._providers:
                if candidate.model_match is not None and candidate.model_match.is_match(ref):
                    return self._in(candidate, ref, bare)
        return None

    def _in(self, provider: Provider, *refs: str) -> ModelInfo | None:
        # Past the book's own look-up, which remembers every miss for ever: names come from clients.
        for ref in refs:
            if ref and (found := provider.find_model(ref, all_providers=self._providers)) is not None:
                return found
        return None


class _NoRate(Exception):
    """Tokens were used for which the book has no rate."""


def _cost(tokens: int | None, rate: Decimal | None) -> Decimal | None:
    if tokens is None:
        return None
    if rate is None:
        if tokens:
            raise _NoRate
        return _ZERO
    return tokens * rate


def _compiled(model: ModelInfo) -> _Entry:
    prices = model.prices
    if isinstance(prices, ModelPrice):
        return _Entry(model.id, (_Period(None, _steps(prices)),))
    # The book reads its list from the end, and takes the first when nothing is active.
    return _Entry(model.id, tuple(_Period(p.constraint, _steps(p.prices)) for p in reversed(prices)))


def _steps(prices: ModelPrice) -> tuple[tuple[int, Rates], ...]:
    keys = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "output_reasoning_mtok")
    given = [getattr(prices, key) for key in keys]
    starts = {tier.start for price in given if isinstance(price, TieredPrices) for tier in price.tiers}
    fee = prices.requests_kcount
    request = (fee / 1000).quantize(COST_STEP) if isinstance(fee, Decimal) else _ZERO
    steps = (-1, *sorted(starts))
    return tuple((start, _rates([_per_token(price, start) for price in given], request)) for start in steps)


def _per_token(price: Decimal | TieredPrices | None, start: int) -> Decimal | None:
    if isinstance(price, TieredPrices):
        price = next((tier.price for tier in reversed(price.tiers) if tier.start <= start), price.base)
    return None if price is None else (price * _PER_TOKEN).quantize(COST_STEP)


def _rates(given: list[Decimal | None], request: Decimal) -> Rates:
    heard, spoken, read, written, thought = given
    return Rates(
        input=heard,
        output=spoken,
        cache_read=heard if read is None else read,
        cache_write=heard if written is None else written,
        reasoning=spoken if thought is None else thought,
        request=request,
    )
