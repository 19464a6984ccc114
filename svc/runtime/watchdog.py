"""How long one step holds the event loop, and which task it was.

Owns the instrument that times every step of every task. `svc.serve` keeps it while the doors are open; health
and metrics read its snapshot. It never ends a step, asks nothing by message and holds no text of any request:
where a step stood is a file and a line.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import attrs
import trio

from svc.runtime.clock import now

log = logging.getLogger(__name__)

#: Steps shorter than this are not looked at: a step's processor time costs a system call, 0.6 µs.
LONG_S: Final = 0.02
#: From here on others feel it.
STALL_S: Final = 0.1
#: From here on it is a line of the log, at most one in `QUIET_S`.
LOG_S: Final = 0.25
QUIET_S: Final = 10.0
#: How long the longest delay is shown, at least; twice that at most.
WINDOW_S: Final = 30.0
#: How often the other thread looks, and from when on it notes where a step stands: in all below `LOG_S`.
_SAMPLE_EVERY_S: Final = 0.1
_SAMPLE_FROM_S: Final = 0.12
_OURS: Final = ("/svc/", "/actors/", "/protocol/")


@attrs.frozen
class LoopStep:
    """One step of a task: seconds by the clock and of the processor, and where it stood if it was long."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    task: str = ""
    location: str = ""


@attrs.define(eq=False)
class LoopWatchdog(trio.abc.Instrument):
    """Times each step. `monotonic_s` and `cpu_s` are the clocks of the loop's own thread."""

    monotonic_s: Callable[[], float] = time.perf_counter
    cpu_s: Callable[[], float] = time.thread_time
    #: Steps above `STALL_S`.
    stalls: int = 0
    #: The step that took the most processor time, and the one that took longest by the clock.
    costliest: LoopStep = LoopStep()
    longest: LoopStep = LoopStep()
    started_at: datetime = attrs.field(factory=now)
    _thread_id: int = attrs.field(factory=threading.get_ident)
    _pass_began_s: float = 0.0
    _step_began_s: float = 0.0
    _cpu_mark_s: float = attrs.field(init=False)
    _late_s: list[float] = attrs.field(factory=lambda: [0.0, 0.0])
    _window_began_s: float = attrs.field(init=False)
    _logged_s: float = -QUIET_S
    #: Of the step that began then, by the other thread.
    _sample: tuple[float, str] = (0.0, "")

    def __attrs_post_init__(self) -> None:
        self._cpu_mark_s, self._window_began_s = self.cpu_s(), self.monotonic_s()

    def after_io_wait(self, timeout: float) -> None:
        """A pass over all tasks that can go on begins."""
        self._pass_began_s, self._cpu_mark_s = self.monotonic_s(), self.cpu_s()

    def before_io_wait(self, timeout: float) -> None:
        """It is over: what arrived meanwhile waited for so long."""
        now_s = self.monotonic_s()
        if self._pass_began_s:
            late_s = now_s - self._pass_began_s
            if now_s - self._window_began_s > WINDOW_S:
                self._late_s, self._window_began_s = [late_s, self._late_s[0]], now_s
            elif late_s > self._late_s[0]:
                self._late_s[0] = late_s

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task goes on."""
        self._step_began_s = self.monotonic_s()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """It waits again."""
        began_s, self._step_began_s = self._step_began_s, 0.0
        seconds = self.monotonic_s() - began_s
        if seconds > LONG_S and began_s:
            self._record(task.name, began_s, seconds)

    def _record(self, task: str, began_s: float, seconds: float) -> None:
        # Since the pass began, or since the last long step: short ones between are counted along.
        mark_s, self._cpu_mark_s = self._cpu_mark_s, self.cpu_s()
        location = self._sample[1] if self._sample[0] == began_s else ""
        step = LoopStep(seconds, min(seconds, self._cpu_mark_s - mark_s), task, location)
        self.longest = max(self.longest, step, key=lambda one: one.seconds)
        self.costliest = max(self.costliest, step, key=lambda one: one.cpu_seconds)
        self.stalls += seconds > STALL_S
        if seconds > LOG_S and began_s - self._logged_s > QUIET_S:
            self._logged_s = began_s
            log.warning(
                "the event loop was blocked for %.2f s (%.2f s of CPU) by %s%s; %d such steps so far",
                *(seconds, step.cpu_seconds, task, location and f" at {location}", self.stalls),
            )

    def sample(self) -> None:
        """From another thread: note where a step stands that is under way for long."""
        began_s = self._step_began_s
        if began_s and began_s != self._sample[0] and self.monotonic_s() - began_s > _SAMPLE_FROM_S:
            frame = sys._current_frames().get(self._thread_id)
            location = ""
            while frame is not None and not location:
                path = frame.f_code.co_filename
                index = max(path.rfind(room) for room in _OURS)
                if index >= 0:
                    location = f"{path[index + 1 :]}:{frame.f_lineno}"
                frame = frame.f_back
            self._sample = (began_s, location)

    def snapshot(self) -> dict[str, Any]:
        """For health: milliseconds, and which task."""
        details: dict[str, Any] = {
            "late_ms": round(max(self._late_s) * 1000),
            "stalls": self.stalls,
            "longest_step_ms": round(self.longest.seconds * 1000),
            "longest_step_cpu_ms": round(self.costliest.cpu_seconds * 1000),
            "started_at": self.started_at.isoformat(timespec="milliseconds"),
        }
        if self.longest.task:
            details["longest_step"] = f"{self.longest.task} {self.longest.location}".rstrip()
            details["costliest_step"] = f"{self.costliest.task} {self.costliest.location}".rstrip()
        return details

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time the steps of the present loop until this is left. The other thread ends with it."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_SAMPLE_EVERY_S):
                self.sample()

        thread = threading.Thread(target=look, name="loop-watchdog", daemon=True)
        trio.lowlevel.add_instrument(self)
        thread.start()
        try:
            yield
        finally:
            over.set()
            trio.lowlevel.remove_instrument(self)
