"""Work for a processor within a transaction: done in a thread, so that the listeners' loop goes on.

`in_thread` does one piece of it, `work_through` one after the other while the next is fetched.

Called by the cube builder and by questions over columns, from asyncio's side of the bridge. Never holds the
arguments, or what came of them, for longer than the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """What `work` makes of the arguments. Raises what it raises."""
    # trio-asyncio's futures refer to themselves, so arguments and results that pass through one stay until
    # the next collection of garbage: a segment of 31 MB did while the next was filled (November 2026).
    pending = [arguments]
    results: list[T] = []

    def run() -> None:
        results.append(work(*pending.pop()))

    await asyncio.get_running_loop().run_in_executor(None, run)
    return results.pop()


async def work_through(batches: AsyncIterator[T], work: Callable[[T], bool]) -> bool:
    """Do the work on each batch in a thread while the next one is fetched, until it says that it is enough.

    Whether all batches were worked on. Raises what fetching and the work raise.

    Cancellation: what is being fetched then is given up before this ends, so the connection is free again.
    """
    fetched: list[T] = []

    async def fetch() -> None:
        async for batch in batches:
            fetched.append(batch)
            return

    fetching = asyncio.ensure_future(fetch())
    try:
        while True:
            await fetching
            if not fetched:
                return True
            fetching = asyncio.ensure_future(fetch())
            # The task begins at the next pause, when this batch is out.
            if not await in_thread(work, fetched.pop()):
                return False
    finally:
        fetching.cancel()
        await asyncio.wait([fetching])
