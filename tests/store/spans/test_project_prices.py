"""Prices of a project, from what somebody sets to what a stored call costs."""

from __future__ import annotations

from decimal import Decimal

from protocol.storage import Batch
from svc.domain.intake.batches import decoder
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.project_prices import ModelPrice
from svc.ingest.project_prices import ProjectPriceExchange
from svc.ingest.writer import Ingest
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.spans.project_prices import ProjectPriceStore
from tests.store.spans.test_writing import NOW, PROJECT, one, store_of
from tests.wire import request

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "in-house",
    "gen_ai.request.model": "house-llm",
    "gen_ai.usage.input_tokens": 1_000_000,
    "gen_ai.usage.output_tokens": 100_000,
}


async def test_a_call_costs_what_its_project_says_from_the_next_exchange_on(store: Database) -> None:
    await ProjectStore(store).make_default()
    book = PriceBook()
    exchange = ProjectPriceExchange(store, book)
    writer = Ingest(decoder(book), store_of(store), exchange.ensure)

    async def costs(number: int) -> list[tuple[Decimal | None, str | None]]:
        body = request(one(number, attributes=CALL)).SerializeToString()
        await writer.write([Batch(PROJECT, body, 1, NOW, 0.0)])
        rows = await store.fetch("select total_cost, price_book from span order by span_id")
        return [(row["total_cost"], row["price_book"]) for row in rows]

    assert [cost for cost, _ in await costs(1)] == [None]
    price = ModelPrice("house-llm", "In-House", Decimal("2.5"), Decimal(10))
    await ProjectPriceStore(store).replace(PROJECT, [price], actor="ann", slug="default")
    await exchange.exchange()
    # What is stored stays as it was priced.
    (first, _), (second, name) = await costs(2)
    assert (first, second) == (None, Decimal("3.5"))
    assert name is not None
    assert name.startswith(book.version + " + project ")
