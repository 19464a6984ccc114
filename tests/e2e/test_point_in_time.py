"""Last night's backup and the WAL since bring back any moment, by the commands of the page of backups."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_backup_s3 import backup_health, refusal, send
from tests.service import Service, running, stop_postgres, until

pytestmark = pytest.mark.release


def copied_after(service: Service, moment: datetime) -> bool:
    copied: Any = backup_health(service)["wal_copied_until"]
    return copied is not None and datetime.fromisoformat(copied) > moment


def test_the_minute_before_the_mistake_comes_back_and_so_does_the_last_one(open_folder: Path) -> None:
    data, backups = open_folder / "data", open_folder / "backups"
    settings = {
        "SVC_BACKUP_DIR": str(backups),
        "SVC_BACKUP_PHYSICAL": "true",
        "SVC_BACKUP_WAL_SECONDS": "1",
    }
    with running(data, first=True, errors_expected=True, **settings) as service:
        until(lambda: backup_health(service)["last_good_at"] is not None)
        send(service, "before", 3)
        service.wait_for_spans(3)
        moment = datetime.now(UTC)
        send(service, "the mistake", 2)
        service.wait_for_spans(5)
        written = datetime.now(UTC)
        until(lambda: copied_after(service, written))
        assert service.metric("svc_backup_wal_segments_total") >= 1
        assert service.metric("svc_backup_wal_failures_total") == 0
        listed = service.command("backup", "list", str(backups))
        assert "`restore --until` can bring back any moment from" in listed
        told = service.command("backup", "verify", str(backups), "--digests")
        assert "files are unchanged" in told
        assert "any moment from" in told
        service.process.kill()
        service.process.wait(10)
        stop_postgres(data)
        query_key = service.query_key
    assert "has no time zone; for UTC, write 2026-11-01T12:30:00Z" in refusal(
        service, "restore", str(backups), "--until", "2026-11-01T12:30:00", status=2
    )
    assert "2020-01-01T00:00:00Z cannot be restored; `restore --until` can bring back" in refusal(
        service, "restore", str(backups), "--until", "2020-01-01T00:00:00Z"
    )
    for word, spans in ((moment.isoformat(), 3), ("latest", 5)):
        shutil.rmtree(data)
        told = service.command("restore", str(backups), "--until", word, timeout_s=120)
        assert "and everything after it" in told
        with running(data) as again:
            assert again.ask("count", {"dataset": "spans"}, query_key)["count"] == spans
