"""A sandbox runner as a child of this process: started when a run needs it, ended when none did for long.

Owns its life; the launcher asks it for a link. A child that dies takes its runs with it, which are
refunded; the next run starts another. Where the operator names a runner, there is none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
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
REST_S: Final = 2.0
_LINE_BYTES: Final = 500

#: Opens a process whose first line says where it is. Leaving ends it.
LaunchRunner = Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]


@attrs.frozen
class NamedRunner:
    """A runner that the operator names: implements the port `RunnerHost`."""

    to: RunnerLink

    async def link(self) -> RunnerLink:
        """It is where it is."""
        return self.to


class RunnerChild:
    """Implements the port `RunnerHost`. `busy` says whether a run is in hand; `connect` makes a link."""

    def __init__(
        self,
        *,
        launch: LaunchRunner,
        connect: Callable[[str], RunnerLink],
        busy: Callable[[], bool],
        vitals: Vitals,
    ) -> None:
        self._launch, self._connect, self._busy, self._vitals = launch, connect, busy, vitals
        self._wanted = trio.Event()
        self._ready = trio.Event()
        self._link: RunnerLink | None = None
        self._asked_s = 0.0

    async def link(self) -> RunnerLink | RunnerAway:
        """The child, started now if there is none."""
        self._asked_s = trio.current_time()
        self._wanted.set()
        with trio.move_on_after(START_S):
            await self._ready.wait()
        return RunnerAway("the runner did not come up") if self._link is None else self._link

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            await self._wanted.wait()
            try:
                async with self._launch() as stream:
                    await self._live(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError) as error:
                self._vitals.waits(f"the runner did not come up ({type(error).__name__})")
                await trio.sleep(REST_S)
            finally:
                # Whoever waits meanwhile waits for the next.
                self._link, self._ready = None, trio.Event()

    async def _live(self, stream: trio.abc.Stream) -> None:
        with trio.fail_after(START_S):
            url = await _line(stream)
        self._link = self._connect(url)
        self._ready.set()
        self._vitals.works()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_idle, nursery.cancel_scope)
            while await stream.receive_some(_LINE_BYTES):
                pass
            nursery.cancel_scope.cancel()

    async def _until_idle(self, scope: trio.CancelScope) -> None:
        while True:
            await trio.sleep(LOOK_S)
            if not self._busy() and trio.current_time() - self._asked_s >= IDLE_S:
                self._wanted = trio.Event()
                scope.cancel()
                return


async def _line(stream: trio.abc.Stream) -> str:
    """The first line. Raises `BrokenResourceError` when it ends before."""
    said = b""
    while not said.endswith(b"\n"):
        data = await stream.receive_some(_LINE_BYTES)
        if not data or len(said) > _LINE_BYTES:
            raise trio.BrokenResourceError
        said += data
    return said.decode().strip()
