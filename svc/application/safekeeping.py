"""What is known of the nightly backup and the disk budget, and the rules that their actors go by."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import attrs
import trio

from actors.backups import BackupTally
from actors.disk_budget import BudgetRules, DiskTally
from svc.backup.folder import BackupFolder
from svc.config.table import Settings
from svc.domain.retention.disk_budget import drop_steps, forecast, level_of
from svc.store.backup.wal import WalHold
from svc.store.postgres.database import Database


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


async def newest_backup(folder: Path) -> datetime | None:
    """When the newest backup in a folder was taken."""
    manifest = await trio.to_thread.run_sync(BackupFolder(folder).newest)
    return None if manifest is None else manifest.taken_at


async def free_wal(settings: Settings, database: Database) -> None:
    """Let the embedded server throw its WAL away where nobody copies it any more: it would fill the disk."""
    if settings.embedded and not settings.backup_wal_s:
        await WalHold(database).let_go()


def budget_rules(settings: Settings) -> BudgetRules:
    """The rules of the disk budget, with what the settings say of it."""
    budget_bytes, term_days = settings.disk_budget_bytes, settings.trace_ttl_days

    def growth(use: Any, today: date) -> tuple[int, date | None]:
        expected = forecast(use, budget_bytes, today, term_days)
        return expected.bytes_a_day, expected.reached_on

    return BudgetRules(
        level=lambda used, budget, droppable: level_of(used, budget, droppable=droppable),
        steps=drop_steps,
        forecast=growth,
    )
