"""Wiring of what keeps an instance safe from its disk: the nightly backup and the disk budget.

Each is there only when its setting is; how a backup is run is in `svc.application.nightly_backup`.
"""

from __future__ import annotations

from functools import partial

from actors.backups import BackupTally, NightlyBackup
from actors.disk_budget import DiskBudget, DiskTally
from actors.leases import Leases
from actors.supervision import Board, Loop
from svc.application.nightly_backup import back_up, copy_away
from svc.application.safekeeping import Safekeeping, budget_rules, newest_backup
from svc.config.table import Settings
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.retention.disk_use import PostgresDiskStore
from svc.wiring.keeping import DISK


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
    folder = settings.backup_dir
    assert folder is not None
    make = partial(back_up, folder, settings.backup_keep, physical=settings.backup_physical)
    copy = None if settings.backup_s3_url is None else partial(copy_away, folder, settings.backup_keep)
    return board.spare(
        "nightly-backup",
        partial(
            NightlyBackup,
            at=settings.backup_at,
            newest=partial(newest_backup, folder),
            make=make,
            now=now,
            tally=tally,
            copy=copy,
        ),
    )


def _budget(settings: Settings, database: Database, board: Board, tally: DiskTally, duties: Leases) -> Loop:
    return board.spare(
        "disk-budget",
        partial(
            DiskBudget,
            budget_bytes=settings.disk_budget_bytes,
            store=PostgresDiskStore(database, settings.data_dir / "spool"),
            rules=budget_rules(settings),
            now=now,
            leads=lambda: duties.held(DISK),
            tally=tally,
        ),
    )
