"""What a process knows of itself: nothing before it has looked, so that a restart ends no alert."""

from __future__ import annotations

import socket
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from actors.backups import BackupTally
from actors.disk_budget import DiskTally
from protocol.alerts import AlertRule, RuleKind
from protocol.samples import BackupSample, DiskSample
from svc.application.own_checks import OwnChecks, copy_name
from svc.config.table import read_settings
from svc.domain.alerts.params import kept_params, read_params

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def rule(kind: RuleKind) -> AlertRule:
    return AlertRule(1, UUID(int=1), kind, kind, kept_params(read_params(kind, {})), (), NOW, NOW, due_at=NOW)


async def test_a_process_that_began_just_now_says_that_it_does_not_know_yet() -> None:
    backups, disk = BackupTally(), DiskTally(budget=10)
    own = OwnChecks(cast(Any, None), dict, disk, backups, lambda: None, NOW, "here")
    assert own.samples(NOW) == {}
    for check, kind in ((own.disk, "disk.budget"), (own.backup, "backup.old")):
        seen = await check(rule(cast(RuleKind, kind)), NOW)
        assert seen.trouble is not None
        assert seen.trouble.endswith("yet")
    disk.measured, disk.used, disk.level, disk.reached_on = True, 9, "tell", date(2026, 11, 3)
    backups.looked, backups.last_good_at = True, NOW - timedelta(hours=27)
    assert own.samples(NOW) == {
        "disk.budget": DiskSample(level="tell", used=9, budget=10, reached_on=date(2026, 11, 3)),
        "backup.old": BackupSample(began_at=NOW, last_good_at=NOW - timedelta(hours=27)),
    }
    assert set((await own.disk(rule("disk.budget"), NOW)).firing) == {"disk"}
    assert set((await own.backup(rule("backup.old"), NOW)).firing) == {"backup"}


async def test_two_copies_on_one_host_tell_an_outage_under_names_of_their_own() -> None:
    titles = []
    for port in (8000, 8001):
        name = copy_name(read_settings({"SVC_HTTP_BIND": f"127.0.0.1:{port}"}))
        own = OwnChecks(cast(Any, None), dict, None, None, lambda: None, NOW, name)
        facts = own.away(rule("ingest.down"), NOW - timedelta(hours=1), NOW)
        assert list(facts) == [f"ingest of {socket.gethostname()}:{port}"]
        titles += [one.title for one in facts.values()]
    assert titles == [f"Ingest is down on {socket.gethostname()}:{port}" for port in (8000, 8001)]
