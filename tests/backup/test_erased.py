"""After a restore what was erased is erased again: by notes that say of nobody who they are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from protocol.backup import BackupRefused
from svc.backup.erased import FILE, ErasedNotes
from svc.backup.folder import BackupFolder
from svc.config.table import read_settings
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.retention.erased_again import ErasedAgain
from svc.store.retention.erasures import ErasureStore
from tests.front.api.test_erasures import work_off
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of

USER = "mara@example.com"


async def write(store: Database, number: int, user: str, *, days: int = 0) -> None:
    at = NOW + timedelta(days=days)
    clock = Clock()
    clock.now = at
    trace_id = number.to_bytes(16, "big")
    span = one(1, start=at, trace_id=trace_id, attributes={"user.id": user, "session.id": f"of {user}"})
    await store_of(store, clock).write(rows(span, came=at))


async def users(store: Database) -> list[str]:
    return [row["user_id"] for row in await fetch(store, "select user_id from trace order by trace_id")]


@pytest.fixture
async def notes(store: Database, tmp_path: Path) -> ErasedNotes:
    """What is written down of an erasure in an instance that is gone."""
    await ProjectStore(store).make_default()
    folders = {"SVC_DATA_DIR": str(tmp_path / "data"), "SVC_BACKUP_DIR": str(tmp_path / "backups")}
    settings = read_settings(folders)
    erasures = ErasureStore(store)
    await erasures.ask(PROJECT, "user", USER, actor="ann", now=NOW + timedelta(hours=1))
    await erasures.ask(PROJECT, "trace", (5).to_bytes(16, "big").hex(), actor="ann", now=NOW)
    await ErasedNotes.of(settings).write_down(erasures, lambda: NOW)
    assert await erasures.unnoted() == []
    # As before all that: the erasures of this database are gone with it.
    for table in ("erasure", "erased_subject", "erased_trace", "instance_fact"):
        await fetch(store, f"delete from {table}")
    return ErasedNotes.of(settings)


async def test_what_a_backup_brings_back_goes_again_and_what_came_later_stays(
    store: Database, notes: ErasedNotes
) -> None:
    await write(store, 1, USER)
    await write(store, 2, "somebody")
    await write(store, 3, USER, days=1)
    await write(store, 5, "another")
    assert await ErasedAgain(store).ask(notes.all(), "operator", NOW + timedelta(days=2)) == 2
    await work_off(store)
    assert await users(store) == ["somebody", USER]
    # It is written down already.
    assert await ErasureStore(store).unnoted() == []


async def test_notes_are_beside_backups_and_in_the_data_folder_and_name_nobody(
    notes: ErasedNotes, tmp_path: Path
) -> None:
    assert len(notes.all()) == 2
    for folder in ("data", "backups"):
        path = tmp_path / folder / FILE
        assert path.stat().st_mode & 0o077 == 0
        assert USER.encode() not in path.read_bytes()
        assert ErasedNotes((path.parent,)).all() == notes.all()


async def test_a_note_that_was_cut_off_is_none(notes: ErasedNotes, tmp_path: Path) -> None:
    path = tmp_path / "data" / FILE
    path.write_bytes(path.read_bytes()[:-20])
    assert len(ErasedNotes((path.parent,)).all()) == 1
    assert len(notes.all()) == 2


def test_a_first_backup_goes_to_a_folder_that_holds_notes_already(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("")
    folder = BackupFolder(tmp_path)
    folder.check_ours()
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(BackupRefused, match=r"holds other things \(thesis\.txt\)"):
        folder.check_ours()
