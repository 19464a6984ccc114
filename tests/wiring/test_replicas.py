"""Password attempts on several copies: nine failures on one and more on another are counted together."""

from __future__ import annotations

from contextlib import AsyncExitStack

import attrs
import trio

from actors.supervision import Board
from svc.application.shared_attempts import SharedAttempts
from svc.front.auth.limits import AttemptLimiter
from svc.store.postgres.database import Database
from svc.wiring.replicas import attempt_loops, shared_attempts
from tests.service import WAIT_S

WINDOW_S = 300.0


@attrs.frozen
class Copy:
    """One of several copies of the service: what it counts, and its way to the others."""

    attempts: AttemptLimiter
    shared: SharedAttempts


def copy_of(store: Database) -> Copy:
    limiter = AttemptLimiter.of(30, 10, 100, WINDOW_S)
    return Copy(limiter, shared_attempts(limiter, store, WINDOW_S))


async def running(nursery: trio.Nursery, copy: Copy) -> None:
    for build, _ in attempt_loops(copy.shared, Board()):
        await nursery.start(lambda task_status, build=build: build().run(task_status=task_status))


async def until(condition: object) -> None:
    """What is waited for goes through the database."""
    assert callable(condition)
    with trio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110 - nothing there would set an event
            await trio.sleep(0.02)


def counted(copy: Copy) -> int:
    return sum(len(attempts) for attempts in copy.attempts.by_account_here._attempts.values())


async def test_what_one_copy_counts_the_others_refuse_by(store: Database) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        stack.callback(nursery.cancel_scope.cancel)
        one, other = copy_of(store), copy_of(store)
        for copy in (one, other):
            await running(nursery, copy)
        for _ in range(9):
            assert one.attempts.guess("ada", "192.0.2.1") is None
        await until(lambda: counted(other) == 9)
        assert other.attempts.guess("ada", "192.0.2.1") is None
        assert other.attempts.guess("ada", "192.0.2.1") is not None
        assert other.attempts.guess("bob", "192.0.2.1") is None
        await until(lambda: counted(one) == 11)
        assert one.attempts.guess("ada", "192.0.2.1") is not None
        # A right password clears the place on both.
        one.attempts.succeeded("ada", "192.0.2.1", as_known=False)
        await until(lambda: counted(other) == 1)
        assert other.attempts.guess("ada", "192.0.2.1") is None
        # A copy that starts now knows what is within the window.
        late = copy_of(store)
        await running(nursery, late)
        await until(lambda: counted(late) == 2)
        nursery.cancel_scope.cancel()


async def test_who_tried_is_in_no_table_and_what_is_over_goes(store: Database) -> None:
    copy = copy_of(store)
    shared = copy.shared
    copy.attempts.guess("ada@example.org", "192.0.2.1")
    await shared.store.tell(await shared.queue.some())
    rows = await store.fetch("select counts, name, change from try_count order by id")
    assert [(row["counts"], row["change"]) for row in rows] == [
        ("account here", "counted"),
        ("account", "counted"),
    ]
    assert all(len(row["name"]) == 16 for row in rows)
    await store.fetch("update try_count set at = now() - interval '1 hour'")
    assert (await copy_of(store).shared.store.reported({})).attempts == ()
    await shared.store.tell([])
    assert await store.fetch("select from try_count") == []


async def test_an_outage_holds_what_is_told_and_loses_nothing(store: Database) -> None:
    copy = copy_of(store)
    shared = copy.shared
    copy.attempts.guess("ada", "192.0.2.1")
    first = await shared.queue.some()
    copy.attempts.guess("ada", "192.0.2.1")
    assert (await shared.queue.some())[: len(first)] == first
    shared.queue.told(len(first))
    assert len(await shared.queue.some()) == len(first)
