"""What every test has: no unannounced ERROR, missing system parts skip aloud (and fail in CI), real parts.

Fixtures: `store` is a migrated database without rows on a real PostgreSQL, `fresh_store` one that no test has
used; `service` is one running service that end-to-end tests share, each with names of its own. `filled_once`
gives a database with many rows.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import asyncpg
import attrs
import pytest
import structlog
import trio
import trio_asyncio
from hypothesis import HealthCheck, settings

from protocol.database_address import Address
from svc.runtime.asyncio_loop import asyncio_loop as loop_of_service
from svc.runtime.garbage import collect_less, collect_seldom
from svc.store.postgres.database import AWAY, Database
from svc.store.postgres.embedded.server import Served, open_embedded
from svc.store.postgres.migrate import migrate
from tests import reused
from tests.debian_postgres import DebianPostgres
from tests.examples import AT_LENGTH
from tests.kafka.broker import kafka as kafka
from tests.routes_once import read_routes_once
from tests.service import SHARED, Service, in_memory, running

# Before other processes of the run begin, so that all have the same.
from tests.wire import START_NS as START_NS

T = TypeVar("T")

_numbers = itertools.count(1)


def missing(part: str) -> NoReturn:
    """A system part that a test needs is not here: skip aloud, but fail in CI, which installs it."""
    if os.environ.get("CI"):
        pytest.fail(f"{part} is missing; .ci/run must install it")
    pytest.skip(f"{part} is missing")


# Time gates nothing here. Before its first draw Hypothesis reads every module of ours for constants: 2 to 7 s
# on a busy machine (measured November 2026), which it would count as slow generation.
settings.register_profile(
    "at-length", suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=AT_LENGTH
)
settings.register_profile("tests", settings.get_profile("at-length"), max_examples=AT_LENGTH // 4)
settings.register_profile("another-python", settings.get_profile("tests"), max_examples=AT_LENGTH // 5)
settings.load_profile("tests")


# What our code says must reach `caplog`, in every order of tests, or no ERROR of it is ever seen.
structlog.configure(
    processors=[
        structlog.stdlib.add_logger_name,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=False,
)
_CONFIGURED = structlog.get_config()

read_routes_once()


# Thousands of tests are no garbage.
collect_less()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "errors_expected: the test provokes ERROR records and says so")
    config.addinivalue_line("markers", "alone: the test wants the machine for itself: kills, floods, memory")
    config.addinivalue_line("markers", "release: proves a slow truth; .ci/release runs it, not .ci/run")
    # Workers are children of who collects for them, and so have the same.
    if SHARED not in os.environ:
        os.environ[SHARED] = tempfile.mkdtemp(prefix="trace-svc-shared-", dir=in_memory())
        os.chmod(os.environ[SHARED], 0o755)
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(SHARED), ignore_errors=True))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker imports a share of the files first, which it leaves compiled for the others.

    Where nothing was compiled before, as in CI, each of them compiled all.
    """
    worker, marked = os.environ.get("PYTEST_XDIST_WORKER"), session.config.getoption("-m")
    if worker is None or not marked.startswith("not "):
        return
    here, workers = Path(__file__).parent, int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in sorted(here.rglob("test_*.py"))[int(worker.removeprefix("gw")) :: workers]:
        importlib.import_module(".".join(path.relative_to(here.parent).with_suffix("").parts))


#: What takes longest begins first, so that nobody waits at the end for one who began it last.
_FIRST = (
    "e2e/test_detection_killed.py",
    "e2e/test_rolling_upgrade.py",
    "e2e/test_demo_story.py",
    "e2e/test_small_disk.py",
    "e2e/test_fresh_clone.py",
    "e2e/test_disk_died.py",
    "e2e/test_alerts.py",
    "e2e/test_floods.py",
    "e2e/test_life.py",
    "chaos/",
    "browser/",
    "detecting/",
    "e2e/",
    "commands/",
    "web/",
    "store/",
    "front/",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without the mark that is asked for: importing all takes 20 s of a core a worker."""
    mark = config.getoption("-m").partition(" ")[0]
    if mark not in ("alone", "release") or collection_path.suffix != ".py":
        return None
    return True if f"mark.{mark}" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(here).as_posix()
        return next((at for at, name in enumerate(_FIRST) if path.startswith(name)), len(_FIRST))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was loaded is looked at no more: looking for cycles took a twelfth of a worker (November 2026)."""
    collect_seldom()


@pytest.fixture(autouse=True)
def _no_unannounced_error(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert structlog.get_config() == _CONFIGURED, "the test set up the log of its whole process"
    if request.node.get_closest_marker("errors_expected"):
        return
    records = [
        record
        for phase in ("setup", "call", "teardown")
        for record in caplog.get_records(phase)
        if record.levelno >= logging.ERROR
    ]
    assert not records, [f"{record.name}: {record.getMessage()}" for record in records]


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """An embedded server for the whole run, held by a thread with a Trio of its own."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-pg-", dir=in_memory()) as folder:
        os.chmod(folder, 0o755)
        ready: queue.Queue[tuple[Served, trio.lowlevel.TrioToken, trio.Event]] = queue.Queue()

        async def hold() -> None:
            done = trio.Event()
            async with open_embedded(Path(folder) / "data") as server:
                ready.put((server.served, trio.lowlevel.current_trio_token(), done))
                await done.wait()

        thread = threading.Thread(target=trio.run, args=(hold,), daemon=True)
        thread.start()
        found, token, done = ready.get(timeout=300)
        try:
            trio.run(_make_template, found)
            yield found
        finally:
            if _upkeep:
                _upkeep.pop().stop()
            token.run_sync_soon(done.set)
            thread.join(60)


#: A database of the tests outlives no machine. Compressing pages for the log took most of making one.
_HASTY = ("fsync = off", "full_page_writes = off", "wal_compression = off")


async def _make_template(server: Served) -> None:
    async with loop_of_service(AWAY):
        for setting in _HASTY:
            await _execute(server, f"alter system set {setting}")
        await _execute(server, "select pg_reload_conf()")
        await _execute(server, "create database template_of_tests")
        address = attrs.evolve(address_of(server), database="template_of_tests")
        async with Database(address).opened() as database:
            await migrate(database)


@pytest.fixture
async def asyncio_loop() -> AsyncIterator[None]:
    """The one asyncio loop of a test: fixtures run side by side, and loops must not overlap."""
    async with loop_of_service(AWAY):
        yield


@pytest.fixture
def store(reused_store: Database) -> Database:
    """A migrated database without rows, reachable from this test's Trio."""
    return reused_store


@pytest.fixture
async def reused_store(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A migrated database that an earlier test may have used and left as it was."""
    if not _idle:
        _idle.append(await _create(served, _TEMPLATE))
        if not _shape:
            _shape.extend(await _beside(served, _idle[-1], reused.shape))
    name = _idle.pop()
    async with Database(attrs.evolve(address_of(served), database=name)).opened() as database:
        yield database
    if await _beside(served, name, lambda connection: reused.emptied(connection, _shape)):
        _idle.append(name)
    else:
        _upkeep[0].forget(attrs.evolve(address_of(served), database=name)).result(60)
        await _execute(served, f"drop database {name} with (force)")


@pytest.fixture
async def fresh_store(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A migrated database that no test has used, where the database itself is the matter."""
    async with fresh_database(served, _TEMPLATE) as database:
        yield database


@pytest.fixture
async def empty_database(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A database without a schema."""
    async with fresh_database(served, "") as database:
        yield database


async def _create(server: Served, how: str) -> str:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    await _execute(server, f"create database {name} {how}")
    return name


@asynccontextmanager
async def fresh_database(server: Served, how: str) -> AsyncIterator[Database]:
    """A database for one test; `how` ends `create database`."""
    name = await _create(server, how)
    async with Database(attrs.evolve(address_of(server), database=name)).opened() as database:
        yield database
    await _execute(server, f"drop database {name} with (force)")


_TEMPLATE = "template template_of_tests strategy file_copy"
#: Databases that no test uses at the moment, without rows, and what they look like.
_idle: list[str] = []
_shape: list[str] = []
#: The databases of `filled_once` that are there in this run.
_filled: set[str] = set()


@asynccontextmanager
async def copied(
    server: Served, name: str, fill: Callable[[Database], Awaitable[None]], how: str = _TEMPLATE
) -> AsyncIterator[Database]:
    """A copy of a database of `filled_once`, for one test that changes it."""
    async with filled_once(server, name, fill, how):
        pass
    async with fresh_database(server, f"template filled_{name} strategy file_copy") as database:
        yield database


@asynccontextmanager
async def filled_once(
    server: Served, name: str, fill: Callable[[Database], Awaitable[None]], how: str = _TEMPLATE
) -> AsyncIterator[Database]:
    """A database with many rows, filled once in a run for all tests that only read it, or take a copy.

    The name is the filling's own; `how` ends `create database`. To be used by a fixture that has the
    `asyncio_loop`.
    """
    name = f"filled_{name}"
    if name not in _filled:
        await _execute(server, f"create database {name} {how}")
    async with Database(attrs.evolve(address_of(server), database=name)).opened() as database:
        if name not in _filled:
            await fill(database)
            _filled.add(name)
        yield database


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A fresh folder that other accounts can pass through, as the database's account must (under root)."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-", dir=in_memory()) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def postgres(open_folder: Path) -> Iterator[DebianPostgres]:
    """A served database of the test's own, which it may stop."""
    server = DebianPostgres(open_folder / "pg")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """One running service on its embedded database, both doors open, for all end-to-end tests."""
    with running() as found:
        yield found


#: What holds the connections that outlive a test, once there is one.
_upkeep: list[reused.Upkeep] = []


async def _beside(server: Served, database: str, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do something on a connection that stays for the next test."""
    if not _upkeep:
        _upkeep.append(reused.Upkeep())
    begun = _upkeep[0].begin(attrs.evolve(address_of(server), database=database), work)
    return await trio.to_thread.run_sync(begun.result, 60)


async def _execute(server: Served, statement: str) -> None:
    """One statement on the maintenance database, outside of any transaction."""
    await _inside(server, server.database, lambda connection: connection.execute(statement))


async def _inside(server: Served, database: str, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do something on a connection of its own."""

    async def whole() -> T:
        connection = await asyncpg.connect(
            host=str(server.socket_dir),
            port=server.port,
            user=server.user,
            password=server.password,
            database=database,
        )
        try:
            return await work(connection)
        finally:
            await connection.close()

    done: T = await trio_asyncio.aio_as_trio(whole)()
    return done


def address_of(served: Served) -> Address:
    """The address of an embedded server."""
    return Address(str(served.socket_dir), served.port, served.user, served.password, served.database)
