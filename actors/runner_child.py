"""A sandbox runner as a child of this process: started when a run needs it, ended when none did for long.

Owns its life; the launcher asks it for a link. A child that dies takes its runs with it, which are
refunded; the next run starts another. Where the operator names a runner, there is none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import attrs
import trio

from actors.ports import RunnerLink
from actors.supervision import Vitals
from protocol.running import RunnerAway

#: A process starts in a second or two; a loaded machine may take long.
START_S: Final = 60.0
#: A runner that nobody asked for so long has nothing to do.
IDLE_S: Final = 600.0
LOOK_S: Final = 5.0
#: Between two starts, doubled with each that failed, up to the most.
REST_S: Final = 2.0
REST_MOST_S: Final = 60.0
#: One that lived so long is steady; ends in a row before that are told of from this one on.
STEADY_S: Final = 60.0
ENDS: Final = 3
_LINE_BYTES: Final = 500
_REASONS: Final[dict[type[Exception], str]] = {
    trio.BrokenResourceError: "it ends before it says where it is; the log says why",
    trio.ClosedResourceError: "it ends before it says where it is; the log says why",
    trio.TooSlowError: f"it does not say where it is within {START_S:g} s",
}

#: Opens a process whose first line says where it is. Leaving ends it.
LaunchRunner = Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]


@attrs.frozen
class NamedRunner:
    """A runner that the operator names: implements the port `RunnerHost`."""

    to: RunnerLink

    async def link(self) -> RunnerLink:
        """It is where it is."""
        return self.to

    def present(self) -> RunnerLink:
        """It is there as far as anybody knows."""
        return self.to


class RunnerChild:
    """Implements the port `RunnerHost`. `busy` says whether a run is in hand; `connect` makes a link.

    `report` hears why the runner cannot be had, and None as soon as it can be again: a child that does not
    start is told of at once, one that ends by itself from the third time on.
    """

    def __init__(
        self,
        *,
        launch: LaunchRunner,
        connect: Callable[[str], RunnerLink],
        busy: Callable[[], bool],
        report: Callable[[str | None], None],
        vitals: Vitals,
    ) -> None:
        self._launch, self._connect, self._busy = launch, connect, busy
        self._report, self._vitals = report, vitals
        self._wanted = trio.Event()
        self._ready = trio.Event()
        self._link: RunnerLink | None = None
        self._asked_s = 0.0
        #: How often in a row it did not start, and ended by itself.
        self._unstarted = self._ended = 0
        self._fault = "the runner did not come up"

    async def link(self) -> RunnerLink | RunnerAway:
        """The child, started now if there is none."""
        self._asked_s = trio.current_time()
        self._wanted.set()
        with trio.move_on_after(START_S):
            await self._ready.wait()
        return RunnerAway(self._fault) if self._link is None else self._link

    def present(self) -> RunnerLink | None:
        """The child, if it is there."""
        return self._link

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            await self._wanted.wait()
            if await self._lived():
                continue
            failures = self._unstarted + self._ended
            await trio.sleep(min(REST_S * 2 ** (failures - 1), REST_MOST_S))

    async def _lived(self) -> bool:
        """One child, from its start to its end. Returns whether it ended because it was idle."""
        try:
            async with self._launch() as stream:
                await self._live(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError) as error:
            self._unstarted += 1
            self._tell(f"the runner does not start: {_REASONS.get(type(error), type(error).__name__)}")
            return False
        finally:
            # Whoever waits hears now; whoever comes next waits for the next.
            self._ready.set()
            self._link, self._ready = None, trio.Event()
        if not self._wanted.is_set():
            self._ended = 0
            self._report(None)
            return True
        self._ended += 1
        if self._ended >= ENDS:
            self._tell(f"the runner ended by itself {self._ended} times in a row; the log says why")
        return False

    def _tell(self, fault: str) -> None:
        self._fault = fault
        self._vitals.waits(fault)
        self._report(fault)

    async def _live(self, stream: trio.abc.Stream) -> None:
        with trio.fail_after(START_S):
            url = await _line(stream)
        self._link = self._connect(url)
        self._ready.set()
        self._unstarted = 0
        if self._ended < ENDS:
            self._well()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_idle, nursery.cancel_scope)
            nursery.start_soon(self._until_steady)
            with suppress(trio.BrokenResourceError):
                while await stream.receive_some(_LINE_BYTES):
                    pass
            nursery.cancel_scope.cancel()

    async def _until_steady(self) -> None:
        await trio.sleep(STEADY_S)
        self._ended = 0
        self._well()

    def _well(self) -> None:
        self._vitals.works()
        self._report(None)

    async def _until_idle(self, scope: trio.CancelScope) -> None:
        while True:
            await trio.sleep(LOOK_S)
            if not self._busy() and trio.current_time() - self._asked_s >= IDLE_S:
                self._wanted = trio.Event()
                scope.cancel()
                return


async def _line(stream: trio.abc.Stream) -> str:
    """The first line. Raises `BrokenResourceError` when it ends before."""
    line = b""
    while not line.endswith(b"\n"):
        data = await stream.receive_some(_LINE_BYTES)
        if not data or len(line) > _LINE_BYTES:
            raise trio.BrokenResourceError
        line += data
    return line.decode().strip()
