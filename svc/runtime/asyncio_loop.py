"""The one asyncio loop of a process, for the two libraries that need it: asyncpg and grpclib.

Opened once, around everything else, by whoever opens the database. Never lets a stray callback end the
process.

What is ready runs at once, by whoever made it ready. trio-asyncio itself hands each callback to one task over
a channel. That is a round of Trio's scheduler for every callback, and four for every statement: to read the
answer, to go on with the work that waited for it, and two until the socket is read again. Here the task that
reads the answer goes on with the work, so a statement takes one round: 0.6 of the processor time where one
follows the other, and 0.4 where eight are under way at once (measured November 2026).

Ordering: plain callbacks run in the order in which they became ready, never one within another. Timers, and
what runs Trio functions for asyncio, are left to trio-asyncio, and so is everything once the loop is left. It
is not woken for a timer that others come before, and cancelled ones are not kept until their time. Nobody
stops the loop while it is held open: that would end whoever runs the callback.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar, cast

import trio
import trio_asyncio
from trio_asyncio._base import sniffio_library as libraries
from trio_asyncio._handles import AsyncHandle

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Callbacks that run in a row, and for how long; the others wait for the scheduler's next round.
MOST_AT_ONCE: Final = 64
AT_ONCE_S: Final = 0.005

#: Cancelled timers that are kept, unless there are more others.
_MOST_CANCELLED: Final = 100


@asynccontextmanager
async def asyncio_loop(outages: tuple[type[BaseException], ...]) -> AsyncIterator[None]:
    """The loop that the database border and the gRPC door run on.

    `outages` are the errors by which connections die with their server.
    """
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(partial(_stray, outages))
        # asyncio checks in its debug mode alone that a callback is no coroutine; here it was 3 % of the
        # processor time of a tool call (November 2026).
        loop._check_callback = _unchecked
        with ReadyCallbacks(loop).taken_over():
            yield


class ReadyCallbacks:
    """The callbacks of a loop that are to run, in the order in which they became ready."""

    def __init__(self, loop: trio_asyncio.TrioEventLoop) -> None:
        self._loop = loop
        self._ready: deque[asyncio.Handle] = deque()
        self._leave_to_loop: Callable[[asyncio.Handle], asyncio.Handle] = loop._queue_handle
        #: Stands in the loop's own queue where the loop is to run what is ready.
        self._call = asyncio.Handle(self._called, (), loop)
        self._is_called = False
        #: Somebody runs what is ready, or is about to.
        self._is_attended = False
        self._has_ended = False
        self._timers: list[asyncio.TimerHandle] = loop._timers
        self._cancelled_timers = 0

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Run what is ready on the loop, as long as it is open."""
        ours = {
            "_queue_handle": self._add,
            "_timer_handle_cancelled": self._count_cancelled,
            "_io_task": self._watch,
            "run_aio_coroutine": self._run_coroutine,
        }
        vars(self._loop).update(ours)
        try:
            yield
        finally:
            self._has_ended = True
            for name in ours:
                delattr(self._loop, name)
            while self._ready:
                self._leave_to_loop(self._ready.popleft())

    def _add(self, handle: asyncio.Handle) -> asyncio.Handle:
        if isinstance(handle, asyncio.TimerHandle):
            return self._add_timer(handle)
        if isinstance(handle, AsyncHandle):
            return self._leave_to_loop(handle)
        self._loop._check_closed()
        self._ready.append(handle)
        if not self._is_attended:
            self._call_loop()
        return handle

    def _add_timer(self, timer: asyncio.TimerHandle) -> asyncio.Handle:
        """The loop waits for the first one, and looks for it anew when that has come."""
        if not self._timers or timer.when() < self._timers[0].when():
            return self._leave_to_loop(timer)
        heapq.heappush(self._timers, timer)
        return timer

    def _count_cancelled(self, _timer: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_MOST_CANCELLED, len(self._timers) // 2):
            self._timers[:] = [timer for timer in self._timers if not timer.cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _call_loop(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._leave_to_loop(self._call)

    def _called(self) -> None:
        self._is_called = False
        self._run()

    def _run(self, first: asyncio.Handle | None = None) -> None:
        """Run what is ready, and what that makes ready. The loop goes on with what is left."""
        self._is_attended = True
        # By this it is told where a generator was begun, and so where it is closed.
        library, libraries.name = libraries.name, "asyncio"
        until_s = perf_counter() + AT_ONCE_S
        try:
            if first is not None:
                first._run()
            for _ in range(MOST_AT_ONCE):
                if not self._ready or perf_counter() > until_s:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            libraries.name = library
            self._is_attended = False
            if self._ready:
                self._call_loop()

    async def _watch(
        self, descriptor: int, handle: Any, wait_until_ready: Callable[[int], Awaitable[None]]
    ) -> None:
        """Call a transport whenever its socket can be read, or written, and run what that makes ready.

        Of a handle that is cancelled meanwhile the socket may be closed.
        """
        with handle._scope:
            try:
                while not handle.cancelled():
                    try:
                        await wait_until_ready(descriptor)
                    except OSError:
                        if handle.cancelled():
                            return
                        raise
                    if handle.cancelled():
                        return
                    self._run(handle)
                    if self._ready or self._has_ended:
                        # What still waits may read or write this socket.
                        await self._loop.synchronize()
            except Exception as error:
                handle._raise(error)

    async def _run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Begin asyncio work here and now, and wait for it. What is given up by then does not begin."""
        begins = trio.current_effective_deadline() > trio.current_time()
        self._is_attended = begins
        try:
            self._loop._check_closed()
            task = asyncio.ensure_future(coroutine, loop=self._loop)
        except BaseException:
            self._is_attended = False
            if self._ready:
                self._call_loop()
            coroutine.close()
            raise
        if begins:
            self._run()
        return cast(T, await trio_asyncio.run_aio_future(task))


def _unchecked(_callback: object, _method: str) -> None:
    """In place of asyncio's check."""


def _stray(outages: tuple[type[BaseException], ...], _loop: object, context: dict[str, Any]) -> None:
    """An asyncio callback failed with nobody waiting for it. By default that would end the whole service.

    A remark without an exception, or a connection that died with its server, is an outage, not a bug; whoever
    used the connection hears of it on its own way.
    """
    error = context.get("exception")
    outage = error is None or isinstance(error, outages)
    log.log(
        logging.WARNING if outage else logging.ERROR,
        "a stray asyncio failure: %s (%s)",
        str(context.get("message")).partition(" <")[0],
        type(error).__name__,
    )
