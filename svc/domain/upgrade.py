"""What an upgrade of the schema will cost, by its rehearsal: scaling, who is shut out, the verdict.

Pure. Called by `trace-svc upgrade --check` with figures of `svc.store.postgres.rehearsing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from svc.domain.quantities import duration, size

#: Locks that somebody of ours would wait for, the weakest first, and whom they shut out. The locks of plain
#: reads and writes are none of them, nor the one that only tidying up and other steps wait for.
SHUTS_OUT: Final[Mapping[str, str]] = {
    "ShareLock": "writes",
    "ShareRowExclusiveLock": "writes",
    "ExclusiveLock": "writes",
    "AccessExclusiveLock": "reads and writes",
}
LOCKS: Final = tuple(SHUTS_OUT)

#: Nobody notices less: a write group takes as long.
PAUSE_FROM_S: Final = 1.0
#: A unit of work gives up after so long (`WORK_TIMEOUT_S`), and a request before it.
WINDOW_FROM_S: Final = 60.0

Outcome = Literal["nothing to do", "online", "pause", "window"]


@attrs.frozen
class StatementRun:
    """One statement of a step: what it took, and which locks it took anew, by table."""

    text: str
    took_s: float
    wal_bytes: int
    locks: Mapping[str, str]
    rewritten: Sequence[str]


@attrs.frozen
class ShutOut:
    """A table that a step keeps others from, until its transaction ends."""

    table: str
    whom: str
    seconds: float


@attrs.frozen
class StepRun:
    """One step: who it is, its statements, and by how much the database was larger before it ended."""

    number: int
    name: str
    kind: str
    reads_from: int
    #: Builds indexes while rows come in, so that its locks last a moment.
    concurrent: bool
    statements: Sequence[StatementRun]
    grown_bytes: int

    @property
    def took_s(self) -> float:
        return sum(statement.took_s for statement in self.statements)

    @property
    def disk_bytes(self) -> int:
        """What it takes for a while: what it writes anew, and the log of that."""
        return max(self.grown_bytes, 0) + sum(statement.wal_bytes for statement in self.statements)

    @property
    def rewritten(self) -> list[str]:
        """The tables that are written anew as a whole."""
        return sorted({table for statement in self.statements for table in statement.rewritten})

    def shut_out(self) -> list[ShutOut]:
        """From whom which tables are kept for how long: a lock is held until the step has ended."""
        strongest: dict[str, str] = {}
        since: dict[str, float] = {}
        before_s = 0.0
        for statement in self.statements:
            for table, lock in statement.locks.items():
                since.setdefault(table, before_s)
                if table not in strongest or LOCKS.index(lock) > LOCKS.index(strongest[table]):
                    strongest[table] = lock
            before_s += statement.took_s
        return [
            ShutOut(table, SHUTS_OUT[strongest[table]], before_s - since[table])
            for table in sorted(strongest)
        ]


def scaled(without_rows: StepRun, with_some: StepRun, share: float) -> StepRun:
    """What it takes with all rows, from a run without any and one with a share of them.

    What a statement takes without rows it takes once; the rest grows with the rows.
    """

    def all_rows(empty: float, sampled: float) -> float:
        return empty + max(sampled - empty, 0) / share

    return attrs.evolve(
        with_some,
        grown_bytes=round(all_rows(without_rows.grown_bytes, with_some.grown_bytes)),
        statements=tuple(
            attrs.evolve(
                sampled,
                took_s=all_rows(empty.took_s, sampled.took_s),
                wal_bytes=round(all_rows(empty.wal_bytes, sampled.wal_bytes)),
            )
            for empty, sampled in zip(without_rows.statements, with_some.statements, strict=True)
        ),
    )


@attrs.frozen
class Verdict:
    """What to prepare for, with a sentence for each reason."""

    outcome: Outcome
    pause_s: float
    reasons: Sequence[str]

    def text(self) -> str:
        """The outcome as the report prints it."""
        match self.outcome:
            case "pause":
                return f"pause of {duration(self.pause_s * 1000)}"
            case "window":
                return "needs a window"
            case plain:
                return plain


def verdict(steps: Sequence[StepRun], newest_applied: int, disk_free_bytes: int | None) -> Verdict:
    """Judge the steps that are ahead of a database at `newest_applied`; None for a disk nobody knows."""
    if not steps:
        return Verdict("nothing to do", 0.0, ())
    waits = [
        (step, shutout) for step in steps for shutout in step.shut_out() if shutout.seconds >= PAUSE_FROM_S
    ]
    pause_s = max((shutout.seconds for _, shutout in waits), default=0.0)
    reasons = [
        f"step {step.number} keeps {shutout.whom} from {shutout.table} for {duration(shutout.seconds * 1000)}"
        for step, shutout in waits
    ]
    needs = pause_s >= WINDOW_FROM_S
    for step in steps:
        if step.reads_from > newest_applied:
            needs = True
            reasons.append(
                f"step {step.number} takes away what the release before reads: stop all its copies first,"
                " and there is no way back but a backup"
            )
    # One step after the other: what is temporary of one is free before the next.
    disk_bytes = max(step.disk_bytes for step in steps)
    if disk_free_bytes is not None and disk_bytes > disk_free_bytes:
        needs = True
        reasons.append(f"a step takes {size(disk_bytes)} for a while, and {size(disk_free_bytes)} are free")
    return Verdict("window" if needs else "pause" if waits else "online", pause_s, reasons)
