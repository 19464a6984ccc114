"""What a model call costs, from prices of its project, the operator's and the book bundled with genai-prices.

Owns: `PriceBook` and the folding of provider spellings; rates are compiled in `svc.domain.pricing.rates`. The
mapper asks once a span. Never leaves the machine: the book's updater is not started. Never calls an unknown
price zero.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from copy import copy
from datetime import datetime
from decimal import Decimal
from fnmatch import translate
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec

from svc.domain.pricing.rates import STANDARD_TIERS, OwnPrice, OwnPrices, RateEntry, book_periods, own_periods
from svc.domain.spans.values import COST_BOUND, NAME_CHARS

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

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

#: Frameworks that name themselves where the provider belongs: who serves the model is not said.
FRAMEWORKS: Final = frozenset(
    {"strands-agents", "strands_agents", "strands", "autogen", "ag2", "langgraph", "langchain", "llamaindex"}
    | {
        "llama_index",
        "crewai",
        "haystack",
        "dspy",
        "semantic-kernel",
        "semantic_kernel",
        "agno",
        "smolagents",
    }
    | {"microsoft.agent_framework", "pydantic-ai", "pydantic_ai", "openai-agents", "openai_agents", "litellm"}
    | {"spring_ai", "spring-ai", "pipecat", "livekit"}
)

#: Where a model is reached, named in the provider's place.
_ADDRESS: Final = re.compile(
    r"//|^\[|^localhost$|:[0-9]+$|^[0-9]{1,3}(?:\.[0-9]{1,3}){3}$"
    r"|\.(?:com|net|org|io|dev|cloud|local|internal|lan)$"
)

_ZERO: Final = Decimal(0)
_UNUSED: Final = (None, None, None, None, None)
_CACHED_LOOKUPS: Final = 4096
#: The longest name of a service tier that is looked up.
_TIER_CHARS: Final = 40


class Priced(msgspec.Struct, eq=False, gc=False):
    """A resolved model and the four cost buckets in USD; `total_cost` is their sum, None when not known."""

    model_id: str | None
    provider: str | None
    input_cost: Decimal | None = None
    output_cost: Decimal | None = None
    cache_read_cost: Decimal | None = None
    cache_write_cost: Decimal | None = None
    total_cost: Decimal | None = None
    #: The provider's price is not known; it is that of the maker which the model's id names.
    by_maker: bool = False


class PriceBook:
    """The operator's prices, then the bundled ones. `version` names both; look-ups are cached, 4096 at most.

    Cached tokens cost the input rate where nobody has named a cache rate, and twice the input rate where
    they are kept for an hour and nobody has named a rate for that beside the one of other writes; reasoning
    costs the output rate, audio the rate of text. A fee for each request counts into the input bucket. A
    bucket with tokens but no rate, or a total of a billion dollars, leaves the call without a price.
    """

    def __init__(self, own: OwnPrices | None = None) -> None:
        # The book takes a fifth of a second to load, and most commands price nothing.
        from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

        self._providers: list[Provider] = get_snapshot().providers
        self._provider = functools.partial(find_provider_by_id, self._providers)
        #: By exact name: what has no provider is found by the name of its model.
        self._named: dict[str, list[tuple[Provider, ModelInfo]]] = {}
        for provider in self._providers:
            for model in provider.models:
                self._named.setdefault(model.id.lower(), []).append((provider, model))
        self._folded = functools.lru_cache(_CACHED_LOOKUPS)(self._fold)
        #: What projects say themselves, and the book of each that says something.
        self._of_projects: Mapping[int, OwnPrices] = {}
        self._books: dict[int, PriceBook] = {}
        self.adopt(own)

    def adopt(self, own: OwnPrices | None) -> None:
        """Price by these from the next call on."""
        self.own = own
        self._rank(own)
        self._books = {project_id: self.behind(prices) for project_id, prices in self._of_projects.items()}

    def adopt_projects(self, prices: Mapping[int, OwnPrices]) -> None:
        """Price calls of these projects by prices of their own, before the operator's."""
        previous, self._of_projects = self._of_projects, dict(prices)
        self._books = {
            project_id: self._books[project_id] if previous.get(project_id) == own else self.behind(own)
            for project_id, own in prices.items()
        }

    def of(self, project_id: int) -> PriceBook:
        """What prices the calls of a project."""
        return self._books.get(project_id, self)

    def behind(self, first: OwnPrices | None) -> PriceBook:
        """This book behind other prices, which are asked first."""
        if first is None:
            return self
        book = copy(self)
        book._of_projects, book._books = {}, {}
        book._rank(first, self.own)
        return book

    def _rank(self, *sources: OwnPrices | None) -> None:
        ranked = [own for own in sources if own is not None]
        self.version = " + ".join(
            (f"genai-prices {version('genai-prices')}", *(own.version for own in reversed(ranked)))
        )
        self._own: tuple[tuple[re.Pattern[str], OwnPrice], ...] = tuple(
            (re.compile(translate(price.model)), price) for own in ranked for price in own.prices
        )
        self._entry = functools.lru_cache(_CACHED_LOOKUPS)(self._find_entry)

    def price(
        self,
        *,
        provider: str | None,
        model: str | None,
        at: datetime,
        service_tier: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cache_write_1h_tokens: int | None = None,
        input_audio_tokens: int | None = None,
        output_audio_tokens: int | None = None,
    ) -> Priced:
        """The folded provider, the book's id of the model, and what five disjoint buckets cost then.

        Where nobody names a provider, or a framework itself, it is the one by which the model was found.
        Audio tokens are parts of the input and of the output bucket, what is kept for an hour of the cache
        writes.
        """
        # Cut before the look-ups, which remember what they were asked.
        folded = None if provider is None else self._folded(provider[:NAME_CHARS])
        tier = None if service_tier is None else folded_tier(service_tier)
        entry = None if model is None or len(model) > NAME_CHARS else self._entry(folded, model, tier)
        if entry is None:
            return Priced(None, folded)
        if folded is None:
            folded = entry.provider
        buckets = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens)
        if buckets == _UNUSED:
            return Priced(entry.model_id, folded)
        rates = entry.rates(at, (input_tokens or 0) + (cache_read_tokens or 0) + (cache_write_tokens or 0))
        if rates is None:
            return Priced(entry.model_id, folded)
        try:
            visible = _cost(output_tokens, rates.output, output_audio_tokens, rates.output_audio)
            reasoning = _cost(reasoning_tokens, rates.reasoning)
            cache_read = _cost(cache_read_tokens, rates.cache_read)
            cache_write = _cost(
                cache_write_tokens, rates.cache_write, cache_write_1h_tokens, rates.cache_write_1h
            )
            input_cost = _cost(input_tokens, rates.input, input_audio_tokens, rates.input_audio)
        except _NoRate:
            return Priced(entry.model_id, folded)
        if rates.request:
            input_cost = (input_cost or _ZERO) + rates.request
        output_cost = visible if reasoning is None else reasoning if visible is None else visible + reasoning
        total = (
            (input_cost or _ZERO) + (output_cost or _ZERO) + (cache_read or _ZERO) + (cache_write or _ZERO)
        )
        if total >= COST_BOUND:
            return Priced(entry.model_id, folded)
        return Priced(
            entry.model_id, folded, input_cost, output_cost, cache_read, cache_write, total, entry.by_maker
        )

    def _fold(self, provider: str) -> str | None:
        """A provider's spelling as the book's id, else in lower case without the name of an API behind it.

        None for a framework, and for an address of which no part is a provider's name.
        """
        name = provider.strip().lower()
        if name in FRAMEWORKS:
            return None
        if name in PROVIDERS:
            return PROVIDERS[name]
        if _ADDRESS.search(name):
            return self._fold_host(name)
        # Vercel and others append the API: `openai.responses`, `azure.chat`, `fake.chat`.
        head = name.partition(".")[0]
        if head in PROVIDERS or head in SELF_HOSTED:
            return PROVIDERS.get(head, head)
        book_provider = self._provider(head) or self._provider(name)
        return book_provider.id if book_provider is not None else head if "." in name and head else name

    def _fold_host(self, address: str) -> str | None:
        host = address.rpartition("//")[2].partition("/")[0].partition(":")[0]
        providers = (self._provider(label) for label in host.split(".") if label.isalpha() and label != "com")
        return next((provider.id for provider in providers if provider is not None), None)

    def _find_entry(self, provider: str | None, model: str, tier: str | None) -> RateEntry | None:
        model_ref = model.strip().lower()
        if not model_ref:
            return None
        maker, model_info = self._find_model(provider, model_ref) or (None, None)
        maker_id = None if maker is None else maker.id
        listed = () if model_info is None else book_periods(model_info, tier)
        bare = model_ref.rpartition("/")[2]
        chosen = [
            price
            for pattern, price in self._own
            if (pattern.fullmatch(model_ref) or pattern.fullmatch(bare))
            and (price.provider is None or self._folded(price.provider) == provider)
            and (price.service_tier is None or folded_tier(price.service_tier) == tier)
        ]
        if not chosen:
            if model_info is None:
                return None
            known = None if provider is None else self._provider(provider)
            by_maker = known is not None and known.id not in ("openai", maker_id)
            return RateEntry(model_info.id, listed, maker_id, by_maker)
        own_id = next((price.model_id for price in chosen if price.model_id is not None), None)
        periods = (*(period for price in chosen for period in own_periods(price, listed)), *listed)
        model_id = own_id or (bare if model_info is None else model_info.id)
        return RateEntry(model_id, periods, maker_id) if periods else None

    def _find_model(self, provider: str | None, model_ref: str) -> tuple[Provider | None, ModelInfo] | None:
        maker, _, bare = model_ref.rpartition("/")
        book_provider = None if provider is None else self._provider(provider)
        if book_provider is not None:
            match = self._in(book_provider, model_ref, bare)
            if match is not None:
                return match
            # Gateways speak OpenAI's API for every maker's models. Of others the maker is asked that the id
            # names, and nobody else.
            if book_provider.id != "openai":
                return self._of_maker(maker, model_ref, bare)
        elif provider in SELF_HOSTED:
            return None
        if (match := self._of_maker(maker, model_ref, bare)) is not None:
            return match
        for ref in dict.fromkeys((model_ref, bare)):
            for candidate in self._providers:
                if candidate.model_match is not None and candidate.model_match.is_match(ref):
                    return self._in(candidate, ref, bare)
        return self._by_name(model_ref) if provider is None else None

    def _of_maker(self, maker: str, model_ref: str, bare: str) -> tuple[Provider, ModelInfo] | None:
        """The model at the provider that the part before the slash names; None where there is none."""
        spelled = self._folded(maker.rpartition("/")[2]) if maker else None
        prefix = None if spelled is None else self._provider(spelled)
        return None if prefix is None else self._in(prefix, model_ref, bare)

    def _by_name(self, model_ref: str) -> tuple[Provider | None, ModelInfo] | None:
        """The model of this very name, if one provider has it or all who have it ask the same."""
        entries = self._named.get(model_ref)
        if entries is None or any(model.prices != entries[0][1].prices for _, model in entries):
            return None
        provider, model = entries[0]
        return (provider if len(entries) == 1 else None), model

    def _in(self, provider: Provider, *refs: str) -> tuple[Provider, ModelInfo] | None:
        # Past the book's own look-up, which remembers every miss for ever: names come from clients.
        for ref in refs:
            if ref and (model_info := provider.find_model(ref, all_providers=self._providers)) is not None:
                return provider, model_info
        return None


@functools.lru_cache(_CACHED_LOOKUPS)
def folded_tier(name: str) -> str | None:
    """A service tier as prices name it; None for the standard one, by whatever word."""
    tier = name[: _TIER_CHARS + 1].strip().lower()
    return None if tier in STANDARD_TIERS or len(tier) > _TIER_CHARS else tier


class _NoRate(Exception):
    """Tokens were used for which nobody has named a rate."""


def _cost(
    tokens: int | None, rate: Decimal | None, part: int | None = None, part_rate: Decimal | None = None
) -> Decimal | None:
    if tokens is None:
        return None
    if part:
        part = min(part, tokens)
        return (_cost(tokens - part, rate) or _ZERO) + (_cost(part, part_rate) or _ZERO)
    if rate is None:
        if tokens:
            raise _NoRate
        return _ZERO
    return tokens * rate
