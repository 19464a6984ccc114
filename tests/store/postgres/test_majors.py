"""An older PostgreSQL's data under this release: brought over whole, or left alone with a sentence."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from protocol.database_address import Address
from svc.application.open_store import open_store
from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import AWAY, Database
from svc.store.postgres.embedded import cluster as disk
from svc.store.postgres.embedded import majors
from svc.store.postgres.embedded import server as embedded
from svc.store.postgres.embedded.cluster import EmbeddedServerError
from svc.store.postgres.embedded.liveness import refusal
from svc.store.postgres.embedded.locks import opened, try_lock
from svc.store.postgres.embedded.server import open_embedded
from svc.store.postgres.migrate import migrate
from tests.backup.test_backup import settings_of
from tests.service import TRACE_SVC, until
from tests.store.postgres.test_embedded import copy, holder
from tests.store.retention.test_retention import tool
from tests.store.spans.test_writing import NOW, fetch, rows, store_of

OLD = "16"
SPANS = 3


async def make_old(data_dir: Path) -> None:
    """A database of ours in a cluster of the older programs, whose server was killed."""
    home = disk.open_home(data_dir)
    cluster = await disk.prepare(home)
    (home / disk.MAJOR).rmdir()
    bin_dir = majors._programs(cluster, OLD) / "bin"
    disk.claim_folder(home / OLD, 0o700, cluster.account)
    data, password = home / OLD / "data", disk.password_of(cluster)
    secret = home / "first-password"
    disk.write_file(secret, password + "\n", 0o600, cluster.account)
    access = [f"--username={disk.USER}", f"--pwfile={secret}", "--auth=scram-sha-256", "--data-checksums"]
    initdb = [str(bin_dir / "initdb"), f"--pgdata={data}", "--encoding=UTF8", "--locale=C", *access]
    await disk.command(cluster.account, [*initdb, "--no-sync"])
    words = [str(bin_dir / "postgres"), "-D", str(data), "-F", "-c", "listen_addresses="]
    words += ["-c", f"unix_socket_directories={cluster.socket_dir}", "-c", "max_locks_per_transaction=256"]
    with (home / "old.log").open("wb") as log:
        server = subprocess.Popen(  # noqa: ASYNC220 - a test waits
            words, stdout=log, stderr=log, **cluster.account.popen_options()
        )
    try:
        with trio.fail_after(30):
            while await refusal(cluster.socket_dir / ".s.PGSQL.5432") is not None:  # noqa: ASYNC110
                await trio.sleep(0.02)
        await fill_old(Address(str(cluster.socket_dir), 5432, disk.USER, password, "postgres"))
    finally:
        server.kill()
        server.wait()


async def fill_old(address: Address) -> None:
    async with asyncio_loop(AWAY):
        async with Database(address).opened() as database:
            await database.run(
                lambda connection: connection.execute("create database trace_svc"), transaction=False
            )
        async with Database(attrs.evolve(address, database=disk.DATABASE)).opened() as database:
            await migrate(database)
            await ProjectStore(database).make_default()
            for number in range(SPANS):
                await store_of(database).write(rows(tool(number, NOW)))


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data folder of an older release, made once."""
    folder = Path("/tmp") / f"majors-{os.getpid()}"
    folder.mkdir(mode=0o711)
    trio.run(make_old, folder / "data")
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.mark.release
async def test_an_older_cluster_is_brought_over_after_two_ends_midway_and_kept_until_it_is_finished_with(
    made: Path, open_folder: Path
) -> None:
    old = open_folder / "data"
    copy(made, old)
    home = old / "postgres"
    # Ended while it is copied, it leaves no server behind that the next start would wait for.
    draft = home / disk.MAJOR / "init" / "data"

    def serves() -> bool:
        return embedded.read_postmaster(home / OLD / "data") is not None

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_bring_up, old)
            while not serves():  # noqa: ASYNC110
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    with opened(home / "start.lock") as lock:
        assert try_lock(lock, fcntl.LOCK_EX)
    assert not serves()
    shutil.rmtree(draft)
    # Killed while it is copied: its programs end by themselves, and the next start throws away what they
    # made.
    with holder(old, sys.executable) as process:
        until(serves)
        process.kill()
        process.wait(10)
    assert not (home / disk.MAJOR / "data").exists()
    settings = settings_of(old.parent)
    async with open_store(settings) as store:
        found = await fetch(store.database, "select current_setting('server_version') as v")
        assert found[0]["v"].startswith(disk.MAJOR)
        assert (await fetch(store.database, "select count(*) as n from span"))[0]["n"] == SPANS
        assert (await fetch(store.database, "select count(*) as n from span_payload"))[0]["n"] > 0
        written = await store_of(store.database).write(rows(tool(SPANS, NOW)))
        assert written.stored == 1
    assert sorted(path.name for path in home.iterdir() if path.name.isdecimal()) == [OLD, disk.MAJOR]
    assert not (home / disk.MAJOR / "init").exists()
    assert not (home / "client-password").exists()
    # The next start takes what is there, not the older one anew.
    async with open_store(settings) as store:
        assert (await fetch(store.database, "select count(*) as n from span"))[0]["n"] == SPANS + 1
    done = await trio.run_process(
        [TRACE_SVC, "upgrade", "--finish"],
        env={**os.environ, "SVC_DATA_DIR": str(old), "SVC_HTTP_BIND": "127.0.0.1:8471"},
        capture_stdout=True,
    )
    assert re.fullmatch(r"removed the database of PostgreSQL 16 .*: [\d.]+ MiB freed\n", done.stdout.decode())
    assert disk.majors_in(home) == [disk.MAJOR]


async def test_without_its_programs_an_older_cluster_is_left_alone_and_the_way_is_said(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(majors, "_major_of", lambda _install: None)
    with pytest.raises(EmbeddedServerError) as refused:
        async with open_embedded(made):
            pass
    assert str(refused.value) == (
        f"the database in {made}/postgres/16/data is of PostgreSQL 16, and this installation cannot bring it"
        f" to 18 by itself: back it up with the release that made it (`trace-svc backup DIR`), move {made}"
        " away, and restore with this one (`trace-svc restore DIR`); nothing is changed"
    )
    assert disk.majors_in(made / "postgres") == [OLD]


async def test_who_only_looks_leaves_an_older_cluster_as_it_is_and_says_whom_to_ask(
    made: Path, open_folder: Path
) -> None:
    before = seen_of(made)

    async def said(*words: str) -> tuple[int, str, str]:
        env = {**os.environ, "SVC_DATA_DIR": str(made)}
        done = await trio.run_process(
            [TRACE_SVC, *words], env=env, capture_stdout=True, capture_stderr=True, check=False
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    refusal = (
        f"trace-svc: the database in {made}/postgres/16/data is for PostgreSQL 16. This release upgrades"
        " it to 18 when it starts; until then, use the earlier release. Nothing was changed\n"
    )
    assert await said("upgrade", "--check") == (1, "", refusal)
    assert await said("backup", str(open_folder / "backup")) == (1, "", refusal)
    assert not (open_folder / "backup").exists()
    status, found, _ = await said("doctor")
    told = f"{made}/postgres/16/data is for PostgreSQL 16: the next start upgrades it to 18, and keeps a copy"
    assert (status, [line.endswith(told) for line in found.splitlines()].count(True)) == (0, 1)
    assert seen_of(made) == before


def seen_of(folder: Path) -> dict[str, object]:
    """All that a look could change: names, owners, modes, sizes, and when each was written."""
    found = ((path, path.lstat()) for path in (folder, *folder.rglob("*")))
    return {str(path): (at.st_mode, at.st_uid, at.st_gid, at.st_size, at.st_mtime_ns) for path, at in found}


async def test_the_release_before_is_not_run_over(made: Path) -> None:
    with opened(made / "postgres" / "postmaster.lock") as lock:
        assert try_lock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match=r"is running on .*: stop it"):
            await _bring_up(made)
    assert disk.majors_in(made / "postgres") == [OLD]


async def _bring_up(data_dir: Path) -> None:
    await embedded.EmbeddedServer(disk.open_home(data_dir), None, 0).bring_up()


async def test_data_of_a_newer_postgresql_is_not_shadowed_by_what_was_before_it(made: Path) -> None:
    newer = made / "postgres" / "19"
    (newer / "data").mkdir(parents=True)
    (newer / "data" / "PG_VERSION").write_text("19\n")
    with pytest.raises(EmbeddedServerError, match="start the newer release; to go back"):
        async with open_embedded(made):
            pass
    shutil.rmtree(newer)


async def test_a_disk_too_small_for_both_is_said_before_anything_is_made(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(majors, "_ROOM", 1e9)
    with pytest.raises(EmbeddedServerError, match=r"make room; nothing is changed"):
        async with open_embedded(made):
            pass
    assert disk.majors_in(made / "postgres") == [OLD]
