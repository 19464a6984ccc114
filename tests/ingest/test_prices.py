"""The price file: what it means, and what a file that is not right is told."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from svc.domain.pricing.prices import PriceBook, Priced
from svc.ingest.prices import BadPrices, read_prices
from tests.forked import ran
from tests.readme import whole
from tests.service import TRACE_SVC, environment, running, until
from tests.wire import request, span

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
MILLION = 10**6


def book(tmp_path: Path, text: str) -> PriceBook:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    return PriceBook(read_prices(file))


def cost(
    prices: PriceBook, model: str, *, provider: str | None = None, at: datetime = AT, **said: object
) -> Priced:
    return prices.price(provider=provider, model=model, at=at, **said)  # type: ignore[arg-type]


def test_a_model_of_ones_own_is_priced_by_its_pattern_in_any_letter_case(tmp_path: Path) -> None:
    prices = book(tmp_path, '[[price]]\nmodel = "House-*"\ninput = 2\noutput = 0.5\n')
    priced = cost(
        prices, "vendor/HOUSE-7b", input_tokens=MILLION, output_tokens=MILLION, reasoning_tokens=MILLION
    )
    assert (priced.model_id, priced.total_cost) == ("house-7b", Decimal(3))
    assert cost(prices, "other", input_tokens=1).total_cost is None


def test_a_negotiated_rate_goes_before_the_price_book_and_keeps_its_id(tmp_path: Path) -> None:
    prices = book(tmp_path, '[[price]]\nmodel = "gpt-4o-*"\ninput = 1\n')
    priced = cost(prices, "gpt-4o-2024-08-06", provider="openai", input_tokens=MILLION)
    assert (priced.model_id, priced.total_cost) == ("gpt-4o", Decimal(1))
    assert priced.cache_read_cost is None
    assert cost(prices, "gpt-4o-2024-08-06", output_tokens=1).total_cost is None


@pytest.mark.parametrize(
    ("rates", "dollars"),
    [
        ("input = 2\ncache_write = 2.5\ncache_write_1h = 3", "3"),
        # Anthropic's rule: an hour costs twice the input.
        ("input = 2\ncache_write = 2.5", "4"),
        ("input = 2", "2"),
        ("cache_write = 2.5", "2.5"),
    ],
)
def test_what_is_cached_for_an_hour_costs_its_rate_or_twice_the_input_beside_a_rate_of_writes(
    tmp_path: Path, rates: str, dollars: str
) -> None:
    ours = '[[price]]\nmodel = "claude-*"\nmultiplier = 0.5\n'
    prices = book(tmp_path, f'[[price]]\nmodel = "x"\n{rates}\n{ours}')
    for_an_hour = {"cache_write_tokens": MILLION // 10, "cache_write_1h_tokens": MILLION // 10}
    assert cost(prices, "x", **for_an_hour).total_cost == Decimal(dollars) / 10
    assert cost(prices, "claude-sonnet-4-5", **for_an_hour).total_cost == Decimal("0.3")


def test_a_price_holds_from_its_start_and_the_first_that_matches_wins(tmp_path: Path) -> None:
    prices = book(
        tmp_path,
        '[[price]]\nmodel = "x"\nfrom = 2026-11-01\ninput = 3\n'
        '[[price]]\nmodel = "x"\nfrom = 2026-10-01T12:00:00Z\ninput = 2\n'
        '[[price]]\nmodel = "y"\ninput = 1\n[[price]]\nmodel = "*"\nfrom = 2026-10-31\ninput = 9\n',
    )
    seen = [
        cost(prices, "x", at=datetime(2026, month, day, hour, tzinfo=UTC), input_tokens=MILLION).total_cost
        for month, day, hour in ((10, 1, 11), (10, 1, 12), (10, 31, 23), (11, 1, 0))
    ]
    assert seen == [None, 2, 2, 3]
    assert cost(prices, "y", input_tokens=MILLION).total_cost == 1


def test_a_price_of_a_provider_or_tier_is_for_these_calls_only(tmp_path: Path) -> None:
    prices = book(
        tmp_path,
        '[[price]]\nmodel = "x"\nprovider = "azure_openai"\ninput = 5\n'
        '[[price]]\nmodel = "x"\nservice_tier = "Batch"\ninput = 1\n[[price]]\nmodel = "x"\ninput = 2\n',
    )
    assert cost(prices, "x", provider="azure.ai.openai", input_tokens=MILLION).total_cost == 5
    assert cost(prices, "x", service_tier="batch", input_tokens=MILLION).total_cost == 1
    assert cost(prices, "x", service_tier="flex", input_tokens=MILLION).total_cost == 2
    assert cost(prices, "x", service_tier="default", input_tokens=MILLION).total_cost == 2


def test_a_step_prices_the_whole_call_and_what_it_does_not_name_stays(tmp_path: Path) -> None:
    prices = book(
        tmp_path,
        '[[price]]\nmodel = "x"\ninput = 1\noutput = 10\ncache_read = 0.1\n'
        "[[price.tier]]\nabove = 1000\ninput = 2\n",
    )
    assert cost(prices, "x", input_tokens=1000).total_cost == Decimal("0.001")
    above = cost(prices, "x", input_tokens=1000, cache_read_tokens=1, output_tokens=100)
    assert above.total_cost == Decimal("0.002") + Decimal("0.0000001") + Decimal("0.001")


def test_a_multiplier_scales_every_rate_of_the_book(tmp_path: Path) -> None:
    usage = {"input_tokens": 300_000, "output_tokens": 500, "cache_read_tokens": 70}
    prices = book(tmp_path, '[[price]]\nmodel = "claude-*"\nmultiplier = 0.5\n')
    for model in ("claude-sonnet-4-5", "claude-opus-4-6"):
        for tier in (None, "batch"):
            plain = cost(PriceBook(), model, provider="anthropic", service_tier=tier, **usage).total_cost
            half = cost(prices, model, provider="anthropic", service_tier=tier, **usage).total_cost
            assert plain is not None
            assert half is not None
            assert half * 2 == plain
    assert cost(prices, "claude-unheard-of-by-anyone", input_tokens=1).total_cost is None


def test_audio_and_a_request_have_rates_of_their_own(tmp_path: Path) -> None:
    prices = book(
        tmp_path,
        '[[price]]\nmodel = "x"\ninput = 1\noutput = 2\ninput_audio = 10\noutput_audio = 20\nrequest = 0.5\n',
    )
    priced = cost(
        prices, "x", input_tokens=MILLION, output_tokens=MILLION, input_audio_tokens=MILLION // 2,
        output_audio_tokens=MILLION * 9,
    )  # fmt: skip
    assert (priced.input_cost, priced.output_cost) == (Decimal("6.0"), Decimal(20))


def test_the_version_changes_with_the_file(tmp_path: Path) -> None:
    one, other = (book(tmp_path, f'[[price]]\nmodel = "x"\ninput = {rate}\n').version for rate in (1, 2))
    assert one != other
    assert one.startswith(PriceBook().version + " + own ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[price]\nmodel = "x"', "line 1"),
        ('[[price]]\nmodel = "x"\ninput = "cheap"', "`$.price[0].input`"),
        ('[[price]]\nmodel = "x"\ninput = -1', "`price[0].input` is -1; expected an amount from 0"),
        ('[[price]]\nmodel = "x"\ninput = nan', "expected an amount from 0"),
        ('[[price]]\nmodel = "x"\ninputs = 1', "unknown field `inputs`"),
        ("[[price]]\ninput = 1", "missing required field `model`"),
        ('[[price]]\nmodel = " "\ninput = 1', "is blank; expected a model's name"),
        ('[[price]]\nmodel = "x"', "has no rate; expected input, output"),
        ('[[price]]\nmodel = "x"\ninput = 1\nmultiplier = 2', "one or the other"),
        (
            '[[price]]\nmodel = "x"\ninput = 1\nfrom = "2026-11-20"',
            "expected a date such as 2026-11-20, unquoted",
        ),
        (
            '[[price]]\nmodel = "x"\ninput = 1\n[[price.tier]]\nabove = 5\noutput = 1e99',
            "`price[0].tier[0].output`",
        ),
        ('[[price]]\nmodel = "x"\ninput = 1\n[[price.tier]]\nabove = -5', "negative `above`"),
        ("[[prices]]\nmodel = 1", "unknown field `prices`"),
        ("\udcff", "is not TOML"),
    ],
)
def test_a_file_that_is_not_right_is_told_where_and_what_was_expected(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "prices.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadPrices) as refusal:
        read_prices(file)
    assert str(file) in str(refusal.value)
    assert said in str(refusal.value)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert cost(book(tmp_path, ""), "gpt-4o", input_tokens=MILLION).total_cost == Decimal("2.5")


def test_the_example_in_the_readme_is_a_price_file(tmp_path: Path) -> None:
    readme = whole()
    prices = book(tmp_path, readme.partition("```toml\n")[2].partition("```")[0])
    priced = cost(prices, "gpt-4o", provider="openai", service_tier="batch", input_tokens=MILLION)
    assert priced.total_cost == Decimal("2.0001")
    assert cost(prices, "house-llama-3", output_tokens=MILLION).total_cost == Decimal("0.6")


def test_a_start_with_a_bad_file_is_refused_before_the_database_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('[[price]]\nmodel = "x"\ninput = "cheap"')
    env = environment(tmp_path / "data", SVC_PRICES_FILE=str(file), SVC_HTTP_BIND="127.0.0.1:0")
    done = ran([TRACE_SVC, "serve"], env=env, timeout_s=60)
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert "price[0].input" in done.stderr
    assert not (tmp_path / "data" / "postgres" / "18").exists()


def test_sighup_brings_new_prices_and_a_bad_file_leaves_the_old_ones(open_folder: Path) -> None:
    file = open_folder / "prices.toml"
    file.write_text('[[price]]\nmodel = "house-7"\ninput = 1\n')
    asked = 0

    with running(open_folder / "data", SVC_PRICES_FILE=str(file)) as service:

        def price_of_a_call() -> float:
            """What the next call costs, in dollars a million tokens."""
            nonlocal asked
            asked += 1
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "house-7",
                "gen_ai.usage.input_tokens": MILLION,
                "session.id": f"s{asked}",
            }
            sent = span(
                span_id=asked.to_bytes(8, "big"),
                attributes=attributes,
                start_ns=time.time_ns(),
                end_ns=time.time_ns(),
            )
            assert service.send(request(sent).SerializeToString()).status_code == 200
            service.wait_for_spans(1, session_id=f"s{asked}")
            found = service.ask("search", {"dataset": "spans", "filters": {"session_id": f"s{asked}"}})
            fields = found["rows"][0]["fields"]
            assert " + own " in fields["price_book"]
            total: float = fields["total_cost"]
            return total

        assert price_of_a_call() == 1
        file.write_text('[[price]]\nmodel = "house-7"\ninput = 2\n')
        os.kill(service.process.pid, signal.SIGHUP)
        until(lambda: "prices are now" in service.log.read_text())
        until(lambda: price_of_a_call() == 2)
        file.write_text("[[price]]\nmodel = 7\n")
        os.kill(service.process.pid, signal.SIGHUP)
        until(lambda: "keeping the old prices" in service.log.read_text())
        assert price_of_a_call() == 2
