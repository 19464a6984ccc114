"""The page of prices: which models have none, and what present prices would change of stored history."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import OwnPrice, OwnPrices
from svc.ingest.project_prices import ProjectPriceExchange
from svc.store.postgres.database import Database
from svc.store.spans import reprice_preview
from svc.store.spans.project_prices import ProjectPriceStore
from tests.front.people import Replica, process_view, replica
from tests.web.test_pages import fill, heading
from tests.web.test_triage import invited
from tests.web.visitor import BASE, Visitor


async def test_a_preview_says_by_how_much_prices_would_change_history(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = PriceBook()
    async with replica(store, known=process_view(prices=book)) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        assert "There is no history to price" in (await owner.get(BASE + "/prices?preview=1")).text
        await fill(store, 6)
        seen = await owner.get(BASE + "/prices?preview=1")
        assert "Current prices would not change any of 12 spans" in seen.text
        # A gpt-4o of the house's own: $5 a million instead of $2.50.
        rates = {"input": Decimal(5), "output": Decimal(1)}
        book.adopt(OwnPrices("mine", (OwnPrice("gpt-4o", rates=rates),)))
        seen = await owner.get(BASE + "/prices?preview=1")
        assert "With current prices, $0.0015 would become $0.0030 (+100 %)" in seen.text
        assert "All 6 traces were checked, 12 spans." in seen.text
        assert '<td class="num">6</td><td class="num">$0.0015</td><td class="num">$0.0030</td>' in seen.text
        monkeypatch.setattr(reprice_preview, "MOST_SPANS", 0)
        assert "so this is a sample" in (await owner.get(BASE + "/prices?preview=1")).text
        assert (await store.fetch("select sum(total_cost) as cost from trace"))[0]["cost"] == Decimal(
            "0.0015"
        )


async def test_models_without_a_price_come_with_what_to_write_down(store: Database) -> None:
    async with replica(store) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        hostile: dict[str, Any] = {"gen_ai.request.model": 'house"]\n[[price]]\nmodel = "<b>'}
        await fill(store, 2, **hostile)
        seen = await owner.get(BASE + "/prices")
        assert "1 model has no price" in seen.text
        assert re.search(r'data-label="Spend" title="2 calls without a price">\s*–\s*</td>', seen.text)
        assert "model = &#34;house\\&#34;]\\n[[price]]\\nmodel = \\&#34;&lt;b&gt;&#34;" in seen.text


async def test_a_model_without_a_price_is_given_one_in_its_row(store: Database, owner: Visitor) -> None:
    name = 'house/[m] "<b>'
    await fill(store, 2, **{"gen_ai.request.model": name})
    page = await owner.get(BASE + "/prices")
    assert heading(page) == "1 model has no price"
    edit = re.search(r'href="([^"]+)" aria-label="Set the price', page.text)
    assert edit is not None
    row = await owner.get(edit[1].replace("&amp;", "&"))
    assert row.text.count('class="price-form"') == 1
    assert re.search(r'<input id="price-input"[^>]* value=""[^>]* autofocus', row.text)
    of_row = dict(re.findall(r'name="(model|provider)" value="([^"]*)"', row.text))
    typed = {"input": "2.5", "output": "10", "cache_read": ""}
    typed |= {field: html.unescape(value) for field, value in of_row.items()}
    assert typed["model"] == name
    assert (await owner.post(BASE + "/prices", typed)).location == BASE + "/prices"
    page = await owner.get(BASE + "/prices")
    assert heading(page) == "Every model that was called has a price"
    assert re.search(r"\$2\.50</td><td [^>]*>\$2\.50</td><td [^>]*>\$2\.50</td><td [^>]*>\$10\.00", page.text)
    assert "yours" in page.text
    audit = await owner.get(BASE + "/settings/audit")
    assert "prices.update" in audit.text
    # What comes is priced so, from the moment that decoders know.
    assert (await owner.post(BASE + "/prices/remove", typed)).status == 303
    assert heading(await owner.get(BASE + "/prices")) == "1 model has no price"


async def test_a_price_of_the_book_is_changed_from_what_it_is(store: Database) -> None:
    async with replica(store, known=process_view(prices=PriceBook())) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        await fill(store, 6)
        row = await owner.get(BASE + "/prices?edit=gpt-4o&of=openai")
        said = dict(re.findall(r'<input id="price-(\w+)"[^>]* value="([^"]*)"', row.text))
        assert said == {
            "input": "2.5",
            "cache_read": "1.25",
            "cache_write": "",
            "cache_write_1h": "",
            "output": "10",
        }
        await owner.post(BASE + "/prices", {"model": "gpt-4o", "provider": "openai", **said, "input": "5"})
        seen = await owner.get(BASE + "/prices?preview=1")
        assert "With current prices, " in seen.text
        assert "+ project " in seen.text
        viewer = await invited(here, owner, "viewer@example.org", "viewer")
        assert "Edit" not in (await viewer.get(BASE + "/prices?edit=gpt-4o&of=openai")).text


@pytest.mark.parametrize(
    ("amounts", "field"),
    [
        ({"input": "much", "output": "1"}, "input"),
        ({"input": "1", "output": "-1"}, "output"),
        ({"input": "1", "output": "1", "cache_read": "1,5"}, "cache_read"),
        ({"input": "1", "output": "1", "cache_write": "2000000"}, "cache_write"),
        ({"input": "", "output": "1"}, "input"),
        ({"input": "nan", "output": "1"}, "input"),
    ],
)
async def test_a_refused_amount_stands_in_its_row_with_the_reason(
    store: Database, owner: Visitor, amounts: dict[str, str], field: str
) -> None:
    await fill(store, 2)
    refused = await owner.post(BASE + "/prices", {"model": "gpt-4o", "provider": "openai", **amounts})
    assert refused.status == 400
    assert re.search(f'id="price-{field}-hint" class="small bad">Type US dollars from 0', refused.text)
    said = dict(re.findall(r'<input id="price-(\w+)"[^>]* value="([^"]*)"', refused.text))
    assert said.items() >= amounts.items()


async def test_every_refused_amount_is_named_and_the_first_has_the_focus(
    store: Database, owner: Visitor
) -> None:
    await fill(store, 2)
    amounts = {"input": "1", "cache_read": "1,5", "cache_write": "", "output": "-1"}
    refused = await owner.post(BASE + "/prices", {"model": "gpt-4o", "provider": "openai", **amounts})
    assert refused.status == 400
    assert re.findall(r'id="price-(\w+)-hint" class="small bad"', refused.text) == ["cache_read", "output"]
    assert re.findall(r'<input id="price-(\w+)"[^>]* autofocus', refused.text) == ["cache_read"]


async def test_a_project_prices_its_own_calls_alone(here: Replica, store: Database, owner: Visitor) -> None:
    form = {"model": "gpt-4o", "provider": "", "input": "5", "output": "1"}
    assert (await owner.post(BASE + "/prices", form)).status == 303
    prices = await ProjectPriceStore(store).every()
    (project_id,) = prices
    book = PriceBook()
    at = datetime(2026, 11, 1, tzinfo=UTC)
    exchange = ProjectPriceExchange(store, book)
    await exchange.ensure()
    asked: dict[str, Any] = {"provider": "openai", "model": "GPT-4o", "at": at, "input_tokens": 1_000_000}
    assert book.of(project_id).price(**asked).total_cost == 5
    assert book.of(project_id + 1).price(**asked).total_cost == Decimal("2.5")
    # The operator's prices come and go behind those of the project.
    book.adopt(OwnPrices("mine", (OwnPrice("gpt-*", rates={"input": Decimal(7), "output": Decimal(1)}),)))
    assert book.of(project_id).price(**asked).total_cost == 5
    assert book.of(project_id + 1).price(**asked).total_cost == 7
    assert (await owner.post(BASE + "/prices/remove", form)).status == 303
    await exchange.exchange()
    assert book.of(project_id).price(**asked).total_cost == 7
