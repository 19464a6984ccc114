"""Several pieces of work at once, whose failure is that of one piece.

Called where a page or a tool asks several questions that do not wait for each other. Never outlives its work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

#: Pieces that are under way at once: each takes a connection, and others ask too.
AT_ONCE: Final = 3


async def run_together(*pieces: Callable[[], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    """Do all of them, so many at once, the first ones first.

    Raises what the first that fails raises, itself and not in a group of one, which callers would have to
    take apart; the others are given up.
    """
    failures: list[Exception] = []
    waiting = iter(pieces)

    async def work() -> None:
        for piece in waiting:
            try:
                await piece()
            except Exception as error:
                failures.append(error)
                nursery.cancel_scope.cancel()
                return

    async with trio.open_nursery() as nursery:
        for _ in range(min(at_once, len(pieces))):
            nursery.start_soon(work)
    if failures:
        raise failures[0]
