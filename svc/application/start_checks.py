"""What a start refuses or warns of before it serves anybody: spool folder, disk budget, open sign-up.

Called by `svc.serve`. Changes nothing.
"""

from __future__ import annotations

from protocol.operator import OperatorError
from protocol.paths import obstacle
from svc.config.table import Settings
from svc.domain.accounts.access import mode_of, signup_warnings
from svc.domain.retention.disk_budget import LEAST_WALS
from svc.store.accounts.orgs import OrgStore
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.retention.disk_use import PostgresDiskStore


class SpoolUnusable(OperatorError):
    """The folder of the spool cannot be written; the text names what is in the way, and the way out."""


class BudgetTooSmall(OperatorError):
    """A disk budget that the log of the database alone could fill."""


def check_spool_folder(settings: Settings) -> None:
    """Raise `SpoolUnusable` where disk mode has a folder that it cannot write; before a database starts."""
    if (
        settings.spool_mode == "disk"
        and (fault := obstacle(settings.data_dir / "spool" / "spool.db")) is not None
    ):
        raise SpoolUnusable(fault.text("SVC_DATA_DIR"))


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


async def sign_up_warnings(settings: Settings, database: Database) -> list[str]:
    """What is to be said aloud at the boot of who may sign up, one sentence each."""
    if settings.auth_disabled:
        return []
    org = await ProjectStore(database).the_org()
    joining = await OrgStore(database).joining(org.id)
    return signup_warnings(
        mode_of(joining.policy),
        org_slug=org.slug,
        reachable=not settings.local,
        passwords=settings.auth_passwords,
    )
