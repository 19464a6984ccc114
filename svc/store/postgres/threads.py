"""Work for a processor within a transaction: done in a thread, so that the listeners' loop goes on.

Called by the cube builder and by questions over columns, from asyncio's side of the bridge. Never holds the
arguments, or what came of them, for longer than the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
