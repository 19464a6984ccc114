"""Copies of a whole cluster, file by file: what they hold comes back, and what they may not be put over."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest

from protocol.backup import BackupDamaged
from svc.backup.folder import BackupFolder
from svc.backup.physical import restore_physical, take_physical
from svc.backup.restoring import check_files
from svc.backup.taking import TakenBackup
from svc.backup.verifying import verify
from svc.config.table import Settings
from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import AWAY
from svc.store.postgres.embedded.cluster import EmbeddedServerError
from svc.wiring.open_store import Store, open_store
from tests.backup.test_backup import settings_of
from tests.store.retention.test_retention import tool
from tests.store.spans.test_writing import NOW, fetch, rows, store_of


@attrs.define(eq=False)
class Install:
    """An instance with a cluster of its own, and a folder of backups."""

    settings: Settings
    folder: BackupFolder
    lines: list[str] = attrs.field(factory=list)

    async def take(self, store: Store, *, full: bool = False) -> TakenBackup:
        self.lines.clear()
        assert store.embedded is not None
        return await take_physical(
            self.settings, store.database, store.embedded, self.folder, full=full, told=self.lines.append
        )

    async def write(self, store: Store, number: int) -> None:
        written = await store_of(store.database).write(rows(tool(number, NOW)))
        assert written.stored == 1

    async def spans(self, store: Store) -> int:
        found: int = (await fetch(store.database, "select count(*) as n from span"))[0]["n"]
        return found


@pytest.fixture
def install(open_folder: Path) -> Install:
    return Install(settings_of(open_folder), BackupFolder(open_folder / "backups"))


async def test_a_copy_and_what_changed_since_come_back_and_are_tried_out_first(
    install: Install, open_folder: Path
) -> None:
    async with open_store(install.settings) as store:
        await ProjectStore(store.database).make_default()
        await install.write(store, 1)
        first = await install.take(store)
        await install.write(store, 2)
        second = await install.take(store)
        await install.write(store, 3)
    assert [len(_parts(one)) for one in (first, second)] == [1, 2]
    assert second.new_bytes < first.new_bytes
    async with asyncio_loop(AWAY):
        found = await verify(install.folder, second.manifest, None, open_folder)
    assert found.spans == 2
    # The first is a backup of its own, and what is restored from it is another line of history.
    shutil.rmtree(install.settings.data_dir)
    await restore_physical(install.folder, first.manifest, install.settings.data_dir, {})
    with pytest.raises(EmbeddedServerError, match="holds a database already"):
        await restore_physical(install.folder, first.manifest, install.settings.data_dir, {})
    async with open_store(install.settings) as store:
        assert await install.spans(store) == 1
        await install.write(store, 4)
        again = await install.take(store)
        assert len(_parts(again)) == 1
        assert "the backup before is of another database: everything is copied" in install.lines
        # Kept are the two newest; the whole copy that the second is put over is one of their files.
        install.folder.prune(2)
    assert [path.stem for path in install.folder.manifests()] == [
        second.manifest.stamp,
        again.manifest.stamp,
    ]
    await check_files(install.folder, second.manifest)
    install.folder.prune(1)
    with pytest.raises(BackupDamaged, match="is missing"):
        await check_files(install.folder, second.manifest)


def _parts(taken: TakenBackup) -> tuple[object, ...]:
    assert taken.manifest.physical is not None
    return taken.manifest.physical.parts
