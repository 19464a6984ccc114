"""The WAL between two backups: any moment comes back, a gap is said, and the disk is never filled for it."""

from __future__ import annotations

import shutil
import threading
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.backup import BackupDamaged, BackupRefused, Manifest
from svc.application.open_store import Store, open_store
from svc.application.safekeeping import free_wal
from svc.backup import physical, wal_copying
from svc.backup.folder import read_manifest
from svc.backup.physical import replay_of, restore_physical
from svc.backup.wal_copying import WalCopier
from svc.backup.wal_folder import (
    WalLine,
    WalReach,
    WalSpan,
    check_wal,
    covered,
    line_of,
    listing_of,
    prune_wal,
)
from svc.store.accounts.projects import ProjectStore
from svc.store.backup.wal import WalHold
from svc.store.postgres.embedded.wal_feed import SEGMENT_BYTES, end_of, segment_after, segment_of
from tests.backup.folders import FIRST_DAY, three_days
from tests.backup.test_physical import Install, install
from tests.store.spans.test_writing import fetch

__all__ = ["install"]


def copier(install: Install, store: Store, **bounds: int) -> WalCopier:
    assert store.embedded is not None
    return WalCopier(store.embedded, WalHold(store.database), install.folder, **bounds)


async def clock(store: Store) -> datetime:
    """A moment of the database after everything that was committed."""
    (row,) = await fetch(store.database, "select clock_timestamp() as moment")
    moment: datetime = row["moment"]
    return moment


async def slots(store: Store) -> int:
    return len(await fetch(store.database, "select from pg_replication_slots"))


def manifests(install: Install) -> list[Manifest]:
    return [read_manifest(path) for path in install.folder.manifests()]


def chosen(install: Install, until: datetime | None) -> WalSpan:
    return listing_of(install.folder).chosen(manifests(install), until)


async def spans_at(install: Install, until: datetime | None) -> int:
    """How many there are once this moment is brought back into an empty data folder."""
    shutil.rmtree(install.settings.data_dir)
    span = chosen(install, until)
    replay = replay_of(install.folder, span, until, install.lines.append)
    await restore_physical(
        install.folder, span.manifest, install.settings.data_dir, {}, install.lines.append, replay
    )
    async with open_store(install.settings) as store:
        return await install.spans(store)


@pytest.mark.release
async def test_any_moment_after_a_backup_comes_back_and_the_latest_and_what_follows_is_another_line(
    install: Install,
) -> None:
    moments = []
    async with open_store(install.settings) as store:
        await ProjectStore(store.database).make_default()
        copy = copier(install, store)
        await copy.round()
        await install.write(store, 1)
        first = await install.take(store)
        for number in range(2, 6):
            await install.write(store, number)
            moments.append(await clock(store))
            if number != 3:
                copied = await copy.round()
                assert copied.segments >= 1
                assert copied.bytes < SEGMENT_BYTES
            if number == 4:
                second = await install.take(store)
        # Nobody wrote anything since: no segment is ended for it, and the reach moves on all the same.
        idle = await copy.round()
        assert (idle.segments, idle.bytes) == (0, 0)
        assert idle.moment > copied.moment
    line = line_of(first.manifest)
    assert chosen(install, moments[1]).manifest == first.manifest
    assert chosen(install, moments[3]).manifest == second.manifest
    for moment in (first.manifest.taken_at - timedelta(seconds=1), idle.moment + timedelta(seconds=1)):
        with pytest.raises(BackupRefused, match="cannot be restored; `restore --until` can bring back any"):
            chosen(install, moment)
    # In the midst of a segment, after the newer backup, and when nobody wrote any more.
    assert await spans_at(install, moments[1]) == 3
    assert await spans_at(install, moments[3]) == 5
    assert await spans_at(install, idle.moment) == 5
    async with open_store(install.settings) as store:
        await install.write(store, 9)
        await copier(install, store).round()
        third = await install.take(store)
        await copier(install, store).round()
    assert line_of(third.manifest) != line
    assert await spans_at(install, None) == 6
    # The line before is as good as it was.
    assert await spans_at(install, moments[2]) == 4
    removes_what_no_backup_needs(install, line)


def removes_what_no_backup_needs(install: Install, line: str) -> None:
    segments = len(listing_of(install.folder).files[line])
    assert prune_wal(install.folder)[0] < segments
    assert chosen(install, None)
    for path in install.folder.manifests()[:-1]:
        path.unlink()
    count, size = prune_wal(install.folder)
    assert count > 0
    assert size > 0
    assert listing_of(install.folder).files[line] == {}
    assert prune_wal(install.folder) == (0, 0)
    span = chosen(install, None)
    assert covered([span]).startswith("`restore --until` can bring back any moment from ")
    assert check_wal(install.folder, span, install.lines.append) == len(span.files)
    path = install.folder.root / next(iter(span.files.values())).path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BackupDamaged, match="is damaged"):
        check_wal(install.folder, span, install.lines.append)
    path.unlink()
    with pytest.raises(BackupRefused, match="contains no WAL that follows a --physical backup"):
        chosen(install, None)


async def test_a_backup_that_was_slow_to_begin_can_be_brought_forward_at_once(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(physical, "time", SimpleNamespace(monotonic=iter([0.0, 3600.0]).__next__))
    async with open_store(install.settings) as store:
        copy = copier(install, store)
        await copy.round()
        taken = (await install.take(store)).manifest
        copied = await copy.round()
    assert taken.took_s == 3600.0
    assert taken.origin.snapshot_at < taken.whole_from < copied.moment
    assert chosen(install, copied.moment).manifest == taken


@pytest.mark.release
async def test_a_folder_that_takes_nothing_keeps_the_wal_waiting_up_to_a_bound(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(install.settings) as store:
        await ProjectStore(store.database).make_default()
        copy = copier(install, store)
        await copy.round()
        first = await install.take(store)
        with monkeypatch.context() as patch:
            patch.setattr("svc.backup.folder.FREE_SHARE", 1.0)
            await install.write(store, 1)
            with pytest.raises(BackupRefused, match="less than 10 %"):
                await copy.round()
            assert await slots(store) == 1
        # It waited.
        assert (await copy.round()).segments >= 1
        span = listing_of(install.folder).span_after(first.manifest)
        assert span is not None
        narrow = copier(install, store, waiting_bytes=0)
        with monkeypatch.context() as patch:
            patch.setattr("svc.backup.folder.FREE_SHARE", 1.0)
            await install.write(store, 2)
            with pytest.raises(BackupRefused, match="the database no longer keeps it"):
                await narrow.round()
            assert await slots(store) == 0
        await fetch(store.database, "select pg_switch_wal()")
        await store.database.fetch("checkpoint")
        await copy.round()
        # A line that somebody else writes is left to them.
        await install.write(store, 3)
        with (
            WalLine(install.folder, line_of(first.manifest)).held(),
            pytest.raises(BackupRefused, match="another service copies its WAL"),
        ):
            await copy.round()


async def test_where_the_wal_is_not_copied_the_server_does_not_keep_it(install: Install) -> None:
    async with open_store(install.settings) as store:
        await ProjectStore(store.database).make_default()
        await copier(install, store).round()
        assert await slots(store) == 1
        await free_wal(install.settings, store.database)
        assert await slots(store) == 0
        await free_wal(install.settings, store.database)


@given(st.integers(min_value=0, max_value=2**40 - 2), st.integers(min_value=1, max_value=2**31))
def test_a_segment_ends_where_the_next_one_begins(number: int, timeline: int) -> None:
    place = number * SEGMENT_BYTES
    lsn = f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"
    name = segment_of(lsn, timeline)
    assert len(name) == 24
    assert segment_of(end_of(name), timeline) == segment_after(name)
    assert name < segment_after(name)


def test_the_moments_that_can_be_brought_back_are_said_without_overlap(tmp_path: Path) -> None:
    backup = three_days(tmp_path)[1][0]

    def span(begins: int, ends: int) -> WalSpan:
        origin = msgspec.structs.replace(backup.origin, snapshot_at=FIRST_DAY + timedelta(hours=begins))
        manifest = msgspec.structs.replace(backup, origin=origin, took_s=0.0)
        end = FIRST_DAY + timedelta(hours=ends)
        return WalSpan(manifest, {}, WalReach(segment="0" * 24, ended_at=end, moment=end))

    assert covered([span(0, 5), span(3, 5), span(7, 9)]) == (
        "`restore --until` can bring back any moment from 2026-11-01T03:10:00Z to 2026-11-01T08:10:00Z,"
        " and from 2026-11-01T10:10:00Z to 2026-11-01T12:10:00Z"
    )


async def test_a_folder_that_hangs_ends_a_round_and_keeps_one_thread(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(wal_copying, "COPY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(wal_copying, "_copy", lambda *_: over.wait(60))
    async with open_store(install.settings) as store:
        await ProjectStore(store.database).make_default()
        copy = copier(install, store)
        try:
            for _ in range(2):
                with pytest.raises(BackupRefused, match="did not take the WAL within"):
                    await copy.round()
            assert await slots(store) == 1
            narrow = copier(install, store, waiting_bytes=0)
            with pytest.raises(BackupRefused, match="the database no longer keeps it"):
                await narrow.round()
            assert await slots(store) == 0
        finally:
            over.set()
