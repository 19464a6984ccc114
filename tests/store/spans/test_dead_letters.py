"""Dead letters on a real PostgreSQL: kept with their reason, replayed once, dropped on request."""

from __future__ import annotations

from itertools import chain

import pytest

from protocol.storage import Batch, Letter, Outage, StoreRefused, Written
from svc.domain.intake import decoder
from svc.domain.pricing import PriceBook
from svc.store.postgres.database import Database
from svc.store.spans.dead_letters import DeadLetterStore, Replayed
from tests.store.spans.test_writing import NOW, fetch, one, store_of
from tests.wire import request

DECODE = decoder(PriceBook())


def letter(number: int) -> Letter:
    return Letter(1, f"reason {number}", request(one(number)).SerializeToString(), NOW, 1)


async def test_a_letter_keeps_its_reason_and_its_body(store: Database) -> None:
    letters = DeadLetterStore(store)
    await letters.bury([letter(1), letter(2)])
    first, second = await letters.page(0, 10)
    assert (first.reason, first.body, first.received_at) == ("reason 1", letter(1).body, NOW)
    assert await letters.count_spans() == 2
    assert await letters.page(first.id, 10) == [second]
    assert await letters.page(0, 10, [second.id]) == [second]
    assert "body" not in repr(first)


async def test_a_replayed_letter_is_stored_and_gone(store: Database) -> None:
    letters, spans = DeadLetterStore(store), store_of(store)

    async def write(batch: Batch) -> Written:
        return await spans.write(list(chain.from_iterable(DECODE(batch))))

    await letters.bury([letter(1), letter(2)])
    assert await letters.replay(None, write) == Replayed(letters=2, stored=2, refused=0)
    assert await letters.count_spans() == 0
    assert len(await fetch(store, "select from span")) == 2


async def test_replaying_what_is_stored_already_stores_nothing_twice(store: Database) -> None:
    letters, spans = DeadLetterStore(store), store_of(store)

    async def write(batch: Batch) -> Written:
        return await spans.write(list(chain.from_iterable(DECODE(batch))))

    await letters.bury([letter(1), letter(1)])
    assert await letters.replay(None, write) == Replayed(letters=2, stored=1, refused=0)
    assert len(await fetch(store, "select from span")) == 1


async def test_a_letter_that_is_refused_once_more_stays_with_the_new_reason(store: Database) -> None:
    letters = DeadLetterStore(store)
    await letters.bury([letter(1), letter(2)])
    (first, _) = await letters.page(0, 10)

    async def write(batch: Batch) -> Written:
        if batch.body == first.body:
            raise StoreRefused("still bad")
        return Written(1, 0)

    assert await letters.replay(None, write) == Replayed(letters=1, stored=1, refused=1)
    (left,) = await letters.page(0, 10)
    assert (left.id, left.reason) == (first.id, "still bad")


async def test_an_outage_ends_a_replay_and_keeps_the_letters(store: Database) -> None:
    letters = DeadLetterStore(store)
    await letters.bury([letter(1)])

    async def write(batch: Batch) -> Written:
        raise Outage("away")

    with pytest.raises(Outage):
        await letters.replay(None, write)
    assert await letters.count_spans() == 1


async def test_letters_are_dropped_by_id_or_all(store: Database) -> None:
    letters = DeadLetterStore(store)
    await letters.bury([letter(n) for n in range(1, 4)])
    first, *_ = await letters.page(0, 10)
    assert await letters.drop([first.id, 999]) == 1
    assert await letters.drop(None) == 2
    assert await letters.drop(None) == 0
