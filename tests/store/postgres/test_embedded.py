"""Laws of the embedded server, kept with real servers in folders of their own under /tmp.

Under root the server's account must reach the folder, which pytest's own temporary folder (0700) forbids.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import attrs
import outcome
import pytest
import trio
import trio_asyncio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.postgres.embedded import cluster as disk
from svc.store.postgres.embedded import liveness, server_log
from svc.store.postgres.embedded import server as embedded
from svc.store.postgres.embedded.cluster import EmbeddedServerError, SystemAccount
from svc.store.postgres.embedded.locks import opened as opened_file
from svc.store.postgres.embedded.locks import try_lock
from svc.store.postgres.embedded.postmaster import Postmaster
from svc.store.postgres.embedded.server import EmbeddedServer, Served, open_embedded
from tests.conftest import missing
from tests.examples import first_always
from tests.service import WAIT_S, apart

ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).parents[3]
MEMORY_BYTES = 1024 * disk.MB
as_root = pytest.mark.skipif(not ROOT, reason="needs root: it is about the account of the server")

# Opens the server, tells its pid, and holds it until it is killed or its input ends.
HOLDER = """
import json, sys, trio
from pathlib import Path
from svc.store.postgres.embedded.server import open_embedded
async def main():
    looks = sys.argv[2:] == ["looks"]
    async with open_embedded(Path(sys.argv[1]), memory_bytes=1 << 30, as_it_is=looks) as server:
        served = server.served
        said = dict(pid=server.snapshot()["pid"], adopted=server.adopted, password=served.password)
        print("SAID " + json.dumps(said), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
trio.run(main)
"""


@pytest.fixture
def room() -> Iterator[Path]:
    """An empty folder that the server's account can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """A data folder made once, for the laws that leave it as it was but for a stop and a start."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-", dir="/tmp"))
    folder.chmod(0o711)

    async def make() -> None:
        async with open_embedded(folder / "data", memory_bytes=MEMORY_BYTES):
            pass

    trio.run(make)
    yield folder / "data"
    shutil.rmtree(folder)


def copy(source: Path, target: Path) -> None:
    """A whole folder with its owners and modes."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def run_as(user: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    group = pwd.getpwnam(user).pw_gid
    return subprocess.run(words, user=user, group=group, extra_groups=[], capture_output=True, check=False)


@pytest.fixture
def own_data_dir(room: Path, data_dir: Path) -> Path:
    """A copy for a law that takes it apart."""
    copy(data_dir, room / "data")
    return room / "data"


def opened(data_dir: Path) -> Any:
    return open_embedded(data_dir, memory_bytes=MEMORY_BYTES)


async def ask(served: Served, sql: str, password: str | None = None) -> Any:
    """The first value of a statement's answer."""

    async def crossing() -> Any:
        connection = await asyncpg.connect(
            host=str(served.socket_dir),
            port=served.port,
            user=served.user,
            password=served.password if password is None else password,
            database=served.database,
            timeout=10,
        )
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    async with asyncio_loop(()):
        answer = await trio_asyncio.aio_as_trio(partial(outcome.acapture, crossing))()
    return answer.unwrap()  # out here, because the loop would wrap what is raised into a group


@contextmanager
def holder(
    data_dir: Path, python: str = sys.executable, *, looks_from: Sequence[str] = (), **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the server, or looks at it; killed on leaving, if not before."""
    process = subprocess.Popen(
        [*looks_from, python, "-c", HOLDER, str(data_dir), *(["looks"] if looks_from else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
        **options,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"SAID "):
            return dict(json.loads(line[5:]))
    raise AssertionError("the holder ended without a word")


def close_input(process: subprocess.Popen[bytes]) -> None:
    """Ask the holder to leave in good order."""
    assert process.stdin is not None
    process.stdin.close()


def pid_of(server: EmbeddedServer) -> int:
    pid = server.snapshot()["pid"]
    assert isinstance(pid, int)
    return pid


def lives(pid: int) -> bool:
    return bool(words_of(pid))


def words_of(pid: int) -> list[str]:
    """The command line of a living process, which any user may read."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return []


def other_python() -> str:
    """An interpreter that other accounts can run too, of our own version."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = shutil.which(name, path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip(f"no {name} here that another account can run")
    return found


async def until(condition: Any) -> None:
    """Poll another program's state, which sets no event."""
    with trio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110 - see above
            await trio.sleep(0.01)


# What is made


async def test_a_fresh_folder_becomes_a_server_that_accepts_its_password(room: Path) -> None:
    async with opened(room / "data") as server:
        assert not server.adopted
        assert server.version == await ask(server.served, "select split_part(version(), ' ', 2)")
        shape = (
            "select concat_ws(' ', pg_encoding_to_char(encoding), datlocprovider, datlocale) from pg_database"
        )
        assert await ask(server.served, f"{shape} where datname = 'trace_svc'") == "UTF8 b C.UTF-8"
        assert await ask(server.served, "show data_checksums") == "on"
        assert await ask(server.served, "show listen_addresses") == ""
        assert await ask(server.served, "show config_file") == str(room / "data/postgres/server.conf")
        assert server.served.password not in repr(server.served)
        assert server.snapshot()["state"] == "running"


async def test_text_compares_by_code_point_and_folds_every_script(data_dir: Path) -> None:
    async with opened(data_dir) as server:
        assert await ask(server.served, "select 'ÄRGER Σ Ж' ilike '%ärger σ ж%'") is True
        assert await ask(server.served, "select to_tsvector('simple', 'ÄRGER') @@ 'ärger'::tsquery") is True
        assert await ask(
            server.served, "select array(select x from unnest('{é,a,Z,z}'::text[]) x order by x)"
        ) == [*sorted("éaZz")]


async def test_every_setting_is_in_force_and_none_is_pending(data_dir: Path) -> None:
    async with opened(data_dir) as server:
        wrong = "select count(*) from pg_file_settings where not applied or error is not null"
        assert await ask(server.served, wrong) == 0
        assert await ask(server.served, "select count(*) from pg_hba_file_rules") == 2
        assert await ask(server.served, "show shared_buffers") == "128MB"


async def test_modes_inside_are_closed(data_dir: Path) -> None:
    async with opened(data_dir) as server:
        home = data_dir / "postgres"
        mode = {path: stat.S_IMODE(path.stat().st_mode) for path in (data_dir, *home.rglob("*"), home)}
        assert mode[data_dir] == mode[home] == (0o711 if ROOT else 0o700)
        assert {mode[home / name] for name in ("18", "18/data", "run", "log")} == {0o700}
        secret = ("password", "server.lock", "start.lock", "postmaster.lock", "log/server.log")
        assert {mode[home / name] for name in secret} == {0o600}
        assert mode[home / "run" / f".s.PGSQL.{server.served.port}"] == 0o700
        account = pwd.getpwnam("trace-svc").pw_uid if ROOT else os.geteuid()
        assert {path.name for path in home.iterdir() if path.stat().st_uid == account} >= {"18", "run"}
        if ROOT:
            assert {path.name for path in home.iterdir() if path.stat().st_uid == account} == {"18", "run"}


def folders_of(venv: Path) -> list[Path]:
    within = [path for path in venv.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    return [venv, *venv.parents, *within]


async def test_no_folder_outside_the_data_dir_changes_its_mode_or_owner(room: Path) -> None:
    folders = [*room.parents, room, *folders_of(Path(sys.prefix))]

    def shape() -> dict[Path, tuple[int, int, int]]:
        return {folder: (s.st_mode, s.st_uid, s.st_gid) for folder in folders for s in [folder.stat()]}

    before = shape()
    async with opened(room / "data"):
        assert shape() == before
    assert shape() == before
    assert os.listdir(room) == ["data"]


async def test_missing_parents_are_made_and_an_existing_data_dir_keeps_its_mode(room: Path) -> None:
    assert disk.open_home(room / "a" / "b") == room / "a" / "b" / "postgres"
    (room / "a").chmod(0o755)
    disk.open_home(room / "a")
    assert stat.S_IMODE((room / "a").stat().st_mode) == 0o755


# Who may enter


@pytest.mark.parametrize("password", ["", "wrong"])
async def test_a_wrong_or_missing_password_is_refused(data_dir: Path, password: str) -> None:
    async with opened(data_dir) as server:
        with pytest.raises((asyncpg.InvalidPasswordError, asyncpg.InterfaceError)) as refused:
            await ask(server.served, "select 1", password)
        assert "password" in str(refused.value)


@as_root
async def test_no_other_local_user_reaches_the_socket_or_the_password(data_dir: Path) -> None:
    probe = "import socket,sys;print(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))"
    async with opened(data_dir) as server:
        path = server.served.socket_dir / f".s.PGSQL.{server.served.port}"
        with socket.socket(socket.AF_UNIX) as ours:
            assert ours.connect_ex(str(path)) == 0
        for user, answer in (("nobody", b"13"), ("trace-svc", b"0")):
            assert run_as(user, other_python(), "-ISc", probe, str(path)).stdout.strip() == answer, user
            assert run_as(user, "cat", str(data_dir / "postgres/password")).returncode != 0


# Stop and start


async def test_data_survives_stop_and_start(own_data_dir: Path) -> None:
    async with opened(own_data_dir) as server:
        await ask(server.served, "create table kept as select 42 as n")
        first = pid_of(server)
    assert not lives(first)
    assert not (own_data_dir / "postgres/18/data/postmaster.pid").exists()
    async with opened(own_data_dir) as server:
        assert not server.adopted
        assert await ask(server.served, "select n from kept") == 42


async def test_leaving_while_cancelled_still_stops_the_server(data_dir: Path) -> None:
    with trio.CancelScope() as scope:
        async with opened(data_dir) as server:
            pid = pid_of(server)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not lives(pid)


async def test_the_first_user_to_leave_leaves_the_server_to_the_other(data_dir: Path) -> None:
    async with opened(data_dir) as second:
        with holder(data_dir) as process:
            assert said(process) == {
                "pid": pid_of(second),
                "adopted": True,
                "password": second.served.password,
            }
            close_input(process)
            assert process.wait(30) == 0
        assert await ask(second.served, "select 1") == 1
    assert not lives(pid_of(second))


async def test_the_starter_may_leave_first(data_dir: Path) -> None:
    first = opened(data_dir)
    pid = pid_of(await first.__aenter__())
    async with opened(data_dir) as second:
        assert second.adopted
        await first.__aexit__(None, None, None)
        assert pid_of(second) == pid
        assert await ask(second.served, "select 1") == 1
    assert not lives(pid)


async def test_users_who_come_at_once_share_one_server(data_dir: Path) -> None:
    pids, all_in = [], trio.Event()

    async def use() -> None:
        async with opened(data_dir) as server:
            pids.append(pid_of(server))
            if len(pids) == 3:
                all_in.set()
            await all_in.wait()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(use)
    assert len(set(pids)) == 1
    assert not lives(pids[0])


# Crashes


async def test_a_server_that_outlived_its_killed_user_is_adopted(data_dir: Path) -> None:
    with holder(data_dir) as process:
        orphan = said(process)
        process.kill()
        process.wait()
    assert lives(orphan["pid"])
    async with opened(data_dir) as server:
        assert server.adopted
        assert pid_of(server) == orphan["pid"]
        assert await ask(server.served, "select 1") == 1
    assert not lives(orphan["pid"])


async def test_a_killed_server_is_started_again_with_its_committed_rows(own_data_dir: Path) -> None:
    async with opened(own_data_dir) as server, trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await ask(server.served, "create table kept as select 42 as n")
        first = server.snapshot()
        os.kill(pid_of(server), signal.SIGKILL)
        await until(lambda: server.snapshot()["restarts"] == 1 and server.snapshot()["state"] == "running")
        assert await ask(server.served, "select n from kept") == 42
        second = server.snapshot()
        assert second["pid"] != first["pid"]
        assert second["since"] > first["since"]
        nursery.cancel_scope.cancel()
    assert not lives(pid_of(server))


def processes(pid: int) -> list[int]:
    """A server's processes, the first one first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stands still for three seconds is started anew, as otherwise after a minute."""
    for name, value in (("STANDSTILL_S", 3.0), ("LOOK_S", 0.2)):
        monkeypatch.setattr(embedded, name, value)
    for name, value in (("PROBE_TIMEOUT_S", 1.0), ("QUIT_S", 1.0), ("SAY_S", 0.5)):
        monkeypatch.setattr(liveness, name, value)


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_lives_and_answers_nobody_is_started_anew(
    own_data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(own_data_dir) as server, trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await ask(server.served, "create table kept as select 42 as n")
        first = pid_of(server)
        for pid in processes(first):
            os.kill(pid, signal.SIGSTOP)
        await until(lambda: server.snapshot()["restarts"] == 1)
        await until(lambda: server.snapshot()["state"] == "running")
        assert not lives(first)
        assert await ask(server.served, "select n from kept") == 42
        nursery.cancel_scope.cancel()
    waits = [record.getMessage() for record in caplog.records if "waiting for the" in record.getMessage()]
    assert waits
    assert "no answer" in waits[0]
    assert len(waits) < 10


@pytest.mark.usefixtures("impatient")
async def test_a_start_that_meets_a_server_that_accepts_nobody_ends_it(own_data_dir: Path) -> None:
    with holder(own_data_dir) as process:
        orphan = said(process)["pid"]
        process.kill()
        process.wait()
    for pid in processes(orphan):
        os.kill(pid, signal.SIGSTOP)
    async with opened(own_data_dir) as server:
        assert not server.adopted
        assert await ask(server.served, "select 1") == 1
    assert not lives(orphan)


async def test_a_server_that_recovers_is_not_one_that_stands_still(
    data_dir: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: list[object] = [["replayed one"], ["replayed two"], ["replayed two"], ["replayed two"], None]
    monkeypatch.setattr(liveness, "_recovery", lambda pid: work.pop(0))
    monkeypatch.setattr(liveness, "read_postmaster", lambda pgdata: Postmaster(1, 5432, pgdata))
    still = liveness.Standstill(data_dir)
    waited = []
    for _ in range(5):
        await trio.sleep(50.0)
        waited.append(still.refused("the database system is starting up"))
    assert waited == [0.0, 0.0, 50.0, 100.0, 150.0]
    still.accepted()
    work.append(None)
    assert still.refused("nobody listens") == 0.0


async def test_who_replays_is_seen_while_a_server_recovers_and_at_no_other_time(own_data_dir: Path) -> None:
    async with opened(own_data_dir) as server:
        cluster = server.cluster
        assert liveness._recovery(pid_of(server)) is None
    # It waits for a primary that there is not, and takes no sessions meanwhile.
    signal_file = cluster.pgdata / "standby.signal"
    signal_file.touch()
    os.chown(signal_file, cluster.account.uid, cluster.account.gid)
    words = [cluster.program("postgres"), "-D", str(cluster.pgdata), "-c", f"config_file={cluster.conf}"]
    words += ["-c", "hot_standby=off", "-c", f"unix_socket_directories={cluster.pgdata}"]
    alone = await trio.lowlevel.open_process(words, **cluster.account.popen_options())
    try:
        await until(lambda: liveness._recovery(alone.pid))
    finally:
        alone.kill()
        await alone.wait()


@pytest.mark.errors_expected
@pytest.mark.parametrize("lost", first_always(["postgres/18/data", "postgres"]))
async def test_an_outage_is_waited_for_and_never_raised(
    own_data_dir: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    folder = own_data_dir / lost
    monkeypatch.setattr(embedded, "BACKOFF_MAX_S", 0.5)
    async with opened(own_data_dir) as server, trio.open_nursery() as nursery:
        await nursery.start(server.run)
        folder.rename(folder.with_name("away"))
        os.kill(pid_of(server), signal.SIGKILL)
        await until(lambda: server.snapshot()["state"] == "waiting")
        first = server.snapshot()["since"]
        await until(lambda: (now := server.snapshot())["state"] == "waiting" and now["since"] != first)
        assert not folder.exists()  # a vanished cluster is not replaced by an empty one
        folder.with_name("away").rename(folder)
        await until(lambda: server.snapshot()["state"] == "running")
        assert await ask(server.served, "select 1") == 1
        nursery.cancel_scope.cancel()


def sleeper_of(path: Path) -> subprocess.Popen[bytes]:
    """A foreign process of the account that owns `path`."""
    found = path.stat()
    account = SystemAccount(found.st_uid, found.st_gid, switch=ROOT)
    return subprocess.Popen(["sleep", "60"], **account.popen_options())


@pytest.mark.parametrize("names", ["a dead process", "a foreign process", "nothing readable"])
async def test_a_stale_pid_file_does_not_keep_the_server_down(data_dir: Path, names: str) -> None:
    pgdata = data_dir / "postgres/18/data"
    with sleeper_of(pgdata) as foreign:
        if names == "a dead process":
            foreign.kill()
            foreign.wait()
        text = (
            "\n"
            if names == "nothing readable"
            else f"{foreign.pid}\n{pgdata}\n1\n5432\n/nowhere\n\n1 2\nready\n"
        )
        (pgdata / "postmaster.pid").write_text(text)
        lock = data_dir / "postgres/run/.s.PGSQL.5432.lock"
        lock.write_text(text)
        for file in (pgdata / "postmaster.pid", lock):
            os.chown(file, pgdata.stat().st_uid, pgdata.stat().st_gid)
        async with opened(data_dir) as server:
            assert not server.adopted
            assert await ask(server.served, "select 1") == 1
        assert names != "a foreign process" or foreign.poll() is None
        foreign.kill()


@pytest.mark.release
async def test_a_cluster_half_made_by_a_killed_start_is_made_anew(room: Path) -> None:
    draft = room / "data/postgres/18/init/data"
    with holder(room / "data") as process:
        await until((draft / "global").exists)
        process.kill()
        process.wait()
    assert not (room / "data/postgres/18/data").exists()
    async with opened(room / "data") as server:
        assert await ask(server.served, "select 1") == 1
        assert not draft.parent.exists()
        assert not (room / "data/postgres/initdb-password").exists()


# Places


@pytest.mark.release
@pytest.mark.parametrize("name", ["x" * 120, "a,b", "it's \\ odd"])
async def test_any_path_of_the_data_dir_is_served(room: Path, data_dir: Path, name: str) -> None:
    copy(data_dir, room / name)
    async with opened(room / name) as server:
        assert await ask(server.served, "select 1") == 1
        folder = server.served.socket_dir.stat()
        assert stat.S_IMODE(folder.st_mode) == 0o700
        assert folder.st_uid == (room / name / "postgres/18").stat().st_uid
        short = server.served.socket_dir
    assert short.exists() == (short.parent == room / name / "postgres")


async def test_a_socket_folder_of_another_user_is_refused(room: Path) -> None:
    link = disk.socket_folder(room / ("x" * 120) / "postgres")
    assert link.parent == Path("/tmp")
    link.symlink_to(room)
    try:
        with pytest.raises(EmbeddedServerError, match=str(link)):
            async with opened(room / ("x" * 120)):
                pass
    finally:
        link.unlink()
    if ROOT:
        home = room / "foreign" / "postgres"
        home.mkdir(parents=True)
        os.chown(home, 65534, 65534)
        with pytest.raises(EmbeddedServerError, match=f"{home} belongs to .*SVC_DATA_DIR"):
            disk.open_home(home.parent)


@as_root
async def test_a_folder_that_the_account_cannot_pass_is_named_with_the_remedy(room: Path) -> None:
    closed = room / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match=f"pass through {closed}: set SVC_DATA_DIR .* chmod o"):
        async with opened(closed / "data"):
            pass
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.release
@as_root
async def test_programs_that_the_account_cannot_read_are_copied_once(
    room: Path, own_data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = disk.wheel_install()
    hidden = room / "venv" / wheel.parent.name / wheel.name
    hidden.parent.mkdir(parents=True)
    copy(wheel, hidden)
    copy(disk.shared_libraries(wheel), disk.shared_libraries(hidden))
    (room / "venv").chmod(0o700)
    monkeypatch.setattr(disk, "wheel_install", lambda: hidden)
    (own_data_dir / "postgres/bin-0.0.1").mkdir()
    async with opened(own_data_dir) as server:
        copied = Path(words_of(pid_of(server))[0]).parents[3]
        assert copied.parent == own_data_dir / "postgres"
        assert [path.name for path in copied.parent.glob("bin-*")] == [copied.name]
        made = copied.stat().st_ctime_ns
    async with opened(own_data_dir):
        assert copied.stat().st_ctime_ns == made
    shutil.rmtree(own_data_dir / "postgres/18/data")
    async with opened(own_data_dir) as server:  # initdb from the copy
        assert await ask(server.served, "select 1") == 1


#: A number that no account has, as a container may be told to run as.
NAMELESS = 54_321
NAMES = list(Path("/usr/lib").glob("*/libnss_wrapper.so"))


@as_root
@pytest.mark.parametrize("uid", [pwd.getpwnam("nobody").pw_uid, NAMELESS], ids=["nobody", "without a name"])
async def test_an_ordinary_user_needs_no_account(room: Path, uid: int) -> None:
    account = SystemAccount(uid, uid, switch=True)
    if uid == NAMELESS and not NAMES:
        missing("nss_wrapper")
    packages = Path(attrs.__file__).parents[1]
    if not all(account.may(folder.stat(), 1) for folder in (packages, *packages.parents, REPOSITORY)):
        pytest.skip(f"another account cannot read {packages}")
    os.chown(room, uid, uid)
    options = {"user": uid, "group": uid, "extra_groups": []}
    env = {"PYTHONPATH": f"{packages}:{REPOSITORY}", "PYTHONDONTWRITEBYTECODE": "1"}
    with holder(room / "data", other_python(), env=env, **options) as process:
        told = said(process)
        assert os.stat(f"/proc/{told['pid']}").st_uid == uid
        home = room / "data" / "postgres"
        assert {path.stat().st_uid for path in home.rglob("*")} == {uid}
        assert {stat.S_IMODE(path.stat().st_mode) for path in (home, room / "data", home / "run")} == {0o700}
        assert (
            await ask(Served(home / "run", 5432, "trace_svc", told["password"], "trace_svc"), "select 1") == 1
        )
        close_input(process)
        assert process.wait(30) == 0
    assert not lives(told["pid"])


# Refusals


def test_a_number_without_a_name_is_refused_in_a_sentence_where_nothing_can_tell_it_one(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = SystemAccount(NAMELESS, NAMELESS, switch=False)
    cluster = disk.Cluster(room, account, room, room, "18", frozenset())
    assert disk.passwd_entry(attrs.evolve(cluster, account=SystemAccount(0, 0, switch=False))) == {}
    monkeypatch.setattr(disk, "LIBRARIES", (room,))
    with pytest.raises(
        EmbeddedServerError, match=f"uid {NAMELESS} has no entry in /etc/passwd.*libnss-wrapper"
    ):
        disk.passwd_entry(cluster)


async def test_a_failed_start_quotes_the_log_and_not_the_password(own_data_dir: Path) -> None:
    (own_data_dir / "postgres/18/data/PG_VERSION").write_text("17\n")
    password = (own_data_dir / "postgres/password").read_text().strip()
    with pytest.raises(EmbeddedServerError, match="database files are incompatible") as refused:
        async with opened(own_data_dir):
            pass
    assert password not in str(refused.value)
    assert embedded.read_postmaster(own_data_dir / "postgres/18/data") is None


async def test_a_lost_password_is_said_and_the_cluster_left_alone(own_data_dir: Path) -> None:
    (own_data_dir / "postgres/password").unlink()
    with pytest.raises(EmbeddedServerError, match=r"password is missing.*restore it"):
        async with opened(own_data_dir):
            pass
    assert (own_data_dir / "postgres/18/data/PG_VERSION").exists()
    assert not (own_data_dir / "postgres/password").exists()


async def test_files_that_are_no_cluster_are_refused_and_kept(own_data_dir: Path) -> None:
    pgdata = own_data_dir / "postgres/18/data"
    (pgdata / "PG_VERSION").unlink()
    before = sorted(pgdata.iterdir())
    with pytest.raises(EmbeddedServerError, match="Move them to another place"):
        async with opened(own_data_dir):
            pass
    assert sorted(pgdata.iterdir()) == before


async def test_a_disk_that_refuses_is_said_in_a_sentence(data_dir: Path) -> None:
    obstacle = data_dir / "postgres/server.conf.new"
    obstacle.mkdir()
    with pytest.raises(EmbeddedServerError, match=f"{obstacle} is a folder, and a file is needed there"):
        async with opened(data_dir):
            pass
    obstacle.rmdir()


async def test_a_living_server_out_of_sight_is_not_started_over(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "UNSEEN_TIMEOUT_S", 0.1)
    with opened_file(data_dir / "postgres/postmaster.lock") as lock:
        assert try_lock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(EmbeddedServer, "stop", _no_stop)
        with pytest.raises(EmbeddedServerError, match="another container"):
            async with opened(data_dir):
                pass
    assert not (data_dir / "postgres/18/data/postmaster.pid").exists()


async def test_who_looks_from_another_container_joins_it_and_leaves_it_to_its_users(data_dir: Path) -> None:
    looks_from = apart()
    with holder(data_dir) as user:
        told = said(user)
        for left_first in (True, False):
            with holder(data_dir, looks_from=looks_from) as look:
                assert said(look) == {"pid": 0, "adopted": True, "password": told["password"]}
                served = Served(data_dir / "postgres/run", 5432, "trace_svc", told["password"], "trace_svc")
                assert await ask(served, "select 1") == 1
                if not left_first:
                    # Its last user stops it, whoever looks.
                    close_input(user)
                    assert user.wait(30) == 0
                    assert not lives(told["pid"])
                close_input(look)
                assert look.wait(30) == 0
            assert lives(told["pid"]) == left_first
    # There is none to look at: it is started for the look, and stopped.
    with holder(data_dir, looks_from=looks_from) as look:
        assert said(look)["adopted"] is False
        close_input(look)
        assert look.wait(30) == 0


async def _no_stop(self: EmbeddedServer) -> None:
    """There is nothing to stop, and waiting for the test's own lock would take half a minute."""


# Settings and the log


@given(
    memory=st.integers(1, 1 << 44),
    disk_free=st.integers(0, 1 << 50),
    shm=st.integers(0, 1 << 40),
    methods=st.frozensets(st.sampled_from(["lz4", "zstd"])),
)
def test_settings_fit_the_machine(memory: int, disk_free: int, shm: int, methods: frozenset[str]) -> None:
    chosen = disk.settings(memory, disk_free, shm, methods)
    size = {
        name: int(value[:-2]) * {"kB": 1024, "MB": disk.MB}[value[-2:]]
        for name, value in chosen.items()
        if value.endswith(("kB", "MB"))
    }
    least = (16 if memory < disk.GB else 128) * disk.MB
    assert least <= size["shared_buffers"] <= disk.GB
    assert size["shared_buffers"] <= max(memory // 8, least)
    assert size["maintenance_work_mem"] <= max(memory // 32, (16 if memory < disk.GB else 32) * disk.MB)
    assert 4 * disk.MB <= size["work_mem"] <= 32 * disk.MB
    assert size["max_wal_size"] <= max(disk_free // 16, 256 * disk.MB)
    assert 32 * disk.MB <= size["min_wal_size"] <= size["max_wal_size"] <= 4 * disk.GB
    assert chosen["wal_compression"] == ("lz4" if "lz4" in methods else "pglz")
    assert chosen["dynamic_shared_memory_type"] == ("posix" if shm >= 512 * disk.MB else "sysv")
    assert (chosen["synchronous_commit"], chosen["listen_addresses"]) == ("on", "")
    more = disk.settings(memory * 2, disk_free, shm, methods)
    assert int(more["shared_buffers"][:-2]) >= int(chosen["shared_buffers"][:-2])


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_quoted_value_is_read_back_as_it_was(value: str) -> None:
    quoted = disk._quoted(value)
    assert "\n" not in quoted
    read = re.sub(r"''|\\.", lambda m: {"''": "'", r"\n": "\n"}.get(m[0], m[0][1:]), quoted[1:-1])
    assert read == value


@given(mode=st.integers(0, 0o777), own=st.booleans(), group=st.booleans(), want=st.integers(1, 7))
def test_the_account_is_judged_by_the_one_class_it_falls_in(
    mode: int, own: bool, group: bool, want: int
) -> None:
    found = os.stat_result((mode, 0, 0, 1, 7 if own else 1, 8 if group else 1, 0, 0, 0, 0))
    bits = oct(0o1000 | mode)[-3:]
    assert SystemAccount(7, 8, switch=True).may(found, want) == (
        int(bits[0 if own else 1 if group else 2]) & want == want
    )


def test_the_log_is_capped_in_place(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    server_log.cap_log(path)
    with path.open("ab", buffering=0) as server:  # keeps its descriptor, as the server does
        server.write(b"x" * (server_log.LOG_CAP_BYTES + 1))
        server_log.cap_log(path)
        server.write(b"after\n")
    assert path.read_bytes() == b"after\n"
    assert (tmp_path / "server.log.1").stat().st_size == server_log.LOG_CAP_BYTES + 1
    assert server_log.log_tail(path, 0) == "after"
