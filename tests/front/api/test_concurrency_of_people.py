"""Laws of concurrency over REST: a signed-in person has so many questions under way, as a key has."""

from __future__ import annotations

import trio

from svc.store.postgres.database import Database
from tests.front.people import ORG, replica


async def test_a_person_has_so_many_questions_under_way_and_minds_nobody_else(store: Database) -> None:
    async with replica(store, SVC_QUESTIONS_PER_KEY="1") as house:
        owner = await house.owner()
        member = await house.member("admin@example.org", "admin", owner)
        async with house.means.concurrency.slot("person:owner@example.org"):
            told = await owner.get(ORG + "/members")
            assert told.refused[:2] == (429, "RATE_LIMITED")
            assert told.refused[2].startswith("this person has 1 questions under way")
            assert told.headers["retry-after"] == "1"
            assert (await member.get(ORG + "/members")).status == 200
        assert (await owner.get(ORG + "/members")).status == 200


async def test_who_signs_in_waits_for_nobody(store: Database) -> None:
    async with replica(store, SVC_QUESTIONS_PER_KEY="1") as house:
        await house.owner()
        async with house.means.concurrency.slot("nobody"), house.means.concurrency.slot("person:nobody"):
            with trio.fail_after(30):
                assert (await house.browser().sign_in("owner@example.org")).status == 200


async def test_a_page_that_asks_ten_things_at_once_is_served(store: Database) -> None:
    async with replica(store) as house:
        owner = await house.owner()
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await owner.get(ORG + "/members")).status)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
        assert statuses == [200] * 10
