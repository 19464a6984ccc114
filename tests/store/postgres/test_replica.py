"""Which of the two is asked: the replica while it is near, the primary in all other cases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import attrs
import pytest

from protocol.storage import Outage, Slow
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.replica import ReplicaFirst


@attrs.define(eq=False)
class Pair:
    """A replica and its primary, which are one database here; the places of their logs are the test's."""

    replica: ReplicaFirst
    now_s: float = 0.0

    def looked(self, written: int | None, replayed: int) -> str:
        self.replica._measured(written, replayed)
        return self.replica.state

    async def asked(self, work: Callable[[Connection], Any] | None = None) -> str:
        """Who does a unit of work."""
        before = self.replica.by_replica, self.replica.by_primary
        await self.replica.run(work or (lambda connection: connection.fetchval("select 1")), readonly=True)
        after = self.replica.by_replica, self.replica.by_primary
        return {(1, 0): "replica", (0, 1): "primary", (1, 1): "both"}[
            (after[0] - before[0], after[1] - before[1])
        ]


@pytest.fixture
async def pair(store: Database) -> AsyncIterator[Pair]:
    clock: list[Pair] = []
    replica = ReplicaFirst(
        store.address,
        store,
        max_lag_s=3.0,
        pool_size=2,
        statement_timeout_s=5.0,
        clock=lambda: clock[0].now_s if clock else 0.0,
    )
    clock.append(Pair(replica))
    async with replica.opened():
        yield clock[0]


async def test_a_replica_that_has_come_as_far_is_asked(pair: Pair) -> None:
    assert await pair.asked() == "primary"
    assert pair.looked(100, 100) == "near"
    assert await pair.asked() == "replica"
    assert pair.replica.snapshot()["lag_ms"] == 0


async def test_it_is_as_late_as_the_oldest_place_that_it_has_not_come_to(pair: Pair) -> None:
    pair.looked(100, 100)
    for second in range(1, 4):
        pair.now_s = second
        assert pair.looked(100 + second, 100) == "near"
    assert pair.replica.lag_s == 2.0
    pair.now_s = 4.5
    assert pair.looked(200, 100) == "late"
    assert await pair.asked() == "primary"
    # It comes closer: up to what was written at the third second.
    assert pair.looked(200, 103) == "near"
    assert pair.replica.lag_s == 0.0
    assert await pair.asked() == "replica"


async def test_a_primary_that_is_away_makes_the_replica_no_later(pair: Pair) -> None:
    pair.looked(100, 100)
    pair.now_s = 60.0
    assert pair.looked(None, 100) == "near"


async def test_what_was_seen_too_long_ago_is_not_believed(pair: Pair) -> None:
    pair.looked(100, 100)
    pair.now_s = 10.0
    assert pair.replica.state == "unknown"
    assert await pair.asked() == "primary"


async def test_a_server_that_follows_nobody_is_no_replica(pair: Pair) -> None:
    await pair.replica.look()
    assert pair.replica.state == "stranger"
    assert await pair.asked() == "primary"


async def test_what_the_replica_does_not_know_is_looked_for_on_the_primary(pair: Pair) -> None:
    pair.looked(100, 100)
    for nothing in ("select null", "select 1 where false"):
        assert await pair.asked(lambda connection, sql=nothing: connection.fetchval(sql)) == "both"  # type: ignore[misc]
    assert await pair.asked(lambda connection: connection.fetch("select 1 where false")) == "both"
    assert await pair.asked(lambda connection: connection.fetchval("select 0")) == "replica"


async def test_a_question_in_the_way_of_what_is_replayed_is_asked_of_the_primary(pair: Pair) -> None:
    pair.looked(100, 100)
    tries: list[int] = []

    async def work(connection: Connection) -> int:
        tries.append(1)
        if len(tries) == 1:
            raise asyncpg.SerializationError("conflict with recovery")
        return 1

    assert await pair.asked(work) == "primary"
    # The next one is the replica's again.
    assert await pair.asked() == "replica"


async def test_a_replica_that_goes_away_fails_no_question_and_is_left_alone(pair: Pair) -> None:
    pair.looked(100, 100)
    tries: list[int] = []

    async def work(connection: Connection) -> int:
        tries.append(1)
        if len(tries) == 1:
            raise asyncpg.ConnectionDoesNotExistError("gone")
        return 1

    assert await pair.asked(work) == "primary"
    assert pair.replica.state == "away"
    assert await pair.asked() == "primary"
    # Until a look finds it.
    pair.looked(100, 100)
    assert await pair.asked() == "replica"


async def test_a_slow_question_is_not_asked_twice_and_an_outage_of_both_is_one(pair: Pair) -> None:
    pair.looked(100, 100)
    with pytest.raises(Slow):
        await pair.replica.run(lambda connection: connection.fetch("select pg_sleep(5)"), timeout_s=0.2)
    assert pair.replica.by_primary == 0

    async def never(_connection: Connection) -> None:
        raise asyncpg.ConnectionDoesNotExistError("gone")

    with pytest.raises(Outage):
        await pair.replica.run(never)
