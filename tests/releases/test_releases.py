"""Every release before this one: its data is carried over, it answers as it did, its suite still runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from svc.backup.folder import BackupFolder
from svc.backup.restoring import parts_of
from svc.store.backup.catalog import quoted, relations
from svc.store.backup.loading import Target
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import migrations
from tests.releases import RELEASES, ROOT, Release
from tests.releases.made import answered
from tests.service import TRACE_SVC, environment, running

EACH = pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)

#: What an answer says of the last week; a dump grows older.
_LATELY: Final = ("shape", "observed")

#: What steps change of what is there, by table: the reason, and the columns that differ ("*": rows).
CHANGED: Final = {
    "cube_dirty": ("*", "step 93 has the hours of two weeks counted anew"),
}


@pytest.fixture
def dump(release: Release, open_folder: Path) -> Path:
    """Its dump, unpacked."""
    with tarfile.open(release.dump) as archive:
        archive.extractall(open_folder / "dump", filter="data")
    return open_folder / "dump"


Rows = dict[str, tuple[list[str], Counter[str]]]


async def contents(database: Database, like: Rows | None = None) -> Rows:
    """By table: its columns and its rows as text. `like` names the tables and columns that are wanted."""

    async def work(connection: Connection) -> Rows:
        found: Rows = {}
        for table in await relations(connection):
            names = [column.name for column in table.columns]
            if like is not None:
                wanted = like.get(table.name, ([], Counter()))[0]
                names = [name for name in wanted if name in names]
            if names:
                columns = ", ".join(map(quoted, names))
                rows = await connection.fetch(
                    f"select row({columns})::text as told from only {quoted(table.name)}"
                )
                found[table.name] = names, Counter(row["told"] for row in rows)
        return found

    return await database.run(work)


@EACH
async def test_an_upgrade_keeps_every_row_and_every_column(
    release: Release, dump: Path, empty_database: Database
) -> None:
    folder = BackupFolder(dump / "backup")
    manifest = folder.chosen(None)
    assert manifest.steps[-1].number == release.step
    target = Target(empty_database)
    await target.claim()
    await target.fill(manifest, partial(parts_of, folder))
    before = await contents(empty_database)
    assert sum(len(rows) for _, rows in before.values()) > 100
    steps = await target.finish()
    known = {step.number for step in manifest.steps}
    assert steps == [step.number for step in migrations() if step.number not in known]
    after = await contents(empty_database, like=before)
    for table in CHANGED.keys() | {"schema_migration", "restore_under_way"}:
        before.pop(table, None), after.pop(table, None)
    assert after == before


def within(old: Any, new: Any) -> bool:
    """Whether an answer of before stands in that of now: fields may be more, nothing else may differ."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and within(old[name], new[name]) for name in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(within, old, new))
    return bool(old == new)


def test_within_means_more_fields_and_nothing_else() -> None:
    assert within({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "c": 3}], "d": 4})
    others: list[Any] = [{"a": [1]}, {"a": [1, 3]}, {"a": None}, {}, [], None]
    assert not any(within({"a": [1, 2]}, other) for other in others)


@EACH
def test_what_was_asked_of_it_is_answered_as_it_was(release: Release, dump: Path, open_folder: Path) -> None:
    folder = open_folder / "data"
    done = subprocess.run(
        [TRACE_SVC, "restore", str(dump / "backup"), "--without-secrets"],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = msgspec.json.decode((dump / "answers.json").read_bytes())
    # Its days are of then.
    with running(folder, SVC_RETENTION_ENABLED="false") as service:
        for path, body, answer in said["answers"]:
            now = answered(service.url, said["key"], path, body)
            assert within(_result(answer), _result(now)), (path, body, answer, now)
        # And it goes on: spans are sent, and dead letters are none.
        key = service.command("keys", "create", "--scope", "write", "--name", "new").strip()
        assert key.startswith("svc_w_")
        service.command("demo", "--url", service.url)
        assert service.metric("svc_ingest_dead_lettered_spans_total") == 0


def _result(answer: Any) -> Any:
    """The part that is data, which an MCP answer says twice, once as text; without what was of that week."""
    result = answer.get("result")
    if result is None:
        return answer
    data = result["structuredContent"]
    for site in data.get("call_sites", ()):
        for name in _LATELY:
            site.pop(name, None)
    return data


def test_every_release_has_its_dump() -> None:
    """A release that is dated in the changelog has a row, but for the newest, which is this one."""
    dated = re.findall(r"^## (\S+) — \d{4}-", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert {release.name for release in RELEASES} >= set(dated[1:])
    for release in RELEASES:
        assert release.dump.stat().st_size < 200_000
        assert release.step in {step.number for step in migrations()}


@pytest.mark.release
@pytest.mark.alone
def test_the_suite_of_the_release_before_runs_on_this_schema() -> None:
    """Its code reads and writes what the steps of this release leave: so can a copy of it beside this one."""
    release = RELEASES[-1]
    left_out = (f"--deselect={law}" for law in release.about_the_schema)
    with release.code() as code:
        theirs = code / "svc/store/postgres/migrations"
        for old in theirs.glob("*.sql"):
            old.unlink()
        for new in (ROOT / "svc/store/postgres/migrations").glob("*.sql"):
            (theirs / new.name).write_bytes(new.read_bytes())
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *release.suite, *left_out],
            cwd=code,
            env={**os.environ, "PYTHONPATH": str(code)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-5_000:]
