"""Trying a backup out: its digests, then a restore on a scratch server, and questions to what came of it.

Called by `trace-svc backup verify`. Nothing of the instance is touched: the scratch server has a folder and a
socket of its own, and both are removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from protocol.backup import BackupDamaged, BackupRefused, Manifest
from protocol.sealed import Lost
from svc.backup.folder import BackupFolder
from svc.backup.restoring import box_of, check_files, parts_of
from svc.backup.sealed import key_of
from svc.secrets.sealing import Sealer
from svc.store.accounts.integrations import IntegrationStore
from svc.store.backup.checking import differing_rows, kinds_by_rows, make_fast, open_some
from svc.store.backup.loading import Target, unfit
from svc.store.postgres.database import Address, Database
from svc.store.postgres.embedded.server import open_embedded
from svc.store.reads.query import QueryStore, ask

#: What a restore takes beside the size that the database had: its log, and the sorting of indexes.
ROOM: Final = 1.3
_SCRATCH_MEMORY_BYTES: Final = 2 * 1024**3
PAYLOADS: Final = 100
_MOST_KINDS: Final = 100


@attrs.frozen
class Verified:
    """What was found right; anything else was raised."""

    files: int
    rows: int
    spans: int
    payloads: int
    sealed: int
    #: Whether there were sealed values that nothing here could open for want of a passphrase.
    sealed_unseen: bool


async def verify(
    folder: BackupFolder,
    manifest: Manifest,
    passphrase: str | None,
    scratch: Path | None,
    told: Callable[[str], None] = lambda _line: None,
) -> Verified:
    """Restore it elsewhere and ask. Raises `BackupDamaged`, `BackupRefused`, `Outage`, `OSError`."""
    why = unfit(manifest)
    if why is not None:
        raise BackupRefused(why)
    files = await check_files(folder, manifest, told)
    secrets = box_of(folder, manifest, passphrase, needed=False)
    async with _scratch(manifest, scratch) as database:
        await make_fast(database)
        target = Target(database, lambda relation: told(f"restored: {relation.label}"))
        await target.claim()
        rows = await target.fill(manifest, partial(parts_of, folder))
        wrong = await differing_rows(database, manifest.relations)
        if wrong:
            raise BackupDamaged("; ".join(wrong[:10]))
        told("comparing the counts of rows with those of the cubes")
        await target.finish()
        spans = await _counts_agree(database)
        tried, opened = await open_some(database, PAYLOADS)
        if opened != tried:
            raise BackupDamaged(f"{tried - opened} of {tried} payloads cannot be opened")
        sealed, unseen = await _sealed(database, key_of(secrets))
    return Verified(files, rows, spans, opened, sealed, unseen)


@asynccontextmanager
async def _scratch(manifest: Manifest, parent: Path | None) -> AsyncIterator[Database]:
    with tempfile.TemporaryDirectory(prefix="trace-svc-verify-", dir=parent) as made:
        # The database's account passes through, and lists nothing.
        os.chmod(made, 0o711)  # noqa: S103
        wanted = manifest.origin.size_bytes * ROOM
        free = shutil.disk_usage(made).free
        if free < wanted:
            raise BackupRefused(
                f"{Path(made).parent} has {free / 2**30:.1f} GiB free, and a trial restore wants"
                f" {wanted / 2**30:.1f}: name another folder with --scratch, or say --digests"
            )
        async with open_embedded(Path(made) / "data", memory_bytes=_SCRATCH_MEMORY_BYTES) as embedded:
            served = embedded.served
            address = Address(
                str(served.socket_dir), served.port, served.user, served.password, served.database
            )
            async with Database(address).opened() as database:
                yield database


async def _counts_agree(database: Database) -> int:
    by_rows = await kinds_by_rows(database)
    for project_id, kinds in by_rows.items():
        question = ask(project_id, "spans", (None, None), None)
        facets = (await QueryStore(database).facets(question, "kind", _MOST_KINDS))["facets"]
        by_cubes = {facet["value"]: facet["count"] for facet in facets if facet["count"]}
        if by_cubes != kinds:
            raise BackupDamaged(f"the counts of project {project_id} are {by_cubes}, its rows say {kinds}")
    return sum(sum(kinds.values()) for kinds in by_rows.values())


async def _sealed(database: Database, keys: tuple[bytes, ...]) -> tuple[int, bool]:
    rows = await IntegrationStore(database).all_sealed()
    if not rows or not keys:
        return 0, bool(rows)
    sealer = Sealer(keys)
    for row in rows:
        opened = sealer.open(row.sealed or "", row.purpose)
        if isinstance(opened, Lost):
            raise BackupDamaged(f"the secret of {row.kind} {row.name!r} cannot be opened: {opened.reason}")
    return len(rows), False
