"""Keeping actors alive: the one word `keep`, and the board that health reads.

A nursery already sends errors up and cancellation down. `keep` adds a restart with a limit: a crash is a
bug, it is logged and the actor is built anew; five crashes within a minute end the process, because the
container is the outermost supervisor. Strategies are how callers nest nurseries, not an option here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import attrs
import trio

log = logging.getLogger(__name__)

CRASH_LIMIT: Final = 5
CRASH_WINDOW_S: Final = 60.0
RESTART_PAUSE_S: Final = 0.05

State = Literal["starting", "running", "waiting", "restarting", "ended"]


class Actor(Protocol):
    """Anything `keep` can hold: it calls `task_status.started()` once it is ready for work."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None: ...


class CrashLoop(Exception):
    """An actor crashed more often than the limit allows; the process must end."""


@attrs.define
class Vitals:
    """What is known of one actor from outside. Written by `keep` and by the actor, read by health."""

    name: str
    state: State = "starting"
    crashes: int = 0
    last_error: str | None = None
    waiting_for: str | None = None

    def waits(self, reason: str) -> None:
        """Say that an outage holds the actor up; `reason` is shown to the operator."""
        if self.state != "waiting":
            log.warning("%s waits: %s", self.name, reason)
        self.state, self.waiting_for = "waiting", reason

    def works(self) -> None:
        """Say that the actor is at work (again)."""
        if self.state == "waiting":
            log.warning("%s goes on", self.name)
        self.state, self.waiting_for = "running", None

    @property
    def alive(self) -> bool:
        """Whether the actor can be expected to do its work now or after an outage."""
        return self.state in ("running", "waiting")

    def snapshot(self) -> dict[str, Any]:
        """The vitals as health shows them."""
        facts: dict[str, Any] = {"state": self.state, "crashes": self.crashes}
        if self.waiting_for is not None:
            facts["waiting_for"] = self.waiting_for
        if self.last_error is not None:
            facts["last_error"] = self.last_error
        return facts


class Board:
    """All vitals by name. Health reads it directly, so a stuck actor cannot hide behind its mailbox."""

    def __init__(self) -> None:
        self._vitals: dict[str, Vitals] = {}

    def enrol(self, name: str) -> Vitals:
        """A fresh entry. A name may be enrolled once."""
        if name in self._vitals:
            raise ValueError(f"an actor named {name!r} is already on the board")
        self._vitals[name] = Vitals(name)
        return self._vitals[name]

    def all(self) -> tuple[Vitals, ...]:
        """Every entry, in the order of enrolment."""
        return tuple(self._vitals.values())


class _StartedOnce:
    """Passes the first `started()` on to the nursery and lets those of later incarnations pass."""

    def __init__(self, task_status: trio.TaskStatus[None], vitals: Vitals) -> None:
        self._task_status, self._vitals, self._told = task_status, vitals, False

    def started(self, value: None = None) -> None:
        if self._vitals.state != "waiting":
            self._vitals.state = "running"
        if not self._told:
            self._told = True
            self._task_status.started()


async def keep(
    build: Callable[[], Actor],
    vitals: Vitals,
    *,
    clock: Callable[[], float] = trio.current_time,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the actor that `build` makes, and build it anew after a crash, until it ends by itself.

    Raises `CrashLoop` at the fifth crash within a minute. A crash before the first `started()` is a boot
    failure and goes up unchanged: there is nothing to go back to.

    Cancellation: goes through to the actor; `keep` adds no shield and swallows nothing.
    """
    started = _StartedOnce(task_status, vitals)
    crashes: deque[float] = deque(maxlen=CRASH_LIMIT)
    while True:
        try:
            await build().run(task_status=started)
        except Exception as error:
            vitals.crashes += 1
            vitals.last_error = f"{type(error).__name__}: {error}"[:300]
            vitals.state, vitals.waiting_for = "restarting", None
            if not started._told:
                raise
            crashes.append(clock())
            log.exception("%s crashed (%d times so far)", vitals.name, vitals.crashes)
            if len(crashes) == CRASH_LIMIT and crashes[-1] - crashes[0] <= CRASH_WINDOW_S:
                raise CrashLoop(f"{vitals.name} crashed {CRASH_LIMIT} times within a minute") from error
            await trio.sleep(RESTART_PAUSE_S)
        else:
            vitals.state = "ended"
            return
