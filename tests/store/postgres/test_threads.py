"""Work in a thread answers, raises what it raises, and leaves nothing behind for the collector of garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import trio_asyncio

from svc.store.postgres.threads import in_thread


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
