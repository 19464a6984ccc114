"""Laws of the nightly backup: its hour, what it does after a failure, when it is told to be overdue."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.backups import OVERDUE, BackupTally, NightlyBackup, WalKeeper, last_hour
from actors.supervision import Vitals, keep
from protocol.backup import CopiedWal
from protocol.storage import Outage

AT = time(3, 10)
MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)


@attrs.define
class Rig:
    """A folder whose newest backup is known, and a maker that fails with `faults` first."""

    start: datetime
    newest: datetime | None
    faults: list[str] = attrs.field(factory=list)
    made: list[datetime] = attrs.field(factory=list)
    copies: bool = False
    copy_faults: list[str] = attrs.field(factory=list)
    copied: list[datetime] = attrs.field(factory=list)
    tally: BackupTally = attrs.field(factory=BackupTally)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("nightly-backup", spare=True))
    _zero_s: float = attrs.field(factory=trio.current_time)

    def now(self) -> datetime:
        return self.start + timedelta(seconds=trio.current_time() - self._zero_s)

    async def known(self) -> datetime | None:
        return self.newest

    async def make(self) -> str | None:
        await trio.sleep(30)
        self.made.append(self.now())
        if self.faults:
            return self.faults.pop(0)
        self.newest = self.now()
        return None

    async def copy(self) -> str | None:
        await trio.sleep(30)
        self.copied.append(self.now())
        return self.copy_faults.pop(0) if self.copy_faults else None

    def actor(self) -> NightlyBackup:
        return NightlyBackup(
            at=AT,
            newest=self.known,
            make=self.make,
            now=self.now,
            tally=self.tally,
            vitals=self.vitals,
            copy=self.copy if self.copies else None,
        )

    async def run_for(self, hours: float) -> None:
        with trio.move_on_after(hours * 3600):
            await keep(self.actor, self.vitals)


@pytest.mark.parametrize(
    ("hour", "due"),
    [((3, 9), (-1, 3, 10)), ((3, 10), (0, 3, 10)), ((23, 0), (0, 3, 10)), ((0, 0), (-1, 3, 10))],
)
def test_the_last_hour_is_todays_or_yesterdays(hour: tuple[int, int], due: tuple[int, int, int]) -> None:
    now = MIDNIGHT + timedelta(hours=hour[0], minutes=hour[1])
    assert last_hour(now, AT) == MIDNIGHT + timedelta(days=due[0], hours=due[1], minutes=due[2])


async def test_a_backup_is_made_each_day_at_its_hour(autojump_clock: MockClock) -> None:
    rig = Rig(MIDNIGHT, MIDNIGHT - timedelta(hours=12))
    await rig.run_for(72)
    assert [made.replace(second=0, microsecond=0, minute=made.minute // 5 * 5) for made in rig.made] == [
        MIDNIGHT + timedelta(days=day, hours=3, minutes=10) for day in range(3)
    ]
    assert (rig.tally.runs, rig.tally.failures, rig.tally.overdue) == (3, 0, False)
    assert rig.tally.last_good_at == rig.made[-1]


@pytest.mark.parametrize("newest", [None, MIDNIGHT - timedelta(days=3)])
async def test_one_that_was_missed_is_made_at_the_start(
    autojump_clock: MockClock, newest: datetime | None
) -> None:
    rig = Rig(MIDNIGHT + timedelta(hours=12), newest)
    await rig.run_for(1)
    assert len(rig.made) == 1


async def test_one_that_failed_is_tried_again_in_an_hour_and_told_when_overdue(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(MIDNIGHT + timedelta(hours=3), MIDNIGHT - timedelta(hours=20), ["the disk is full"] * 9)
    await rig.run_for(5)
    assert (rig.tally.failures, rig.tally.last_error) == (5, "the disk is full")
    assert not rig.tally.under_way
    await rig.run_for(2)
    assert rig.tally.overdue
    assert f"more than {OVERDUE.total_seconds() / 3600:.0f} hours ago" in caplog.text
    assert caplog.text.count("hours ago") == 1
    await rig.run_for(6)
    assert (rig.tally.last_error, rig.tally.overdue) == (None, False)


async def test_what_is_there_is_copied_at_the_start_and_after_each_backup(autojump_clock: MockClock) -> None:
    rig = Rig(MIDNIGHT, MIDNIGHT - timedelta(hours=12), copies=True)
    await rig.run_for(72)
    assert [copied - MIDNIGHT < timedelta(minutes=2) for copied in rig.copied] == [True, False, False, False]
    for made, copied in zip(rig.made, rig.copied[1:], strict=True):
        assert timedelta(0) < copied - made < timedelta(minutes=2)
    assert (rig.tally.copies, rig.tally.copy_failures, rig.tally.trouble) == (4, 0, None)
    assert rig.tally.copied_at is not None


async def test_a_copy_that_failed_is_tried_again_in_an_hour_and_holds_up_no_backup(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(
        MIDNIGHT + timedelta(hours=1),
        MIDNIGHT - timedelta(hours=20),
        copies=True,
        copy_faults=["access denied"] * 5,
    )
    await rig.run_for(4)
    assert 4 <= len(rig.copied) <= 5
    assert [made.hour for made in rig.made] == [3]
    assert rig.tally.last_error is None
    assert rig.tally.trouble == "the copy in the object store failed: access denied"
    assert not rig.tally.copying
    assert caplog.text.count("the copy of the backups failed: access denied; next attempt") == len(rig.copied)
    await rig.run_for(6)
    assert (rig.tally.copy_failures, rig.tally.last_copy_error, rig.tally.trouble) == (5, None, None)


async def test_the_last_good_backup_is_copied_while_new_ones_fail(autojump_clock: MockClock) -> None:
    rig = Rig(
        MIDNIGHT + timedelta(hours=3),
        MIDNIGHT - timedelta(hours=20),
        ["the disk is full"] * 9,
        copies=True,
        copy_faults=["access denied"],
    )
    await rig.run_for(3)
    assert len(rig.copied) == 2
    assert (rig.tally.trouble, rig.tally.last_copy_error) == ("the disk is full", None)


async def test_nothing_is_copied_before_there_is_a_backup(autojump_clock: MockClock) -> None:
    rig = Rig(MIDNIGHT, None, ["the disk is full"] * 9, copies=True)
    await rig.run_for(3)
    assert rig.copied == []


async def test_the_wal_is_copied_every_so_often_and_what_went_wrong_is_told_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    tally, vitals = BackupTally(), Vitals("wal-keeper", spare=True)
    copied = CopiedWal(segments=2, bytes=10, moment=MIDNIGHT)
    answers: list[CopiedWal | str | Outage] = [copied, "full", "full", Outage("away"), copied]
    troubles: list[str | None] = []

    async def copy() -> CopiedWal | str:
        troubles.append(tally.trouble)
        answer = answers.pop(0) if answers else copied
        if isinstance(answer, Outage):
            raise answer
        return answer

    with trio.move_on_after(4 * 60 + 1):
        await keep(lambda: WalKeeper(every_s=60, copy=copy, tally=tally, vitals=vitals), vitals)
    told = "the WAL was not copied: full"
    # While the database is away nothing is tried a minute later, but as soon as it is there.
    assert troubles == [None, None, told, told, told]
    assert (tally.wal_segments, tally.wal_bytes, tally.wal_failures) == (4, 20, 2)
    assert tally.wal_copied_until == MIDNIGHT
    assert tally.trouble is None
    assert caplog.text.count(f"{told}; next attempt in 60 s") == 1
    assert caplog.text.count("the WAL is copied again") == 1
