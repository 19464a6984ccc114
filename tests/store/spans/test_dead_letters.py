"""Dead letters on a real PostgreSQL: kept with their reason, replayed once, discarded on request, audited."""

from __future__ import annotations

import asyncio
from itertools import chain

import attrs
import pytest
import trio

from protocol.storage import Batch, Letter, Outage, StoreRefused, Written
from svc.domain.intake.batches import decoder
from svc.domain.pricing.prices import PriceBook
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Connection, Database
from svc.store.spans.dead_letter_requests import (
    NO_BOUND,
    AuditScope,
    Bound,
    Chosen,
    DeadLetterRequests,
    Dealt,
)
from svc.store.spans.dead_letters import DeadLetterStore
from tests.store.spans.test_writing import NOW, fetch, one, store_of
from tests.wire import request

DECODE = decoder(PriceBook())
NOBODYS = AuditScope(1, None, OPERATOR)


def letter(number: int, project_id: int = 1) -> Letter:
    return Letter(project_id, f"reason {number}", request(one(number)).SerializeToString(), NOW, 1)


async def ids_of(store: Database) -> list[int]:
    return [one.id for one in await DeadLetterRequests(store).everywhere(0, 10)]


async def test_a_letter_keeps_its_reason_and_its_body(store: Database) -> None:
    letters, requests = DeadLetterStore(store), DeadLetterRequests(store)
    await letters.bury([letter(1), letter(2)])
    first, second = await requests.everywhere(0, 10)
    assert (first.reason, first.body, first.received_at) == ("reason 1", letter(1).body, NOW)
    assert await letters.count_spans() == 2
    assert await requests.everywhere(first.id, 10) == [second]
    assert await requests.one(1, second.id) == second
    assert await requests.one(2, second.id) is None
    assert "body" not in repr(first)


# Of a release: beside other tests the database is at times slower than the patience that it proves.
@pytest.mark.release
async def test_letters_that_wait_for_their_table_are_given_up_in_time_however_large(store: Database) -> None:
    letters, begun, held = DeadLetterStore(store), trio.Event(), trio.Event()
    # Until then the connection that buries learns its statement.
    learned = asyncio.Event()

    async def hold(connection: Connection) -> None:
        begun.set()
        await learned.wait()
        await connection.execute("lock table dead_letter in access exclusive mode")
        held.set()
        await connection.execute("select pg_sleep(60)")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, hold)
        await begun.wait()
        await letters.bury([letter(1)])
        learned.set()
        await held.wait()
        # The server reads no further while the first one waits.
        with trio.move_on_after(0.5) as scope:
            await letters.bury([attrs.evolve(letter(1), body=bytes(4 << 20))] * 8)
        nursery.cancel_scope.cancel()
    assert scope.cancelled_caught
    assert await letters.count_spans() == 1


async def test_what_is_replayed_is_stored_once_and_gone(store: Database) -> None:
    letters, spans = DeadLetterStore(store), store_of(store)

    async def write(batch: Batch) -> Written:
        return await spans.write(list(chain.from_iterable(DECODE(batch))))

    await letters.bury([letter(1), letter(2), letter(1)])
    done = await DeadLetterRequests(store).replay(NOBODYS, Chosen(), write)
    assert done == Dealt(letters=3, spans=3, stored=2)
    assert await letters.count_spans() == 0
    assert len(await fetch(store, "select from span")) == 2


async def test_a_letter_that_is_refused_once_more_stays_with_the_new_reason(store: Database) -> None:
    requests = DeadLetterRequests(store)
    await DeadLetterStore(store).bury([letter(1), letter(2)])
    first, _ = await requests.everywhere(0, 10)

    async def write(batch: Batch) -> Written:
        if batch.body == first.body:
            raise StoreRefused("still bad")
        return Written(1, 0)

    assert await requests.replay(NOBODYS, Chosen(), write) == Dealt(letters=1, spans=1, stored=1, refused=1)
    (left,) = await requests.everywhere(0, 10)
    assert (left.id, left.reason) == (first.id, "still bad")


async def test_a_press_replays_so_many_and_says_how_many_are_left(store: Database) -> None:
    requests = DeadLetterRequests(store)
    await DeadLetterStore(store).bury([letter(n) for n in range(1, 6)])

    async def write(_batch: Batch) -> Written:
        return Written(1, 0)

    assert await requests.replay(NOBODYS, Chosen(), write, Bound(2, 60)) == Dealt(2, 2, 2, left=3)
    assert await requests.replay(NOBODYS, Chosen(), write, Bound(9, 0)) == Dealt(left=3)
    assert await requests.replay(NOBODYS, Chosen(), write, NO_BOUND) == Dealt(3, 3, 3)


async def test_an_outage_ends_a_replay_and_keeps_the_letters(store: Database) -> None:
    letters = DeadLetterStore(store)
    await letters.bury([letter(1)])

    async def write(batch: Batch) -> Written:
        raise Outage("away")

    with pytest.raises(Outage):
        await DeadLetterRequests(store).replay(NOBODYS, Chosen(), write)
    assert await letters.count_spans() == 1


async def test_letters_are_discarded_by_id_or_all(store: Database) -> None:
    requests = DeadLetterRequests(store)
    await DeadLetterStore(store).bury([letter(n) for n in range(1, 4)])
    first, *_ = await ids_of(store)
    assert (await requests.discard(NOBODYS, Chosen([first, 999]))).letters == 1
    assert (await requests.discard(NOBODYS, Chosen())).letters == 2
    assert (await requests.discard(NOBODYS, Chosen())).letters == 0


async def test_the_command_line_finds_the_desk_of_each_project_and_is_audited(store: Database) -> None:
    requests = DeadLetterRequests(store)
    project = await ProjectStore(store).make_default()
    assert project is not None
    ours = AuditScope(project.id, (await ProjectStore(store).the_org()).id, OPERATOR)
    await DeadLetterStore(store).bury([letter(1, project.id), letter(2, project.id), letter(3, 0)])
    mine, _, nobodys = await ids_of(store)
    assert await requests.scopes([mine], OPERATOR) == [ours]
    places = await requests.scopes(None, OPERATOR)
    assert places == [AuditScope(0, None, OPERATOR), ours]
    dealt = [(await requests.discard(place, Chosen([mine, nobodys]))).letters for place in places]
    assert dealt == [1, 1]
    assert await requests.scopes([nobodys], OPERATOR) == []
    audit = await fetch(store, "select actor, details from audit_row where action like 'dead_letter%'")
    assert [row["actor"] for row in audit] == [OPERATOR]
