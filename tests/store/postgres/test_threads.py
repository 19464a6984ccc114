"""Work in a thread answers, raises what it raises, and leaves nothing behind for the collector of garbage.

Of many pieces, the next is fetched meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
import trio_asyncio

from svc.store.postgres.threads import in_thread, work_through


class Segment:
    """Something large."""


@pytest.fixture
def _no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collection")
async def test_what_a_thread_was_given_and_made_is_freed_at_once(asyncio_loop: None) -> None:
    async def work() -> list[weakref.ref[Segment]]:
        segment = Segment()
        made = await in_thread(lambda _: Segment(), segment)
        return [weakref.ref(segment), weakref.ref(made)]

    references = await trio_asyncio.aio_as_trio(work)()
    assert [reference() for reference in references] == [None, None]


async def test_what_fails_in_a_thread_fails_for_its_caller(asyncio_loop: None) -> None:
    async def work() -> int:
        return await in_thread(int, "no number")

    with pytest.raises(ValueError, match="no number"):
        await trio_asyncio.aio_as_trio(work)()


async def test_the_next_batch_is_fetched_while_one_is_worked_on(asyncio_loop: None) -> None:
    second, worked = threading.Event(), []

    async def batches() -> AsyncIterator[int]:
        yield 1
        second.set()
        yield 2

    def work(batch: int) -> bool:
        worked.append((batch, second.wait(30)))
        return True

    async def through() -> bool:
        return await work_through(batches(), work)

    assert await trio_asyncio.aio_as_trio(through)()
    assert worked == [(1, True), (2, True)]


async def test_fetching_ends_with_the_work_that_is_enough(asyncio_loop: None) -> None:
    given_up: list[bool] = []

    async def batches() -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    async def through() -> bool:
        return await work_through(batches(), lambda _: bool(given_up))

    assert not await trio_asyncio.aio_as_trio(through)()
    assert given_up == [True]


@pytest.mark.parametrize("batches_before", [0, 1, 2])
async def test_what_fails_while_fetching_fails_after_what_came_before(
    asyncio_loop: None, batches_before: int
) -> None:
    worked: list[int] = []

    async def batches() -> AsyncIterator[int]:
        for number in range(batches_before):
            yield number
        raise ValueError("no more")

    def work(batch: int) -> bool:
        worked.append(batch)
        return True

    async def through() -> bool:
        return await work_through(batches(), work)

    with pytest.raises(ValueError, match="no more"):
        await trio_asyncio.aio_as_trio(through)()
    assert worked == list(range(batches_before))
