"""Copies of a whole cluster, file by file: what they hold comes back, and what they may not be put over."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import msgspec
import pytest

from protocol.backup import BackupDamaged, Manifest, SchemaStep
from svc.application.open_store import Store, open_store
from svc.backup import physical
from svc.backup.folder import BackupFolder
from svc.backup.physical import restore_physical, take_physical, unfit_here
from svc.backup.restoring import check_files
from svc.backup.taking import TakenBackup
from svc.backup.verifying import verify
from svc.config.table import Settings
from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import AWAY
from svc.store.postgres.embedded.cluster import EmbeddedServerError
from svc.store.postgres.embedded.physical import emptied_home, lay_cluster
from svc.store.postgres.embedded.server import open_embedded
from tests.backup.test_backup import settings_of
from tests.store.retention.test_retention import tool
from tests.store.spans.test_writing import NOW, fetch, rows, store_of

pytestmark = pytest.mark.release


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
    refuses_what_does_not_fit(second.manifest)
    # Cut off, it keeps the service out, and is run again.
    shutil.rmtree(install.settings.data_dir)
    async with emptied_home(install.settings.data_dir) as (cluster, lock):
        with pytest.raises(EmbeddedServerError, match="cannot be unpacked"):
            await lay_cluster(cluster, lock, [lambda: iter([b"cut off"])], 0)
    with pytest.raises(EmbeddedServerError, match="cut off: run `trace-svc restore` again"):
        async with open_embedded(install.settings.data_dir):
            pass
    # The first is a backup of its own, and what is restored from it is another line of history.
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


def refuses_what_does_not_fit(manifest: Manifest) -> None:
    copy = manifest.physical
    assert copy is not None
    assert unfit_here(manifest) is None
    for change, said in (
        ({"major": "17"}, "a cluster of PostgreSQL 17"),
        ({"machine": "s390x"}, "of a s390x machine"),
    ):
        other = msgspec.structs.replace(manifest, physical=msgspec.structs.replace(copy, **change))
        assert said in (unfit_here(other) or "")
    steps = (*manifest.steps, SchemaStep(number=9999, digest="x"))
    assert "a newer one made it" in (unfit_here(msgspec.structs.replace(manifest, steps=steps)) or "")


async def test_after_so_many_parts_and_without_what_it_is_put_over_a_whole_one_is_made(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(physical, "PARTS_MOST", 3)
    async with open_store(install.settings) as store:
        lengths = [len(_parts(await install.take(store))) for _ in range(5)]
        assert lengths == [1, 2, 3, 1, 2]
        newest = install.folder.newest()
        assert newest is not None
        assert newest.physical is not None
        (install.folder.root / newest.physical.listing.path).unlink()
        assert len(_parts(await install.take(store))) == 1
        # The server forgot what changed since.
        assert len(_parts(await install.take(store))) == 2
        passed = ("select pg_switch_wal()", "checkpoint", "select txid_current()")
        for statement in (
            "alter system set summarize_wal = off",
            "select pg_reload_conf()",
            *passed,
            *passed,
        ):
            await store.database.fetch(statement)
        home = install.settings.data_dir / "postgres" / "18" / "data" / "pg_wal" / "summaries"
        for path in home.glob("*.summary"):
            path.unlink()
        assert len(_parts(await install.take(store))) == 1
        assert any("WAL summaries are required" in line for line in install.lines)


def _parts(taken: TakenBackup) -> tuple[object, ...]:
    assert taken.manifest.physical is not None
    return taken.manifest.physical.parts
