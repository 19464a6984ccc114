"""Leases among copies: one holds, renews and keeps; another takes over when it is over or given up."""

from __future__ import annotations

import trio

from svc.store.postgres.database import Database
from svc.store.replicas.leases import PostgresLeaseStore

NAMES = ("certificates", "heartbeat")


async def test_of_many_that_ask_at_once_one_holds_and_keeps_it(store: Database) -> None:
    copies = [PostgresLeaseStore(store, str(number)) for number in range(4)]
    held: dict[str, frozenset[str]] = {}

    async def ask(copy: PostgresLeaseStore) -> None:
        held[copy.holder] = await copy.take(NAMES, 30.0)

    async with trio.open_nursery() as nursery:
        for copy in copies:
            nursery.start_soon(ask, copy)
    (holder,) = [name for name, ours in held.items() if ours]
    assert held[holder] == set(NAMES)
    for copy in copies:
        assert bool(await copy.take(NAMES, 30.0)) == (copy.holder == holder)


async def test_what_is_over_or_given_up_is_another_s(store: Database) -> None:
    one, other = PostgresLeaseStore(store, "one"), PostgresLeaseStore(store, "other")
    assert await one.take(NAMES, 30.0) == set(NAMES)
    await store.fetch("update lease set until = now() - interval '1 s' where name = 'heartbeat'")
    assert await other.take(NAMES, 30.0) == {"heartbeat"}
    assert await one.take(NAMES, 30.0) == {"certificates"}
    await one.release()
    assert await other.take(NAMES, 30.0) == set(NAMES)
