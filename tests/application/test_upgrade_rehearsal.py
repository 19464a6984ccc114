"""An upgrade rehearsed before it is done: on a real database of an earlier step, which stays as it is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc.application import upgrade_rehearsal
from svc.application.upgrade_rehearsal import Rehearsal, rehearse_upgrade
from svc.commands.upgrade import rehearsal_facts
from svc.config.table import Settings, read_settings
from svc.domain.upgrade import ShutOut, StepRun
from svc.store.postgres import migrate as migrate_module
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded import scratch
from svc.store.postgres.embedded.scratch import NoRoom
from svc.store.postgres.embedded.server import Served
from svc.store.postgres.migrate import Migration, SchemaTooNew, migrate, migrations
from svc.store.postgres.partitions import DayPartitions
from svc.store.postgres.rehearsing import rehearse
from tests.conftest import copied
from tests.examples import first_always
from tests.forked import ran
from tests.releases import RELEASES, ROOT
from tests.service import TRACE_SVC, Service, apart, environment, running, until
from tests.wire import request, span

#: The step of a release of earlier.
EARLIER = 80
SPANS = 20_000
NEWEST = migrations()[-1].number

#: Ten spans a trace, over two days; what they need beside them.
_ROWS = f"""
insert into organization (slug, name) values ('default', 'D');
insert into project (org_id, slug, name) select id, 'default', 'D' from organization;
insert into span (project_id, trace_id, span_id, started_at, kind, name, status, created_at, call_site_id,
                  tagged, frame)
select 1, decode(md5((n / 10)::text), 'hex'), int8send(n), '2026-11-20'::timestamptz + n * interval '8 s',
       'llm', 'chat', 'ok', '2026-11-20'::timestamptz + n * interval '8 s', 'c', false, 0
from generate_series(0, {SPANS - 1}) as n;
insert into trace (project_id, trace_id, name, started_at, first_started_at, last_started_at, root_seen,
                   call_site_id, span_count, error_count, status, unpriced_spans, created_at, stale, due_at)
select 1, trace_id, 'chat', min(started_at), min(started_at), max(started_at), true, 'c', count(*), 0,
       'ok', 0, min(created_at), false, min(created_at)
from span group by trace_id;
"""


@pytest.fixture
async def earlier(
    asyncio_loop: None, served: Served, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Database]:
    """A database of an earlier step with rows, which counts as a large one."""
    monkeypatch.setattr(upgrade_rehearsal, "LEAST_BYTES", 0)

    async def fill(database: Database) -> None:
        await migrate(database, up_to=EARLIER)
        await DayPartitions(database).make_days(datetime(2026, 11, 21, tzinfo=UTC))
        await database.run(lambda connection: connection.execute(_ROWS))

    async with copied(served, "earlier", fill, how="") as database:
        yield database


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(environment(tmp_path))


def more_steps(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """A release with nothing but these ahead of the earlier one."""
    known = [step for step in migrations() if step.number <= EARLIER]
    steps = [*known, *(Migration(9001 + place, "more", text) for place, text in enumerate(texts))]
    monkeypatch.setattr(migrate_module, "migrations", lambda: steps)


async def rehearsed(earlier: Database, settings: Settings, folder: Path, *, full: bool = False) -> Rehearsal:
    return await rehearse_upgrade(earlier, settings, full=full, scratch=folder)


async def looks(database: Database) -> tuple[Any, ...]:
    """The tables, columns and indexes of a database, its steps, and how many rows it has."""

    async def work(connection: Connection) -> tuple[Any, ...]:
        return (
            await connection.fetch(
                "select attrelid::regclass::text, attname::text, atttypid from pg_attribute"
                " join pg_class c on c.oid = attrelid where relnamespace = 'public'::regnamespace"
                " order by 1, 2"
            ),
            await connection.fetch("select * from schema_migration order by 1"),
            await connection.fetchval("select count(*) from span"),
            await connection.fetchval("select count(*) from trace"),
        )

    return await database.run(work)


@pytest.mark.parametrize("full", first_always([False, True]), ids=["some rows", "all rows"])
async def test_the_steps_ahead_are_rehearsed_and_the_database_stays_as_it_is(
    earlier: Database, settings: Settings, open_folder: Path, full: bool
) -> None:
    before = await looks(earlier)
    found = await rehearsed(earlier, settings, open_folder, full=full)
    assert await looks(earlier) == before
    assert [step.number for step in found.steps] == [s.number for s in migrations() if s.number > EARLIER]
    assert max(found.applied) == EARLIER
    # All that is small, and of spans and traces a share: whole traces.
    assert (found.share, found.rows > SPANS) == ((1.0, True) if full else (0.01, False))
    (digest,) = (step for step in found.steps if step.number == 96)
    assert [out.table for out in digest.shut_out()] == ["span"]
    assert digest.rewritten == []
    assert all(step.disk_bytes >= 0 and step.statements for step in found.steps)
    assert os.listdir(open_folder) == []


@pytest.mark.release
async def test_traces_are_taken_with_all_their_spans(
    earlier: Database, settings: Settings, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_rehearsal, "SHARE", 0.1)
    torn = "select 1 / (count(*) filter (where spans <> 10) = 0)::int from"
    more_steps(
        monkeypatch,
        f"-- backfill\n{torn} (select trace_id, count(*) as spans from span join trace using (trace_id)"
        " group by 1) as each",
        "-- backfill\nselect 1 / (count(*) between 1000 and 3000)::int from span",
    )
    # Without rows the second one fails; it is what tells that there are some with.
    monkeypatch.setattr(upgrade_rehearsal, "_rehearse_step", _only_with_rows)
    found = await rehearsed(earlier, settings, open_folder)
    assert len(found.steps) == 2


async def _only_with_rows(_empty: Database, some: Database, step: Migration, *_: object) -> StepRun:
    return await rehearse(some, step)


@pytest.mark.release
async def test_who_is_kept_from_what_and_what_is_written_anew_is_told(
    earlier: Database, settings: Settings, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more_steps(
        monkeypatch,
        "-- expand\nalter table span add column more text default 'x'",
        "-- expand\ncreate table other (id bigint);\ncreate index trace_more on trace (name);",
        "-- expand\nalter table trace alter column span_count type bigint;\nupdate project set name = 'E'",
        "-- expand\n-- concurrently\ncreate index span_more on span (project_id, user_id)",
        "-- backfill\nupdate trace set name = 'x'",
    )
    found = await rehearsed(earlier, settings, open_folder, full=True)
    told = [[(out.table, out.whom) for out in step.shut_out()] for step in found.steps]
    assert told == [
        [("span", "reads and writes")],
        [("trace", "writes")],
        [("trace", "reads and writes")],
        [],
        [],
    ]
    assert [step.rewritten for step in found.steps] == [[], [], ["trace"], [], []]
    assert [step.concurrent for step in found.steps] == [False, False, False, True, False]
    # A table that is written anew lies there twice; changed rows stand in the log as well.
    sizes = [step.disk_bytes for step in found.steps]
    assert sizes[2] > 100_000
    assert sizes[4] > 100_000
    assert found.verdict.outcome in ("online", "pause")
    facts = rehearsal_facts(found)
    assert facts["steps"][0]["statements"][0]["locks"] == {"span": "AccessExclusiveLock"}
    assert facts["steps"][3]["beside_ingest"] is True


@pytest.mark.release
async def test_time_is_scaled_to_all_rows_and_tells_how_long_the_pause_is(
    earlier: Database, settings: Settings, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Five milliseconds a trace, of which there are two thousand, while nobody writes any.
    slow = "select count(pg_sleep(0.005)) from trace"
    more_steps(monkeypatch, f"-- backfill\nlock table trace in share mode;\n{slow}")
    found = await rehearsed(earlier, settings, open_folder)
    (out,) = found.steps[0].shut_out()
    assert attrs.evolve(out, seconds=0) == ShutOut("trace", "writes", 0)
    assert out.seconds > 2
    assert found.verdict.outcome in ("pause", "window")
    assert found.verdict.pause_s == out.seconds


async def test_a_step_that_the_release_before_cannot_live_with_is_told(
    earlier: Database, settings: Settings, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more_steps(monkeypatch, "-- contract\ndrop table rework")
    found = await rehearsed(earlier, settings, open_folder)
    assert found.verdict.text() == "needs a window"
    assert "stop all its copies first" in found.verdict.reasons[0]


async def test_nothing_is_tried_where_nothing_is_ahead(
    store: Database, empty_database: Database, settings: Settings, tmp_path: Path
) -> None:
    found = await rehearsed(store, settings, tmp_path / "is not needed")
    assert (found.verdict.text(), max(found.applied), found.rows) == ("nothing to do", NEWEST, 0)
    assert (await rehearsed(empty_database, settings, tmp_path)).applied == []


async def test_a_database_of_a_newer_release_is_refused(
    store: Database, settings: Settings, tmp_path: Path
) -> None:
    await store.fetch("insert into schema_migration (number, name, digest) values (9999, 'later', 'x')")
    with pytest.raises(SchemaTooNew):
        await rehearsed(store, settings, tmp_path)


async def test_a_folder_without_room_is_refused_before_anything_is_tried(
    earlier: Database, settings: Settings, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "ROOM", 1e12)
    with pytest.raises(NoRoom, match=r"to rehearse wants .*: name another folder with --scratch$"):
        await rehearsed(earlier, settings, open_folder)


def _led_to(database: Database, folder: Path) -> dict[str, str]:
    """The environment of a command that finds this database."""
    address = database.address
    return environment(
        folder,
        DB_HOST=address.host,
        DB_PORT=str(address.port),
        DB_USER=address.user,
        DB_PASSWORD=address.password,
        DB_NAME=address.database,
    )


@pytest.mark.release
async def test_the_command_prints_it_beside_the_database(earlier: Database, tmp_path: Path) -> None:
    env = _led_to(earlier, tmp_path)

    def upgrade(*arguments: str) -> subprocess.CompletedProcess[str]:
        return ran([TRACE_SVC, "upgrade", *arguments], env=env, timeout_s=90)

    # With all rows of a small database: what a busy machine takes longer is not scaled by a hundred.
    done = upgrade("--check")
    assert ", 100 % of those that matter\n" in done.stdout
    assert done.returncode == 0, done.stderr
    assert f"the database is at step {EARLIER}; " in done.stdout
    assert "96 span_digest" in done.stdout
    assert re.search(r"^verdict: (online|pause of \d s)$", done.stdout, re.MULTILINE)
    bare = upgrade()
    assert bare.returncode == 1
    assert "use --check to rehearse that" in bare.stderr


@pytest.mark.release
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
async def test_one_that_is_told_to_end_leaves_neither_its_server_nor_what_it_copied(
    earlier: Database, tmp_path: Path, open_folder: Path, end: signal.Signals
) -> None:
    env = {**_led_to(earlier, tmp_path), "TMPDIR": str(open_folder)}
    assert _ended(env, open_folder, end) == (1, "trace-svc: interrupted\n")
    assert os.listdir(open_folder) == []


def _ended(env: dict[str, str], scratch: Path, end: signal.Signals) -> tuple[int, str]:
    """What becomes of a rehearsal that gets the signal when its server has begun."""
    # Whoever runs the tests may have these ignored, as `nohup` does.
    heard = ["env", "--default-signal=TERM,HUP", TRACE_SVC, "upgrade", "--full"]
    with subprocess.Popen(heard, env=env, stderr=subprocess.PIPE, text=True) as asked:
        until(lambda: any(scratch.glob("*/data/postgres/18/data/postmaster.pid")), every_s=0.01)
        asked.send_signal(end)
        _, complaint = asked.communicate(timeout=60)
    return asked.returncode, complaint


def test_beside_a_service_of_this_release_there_is_nothing_to_do(service: Service) -> None:
    said = service.command("upgrade", "--check")
    assert said == (f"the database is at step {NEWEST}, and this release has no newer one: nothing to do\n")
    assert f"  schema      at step {NEWEST} of {NEWEST}\n" in service.command("doctor")


def test_it_joins_the_server_of_a_service_in_another_container(service: Service) -> None:
    done = subprocess.run(
        [*apart(), TRACE_SVC, "upgrade", "--check"],
        env=dict(service.env),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout[:23]) == (0, "the database is at step"), done.stderr
    assert service.health()["components"]["db"]["status"] == "UP"


@pytest.fixture
def before() -> Iterator[tuple[Service, set[int]]]:
    """A service of the release before, on an embedded database of its own, with some spans; its steps."""
    with RELEASES[-1].code() as code, running(first=True, code=code) as found:
        steps = (code / "svc/store/postgres/migrations").glob("*.sql")
        assert found.send(request(*(span() for _ in range(20))).SerializeToString()).status_code == 200
        found.wait_for_spans(20)
        yield found, {int(step.name.partition("_")[0]) for step in steps}


@pytest.mark.release
def test_on_the_day_of_an_upgrade_the_new_release_is_asked_beside_the_running_old_one(
    before: tuple[Service, set[int]], open_folder: Path
) -> None:
    service, applied = before
    asked = [
        subprocess.Popen(
            [TRACE_SVC, "upgrade", how, "--json"],
            env={**service.env, "PYTHONPATH": str(ROOT), "TMPDIR": str(open_folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for how in ("--check", "--full")
    ]
    # What the old one is sent meanwhile it takes and stores, and it answers.
    sent = 20
    while any(process.poll() is None for process in asked):
        assert service.send(request(span()).SerializeToString()).status_code == 200
        sent += 1
        service.wait_for_spans(sent)
    assert sent > 22
    for process in asked:
        said, complaint = process.communicate(timeout=10)
        assert process.returncode == 0, complaint
        facts = json.loads(said)
        assert facts["newest_applied"] == max(applied) == RELEASES[-1].step
        ahead = [step.number for step in migrations() if step.number not in applied]
        assert [step["number"] for step in facts["steps"]] == ahead
        assert {"span", "finding"} <= {out["table"] for step in facts["steps"] for out in step["shuts_out"]}
        assert (facts["share"], facts["rows"] > 20) == (1.0, True)
        assert facts["verdict"] in ("online", "pause")
    assert os.listdir(open_folder) == []
