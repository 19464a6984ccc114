"""Trying a backup out: its digests, then a restore on a scratch server, and questions to what came of it.

Called by `trace-svc backup verify`. Nothing of the instance is touched: the scratch server has a folder and a
socket of its own, and both are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from protocol.backup import BackupDamaged, BackupRefused, Manifest
from protocol.sealed import Lost
from svc.backup.folder import BackupFolder
from svc.backup.physical import lay_down, unfit_here
from svc.backup.restoring import box_of, check_files, parts_of
from svc.backup.sealed import key_of
from svc.secrets.sealing import Sealer
from svc.store.accounts.integrations import IntegrationStore
from svc.store.backup.checking import differing_rows, kinds_by_rows, make_fast, open_some
from svc.store.backup.loading import Target, unfit
from svc.store.backup.physical import read_all
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.scratch import scratch_server
from svc.store.postgres.migrate import migrate
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import ask

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
    """Restore it elsewhere and ask.

    Raises `BackupDamaged`, `BackupRefused`, `NoRoom`, `Outage`, `OSError`.
    """
    why = unfit(manifest) if manifest.physical is None else unfit_here(manifest)
    if why is not None:
        raise BackupRefused(why)
    files = await check_files(folder, manifest, told)
    secrets = box_of(folder, manifest, passphrase, needed=False)
    remedy = "name another folder with --scratch, or say --digests"
    if manifest.physical is not None:
        laid = partial(lay_down, folder, manifest)
        size = sum(part.raw_bytes for part in manifest.physical.parts)
        async with scratch_server("verify", size, scratch, remedy, laid) as server:
            told("reading every row")
            rows = await read_all(server.database)
            await migrate(server.database)
            return await _verify_answers(server.database, files, rows, secrets)
    async with scratch_server("verify", manifest.origin.size_bytes, scratch, remedy) as server:
        database = server.database
        await make_fast(database)
        target = Target(database, lambda relation: told(f"restored: {relation.label}"))
        await target.claim()
        rows = await target.fill(manifest, partial(parts_of, folder))
        wrong = await differing_rows(database, manifest.relations)
        if wrong:
            raise BackupDamaged("; ".join(wrong[:10]))
        await target.finish()
        told("comparing the counts of rows with those of the cubes")
        return await _verify_answers(database, files, rows, secrets)


async def _verify_answers(database: Database, files: int, rows: int, secrets: dict[str, bytes]) -> Verified:
    spans = await _counts_agree(database)
    tried, opened = await open_some(database, PAYLOADS)
    if opened != tried:
        raise BackupDamaged(f"{tried - opened} of {tried} payloads cannot be opened")
    sealed, unseen = await _sealed(database, key_of(secrets))
    return Verified(files, rows, spans, opened, sealed, unseen)


async def _counts_agree(database: Database) -> int:
    by_rows = await kinds_by_rows(database)
    for project_id, kinds in by_rows.items():
        question = ask(project_id, "spans", (None, None), None)
        ranked = await QueryStore(database).facets(question, "kind", _MOST_KINDS)
        by_cubes = {facet.value: facet.count for facet in ranked.facets if facet.count}
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
