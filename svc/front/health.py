"""Health: what the actuator routes and `doctor` say, put together from snapshots.

Nothing here asks an actor by message, so a stuck actor cannot hide behind its mailbox. The one outside
question, whether the database answers, has a short deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, Literal

import attrs
import trio

from actors.drainer import Tally
from actors.spool.memory import SpoolState
from actors.supervision import Board, Vitals
from protocol.storage import Outage, Slow

Status = Literal["UP", "DOWN"]
#: Of a component that the service does without.
SpareStatus = Literal["UP", "DEGRADED"]

_LATE: Final = "the database did not answer in time"

#: All who ask within this time share one question to the database.
PULSE_S: Final = 1.0
#: What a database gets to answer, in ticks: a time in which this process itself stood still counts as one.
TICK_S: Final = 0.1
TICKS: Final = 22
#: When a session of its own is tried beside the question: that all connections are in use says nothing.
KNOCK_TICKS: Final = 8


@attrs.frozen
class Ledger:
    """Where every span went that this process took, in spans. At rest the balance is zero."""

    received: int
    recovered: int
    rejected: int
    stored: int
    duplicates: int
    waiting: int
    dead_lettered: int

    @classmethod
    def of(cls, spool: SpoolState, rejected: int, tally: Tally) -> Ledger:
        """By the counters of the spool and of the drainers, and how many spans the doors refused."""
        return cls(
            received=spool.accepted_spans + rejected,
            recovered=spool.recovered_spans,
            rejected=rejected,
            stored=tally.stored,
            duplicates=tally.duplicates,
            waiting=spool.waiting_spans,
            dead_lettered=tally.dead_lettered,
        )

    @property
    def balance(self) -> int:
        """What came in and is not accounted for. Not zero only while a group is between two counters."""
        went = self.rejected + self.stored + self.duplicates + self.waiting + self.dead_lettered
        return self.received + self.recovered - went


@attrs.define(eq=False)
class Pulse:
    """Whether the database answers, asked at most once a second however many want to know.

    `ping` asks it over a connection there is, `knock` over one of its own; both raise `Outage` when it is
    away. `answered_s` says when it last answered anybody, on Trio's clock.
    """

    ping: Callable[[], Awaitable[None]]
    knock: Callable[[], Awaitable[None]]
    answered_s: Callable[[], float]
    _asked_s: float = -inf
    _details: dict[str, Any] = attrs.field(factory=dict)
    _under_way: trio.Event | None = None

    async def beat(self) -> tuple[Status, dict[str, Any]]:
        """UP or DOWN, and why.

        Cancellation: somebody else who waits asks in place of who was cancelled.
        """
        while self._asked_s + PULSE_S <= trio.current_time():
            if self._under_way is not None:
                await self._under_way.wait()
                continue
            self._under_way = trio.Event()
            try:
                details = await self._ask()
                self._asked_s, self._details = trio.current_time(), details
            finally:
                self._under_way.set()
                self._under_way = None
        return "DOWN" if "error" in self._details else "UP", dict(self._details)

    async def _ask(self) -> dict[str, Any]:
        """Nothing of a database that answers, `busy` of one that answers others, else the `error`."""
        began_s = trio.current_time()
        details: dict[str, Any] | None = None
        async with trio.open_nursery() as nursery:

            async def ping() -> None:
                nonlocal details
                try:
                    await self.ping()
                    details = {}
                except Slow:
                    return
                except Exception as error:
                    details = {"error": str(error)[:200]}
                nursery.cancel_scope.cancel()

            async def knock() -> None:
                nonlocal details
                with suppress(Outage):
                    await self.knock()
                    details = {"busy": _LATE}
                    nursery.cancel_scope.cancel()

            nursery.start_soon(ping)
            for tick in range(TICKS):
                if tick == KNOCK_TICKS:
                    nursery.start_soon(knock)
                await trio.sleep(TICK_S)
            nursery.cancel_scope.cancel()
        if details is None:
            details = {"busy" if self.answered_s() >= began_s else "error": _LATE}
        return details


@attrs.frozen
class Health:
    """Everything that health reads."""

    spool: Callable[[], SpoolState]
    tally: Tally
    drainers: tuple[Vitals, ...]
    spool_vitals: Vitals | None
    board: Board
    pulse: Pulse
    pools: Callable[[], dict[str, dict[str, int]]]
    embedded: Callable[[], dict[str, Any]] | None
    max_lag_ms: int
    #: Spans that lay in the dead-letter store when the service started.
    buried_before: int
    ledger: Callable[[], Ledger]
    retention: Callable[[], dict[str, Any]]
    #: Exports refused in the last minutes, by cause.
    refused: Callable[[], list[dict[str, Any]]]
    #: Metrics and logs that came within the last hour, and were refused.
    signals: Callable[[], list[dict[str, Any]]]
    #: What became of log records, where they are accepted.
    log_records: Callable[[], dict[str, Any] | None]
    #: Components of what the settings switch on: the backup, the disk.
    more: Callable[[], dict[str, Any]]
    #: How long steps of tasks held the event loop.
    loop: Callable[[], dict[str, Any]]
    #: The certificate that is served; None where this process does no TLS.
    tls: Callable[[], dict[str, Any]] | None = None
    #: What is known of agents' runs; None where none can run.
    agents: Callable[[], dict[str, Any]] | None = None
    #: The replica that is read; None where there is none.
    replica: Callable[[], dict[str, Any]] | None = None

    async def report(self) -> tuple[Status, dict[str, Any]]:
        """The whole report of `/actuator/health` (contract §7)."""
        components = {
            "ingest": self.ingest(),
            "db": await self.db(),
            "actors": self.actors(),
            # What was freed; whether the sweeper lives stands with the actors.
            "retention": {"status": "UP", "details": self.retention()},
            # A loop that is late answers late; restarting it loses more than it wins.
            "loop": {"status": "UP", "details": self.loop()},
            **self.more(),
        }
        if self.tls is not None:
            # A certificate that is not there yet, or over, is for `doctor` and alerts: ingest goes on.
            components["tls"] = {"status": "UP", "details": self.tls()}
        if self.agents is not None:
            # Ingest and answers do without: whatever it says, the service is up.
            details = self.agents()
            spare: SpareStatus = "DEGRADED" if "fault" in details else "UP"
            components["agents"] = {"status": spare, "details": details}
        if self.replica is not None:
            # The primary stands in for it.
            components["replica"] = {"status": "UP", "details": self.replica()}
        status: Status = "DOWN" if any(part["status"] == "DOWN" for part in components.values()) else "UP"
        return status, {"status": status, "components": components}

    def ingest(self) -> dict[str, Any]:
        """The spool and its drainers: DOWN by a dead drainer or by the age of the oldest batch."""
        state = self.spool()
        alive = sum(vitals.alive for vitals in self.drainers)
        late = bool(self.max_lag_ms) and state.oldest_age_s * 1000 > self.max_lag_ms
        details: dict[str, Any] = {
            "mode": state.mode,
            "durable": state.durable,
            "depth": state.depth,
            "bytes": state.bytes,
            "max_bytes": state.max_bytes,
            "oldest_age_ms": round(state.oldest_age_s * 1000),
            "dead_lettered": self.buried_before + self.tally.dead_lettered,
            "drainers": len(self.drainers),
            "drainers_alive": alive,
            "drainer_alive": alive == len(self.drainers),
        }
        details["ledger"] = attrs.asdict(self.ledger()) | {"balance": self.ledger().balance}
        if refused := self.refused():
            details["refused_lately"] = refused
        if signals := self.signals():
            details["refused_signals"] = signals
        if (log_records := self.log_records()) is not None:
            details["log_records"] = log_records
        concerned = self.drainers if self.spool_vitals is None else (self.spool_vitals, *self.drainers)
        waiting = [vitals.waiting_for for vitals in concerned if vitals.waiting_for is not None]
        if waiting:
            details["waiting_for"] = waiting[0]
        return {"status": "UP" if details["drainer_alive"] and not late else "DOWN", "details": details}

    async def db(self) -> dict[str, Any]:
        """The database: whether it answers, the pool, and the embedded server when there is one."""
        status, details = await self.pulse.beat()
        # After the answer: a server that came back while it was asked is not reported as away.
        details["pools"] = self.pools()
        if self.embedded is not None:
            details["embedded"] = self.embedded()
            # It is known to have died sooner than a shared answer grows old.
            if details["embedded"]["state"] != "running":
                status = "DOWN"
        return {"status": status, "details": details}

    def actors(self) -> dict[str, Any]:
        """Every actor on the board.

        DOWN while a needed one is neither at work nor waits for an outage to end.
        """
        all_vitals = self.board.all()
        status: Status = "UP" if all(vitals.alive or vitals.spare for vitals in all_vitals) else "DOWN"
        return {"status": status, "details": {vitals.name: vitals.snapshot() for vitals in all_vitals}}
