"""The detecting process as the service sees it: detectors work on another core than the one that answers.

`DetectingProcess` keeps one child process (`svc.detecting`), tells it whether ingest is busy and takes in its
reports. `Detecting` is what health, metrics and tests read: the latest report, each round an entry of its own
on the board, and all counts since the start of the service. Nothing here waits for the process.

What detectors do, ingest and answers can do without: a process that dies is no crash. It is told in health,
rests, longer each time up to an hour, and is started anew. Where nothing arrives and nobody asks, there is
none: it ends, and begins again with the next sign of life, or for what only time brings.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import attrs
import trio

from actors.child_pipe import ASLEEP, ChildLost, next_of_child
from actors.supervision import FIRST_REST_S, LONGEST_REST_S, Board, State, Vitals
from protocol.detecting import REPORT_BYTES, IngestBusy, Report, RoundReport, framed_message, read_report
from protocol.framing import Frames

log = logging.getLogger(__name__)

#: A process starts in a second or two; a loaded machine may take long.
START_TIMEOUT_S: Final = 120.0
#: Longest time without a sign of life. What judges a backlog may hold its loop for tens of seconds.
SILENCE_S: Final = 600.0
#: How often it is asked whether ingest is busy, and whether anything stirs.
BUSY_LOOK_S: Final = 0.25
#: A process that had nothing to do for so long ends. With its connections it holds 60 MB (November 2026).
REST_S: Final = 600.0
#: One begins after so long without: time alone closes a case, ends a mute, and completes an hour to judge.
NAP_S: Final = 900.0
#: Such a one has had its turn after so long: each round begins with the process, and leads to few others.
GLANCE_S: Final = 120.0

_STATES: Final[Mapping[str, State]] = {
    state: state for state in ("starting", "running", "waiting", "restarting", "failed", "ended")
}

#: Opens a detecting process that has heard what it must know, and what leads to it: bytes in, bytes out.
#: Leaving ends the process.
LaunchDetecting = Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]


@attrs.define(eq=False)
class Detecting:
    """The latest that is known of the rounds of detection. Written by `DetectingProcess`."""

    board: Board
    deaths: int = 0
    _rounds: dict[str, Vitals] = attrs.field(factory=dict)
    _counts: dict[str, Counter[str]] = attrs.field(factory=lambda: defaultdict(Counter))
    _before: dict[str, Counter[str]] = attrs.field(factory=lambda: defaultdict(Counter))

    def counts(self, name: str) -> Counter[str]:
        """What a round has counted since the service began, in processes that have ended, too."""
        return self._before[name] + self._counts[name]

    def take(self, report: Report) -> bool:
        """The process said how it stands; whether it has done anything since it said so last."""
        before = {name: dict(counts) for name, counts in self._counts.items()}
        for round_report in report.rounds:
            vitals = self._rounds.get(round_report.name)
            if vitals is None:
                vitals = self._rounds[round_report.name] = self.board.enrol(round_report.name, spare=True)
            _copy(round_report, vitals)
            self._counts[round_report.name] = Counter(round_report.counts)
        return before != self._counts

    def rest(self) -> None:
        """The process ended because there is nothing to do; what it counted stays counted."""
        for name, counts in self._counts.items():
            self._before[name] += counts
        self._counts.clear()

    def lose(self) -> None:
        """The process is gone."""
        self.rest()
        for vitals in self._rounds.values():
            vitals.state, vitals.waiting_for, vitals.rests_s = "waiting", "the detecting process", None


def _copy(report: RoundReport, vitals: Vitals) -> None:
    vitals.state = _STATES[report.state]
    vitals.crashes, vitals.last_error = report.crashes, report.last_error
    vitals.waiting_for, vitals.rests_s = report.waiting_for, report.rests_s


class DetectingProcess:
    """Keeps the process; `busy` says whether ingest needs the machine, `stirs` changes with all that arrives
    and with whatever anybody asks.

    The first process begins after `pause_s`: loading it takes half a second of a core that the start needs.
    """

    def __init__(
        self,
        *,
        detection: Detecting,
        launch: LaunchDetecting,
        busy: Callable[[], bool],
        stirs: Callable[[], int],
        vitals: Vitals,
        pause_s: float = 0.0,
    ) -> None:
        self._detection, self._launch, self._busy, self._vitals = detection, launch, busy, vitals
        self._stirs, self._stirred, self._pause_s = stirs, stirs(), pause_s
        #: When there was something to do last, and how long after that the process ends.
        self._active_s, self._patience_s = 0.0, REST_S

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Nobody waits for the first process."""
        task_status.started()
        await trio.sleep(self._pause_s)
        rest_s = 0.0
        while True:
            born_s = self._active_s = trio.current_time()
            rests = False
            try:
                async with self._launch() as stream:
                    reason = await self._converse(stream)
                rests = reason is None
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError) as error:
                reason = f"it did not come up ({type(error).__name__})"
            finally:
                if rests:
                    self._detection.rest()
                else:
                    self._detection.lose()
            if rests:
                rest_s = 0.0
                await self._nap()
                continue
            again = rest_s > 0 and trio.current_time() - born_s <= rest_s
            rest_s = min(rest_s * 2, LONGEST_REST_S) if again else FIRST_REST_S
            self._detection.deaths += 1
            self._vitals.waits(f"the detecting process is away: {reason}")
            self._vitals.rests_s = rest_s
            await trio.sleep(rest_s)

    def _stirring(self) -> bool:
        """Whether anything arrived, or anybody asked, since the last look."""
        before, self._stirred = self._stirred, self._stirs()
        return self._stirred != before

    async def _nap(self) -> None:
        """Until something stirs, or long enough."""
        self._vitals.note, self._patience_s = ASLEEP, GLANCE_S
        wakes_s = trio.current_time() + NAP_S
        while trio.current_time() < wakes_s:
            await trio.sleep(BUSY_LOOK_S)
            if self._stirring():
                self._patience_s = REST_S
                break
        self._vitals.note = None

    async def _converse(self, stream: trio.abc.Stream) -> str | None:
        """Tell and hear, until the process is lost; why it is. None: there is nothing to do for one."""
        reason = None
        async with trio.open_nursery() as nursery:

            async def tell() -> None:
                await self._tell(stream)
                nursery.cancel_scope.cancel()

            nursery.start_soon(tell)
            try:
                await self._hear(stream)
            except ChildLost as lost:
                reason = str(lost)
            nursery.cancel_scope.cancel()
        return reason

    async def _tell(self, stream: trio.abc.SendStream) -> None:
        """Until there has been nothing to do for long enough."""
        reported = False
        while trio.current_time() - self._active_s < self._patience_s:
            if self._stirring():
                self._active_s, self._patience_s = trio.current_time(), REST_S
            if (busy := self._busy()) != reported:
                try:
                    await stream.send_all(framed_message(IngestBusy(busy)))
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    # Who hears will hear of it.
                    await trio.sleep_forever()
                reported = busy
            await trio.sleep(BUSY_LOOK_S)

    async def _hear(self, stream: trio.abc.ReceiveStream) -> None:
        """Raises `ChildLost`; never returns."""
        frames = Frames(REPORT_BYTES)
        patience_s = START_TIMEOUT_S
        while True:
            with trio.move_on_after(patience_s) as patience:
                report = await next_of_child(stream, frames, read_report)
            if patience.cancelled_caught:
                raise ChildLost(f"it has not been heard of for {patience_s:g} s")
            patience_s = SILENCE_S
            try:
                if self._detection.take(report):
                    self._active_s = trio.current_time()
            except (KeyError, ValueError):
                raise ChildLost("it cannot be understood") from None
            self._vitals.works()
