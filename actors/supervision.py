"""Keeping actors alive: the one word `keep`, and the board that health reads.

A nursery already sends errors up and cancellation down. `keep` adds a restart with a limit: a crash is a bug,
it is logged and the actor is built anew; five crashes within a minute end the process, because the container
is the outermost supervisor. A *spare* actor, one that ingest and answers can do without, never ends the
process: it is shown as failed, rests, and is tried again. Strategies are how callers nest nurseries, not an
option here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, Protocol

import attrs
import trio

from protocol.operator import OperatorError

log = logging.getLogger(__name__)

CRASH_LIMIT: Final = 5
CRASH_WINDOW_S: Final = 60.0
RESTART_PAUSE_S: Final = 0.05
#: A spare actor's rest after its first crash; it doubles with each crash up to the longest.
FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 3600.0

State = Literal["starting", "running", "waiting", "restarting", "failed", "ended"]


class Actor(Protocol):
    """Anything `keep` can hold: it calls `task_status.started()` once it is ready for work."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None: ...


class CrashLoop(OperatorError):
    """An actor crashed more often than the limit allows; the process must end."""


@attrs.define
class Vitals:
    """What is known of one actor from outside. Written by `keep` and by the actor, read by health."""

    name: str
    state: State = "starting"
    crashes: int = 0
    last_error: str | None = None
    waiting_for: str | None = None
    #: Whether ingest and answers can do without it.
    spare: bool = False
    #: How long it rests before it is tried again, while it is failed.
    rests_s: float | None = None
    #: What else is true of it while it runs.
    note: str | None = None

    def waits(self, reason: str) -> None:
        """Say that an outage holds the actor up; `reason` is shown to the operator."""
        if self.state != "waiting":
            log.warning("%s waits: %s", self.name, reason)
        self.state, self.waiting_for = "waiting", reason

    def works(self) -> None:
        """Say that the actor is at work (again)."""
        if self.state in ("waiting", "failed"):
            log.warning("%s goes on", self.name)
        self.state, self.waiting_for, self.rests_s = "running", None, None

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
        if self.rests_s is not None:
            facts["rests_s"] = self.rests_s
        if self.note is not None:
            facts["note"] = self.note
        return facts


class _Build(Protocol):
    """Makes an actor with its vitals: its class, with everything else filled in."""

    def __call__(self, *, vitals: Vitals) -> Actor: ...


#: How an actor is built, each time that `keep` needs one, and its vitals on the board.
Loop = tuple[Callable[[], Actor], Vitals]


class Board:
    """All vitals by name. Health reads it directly, so a stuck actor cannot hide behind its mailbox."""

    def __init__(self) -> None:
        self._vitals: dict[str, Vitals] = {}

    def enrol(self, name: str, *, spare: bool = False) -> Vitals:
        """A fresh entry. A name may be enrolled once. A `spare` actor may fail without anybody waiting."""
        if name in self._vitals:
            raise ValueError(f"an actor named {name!r} is already on the board")
        self._vitals[name] = Vitals(name, spare=spare)
        return self._vitals[name]

    def needed(self, name: str, build: _Build) -> Loop:
        """Enrol an actor that ingest or answers cannot do without."""
        vitals = self.enrol(name)
        return partial(build, vitals=vitals), vitals

    def spare(self, name: str, build: _Build) -> Loop:
        """Enrol an actor that may fail without anybody waiting."""
        vitals = self.enrol(name, spare=True)
        return partial(build, vitals=vitals), vitals

    def all(self) -> tuple[Vitals, ...]:
        """Every entry, in the order of enrolment."""
        return tuple(self._vitals.values())


class _StartedOnce:
    """Passes the first `started()` on to the nursery and lets those of later incarnations pass."""

    def __init__(self, task_status: trio.TaskStatus[None], vitals: Vitals) -> None:
        self._task_status, self._vitals, self._told = task_status, vitals, False

    def started(self, value: None = None) -> None:
        # One that failed has to show first that it works again.
        if self._vitals.state not in ("waiting", "failed"):
            self._vitals.state = "running"
        self.whatever_happened()

    def whatever_happened(self) -> None:
        """The nursery need not wait any longer."""
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
    failure and goes up unchanged: there is nothing to go back to. Of an actor whose vitals say `spare`
    nothing goes up: it counts as started, and rests after each crash, from a second doubling up to an hour.
    One that lived longer than its last rest begins with a second again.

    Cancellation: goes through to the actor; `keep` adds no shield and swallows nothing.
    """
    started = _StartedOnce(task_status, vitals)
    crashes: deque[float] = deque(maxlen=CRASH_LIMIT)
    rest_s = 0.0
    while True:
        born_s = clock()
        try:
            await build().run(task_status=started)
        except Exception as error:
            vitals.crashes += 1
            vitals.last_error = f"{type(error).__name__}: {error}"[:300]
            vitals.waiting_for = None
            if vitals.spare:
                lived_s = clock() - born_s
                again = rest_s > 0 and lived_s <= rest_s
                rest_s = min(rest_s * 2, LONGEST_REST_S) if again else FIRST_REST_S
                vitals.state, vitals.rests_s = "failed", rest_s
                started.whatever_happened()
                log.exception(
                    "%s failed (%d times so far); next attempt in %g s", vitals.name, vitals.crashes, rest_s
                )
                await trio.sleep(rest_s)
                continue
            vitals.state = "restarting"
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
