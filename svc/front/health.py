"""Health: what the actuator routes and `doctor` say, put together from snapshots.

Nothing here asks an actor by message, so a stuck actor cannot hide behind its mailbox. The one outside
question, whether the database answers, has a short deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import attrs
import trio

from actors.drainer import Tally
from actors.spool.memory import SpoolState
from actors.supervision import Board, Vitals

Status = Literal["UP", "DOWN"]

DB_TIMEOUT_S = 2.0


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

    @property
    def balance(self) -> int:
        """What came in and is not accounted for. Not zero only while a group is between two counters."""
        went = self.rejected + self.stored + self.duplicates + self.waiting + self.dead_lettered
        return self.received + self.recovered - went


@attrs.frozen
class Health:
    """Everything that health reads. `ping` raises when the database does not answer."""

    spool: Callable[[], SpoolState]
    tally: Tally
    drainers: tuple[Vitals, ...]
    spool_vitals: Vitals | None
    board: Board
    ping: Callable[[], Awaitable[None]]
    pool: Callable[[], dict[str, int]]
    embedded: Callable[[], dict[str, Any]] | None
    max_lag_ms: int
    #: Spans that lay in the dead-letter store when the service started.
    buried_before: int
    ledger: Callable[[], Ledger]
    retention: Callable[[], dict[str, Any]]
    #: Exports refused in the last minutes, by cause.
    refused: Callable[[], list[dict[str, Any]]]

    async def report(self) -> tuple[Status, dict[str, Any]]:
        """The whole report of `/actuator/health` (contract §7)."""
        components = {
            "ingest": self.ingest(),
            "db": await self.db(),
            "actors": self.actors(),
            # What was freed; whether the sweeper lives stands with the actors.
            "retention": {"status": "UP", "details": self.retention()},
        }
        status: Status = "UP" if all(part["status"] == "UP" for part in components.values()) else "DOWN"
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
        concerned = self.drainers if self.spool_vitals is None else (self.spool_vitals, *self.drainers)
        waiting = [vitals.waiting_for for vitals in concerned if vitals.waiting_for is not None]
        if waiting:
            details["waiting_for"] = waiting[0]
        return {"status": "UP" if details["drainer_alive"] and not late else "DOWN", "details": details}

    async def db(self) -> dict[str, Any]:
        """The database: whether it answers, the pool, and the embedded server when there is one."""
        details: dict[str, Any] = {}
        status: Status = "DOWN"
        try:
            with trio.fail_after(DB_TIMEOUT_S):
                await self.ping()
            status = "UP"
        except trio.TooSlowError:
            details["error"] = "the database did not answer in time"
        except Exception as error:
            details["error"] = str(error)[:200]
        # After the answer: a server that came back while it was asked is not reported as away.
        details["pool"] = self.pool()
        if self.embedded is not None:
            details["embedded"] = self.embedded()
        return {"status": status, "details": details}

    def actors(self) -> dict[str, Any]:
        """Every actor on the board.

        DOWN while a needed one is neither at work nor waits for an outage to end.
        """
        all_vitals = self.board.all()
        status: Status = "UP" if all(vitals.alive or vitals.spare for vitals in all_vitals) else "DOWN"
        return {"status": status, "details": {vitals.name: vitals.snapshot() for vitals in all_vitals}}
