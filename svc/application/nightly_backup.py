"""A backup by `trace-svc backup` in a process of its own, and what a disk budget must be at least.

The actor of the nightly backup calls the one, a start the other. A backup of its own process can neither hold
up the doors nor outlive a stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from protocol.operator import OperatorError
from svc.config.table import Settings
from svc.domain.retention.disk_budget import LEAST_WALS
from svc.runtime.child import fault_of, program
from svc.store.postgres.database import Database
from svc.store.retention.disk_use import PostgresDiskStore

#: A backup may hold its snapshot for six hours.
BACKUP_TIMEOUT_S: Final = 7 * 3600.0
_FAULT_CHARS: Final = 500


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


async def back_up(folder: Path, keep: int, *, physical: bool = False) -> str | None:
    """Make a backup and let old ones go. Returns what went wrong, in a sentence."""
    fault = await _run("backup", str(folder), *(["--physical"] if physical else []))
    if fault is None and keep:
        fault = await _run("backup", "prune", str(folder), "--keep", str(keep))
    return fault


async def _run(*words: str) -> str | None:
    command = program("svc", *words)
    try:
        fault = await fault_of(command.words, timeout_s=BACKUP_TIMEOUT_S, cwd=command.cwd)
    except trio.TooSlowError:
        return f"it did not end within {BACKUP_TIMEOUT_S / 3600:.0f} hours"
    return fault and fault[:_FAULT_CHARS]
