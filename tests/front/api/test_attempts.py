"""Limits on guesses at passwords: a stranger locks nobody out, and nobody guesses without end."""

from __future__ import annotations

from typing import Any

import pytest

from svc.front.auth.limits import KNOWN_FACTOR
from svc.store.accounts.known import KNOWN_BOUND
from svc.store.postgres.database import Database
from tests.front.api.test_accounts import LIMITED, WRONG, fetch
from tests.front.people import PASSWORD, Replica, replica

HOME, ELSEWHERE = "192.0.2.1", "198.51.100.7"
EMAIL = "owner@example.org"


async def guesses(api: Replica, count: int, peer: str) -> list[Any]:
    return [(await api.browser(peer=peer).sign_in(EMAIL, "guess")).refused for _ in range(count)]


async def test_ten_wrong_guesses_by_a_stranger_lock_nobody_out(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT="10") as api:
        await api.owner()
        assert await guesses(api, 12, ELSEWHERE) == [WRONG] * 10 + [LIMITED] * 2
        for peer in (HOME, "203.0.113.5"):
            assert (await api.browser(peer=peer).sign_in(EMAIL)).status == 200
        assert (await api.browser(peer=ELSEWHERE).sign_in(EMAIL)).refused == LIMITED
        assert api.means.attempts.refused == 3


async def test_many_strangers_stop_each_other_and_not_a_known_address(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT_ANYWHERE="4") as api:
        await api.owner()
        for number in range(4):
            assert await guesses(api, 1, f"198.51.100.{number}") == [WRONG]
        assert (await api.browser(peer="203.0.113.5").sign_in(EMAIL)).refused == LIMITED
        assert (await api.browser(peer=HOME).sign_in(EMAIL)).status == 200
        # A sign-in that goes through takes nothing of what strangers tried away.
        assert await guesses(api, 1, "203.0.113.6") == [LIMITED]


async def test_who_is_signed_in_gets_through_from_anywhere(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT="3") as api:
        owner = await api.owner()
        await fetch(store, "delete from known_address")
        await guesses(api, 3, HOME)
        assert (await api.browser(peer=HOME).sign_in(EMAIL)).refused == LIMITED
        change = {"current_password": PASSWORD, "new_password": "another horse"}
        assert (await owner.post("/auth/password", change)).status == 200
        await guesses(api, 3, HOME)
        assert (await owner.sign_in(EMAIL, "another horse")).status == 200


async def test_a_known_address_has_more_guesses_and_not_any_number(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT="2") as api:
        await api.owner()
        allowed = 2 + 2 * KNOWN_FACTOR
        assert await guesses(api, allowed + 2, HOME) == [WRONG] * allowed + [LIMITED] * 2
        assert (await api.browser(peer=HOME).sign_in(EMAIL)).refused == LIMITED


@pytest.mark.parametrize("days", ["0", "30"])
async def test_an_address_is_known_for_the_days_that_are_set(store: Database, days: str) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT="1", SVC_AUTH_KNOWN_ADDRESS_DAYS=days) as api:
        await api.owner()
        assert await guesses(api, 1, HOME) == [WRONG]
        assert (await api.browser(peer=HOME).sign_in(EMAIL)).status == (429 if days == "0" else 200)
        await fetch(store, "update known_address set seen_at = now() - interval '30 days'")
        assert await guesses(api, 2, HOME) == [LIMITED if days == "0" else WRONG, LIMITED]


async def test_known_addresses_are_bounded_and_cannot_be_read_from_the_table(store: Database) -> None:
    async with replica(store) as api:
        await api.owner()
        for number in range(KNOWN_BOUND + 3):
            assert (await api.browser(peer=f"198.51.100.{number}").sign_in(EMAIL)).status == 200
        rows = await fetch(store, "select digest from known_address")
        assert len(rows) == KNOWN_BOUND
        assert all(len(row["digest"]) == 32 for row in rows)
        login = await fetch(store, "select k::text as row from known_address k")
        assert "198.51.100" not in str(login)
        known = api.means.callers.logins.known
        assert await known.is_known(EMAIL, "198.51.100.20")
        assert not await known.is_known(EMAIL, HOME)


async def test_who_is_signed_out_everywhere_is_known_nowhere(store: Database) -> None:
    async with replica(store) as api:
        owner = await api.owner()
        me = (await owner.get("/auth/me")).data["account"]["id"]
        from uuid import UUID

        await api.means.accounts.set_password(UUID(me), "another horse", actor="operator")
        assert await fetch(store, "select from known_address") == []


async def test_the_addresses_of_one_ipv6_network_count_as_one(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ADDRESS="2") as api:
        peers = [f"2001:db8:1:2::{number}" for number in range(1, 4)]
        answers = [(await api.browser(peer=peer).sign_in("a@example.org")).refused for peer in peers]
        assert answers == [WRONG, WRONG, LIMITED]
        assert (await api.browser(peer="2001:db8:1:3::1").sign_in("a@example.org")).refused == WRONG


async def test_sign_ups_of_a_stranger_keep_nobody_from_signing_in(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT="2") as api:
        await api.owner()
        await fetch(store, "delete from known_address")
        statuses = [(await api.browser().sign_up(EMAIL)).status for _ in range(4)]
        assert statuses == [409, 429, 429, 429]
        assert (await api.browser().sign_in(EMAIL)).status == 200
