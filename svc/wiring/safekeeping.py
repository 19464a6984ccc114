"""Wiring of what keeps an instance safe from its disk: nightly backup, WAL between two of them, disk budget.

Each is there only when its setting is; how a backup is run is in `svc.application.nightly_backup`.
"""

from __future__ import annotations

from functools import partial

from actors.backups import BackupTally, NightlyBackup, WalKeeper
from actors.disk_budget import DiskBudget, DiskTally
from actors.leases import Leases
from actors.supervision import Board, Loop
from svc.application.nightly_backup import back_up, copy_away, copy_wal
from svc.application.open_store import Store
from svc.application.safekeeping import Safekeeping, budget_rules, newest_backup
from svc.backup.folder import BackupFolder
from svc.backup.wal_copying import WalCopier
from svc.config.table import Settings
from svc.runtime.clock import now
from svc.store.backup.wal import WalHold
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import EmbeddedServer
from svc.store.retention.disk_use import PostgresDiskStore
from svc.wiring.keeping import DISK


def safekeeping_loops(
    settings: Settings, store: Store, database: Database, board: Board, keeping: Safekeeping, duties: Leases
) -> list[Loop]:
    """How to build each of them, and its vitals on the board."""
    loops: list[Loop] = []
    if keeping.backups is not None:
        loops.append(_nightly(settings, board, keeping.backups))
        if settings.backup_wal_s and store.embedded is not None:
            loops.append(_wal(settings, store.embedded, database, board, keeping.backups))
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


def _wal(
    settings: Settings, server: EmbeddedServer, database: Database, board: Board, tally: BackupTally
) -> Loop:
    assert settings.backup_dir is not None
    copier = WalCopier(server, WalHold(database), BackupFolder(settings.backup_dir))
    copy = partial(copy_wal, copier)
    return board.spare(
        "wal-keeper", partial(WalKeeper, every_s=settings.backup_wal_s, copy=copy, tally=tally)
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
