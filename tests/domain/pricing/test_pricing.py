"""Laws of the price book."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.pricing.prices import PriceBook
from tests.domain import BOOK

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def price(model: str | None, provider: str | None = None, at: datetime = AT, **tokens: int | None) -> Any:
    return BOOK.price(provider=provider, model=model, at=at, **tokens)


def test_disjoint_buckets_are_priced_each_at_its_rate() -> None:
    priced = price(
        "gpt-4o-2024-08-06",
        "openai",
        input_tokens=20,
        output_tokens=18,
        cache_read_tokens=100,
        reasoning_tokens=12,
    )
    assert priced.model_id == "gpt-4o"
    assert (priced.input_cost, priced.cache_read_cost) == (Decimal("0.00005"), Decimal("0.000125"))
    assert (priced.output_cost, priced.total_cost) == (Decimal("0.0003"), Decimal("0.000475"))
    assert priced.cache_write_cost is None


def test_without_a_cache_rate_cached_tokens_cost_the_input_rate() -> None:
    assert price("text-embedding-3-small", "openai", cache_read_tokens=10**6).total_cost == Decimal("0.02")


def test_an_unknown_model_has_no_price_and_no_id() -> None:
    priced = price("house-model-7", "openai", input_tokens=1)
    assert (priced.model_id, priced.total_cost, priced.provider) == (None, None, "openai")


def test_a_known_model_without_usage_has_an_id_and_no_price() -> None:
    priced = price("gpt-4o", "openai")
    assert (priced.model_id, priced.total_cost) == ("gpt-4o", None)


def test_tokens_without_a_rate_leave_the_call_without_a_price() -> None:
    assert price("text-embedding-3-small", "openai", input_tokens=5, output_tokens=0).total_cost == Decimal(
        "1E-7"
    )
    assert price("text-embedding-3-small", "openai", input_tokens=5, output_tokens=1).total_cost is None


def test_a_total_that_nobody_paid_is_no_price() -> None:
    assert price("gpt-4o", "openai", input_tokens=2**53).total_cost is None


def test_crossing_a_threshold_prices_every_token_at_the_new_rate() -> None:
    below = price("claude-sonnet-4-5", "anthropic", input_tokens=200_000, output_tokens=100)
    above = price(
        "claude-sonnet-4-5", "anthropic", input_tokens=150_000, cache_read_tokens=50_001, output_tokens=100
    )
    assert below.input_cost == Decimal("0.6")
    assert (above.input_cost, above.output_cost) == (Decimal("0.9"), Decimal("0.00225"))


def test_a_price_that_depends_on_the_hour_is_the_hours() -> None:
    day = price("deepseek-chat", "deepseek", at=AT, input_tokens=10**6)
    night = price("deepseek-chat", "deepseek", at=AT.replace(hour=20), input_tokens=10**6)
    assert day.total_cost == 2 * night.total_cost


@pytest.mark.parametrize(
    ("said", "folded"),
    [
        ("openai", "openai"),
        ("OpenAI", "openai"),
        ("openai.responses", "openai"),
        ("openai.chat", "openai"),
        ("fake.chat", "fake"),
        ("az.ai.openai", "azure"),
        ("azure.ai.openai", "azure"),
        ("azure.ai.inference", "azure"),
        ("azure-openai.chat", "azure"),
        ("AzureOpenAI", "azure"),
        ("aws.bedrock", "aws"),
        ("amazon-bedrock", "aws"),
        ("bedrock_converse", "aws"),
        ("xai", "x-ai"),
        ("x_ai", "x-ai"),
        ("xai.chat", "x-ai"),
        ("vertex_ai", "google"),
        ("gcp.vertex_ai", "google"),
        ("gcp.gemini", "google"),
        ("google.generative-ai", "google"),
        ("google_genai", "google"),
        ("VertexAI", "google"),
        ("anthropic.messages", "anthropic"),
        ("mistral_ai", "mistral"),
        ("mistralai", "mistral"),
        ("groq", "groq"),
        ("deepseek", "deepseek"),
        ("ollama", "ollama"),
        ("my-gateway", "my-gateway"),
    ],
)
def test_spellings_of_a_provider_fold_to_one(said: str, folded: str) -> None:
    assert price(None, said).provider == folded


@pytest.mark.parametrize(
    ("provider", "model", "found"),
    [
        (None, "gpt-4o", "gpt-4o"),
        ("fake.chat", "gpt-4o-2024-08-06", "gpt-4o"),
        (None, "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("openai", "claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("gemini", "models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("azure.ai.openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("groq", "gpt-4o", None),
        ("ollama", "deepseek-chat", None),
        (None, "", None),
        (None, "x" * 10_000, None),
        ("", "gpt-4o", "gpt-4o"),
    ],
)
def test_a_model_is_found_with_its_provider_or_by_its_makers_name(
    provider: str | None, model: str, found: str | None
) -> None:
    assert price(model, provider).model_id == found


REFERENCES = sorted(
    {
        (provider.id, model.id)
        for provider in get_snapshot().providers
        if provider.id
        in ("openai", "anthropic", "google", "mistral", "perplexity", "deepseek", "groq", "aws")
        for model in provider.models
        # Some entries of the book stand for families and match no reference, not even their own id.
        if (found := provider.find_model(model.id)) is not None and found.id == model.id
    }
)
amounts = st.integers(0, 400_000)


@given(st.sampled_from(REFERENCES), amounts, amounts, amounts, amounts, st.integers(0, 23))
def test_a_price_is_the_books_own_where_both_have_one(
    reference: tuple[str, str], plain: int, read: int, written: int, answered: int, hour: int
) -> None:
    provider, model = reference
    at = AT.replace(hour=hour)
    ours = price(
        model,
        provider,
        at,
        input_tokens=plain,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=answered,
    )
    usage = Usage(
        input_tokens=plain + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=answered,
    )
    theirs = calc_price(usage, model, provider_id=provider, genai_request_timestamp=at)
    rates = theirs.model_price
    if ours.total_cost is None:
        # They leave out what they have no rate for; we do not call it priced.
        assert rates.input_mtok is None or rates.output_mtok is None
    else:
        assert ours.total_cost == pytest.approx(theirs.total_price, abs=Decimal("1e-6"))
        buckets = (ours.input_cost, ours.output_cost, ours.cache_read_cost, ours.cache_write_cost)
        assert ours.total_cost == sum(buckets)


def test_what_is_cached_for_an_hour_is_priced_to_the_digit_as_the_book_has_it() -> None:
    checked = 0
    for provider, model in REFERENCES:
        theirs = calc_price(
            Usage(input_tokens=1000, cache_write_tokens=1000, cache_write_1h_tokens=400),
            model,
            provider_id=provider,
            genai_request_timestamp=AT,
        )
        if theirs.model_price.cache_write_1h_mtok is not None:
            ours = price(model, provider, cache_write_tokens=1000, cache_write_1h_tokens=400)
            assert ours.total_cost == theirs.total_price, model
            checked += 1
    assert checked > 20
    # Of the whole it is a part, whatever somebody says.
    more = price("claude-sonnet-4-5", "anthropic", cache_write_tokens=1000, cache_write_1h_tokens=2000)
    assert more.cache_write_cost == 1000 * Decimal(6) / 10**6


def test_the_book_names_its_version_and_starts_no_thread() -> None:
    before = threading.active_count()
    assert PriceBook().version.startswith("genai-prices ")
    assert threading.active_count() == before


def test_names_from_clients_are_forgotten_again() -> None:
    book = PriceBook()
    for number in range(5000):
        book.price(provider=f"p{number}", model=f"m{number}", at=AT)
    assert book._entry.cache_info().currsize == 4096
    assert book._folded.cache_info().currsize == 4096
    assert not get_snapshot()._provider_misses


def test_a_service_tier_costs_what_the_book_says_of_it() -> None:
    usage = {"input_tokens": 10**6, "output_tokens": 10**6}
    by_tier = {
        tier: price("gpt-5", "openai", service_tier=tier, **usage).total_cost  # type: ignore[arg-type]
        for tier in (None, "default", "Flex", "priority", "batch", "scale", "x" * 500)
    }
    assert by_tier[None] == by_tier["default"] == by_tier["scale"] == by_tier["x" * 500] == Decimal("11.25")
    assert by_tier["Flex"] == by_tier["batch"] == Decimal("5.625")
    assert by_tier["priority"] == Decimal("22.5")


@pytest.mark.parametrize("tier", ["batch", "flex", "priority", "fast"])
@pytest.mark.parametrize("when", [AT, datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 10, 13, tzinfo=UTC)])
def test_every_tier_of_every_model_agrees_with_the_books_own_calculation(tier: str, when: datetime) -> None:
    usage = {"input_tokens": 250_000, "output_tokens": 1000}
    context = dict.fromkeys(("service_tier", "processing", "speed"), tier)
    checked = 0
    for provider in get_snapshot().providers:
        for model in provider.models:
            if not model.price_variants:
                continue
            ours = price(model.id, provider.id, at=when, service_tier=tier, **usage).total_cost
            if ours is None:
                continue
            theirs = calc_price(
                Usage(**usage), model.id, provider_id=provider.id, genai_request_timestamp=when,
                price_context=context,
            )  # fmt: skip
            assert ours == theirs.total_price, model.id
            checked += 1
    assert checked > 50


def test_audio_tokens_are_a_part_of_their_bucket_at_a_rate_of_their_own() -> None:
    text = price("gpt-realtime", "openai", input_tokens=1000, output_tokens=100)
    mixed = price(
        "gpt-realtime", "openai", input_tokens=1000, output_tokens=100, input_audio_tokens=400,
        output_audio_tokens=10**9,
    )  # fmt: skip
    assert (text.input_cost, text.output_cost) == (Decimal("0.004"), Decimal("0.0016"))
    assert mixed.input_cost == (600 * Decimal(4) + 400 * Decimal(32)) / 10**6
    assert mixed.output_cost == 100 * Decimal(64) / 10**6
    plain = price("gpt-4o", "openai", input_tokens=1000, input_audio_tokens=400)
    assert plain.total_cost == price("gpt-4o", "openai", input_tokens=1000).total_cost


@pytest.mark.parametrize("framework", ["strands-agents", "autogen", "LangGraph", None])
def test_a_framework_is_no_provider_and_the_book_names_the_maker(framework: str | None) -> None:
    assert price(None, framework).provider is None
    priced = price("gpt-4o", framework, input_tokens=1000)
    assert (priced.provider, priced.model_id, priced.total_cost) == ("openai", "gpt-4o", Decimal("0.0025"))
    assert price("nobody's", framework).provider is None


def test_a_provider_that_was_said_is_never_replaced() -> None:
    assert price("gpt-4o", "my-gateway").provider == "my-gateway"
    assert price("gpt-4o", "azure.ai.openai").provider == "azure"


def test_a_model_of_one_name_and_price_needs_no_provider() -> None:
    alone = price("mistral-embed", input_tokens=1000)
    assert (alone.provider, alone.model_id, alone.total_cost is not None) == (
        "mistral",
        "mistral-embed",
        True,
    )
    # Two sell it and ask the same.
    shared = price("text-embedding-3-small", input_tokens=1000)
    assert (shared.provider, shared.total_cost) == (None, Decimal("0.00002"))
    dear = [
        name
        for name, known in BOOK._named.items()
        if len(known) > 1 and any(model.prices != known[0][1].prices for _, model in known)
    ]
    assert any(price(name).model_id is None for name in dear)
    # Elsewhere the same name may cost something else.
    assert price("text-embedding-3-small", "my-gateway").model_id is None
    assert price("mistral-embed", "ollama").model_id is None


def test_a_provider_that_lacks_the_model_has_the_price_of_the_maker_its_id_names() -> None:
    asked = price("openai/gpt-4o", "groq", input_tokens=1000, output_tokens=10)
    direct = price("gpt-4o", "openai", input_tokens=1000, output_tokens=10)
    assert asked.by_maker
    assert asked.total_cost == direct.total_cost
    assert asked.provider == "groq"
    assert not direct.by_maker
    # The maker is asked where the id names one, and nobody else.
    assert price("gpt-4o", "groq", input_tokens=1000).total_cost is None
    assert price("nobody/house-model-7", "groq", input_tokens=1000).total_cost is None
    # Whoever is not in the book at all is asked as before.
    assert not price("openai/gpt-4o", "acme-gateway", input_tokens=1000).by_maker


def test_a_price_of_the_providers_own_is_never_replaced_by_the_makers() -> None:
    for provider in get_snapshot().providers:
        if provider.id in ("openrouter", "groq", "together"):
            for model in provider.models[:40]:
                assert not price(model.id, provider.id, input_tokens=1000).by_maker, model.id
