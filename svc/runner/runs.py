"""The runs that a runner has under way, those that wait for their turn, and those that are over.

Owns `RunTable`: runs are begun, watched, cancelled; what is over is kept for an hour. A run whose events
nobody reads is cancelled: whoever wanted it is gone. Everything is in memory; a runner that ends has
forgotten it.

Secrets: a request is dropped when its run is over.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import trio

from protocol.agents import Spent
from protocol.running import (
    CAPACITY,
    EVENTS_HELD,
    KEPT,
    KEPT_S,
    OVER,
    UNREAD_S,
    WAITING,
    RunFailure,
    RunnerEvent,
    RunnerState,
    RunRequest,
)
from svc.runner.failing import RunFailed

log = logging.getLogger(__name__)

#: How often it is looked whether somebody still reads.
LOOK_S: Final = 5.0


@attrs.define(eq=False)
class RunnerRun:
    """One run. What does the work tells it events and what was spent."""

    name: str
    digest: str
    request: RunRequest | None = attrs.field(repr=False)
    state: RunnerState = "waiting"
    events: list[RunnerEvent] = attrs.field(factory=list)
    #: A call under way counts at its worst.
    spent: Spent = attrs.field(factory=Spent)
    #: What of it whoever reads the events has heard.
    spent_heard: Spent = attrs.field(factory=Spent)
    model: str | None = None
    result: dict[str, Any] | None = attrs.field(default=None, repr=False)
    failure: RunFailure | None = None
    read_s: float = attrs.field(factory=trio.current_time)
    ended_s: float | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    over: trio.Event = attrs.field(factory=trio.Event)
    changed: trio.Event = attrs.field(factory=trio.Event)
    #: Whether somebody wants it to end; else a cancelled one is its time being over.
    unwanted: bool = False

    def tell(self, kind: Any, /, **details: Any) -> None:
        """Append an event; the last one is kept whatever the bound."""
        if len(self.events) < EVENTS_HELD or kind == "ended":
            moment = datetime.now(UTC).isoformat()
            self.events.append(RunnerEvent(len(self.events) + 1, moment, kind, details))
        self._wake()

    def book(self, spent: Spent) -> None:
        """What was spent, heard at once: whoever reads has it in the books if this process dies."""
        self.spent = spent
        self._wake()

    def _wake(self) -> None:
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def end(self, state: RunnerState, failure: RunFailure | None = None) -> None:
        """End the run; a second call does nothing."""
        if self.state in OVER:
            return
        self.state, self.failure, self.request = state, failure, None
        self.ended_s = trio.current_time()
        self.tell("ended", state=state, **({"failure": failure.kind} if failure else {}))
        self.over.set()


#: Does the work of a run: the answer, or `RunFailed`.
Work = Callable[[RunnerRun], Awaitable[dict[str, Any]]]


@attrs.frozen
class TableFull:
    """As many wait as may."""


@attrs.frozen
class OtherDigest:
    """A run of this name was asked for with something else."""


@attrs.define(eq=False)
class RunTable:
    """All runs by name. `work` does one; the nursery is `run`'s."""

    work: Work
    capacity: int = CAPACITY
    draining: bool = False
    _runs: OrderedDict[str, RunnerRun] = attrs.field(factory=OrderedDict)
    _nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the runs until cancelled, and let go of those that nobody reads."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            while True:
                await trio.sleep(LOOK_S)
                self.look()

    def find(self, name: str) -> RunnerRun | None:
        """The run of a name; whoever asks reads its events."""
        self._forget()
        return self._runs.get(name)

    def begin(self, name: str, request: RunRequest) -> tuple[RunnerRun, bool] | TableFull | OtherDigest:
        """The run of this name and whether it is new. One that is known takes the key that came with this."""
        self._forget()
        earlier_run = self._runs.get(name)
        digest = request.digest()
        if earlier_run is not None:
            if earlier_run.digest != digest:
                return OtherDigest()
            earlier_run.read_s = trio.current_time()
            if earlier_run.request is not None:
                earlier_run.request = request
            return earlier_run, False
        if self.waiting >= WAITING:
            return TableFull()
        run = self._runs[name] = RunnerRun(name, digest, request)
        run.tell("accepted")
        self._next()
        return run, True

    def cancel(self, name: str) -> None:
        """Have it end; once it is over, nothing."""
        run = self._runs.get(name)
        if run is None:
            return
        run.unwanted = True
        run.scope.cancel()
        if run.state == "waiting":
            run.end("cancelled")

    def look(self) -> None:
        """Cancel runs whose events nobody reads."""
        now_s = trio.current_time()
        for run in list(self._runs.values()):
            if run.state not in OVER and now_s - run.read_s > UNREAD_S:
                log.warning("run %s: nobody has read its events for %g s", run.name, UNREAD_S)
                self.cancel(run.name)

    def drain(self) -> None:
        """Take nothing new, and cancel what is under way."""
        self.draining = True
        for run in list(self._runs.values()):
            if run.state not in OVER:
                self.cancel(run.name)

    async def rest(self) -> None:
        """Wait until nothing is under way."""
        for run in list(self._runs.values()):
            if run.state == "running":
                await run.over.wait()

    @property
    def running(self) -> int:
        """How many are under way."""
        return sum(run.state == "running" for run in self._runs.values())

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return sum(run.state == "waiting" for run in self._runs.values())

    def position(self, run: RunnerRun) -> int:
        """How many wait before this one."""
        waiting = [other_run.name for other_run in self._runs.values() if other_run.state == "waiting"]
        return waiting.index(run.name) if run.name in waiting else 0

    def _next(self) -> None:
        assert self._nursery is not None, "the table is not run"
        for run in list(self._runs.values()):
            if self.running >= self.capacity:
                return
            if run.state == "waiting":
                run.state = "running"
                self._nursery.start_soon(self._do, run)

    async def _do(self, run: RunnerRun) -> None:
        assert run.request is not None
        end: tuple[RunnerState, RunFailure | None] = ("failed", RunFailure("timeout", "its time was over"))
        try:
            with run.scope:
                run.scope.deadline = trio.current_time() + run.request.limits.seconds
                run.result = await self.work(run)
                end = ("done", None)
        except RunFailed as failed:
            end = ("failed", failed.failure)
        except Exception as error:  # a bug at one run must not cost the others theirs
            log.exception("run %s failed", run.name)
            end = ("failed", RunFailure("broken", type(error).__name__))
        if run.unwanted and end[0] != "done":
            end = ("cancelled", None)
        run.end(*end)
        if not self.draining:
            self._next()

    def _forget(self) -> None:
        """Let go of what is over for long, and of the oldest of what is too much."""
        over = [run for run in self._runs.values() if run.ended_s is not None]
        now_s = trio.current_time()
        for number, run in enumerate(over):
            if now_s - (run.ended_s or 0.0) > KEPT_S or len(over) - number > KEPT:
                del self._runs[run.name]
