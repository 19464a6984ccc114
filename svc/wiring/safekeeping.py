"""Wiring of what keeps an instance safe from its disk: the nightly backup and the disk budget.

Each is there only when its setting is. Owns how a backup is run: by `trace-svc backup` in a process of its
own, which can neither hold up the doors nor outlive a stop.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors.backups import BackupTally, NightlyBackup
from actors.disk_budget import BudgetRules, DiskBudget, DiskTally
from actors.leases import Leases
from actors.supervision import Actor, Board, Vitals
from protocol.operator import OperatorError
from svc.backup.folder import BackupFolder
from svc.config.table import Settings
from svc.domain.disk_budget import LEAST_WALS, drop_steps, forecast, level_of
from svc.runtime.child import program
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.retention.disk_use import PostgresDiskStore
from svc.wiring.keeping import DISK

Loop = tuple[Callable[[], Actor], Vitals]

#: A backup may hold its snapshot for six hours.
BACKUP_TIMEOUT_S: Final = 7 * 3600.0
_FAULT_CHARS: Final = 500


@attrs.define
class Safekeeping:
    """What is known of both, for health and metrics; None where the setting is not there."""

    backups: BackupTally | None = None
    disk: DiskTally | None = None

    @classmethod
    def of(cls, settings: Settings) -> Safekeeping:
        """Tallies for what the settings ask for."""
        return cls(
            None if settings.backup_dir is None else BackupTally(),
            DiskTally(budget=settings.disk_budget_bytes) if settings.disk_budget_bytes else None,
        )

    def health(self) -> dict[str, Any]:
        """Their components of the health report. Neither is a reason to restart the service."""
        parts = {"backup": self.backups, "disk": self.disk}
        return {
            name: {"status": "UP", "details": tally.snapshot()}
            for name, tally in parts.items()
            if tally is not None
        }

    def refuses(self) -> bool:
        """Whether ingest has no disk any more."""
        return self.disk is not None and self.disk.refuses


class BudgetTooSmall(OperatorError):
    """A disk budget that the log of the database alone could fill."""


async def check_budget(settings: Settings, database: Database) -> None:
    """Raises `BudgetTooSmall` for a budget below four times the log that the server keeps."""
    if not settings.disk_budget_bytes:
        return
    wal = await PostgresDiskStore(database, settings.data_dir / "spool").max_wal_bytes()
    if settings.disk_budget_bytes < LEAST_WALS * wal:
        raise BudgetTooSmall(
            f"SVC_DISK_BUDGET_BYTES is {settings.disk_budget_bytes}; it must be at least"
            f" {LEAST_WALS * wal}, four times the max_wal_size of the database: raise it, or lower"
            " max_wal_size"
        )


def safekeeping_loops(
    settings: Settings, database: Database, board: Board, keeping: Safekeeping, duties: Leases
) -> list[Loop]:
    """How to build each of them, and its vitals on the board."""
    loops: list[Loop] = []
    if keeping.backups is not None:
        loops.append(_nightly(settings, board, keeping.backups))
    if keeping.disk is not None:
        loops.append(_budget(settings, database, board, keeping.disk, duties))
    return loops


def _nightly(settings: Settings, board: Board, tally: BackupTally) -> Loop:
    assert settings.backup_dir is not None
    vitals = board.enrol("nightly-backup", spare=True)
    folder = settings.backup_dir

    async def newest() -> datetime | None:
        manifest = await trio.to_thread.run_sync(BackupFolder(folder).newest)
        return None if manifest is None else manifest.taken_at

    make = partial(_back_up, folder, settings.backup_keep, physical=settings.backup_physical)
    return (
        lambda: NightlyBackup(
            at=settings.backup_at, newest=newest, make=make, now=now, tally=tally, vitals=vitals
        ),
        vitals,
    )


async def _back_up(folder: Path, keep: int, *, physical: bool = False) -> str | None:
    """Make a backup and let old ones go. Returns what went wrong, in a sentence."""
    fault = await _run("backup", str(folder), *(["--physical"] if physical else []))
    if fault is None and keep:
        fault = await _run("backup", "prune", str(folder), "--keep", str(keep))
    return fault


async def _run(*words: str) -> str | None:
    command = program("svc", *words)
    try:
        with trio.fail_after(BACKUP_TIMEOUT_S):
            process = await trio.run_process(
                command.words,
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    except trio.TooSlowError:
        return f"it did not end within {BACKUP_TIMEOUT_S / 3600:.0f} hours"
    except OSError as error:
        return f"it could not be started: {error.strerror}"
    if process.returncode == 0:
        return None
    errors = process.stderr.decode(errors="replace").strip().splitlines()
    return (errors[-1].removeprefix("trace-svc: ") if errors else f"exit status {process.returncode}")[
        :_FAULT_CHARS
    ]


def _budget(settings: Settings, database: Database, board: Board, tally: DiskTally, duties: Leases) -> Loop:
    vitals = board.enrol("disk-budget", spare=True)
    budget, term = settings.disk_budget_bytes, settings.trace_ttl_days

    def growth(use: Any, today: date) -> tuple[int, date | None]:
        forecast_ = forecast(use, budget, today, term)
        return forecast_.bytes_a_day, forecast_.reached_on

    rules = BudgetRules(
        level=lambda used, budget_bytes, droppable: level_of(used, budget_bytes, droppable=droppable),
        steps=drop_steps,
        forecast=growth,
    )
    store = PostgresDiskStore(database, settings.data_dir / "spool")
    return (
        lambda: DiskBudget(
            budget_bytes=budget,
            store=store,
            rules=rules,
            now=now,
            leads=lambda: duties.held(DISK),
            tally=tally,
            vitals=vitals,
        ),
        vitals,
    )
