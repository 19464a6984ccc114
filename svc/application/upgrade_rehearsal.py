"""An upgrade of the schema rehearsed on a scratch server: what it does, and whom it keeps from what how long.

Called by `trace-svc upgrade --check`. Reads the instance beside its running service and changes nothing of
it: the scratch server has a folder and a socket of its own.

How: the schema as the instance has it, twice, once without rows and once with some of them. Each step ahead
is done on both. What a statement takes more with some rows is what grows with the rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from svc.config.table import Settings
from svc.domain.upgrade import StepRun, Verdict, scaled, verdict
from svc.store.backup.sampling import copy_some
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.scratch import scratch_server
from svc.store.postgres.migrate import Migration, apply_to_empty, steps_ahead
from svc.store.postgres.rehearsing import rehearse

#: How much of the rows a rehearsal takes that is not a full one, and so much of the database at least: what a
#: busy machine takes longer by chance would be scaled up with the rest.
SHARE: Final = 0.01
LEAST_BYTES: Final = 64 * 2**20


@attrs.frozen
class Rehearsal:
    """What was found. `rows` were tried with, a `share` of all; both are 0 when there was nothing to try."""

    applied: Sequence[int]
    steps: Sequence[StepRun]
    verdict: Verdict
    rows: int = 0
    share: float = 0.0


async def rehearse_upgrade(
    database: Database,
    settings: Settings,
    *,
    full: bool,
    scratch: Path | None,
    told: Callable[[str], None] = lambda _line: None,
) -> Rehearsal:
    """Rehearse the steps that this release is ahead.

    Raises `NoRoom`, `SchemaTooNew`, `SchemaDiffers`, `EmbeddedServerError`, `Outage`.
    """
    applied, ahead = await steps_ahead(database)
    if not applied or not ahead:
        return Rehearsal(applied, (), verdict((), 0, None))
    (row,) = await database.fetch("select pg_database_size(current_database()) as size")
    share = 1.0 if full else min(max(SHARE, LEAST_BYTES / row["size"]), 1.0)
    remedy = "name another folder with --scratch" + (", or leave out --full" if full else "")
    async with (
        scratch_server("rehearse", row["size"] * share, scratch, remedy) as server,
        server.another("without_rows") as empty,
    ):
        for copy_ in (empty, server.database):
            await apply_to_empty(copy_, applied)
        rows = await copy_some(database, server.database, share, server.folder, told)
        steps = [await _rehearse_step(empty, server.database, step, share, told) for step in ahead]
    free = shutil.disk_usage(settings.data_dir).free if settings.embedded else None
    return Rehearsal(applied, steps, verdict(steps, max(applied), free), rows, share)


async def _rehearse_step(
    empty: Database, filled: Database, step: Migration, share: float, tell: Callable[[str], None]
) -> StepRun:
    tell(f"rehearsing step {step.number} ({step.name})")
    without_rows = await rehearse(empty, step)
    return scaled(without_rows, await rehearse(filled, step), share)
