"""Backups on a real PostgreSQL: what is in the database is in the backup, and comes back from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import attrs
import pytest
import trio
from obstore.store import MemoryStore

from protocol.backup import BackupDamaged, BackupRefused, Manifest
from protocol.database_address import parse_url
from svc.backup.folder import BackupFolder
from svc.backup.remote import chosen_in, push
from svc.backup.remote import fetch as fetch_backup
from svc.backup.restoring import box_of, check_files, restore
from svc.backup.sealed import key_of, lay
from svc.backup.taking import TakenBackup, take
from svc.backup.verifying import verify
from svc.config.table import Settings, read_settings
from svc.outside.objects import ObstoreStore
from svc.secrets.passphrase import open_box, seal_box
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.backup.loading import without
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from svc.store.postgres.migrate import RestoreUnderWay, migrate, migrations
from tests.conftest import copied, filled_once, fresh_database
from tests.debian_postgres import DebianPostgres
from tests.small_disk import small_disk
from tests.store.as_json import JsonQueries
from tests.store.reads.test_query import question
from tests.store.retention.test_retention import AGES, DAY, Kept, tool
from tests.store.spans.test_writing import NOW, Clock, fetch, rows, store_of

PASSPHRASE = "correct horse battery staple"


def settings_of(folder: Path, **more: str) -> Settings:
    return read_settings({"SVC_DATA_DIR": str(folder / "data"), **more})


@attrs.define(eq=False)
class Place:
    """A folder of backups, and the settings under which they are made."""

    folder: BackupFolder
    settings: Settings
    lines: list[str] = attrs.field(factory=list)

    async def take(self, database: Database, *, full: bool = False) -> TakenBackup:
        self.lines.clear()
        return await take(self.settings, database, self.folder, full=full, told=self.lines.append)

    async def restore(self, database: Database, manifest: Manifest | None = None) -> Any:
        manifest = manifest or self.folder.chosen(None)
        secrets = box_of(self.folder, manifest, self.settings.backup_passphrase, needed=True)
        return await restore(self.folder, manifest, database, self.settings.data_dir, secrets)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(BackupFolder(tmp_path / "backups"), settings_of(tmp_path))


async def fill(database: Database) -> None:
    """Two projects with spans of some days, counted."""
    await ProjectStore(database).make_default()
    await ProjectStore(database).create(1, "other", "Other", actor=OPERATOR)
    clock = Clock()
    for age in AGES[:4]:
        clock.now = NOW - age * DAY
        for project_id in (1, 2):
            # Twice: what is seen again becomes a message, and a re-sent span replaces the first.
            for _ in range(2):
                await store_of(database, clock).write(rows(tool(age, clock.now), project=project_id))
    clock.now = NOW
    await Kept(database, clock).settle()
    while (await CubeStore(database).build(NOW, 500)).more:
        pass


@pytest.fixture
async def kept(asyncio_loop: None, served: Served) -> AsyncIterator[Kept]:
    """A database of the test's own with all that."""
    async with copied(served, "backup", fill) as database:
        clock = Clock()
        clock.now = NOW
        yield Kept(database, clock)


@pytest.fixture
async def taken(asyncio_loop: None, served: Served, place: Place, made_once: Path) -> Manifest:
    """A backup of such a database, made once in this run."""
    if not (made_once / "manifest.json").exists():
        async with filled_once(served, "backup", fill) as database:
            await take(place.settings, database, BackupFolder(made_once))
    shutil.copytree(made_once, place.folder.root)
    return place.folder.chosen(None)


@pytest.fixture(scope="session")
def made_once() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "backups"


async def tables(database: Database) -> list[str]:
    """Every table with rows of its own, as the standard's catalog has them."""
    found = await fetch(
        database,
        "select table_name as name from information_schema.tables t where table_schema = 'public'"
        " and table_type = 'BASE TABLE' and not exists (select from pg_partitioned_table p"
        "  where p.partrelid = quote_ident(t.table_name)::regclass) order by 1",
    )
    return [row["name"] for row in found]


async def contents(database: Database) -> dict[str, list[str]]:
    """Every row of every table, as text, columns in the order of their names."""
    names = await tables(database)
    names.remove("schema_migration")

    async def work(connection: Connection) -> dict[str, list[str]]:
        listed = await connection.fetch(
            "select table_name, string_agg(quote_ident(column_name), ', ' order by column_name) as columns"
            " from information_schema.columns where table_schema = 'public' group by 1"
        )
        columns = {row["table_name"]: row["columns"] for row in listed}
        found = {}
        for name in names:
            stored = await connection.fetch(f'select row({columns[name]})::text as row from only "{name}"')
            found[name] = sorted(row["row"] for row in stored)
        return found

    return await database.run(work)


async def same(one: Database, other: Database) -> bool:
    assert await contents(one) == await contents(other)
    return True


async def test_everything_comes_back_and_numbers_go_on(
    kept: Kept, empty_database: Database, place: Place
) -> None:
    minted = await PostgresKeyStore(kept.database).create(1, "kept", "query", actor=OPERATOR)
    taken = await place.take(kept.database)
    done = await place.restore(empty_database)
    assert await same(kept.database, empty_database)
    assert done.rows == sum(len(rows) for rows in (await contents(kept.database)).values())
    # Counts come from cubes and from what triggers note; neither doubled.
    assert await JsonQueries(empty_database).count(question()) == await JsonQueries(kept.database).count(
        question()
    )
    found = await PostgresKeyStore(empty_database).keys_behind(minted.plaintext[:14])
    assert [key.project_id for key in found] == [1]
    made = await ProjectStore(empty_database).create(1, "next", "Next", actor=OPERATOR)
    assert made is not None
    assert made.id > 2
    assert taken.kept_files == 0
    # The database is one like any other: its days have their indexes, and writers go on.
    day = f"span_{NOW:%Y%m%d}"
    indexes = "select count(*) as n from pg_indexes where tablename = $1"
    assert (await fetch(empty_database, indexes, day))[0]["n"] == (await fetch(kept.database, indexes, day))[
        0
    ]["n"]
    assert (await store_of(empty_database).write(rows(tool(50, NOW)))).stored == 1


async def test_no_table_is_forgotten_whatever_a_migration_makes_tomorrow(
    kept: Kept, empty_database: Database, place: Place
) -> None:
    await fetch(
        kept.database,
        'create table "Tomorrow\'s" (id bigint generated always as identity,'
        " said text not null default 'x', loud text generated always as (upper(said)) stored)",
    )
    await fetch(
        kept.database, "insert into \"Tomorrow's\" (said) select 'n' || n from generate_series(1, 7) n"
    )
    manifest = (await place.take(kept.database)).manifest
    assert sorted(table.name for table in manifest.relations) == sorted(
        set(await tables(kept.database)) - {"schema_migration"}
    )
    by_name = {table.name: table for table in manifest.relations}
    odd = by_name["Tomorrow's"]
    assert odd.fingerprint.rows == 7
    assert [column.name for column in odd.columns] == ["id", "said"]
    assert "Tomorrow's_id_seq" in {place.name for place in manifest.sequences}
    with pytest.raises(BackupRefused, match=r"no step of this release makes: Tomorrow's; .*--without"):
        await place.restore(empty_database)
    assert "Tomorrow's" not in {table.name for table in without(manifest, ["Tomorrow's"]).relations}
    with pytest.raises(BackupRefused, match="has no table Yesterday's"):
        without(manifest, ["Yesterday's"])


async def test_what_has_not_changed_keeps_its_file_and_what_has_is_copied(
    kept: Kept, empty_database: Database, place: Place
) -> None:
    first = (await place.take(kept.database)).manifest
    again = await place.take(kept.database)
    assert again.new_files == 0
    assert again.manifest.stamp > first.stamp
    deleted, updated, written, late = (f"span_{NOW - age * DAY:%Y%m%d}" for age in (9, 10, 0, 1))
    await fetch(kept.database, f"delete from {deleted} where project_id = 2")
    await fetch(kept.database, f"update {updated} set name = 'renamed' where project_id = 1")
    await store_of(kept.database, kept.clock).write(rows(tool(60, NOW)))
    # A writer is under way that has a lower number than the newest row which this backup sees.
    async with under_way(kept.database, f"update {late} set name = 'late' where project_id = 1"):
        await fetch(kept.database, f"update {late} set name = 'soon' where project_id = 2")
        taken = await place.take(kept.database)
    before = {table.name: table.file for table in first.relations}
    changed = {table.name for table in taken.manifest.relations if table.file != before[table.name]}
    assert {deleted, updated, written, late} <= changed
    assert f"tool_call_{NOW - 9 * DAY:%Y%m%d}" not in changed
    # It changed neither how many rows there are nor which is the newest.
    last = await place.take(kept.database)
    assert last.new_files == 1
    await place.restore(empty_database)
    assert await same(kept.database, empty_database)
    assert (await place.take(kept.database, full=True)).kept_files == 0
    # Another database under the same name as the last: nothing is taken for unchanged.
    assert (await place.take(empty_database)).kept_files == 0


@asynccontextmanager
async def under_way(database: Database, sql: str) -> AsyncIterator[None]:
    """A transaction that has written and commits at the end."""
    begun, go_on = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    async def write(connection: Connection) -> None:
        await connection.execute(sql)
        token.run_sync_soon(begun.set)
        while not go_on.is_set():
            await connection.fetchval("select pg_sleep(0.01)")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(database.run, write)
        await begun.wait()
        yield
        go_on.set()


async def test_a_day_that_is_made_after_the_snapshot_is_not_of_it_and_none_can_go(
    kept: Kept, empty_database: Database, place: Place
) -> None:
    """Ingest, the partitioner and the sweeper go on while a backup reads."""
    before = await contents(kept.database)

    asked: list[str] = []

    def told(line: str) -> None:
        if line.startswith(f"{len(before)} tables"):
            asked.append(line)
            meddle(kept.database)

    taken = await take(place.settings, kept.database, place.folder, told=told)
    assert asked
    names = {table.name for table in taken.manifest.relations}
    assert "span_20200101" not in names
    assert await contents(kept.database) != before
    # Nor is it lost by what later backups do to the folder.
    await place.take(kept.database)
    await place.restore(empty_database, place.folder.chosen(taken.manifest.stamp))
    assert await contents(empty_database) == before
    with pytest.raises(BackupDamaged, match=f"there are: {taken.manifest.stamp}"):
        place.folder.chosen("2001-01-01T00-00-00Z")


def meddle(database: Database) -> None:
    """Write beside the reader, on a connection of one's own."""
    import asyncio
    import threading

    address = database.address

    async def main() -> None:
        connection = await asyncpg.connect(
            host=address.host, port=address.port, user=address.user, password=address.password,
            database=address.database,
        )  # fmt: skip
        await connection.execute(
            "create table span_20200101 (like span including all);"
            "insert into span_20200101 select * from span limit 0;"
            "update span set name = 'changed meanwhile'; delete from session"
        )
        with pytest.raises(asyncpg.LockNotAvailableError):
            await connection.execute(f"set lock_timeout = '100ms'; drop table span_{NOW:%Y%m%d}")
        await connection.close()

    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not failed, failed


async def test_what_went_through_an_object_store_restores_to_the_same_rows_as_the_folder(
    kept: Kept, empty_database: Database, place: Place, tmp_path: Path
) -> None:
    await place.take(kept.database)
    store = ObstoreStore(MemoryStore(), "memory")
    await push(place.folder, store)
    fetched = attrs.evolve(place, folder=BackupFolder(tmp_path / "fetched"))
    await fetch_backup(store, fetched.folder, await chosen_in(store, None))
    assert fetched.folder.chosen(None) == place.folder.chosen(None)
    shutil.rmtree(place.folder.root)
    await fetched.restore(empty_database)
    assert await same(kept.database, empty_database)
    # The next backup keeps what was fetched.
    await fetched.take(kept.database)
    assert (await push(fetched.folder, store)).new_files == 0


def hurt(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "a flipped bit":
        data[len(data) // 2] ^= 1
    elif how == "cut":
        del data[-3:]
    path.unlink()
    if how != "gone":
        path.write_bytes(bytes(data))


@pytest.mark.parametrize("how", ["a flipped bit", "cut", "gone"])
async def test_a_damaged_file_is_found_by_verify_and_refused_by_restore(
    taken: Manifest, empty_database: Database, place: Place, how: str
) -> None:
    file = next(table.file for table in taken.relations if table.file and table.day)
    hurt(place.folder.root / file.path, how)
    with pytest.raises(BackupDamaged, match=file.path):
        await check_files(place.folder, taken)
    with pytest.raises(BackupDamaged, match=file.path):
        await place.restore(empty_database)
    assert await tables(empty_database) == [], "nothing was touched"


async def test_a_file_that_is_gone_is_not_kept_by_the_next_backup(kept: Kept, place: Place) -> None:
    first = (await place.take(kept.database)).manifest
    hurt(place.folder.root / first.files()[0].path, "gone")
    again = await place.take(kept.database)
    assert again.new_files == 1
    await check_files(place.folder, again.manifest)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("{", "is not a manifest"),
        ('{"format": 1}', "is not a manifest"),
        ('{"format": 2}', "is of format 2"),
    ],
)
async def test_a_manifest_that_cannot_be_read_is_said_so(place: Place, said: str, error: str) -> None:
    place.folder.root.mkdir()
    (place.folder.root / "manifest.json").write_text(said)
    with pytest.raises((BackupDamaged, BackupRefused), match=error):
        place.folder.chosen(None)


async def test_a_manifest_reaches_no_file_outside_of_its_folder(taken: Manifest, place: Place) -> None:
    path = place.folder.root / "manifest.json"
    said = json.loads(path.read_text())
    said["relations"][0]["file"] = {"path": "tables/../../x", "bytes": 1, "sha256": "", "raw_bytes": 1}
    path.write_text(json.dumps(said))
    with pytest.raises(BackupDamaged, match="outside of the backup"):
        await check_files(place.folder, place.folder.chosen(None))


async def test_a_restore_wants_an_empty_database(taken: Manifest, store: Database, place: Place) -> None:
    with pytest.raises(BackupRefused, match="is not empty"):
        await place.restore(store)


async def test_a_restore_that_was_cut_off_keeps_the_service_out_and_is_run_again(
    taken: Manifest, empty_database: Database, place: Place
) -> None:
    seen = 0

    def cut(line: str) -> None:
        nonlocal seen
        seen += line.startswith("restored")
        if seen == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore(place.folder, taken, empty_database, place.settings.data_dir, {}, cut)
    with pytest.raises(RestoreUnderWay, match="run `trace-svc restore` again"):
        await migrate(empty_database)
    with pytest.raises(BackupRefused, match="cut off"):
        await place.take(empty_database)
    done = await place.restore(empty_database)
    assert done.rows == sum(len(rows) for rows in (await contents(empty_database)).values())
    assert await migrate(empty_database) == []


async def test_a_backup_of_an_older_schema_is_migrated_and_of_a_newer_refused(
    empty_database: Database, store: Database, place: Place
) -> None:
    steps = [step.number for step in migrations()]
    await migrate(empty_database, up_to=steps[-4])
    await fetch(empty_database, "insert into organization (slug, name) values ('old', 'Old')")
    manifest = (await place.take(empty_database)).manifest
    await fetch(empty_database, "drop schema public cascade")
    await fetch(empty_database, "create schema public")
    done = await place.restore(empty_database)
    assert done.steps == 3
    assert (await fetch(empty_database, "select slug from organization"))[0]["slug"] == "old"
    path = place.folder.root / "manifest.json"
    said = json.loads(path.read_text())
    said["steps"].append({"number": 9999, "digest": "x"})
    path.write_text(json.dumps(said))
    with pytest.raises(BackupRefused, match=r"step 9999 .* a newer one made it"):
        await place.restore(store)
    said["steps"][-1] = {"number": 1, "digest": "another"}
    path.write_text(json.dumps(said))
    with pytest.raises(BackupRefused, match=re.escape(f"trace-svc {manifest.release}")):
        await place.restore(store)


async def test_pruning_leaves_the_newest_whole_and_nothing_that_nobody_names(
    kept: Kept, place: Place
) -> None:
    for _ in range(4):
        await store_of(kept.database, kept.clock).write(rows(tool(70, NOW)))
        await fetch(kept.database, "update trace set name = name || 'x'")
        await place.take(kept.database)
    stray = place.folder.root / "tables" / "span_default.part"
    stray.write_bytes(b"of a backup that was killed")
    gone, files, _size = place.folder.prune(2)
    assert gone == 2
    assert files >= 3
    assert len(place.folder.manifests()) == 2
    lying = {p.relative_to(place.folder.root).as_posix() for p in place.folder.root.rglob("*.*.*")}
    named = set()
    for path in place.folder.manifests():
        manifest = place.folder.chosen(path.stem)
        await check_files(place.folder, manifest)
        named |= {file.path for file in manifest.files()}
    assert {name for name in lying if not name.startswith("manifests")} == named


async def test_two_backups_do_not_mix(kept: Kept, place: Place) -> None:
    with place.folder.held(), pytest.raises(BackupRefused, match="another backup"):
        await place.take(kept.database)


async def test_a_folder_of_something_else_is_left_alone(kept: Kept, place: Place) -> None:
    place.folder.root.mkdir()
    (place.folder.root / "thesis.odt").write_text("my own")
    with pytest.raises(BackupRefused, match=r"thesis\.odt"):
        await place.take(kept.database)


async def test_secrets_are_in_it_under_the_passphrase_alone(kept: Kept, place: Place, tmp_path: Path) -> None:
    key = "c2VjcmV0IGtleSBvZiB0aGlydHktdHdvIGJ5dGVzIS0="
    cookie, prices = "planted cookie password", "# planted prices\n"
    (tmp_path / "prices.toml").write_text(prices)
    place.settings = settings_of(
        tmp_path,
        SVC_SECRET_KEY=key,
        SVC_AUTH_COOKIE_PASSWORD=cookie,
        SVC_PRICES_FILE=str(tmp_path / "prices.toml"),
        SVC_BACKUP_PASSPHRASE=PASSPHRASE,
    )
    manifest = (await place.take(kept.database)).manifest
    for path in place.folder.root.rglob("*"):
        if path.is_file():
            for planted in (key, cookie, "planted prices", PASSPHRASE):
                assert planted.encode() not in path.read_bytes(), path
    box = partial(box_of, place.folder, manifest)
    with pytest.raises(BackupRefused, match="set SVC_BACKUP_PASSPHRASE"):
        box(None, needed=True)
    with pytest.raises(BackupRefused, match="is not the one"):
        box("another passphrase of enough letters", needed=True)
    assert [len(key) for key in key_of(box(PASSPHRASE, needed=True))] == [32]
    # Into a data folder that has nothing yet, and then into one that has another key.
    data = tmp_path / "new" / "data"
    assert lay(box(PASSPHRASE, needed=True), data) == []
    kept_key = data / "secrets" / "secret-key"
    assert kept_key.read_text().strip() == key
    assert kept_key.stat().st_mode & 0o777 == 0o600
    assert (data / "secrets" / "cookie-password").read_text().strip() == cookie
    assert (data / "prices.toml").read_text() == prices
    kept_key.write_text("one of its own")
    assert lay(box(PASSPHRASE, needed=True), data) == [
        f"{kept_key} is another one than the backup's, which is put beside it"
    ]
    assert kept_key.read_text() == "one of its own"
    assert kept_key.with_name("secret-key.from-backup").read_text().strip() == key


def test_a_box_opens_under_its_passphrase_only_and_not_when_a_byte_of_it_is_changed() -> None:
    box = seal_box(b"plain", PASSPHRASE)
    assert open_box(box, PASSPHRASE) == b"plain"
    assert open_box(box, PASSPHRASE + " ") is None
    # The magic, the cost, the salt, the nonce, the text, the tag.
    for place in (0, 8, 12, 30, 38, len(box) - 1):
        assert open_box(box[:place] + bytes([box[place] ^ 1]) + box[place + 1 :], PASSPHRASE) is None
    assert open_box(b"", PASSPHRASE) is None
    # A box that asks for a terabyte of memory.
    assert open_box(box[:8] + b"\xff" + box[9:], PASSPHRASE) is None


async def test_below_a_tenth_of_free_space_a_backup_is_refused_and_the_earlier_one_stays(
    kept: Kept, place: Place, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", "4m") as disk:
        place.folder = BackupFolder(disk / "backups")
        first = (await place.take(kept.database)).manifest
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(int(shutil.disk_usage(disk).free * 0.95)))
        with pytest.raises(BackupRefused, match="less than 10 %"):
            await place.take(kept.database)
        assert place.folder.chosen(None) == first
        # It fills while the backup is made.
        ballast.write_bytes(bytes(int(shutil.disk_usage(disk).total * 0.86)))
        noise = os.urandom(300_000).hex()
        await fetch(kept.database, "update trace set input_preview = $1", noise)
        with pytest.raises((BackupRefused, OSError)):
            await place.take(kept.database)
        assert place.folder.chosen(None) == first
        await check_files(place.folder, first)


async def test_a_count_that_no_row_bears_out_is_found_by_verify(
    kept: Kept, place: Place, open_folder: Path
) -> None:
    await fetch(kept.database, "update cube set n = n + 1 where field = 'kind'")
    await fetch(kept.database, "update cube_day set n = n + 1 where field = 'kind'")
    manifest = (await place.take(kept.database)).manifest
    with pytest.raises(BackupDamaged, match="its rows say"):
        await verify(place.folder, manifest, None, open_folder)
    assert os.listdir(open_folder) == [], "the scratch server is gone"


async def test_it_moves_between_majors_of_postgresql_and_back(
    taken: Manifest, empty_database: Database, place: Place, postgres: DebianPostgres, tmp_path: Path
) -> None:
    address = parse_url(postgres.url, user="", password="", database="")
    async with Database(address).opened() as served:
        await place.restore(served)
        there = await contents(served)
        other = Place(BackupFolder(tmp_path / "of-served"), place.settings)
        back = (await other.take(served)).manifest
        assert back.origin.server_version.split(".")[0] != taken.origin.server_version.split(".")[0]
        assert back.origin.system_id != taken.origin.system_id
        await other.restore(empty_database)
        assert await contents(empty_database) == there
        assert sum(len(rows) for rows in there.values()) == sum(
            table.fingerprint.rows for table in taken.relations
        )


async def test_a_database_in_another_encoding_is_refused(
    taken: Manifest, place: Place, asyncio_loop: None, served: Served
) -> None:
    how = "encoding 'LATIN1' locale_provider libc lc_collate 'C' lc_ctype 'C' template template0"
    async with fresh_database(served, how) as database:
        with pytest.raises(BackupRefused, match="is not in UTF8"):
            await place.restore(database)
