"""Laws of the nightly backup: its hour, what it does after a failure, when it is told to be overdue."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.backups import OVERDUE, BackupTally, NightlyBackup, last_hour
from actors.supervision import Vitals, keep

AT = time(3, 10)
MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)


@attrs.define
class Rig:
    """A folder whose newest backup is known, and a maker that fails with `faults` first."""

    start: datetime
    newest: datetime | None
    faults: list[str] = attrs.field(factory=list)
    made: list[datetime] = attrs.field(factory=list)
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

    def actor(self) -> NightlyBackup:
        return NightlyBackup(
            at=AT, newest=self.known, make=self.make, now=self.now, tally=self.tally, vitals=self.vitals
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
