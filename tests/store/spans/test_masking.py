"""Masking, from the rule that somebody sets to what lies in the database."""

from __future__ import annotations

from datetime import datetime

import pytest

from protocol.storage import Batch, Letter, Outage
from svc.domain.intake.batches import decoder
from svc.domain.intake.masking import MaskRule
from svc.domain.pricing.prices import PriceBook
from svc.ingest.masking import MaskingExchange
from svc.ingest.writer import Ingest
from svc.store.accounts.audit import AuditStore
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.spans.dead_letters import DeadLetterStore
from svc.store.spans.masking import MaskingStore
from tests.store.retention.scanned import where_stands
from tests.store.spans.test_writing import NOW, PROJECT, one, store_of
from tests.wire import request

MARKER = "zanzibarquux@example.com"
BODY = request(one(1, attributes={"input.value": f"ask {MARKER}", "user.id": MARKER})).SerializeToString()
RULES = [MaskRule("email"), MaskRule("customer", "KD-[0-9]{6}")]


async def ingest(store: Database) -> tuple[Ingest, MaskingExchange]:
    masking = MaskingExchange(store)
    return Ingest(decoder(PriceBook(), masker=masking.masker), store_of(store), masking.ensure), masking


async def test_what_is_masked_never_reaches_the_database_and_is_counted(store: Database) -> None:
    await ProjectStore(store).make_default()
    await MaskingStore(store).replace(PROJECT, RULES, actor="ann", slug="default")
    writer, masking = await ingest(store)
    await writer.write([Batch(PROJECT, BODY, 1, NOW, 0.0)])
    await DeadLetterStore(store).bury([Letter(PROJECT, "refused", BODY, NOW, 1)])
    assert await where_stands(store, MARKER) == []
    await masking.exchange(NOW)
    await masking.exchange(NOW)
    assert await MaskingStore(store).counts(PROJECT, NOW) == {"email": 2}
    (row,) = [
        row for row in await AuditStore(store).page(project_id=PROJECT) if row.action == "masking.update"
    ]
    assert row.details == {"email": "class", "customer": "KD-[0-9]{6}"}


async def test_a_change_holds_from_the_next_exchange_on(store: Database) -> None:
    await ProjectStore(store).make_default()
    writer, masking = await ingest(store)
    await writer.write([Batch(PROJECT, BODY, 1, NOW, 0.0)])
    assert await where_stands(store, MARKER) != []
    await MaskingStore(store).replace(PROJECT, RULES, actor="ann", slug="default")
    await masking.exchange(NOW)
    # The same span once more: what it said takes the place of what is stored.
    await writer.write([Batch(PROJECT, BODY, 1, NOW, 0.0)])
    places = await where_stands(store, MARKER)
    assert not any(place.startswith(("span_default.", "span_payload")) for place in places), places


async def test_nothing_is_decoded_before_the_rules_are_known(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_self: MaskingStore) -> None:
        raise Outage("the database is away")

    monkeypatch.setattr(MaskingStore, "every_rule", away)
    writer, masking = await ingest(store)
    with pytest.raises(Outage):
        await writer.write([Batch(PROJECT, BODY, 1, NOW, 0.0)])
    masking.masker.counts[PROJECT, "email"] = 3
    with pytest.raises(Outage):
        await masking.exchange(datetime.now(NOW.tzinfo))
