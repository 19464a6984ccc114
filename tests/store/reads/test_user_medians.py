"""Laws of the user beside the median one: what is compared, of how many, and of which traces."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from svc.store.postgres.database import Database
from svc.store.reads.usage import users as users_module
from svc.store.reads.usage.users import UserReads
from svc.store.spans.traces import PostgresTraceStore
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, one, rows, store_of

LOW, HIGH = NOW - timedelta(days=1), NOW + timedelta(days=1)


async def write(
    store: Database, user: str, number: int, *, fails: bool = False, minutes_ago: float = 5
) -> None:
    """A trace of a user, which calls a model once."""
    call = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.provider.name": "openai",
        "gen_ai.usage.input_tokens": 1_000, "user.id": user, "session.id": f"s-{user}",
    }  # fmt: skip
    span = one(
        1,
        name="chat",
        start=NOW - timedelta(minutes=minutes_ago),
        attributes=call,
        status_code=2 if fails else 0,
        trace_id=number.to_bytes(16, "big"),
    )
    await store_of(store, Clock()).write(rows(span))


async def test_a_user_stands_beside_the_median_of_all(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "LEAST_USERS", 3)
    number = 0
    # One trace of ann, two of bob, five of cat, all of which fail.
    for user, traces in (("ann", 1), ("bob", 2), ("cat", 5)):
        for _ in range(traces):
            number += 1
            await write(store, user, number, fails=user == "cat", minutes_ago=number)
    clock = Clock()
    await settle_at(clock.now + timedelta(seconds=11), PostgresTraceStore(store))
    reads = UserReads(store)
    sums = await reads.beside(PROJECT, "cat", LOW, HIGH)
    assert sums is not None
    assert (sums.users, sums.own.traces, sums.own.failing, sums.since) == (3, 5, 5, None)
    assert (sums.traces, sums.sessions, sums.failing_share) == (2.0, 1.0, 0.0)
    assert sums.cost == 2 * Decimal("0.0025")
    assert await reads.beside(PROJECT, "nobody", LOW, HIGH) is None
    # Of the newest two traces there is but one user.
    assert await reads.beside(PROJECT, "ann", LOW, HIGH, most=2) is None
    monkeypatch.setattr(users_module, "LEAST_USERS", 1)
    newest = await reads.beside(PROJECT, "ann", LOW, HIGH, most=2)
    assert newest is not None
    assert newest.since is not None
    assert newest.users == 2
