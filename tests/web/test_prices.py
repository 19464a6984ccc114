"""The page of prices: which models have none, and what present prices would change of stored history."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.rates import OwnPrice, OwnPrices
from svc.store.postgres.database import Database
from svc.store.spans import reprice_preview
from tests.front.people import process_view, replica
from tests.web.test_pages import fill
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
        assert "Present prices would change nothing of 12 spans" in seen.text
        # A gpt-4o of the house's own: $5 a million instead of $2.50.
        rates = {"input": Decimal(5), "output": Decimal(1)}
        book.adopt(OwnPrices("mine", (OwnPrice("gpt-4o", rates=rates),)))
        seen = await owner.get(BASE + "/prices?preview=1")
        assert "Present prices would make $0.0015 of cost $0.0030 (+100 %)" in seen.text
        assert "All 6 traces were looked at, 12 spans." in seen.text
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
        assert "model = &#34;house\\&#34;]\\n[[price]]\\nmodel = \\&#34;&lt;b&gt;&#34;" in seen.text
