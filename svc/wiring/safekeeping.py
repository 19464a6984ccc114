"""Wiring of what keeps an instance safe from its disk: the nightly backup and the disk budget.

Each is there only when its setting is; how a backup is run is in `svc.application.nightly_backup`.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import partial
from typing import Any

import attrs
import trio

from actors.backups import BackupTally, NightlyBackup
from actors.disk_budget import BudgetRules, DiskBudget, DiskTally
from actors.leases import Leases
from actors.supervision import Board, Loop
from svc.application.nightly_backup import back_up
from svc.backup.folder import BackupFolder
from svc.config.table import Settings
from svc.domain.retention.disk_budget import drop_steps, forecast, level_of
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.retention.disk_use import PostgresDiskStore
from svc.wiring.keeping import DISK


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
    folder = settings.backup_dir

    async def newest() -> datetime | None:
        manifest = await trio.to_thread.run_sync(BackupFolder(folder).newest)
        return None if manifest is None else manifest.taken_at

    make = partial(back_up, folder, settings.backup_keep, physical=settings.backup_physical)
    return board.spare(
        "nightly-backup",
        partial(NightlyBackup, at=settings.backup_at, newest=newest, make=make, now=now, tally=tally),
    )


def _budget(settings: Settings, database: Database, board: Board, tally: DiskTally, duties: Leases) -> Loop:
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
    return board.spare(
        "disk-budget",
        partial(
            DiskBudget,
            budget_bytes=budget,
            store=store,
            rules=rules,
            now=now,
            leads=lambda: duties.held(DISK),
            tally=tally,
        ),
    )
