"""The disk died at noon: backups beside ingest, kills, a wiped data folder, and all that comes back."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.accounts.projects import ProjectStore
from tests.chaos.flood import Flood, stored
from tests.e2e.test_people import ORG, PROJECT
from tests.service import TRACE_SVC, Service, running, stop_postgres, until
from tests.store.detection.detecting import opened, seen

pytestmark = [pytest.mark.alone, pytest.mark.release]

PASSWORD = "correct horse battery"
PLANTED = "planted-secret-0815"
OWNER = {"email": "owner@example.org", "password": PASSWORD}
SETTINGS = {
    "SVC_INGEST_SPOOL_MODE": "disk",
    "SVC_BACKUP_PASSPHRASE": "a passphrase of the operator",
    # No detector opens a case of its own meanwhile.
    "SVC_DETECTORS_INTERVAL_SECONDS": "3600",
}


def settle_in(service: Service) -> None:
    """An owner, a secret of theirs, a setting, a case."""
    with httpx2.Client(base_url=service.url, headers={"Origin": service.url}, timeout=60) as client:
        assert client.post("/auth/signup", json=OWNER).status_code == 201
        secret = {"kind": "git", "provider": "github", "name": "code", "secret": PLANTED}
        assert client.post(f"{ORG}/integrations", json=secret).status_code == 201
        term = {"traces": 33, "detections": None}
        assert client.put(f"{PROJECT}/retention", json=term).status_code == 200

    async def open_a_case() -> None:
        async with open_store(read_settings(dict(service.env)), as_it_is=True) as store:
            project = await ProjectStore(store.database).make_default()
            assert project is not None
            await opened(store.database, seen(), project_id=project.id)

    trio.run(open_a_case)


def check_in(service: Service) -> None:
    """All of it is there."""
    with httpx2.Client(base_url=service.url, headers={"Origin": service.url}, timeout=60) as client:
        assert client.post("/auth/login", json=OWNER).status_code == 200
        assert client.get(f"{PROJECT}/retention").json()["data"]["traces"] == 33
        (case,) = client.get(f"{PROJECT}/cases").json()["data"]["cases"]
        assert case["reference"] == "C-1"
        assert [one["name"] for one in client.get(f"{ORG}/integrations").json()["data"]] == ["code"]
    assert "lost" not in service.command("secrets", "list")


def killed_backup(service: Service, folder: Path, when: Callable[[], bool], *more: str) -> None:
    """A backup that is killed as soon as `when` holds, or that was quicker."""
    backup = subprocess.Popen(
        [TRACE_SVC, "backup", str(folder), "--full", *more],
        env=dict(service.env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: when() or backup.poll() is not None, every_s=0.002)
    backup.send_signal(signal.SIGKILL)
    backup.wait(10)


def parts(folder: Path) -> int:
    """How many files are being written, or were left."""
    return len(list(folder.rglob("*.part")))


def noon(service: Service, data: Path, flood: Flood) -> set[bytes]:
    """The disk dies in the middle of it; all that may have been stored by then."""
    service.process.kill()
    service.process.wait(10)
    stop_postgres(data)
    flood.end()
    return flood.acknowledged | flood.maybe


def all_is_back(again: Service, before: set[bytes], after: set[bytes], query_key: str) -> None:
    until(lambda: again.metric("svc_spool_depth_batches") == 0, timeout_s=300)
    found = stored(again.env)
    assert before - found.keys() == set(), "every span of before the backup is back"
    assert found.keys() - after == set()
    assert set(found.values()) == {1}
    assert again.ask("count", {"dataset": "spans"}, query_key)["count"] == len(found)
    check_in(again)


def test_the_disk_died_at_noon(open_folder: Path) -> None:
    data, backups = open_folder / "data", open_folder / "backups"
    with running(data, first=True, errors_expected=True, **SETTINGS) as service:
        settle_in(service)
        with Flood(service.url, service.write_key) as flood:
            flood.until_more(300)
            assert "rows in" in service.command("backup", str(backups))
            flood.until_more(300)
            # Killed at its first file, in the midst of them, and when the manifest is about to come.
            for when in (
                lambda: parts(backups) > 0,
                lambda: (backups / "secrets").exists() and parts(backups) > 0,
                lambda: bool(list(backups.rglob("*.json.new"))),
            ):
                killed_backup(service, backups, when)
                told = service.command("backup", "verify", str(backups), "--digests")
                assert "files are unchanged" in told
            flood.until_more(300)
            before = set(flood.acknowledged)
            service.command("backup", str(backups))
            flood.until_more(100)
            after = noon(service, data, flood)
        told = service.command("backup", "verify", str(backups), "--scratch", str(open_folder))
        assert "1 encrypted values read" in told
        write_key, query_key = service.write_key, service.query_key
    assert PLANTED.encode() not in b"".join(p.read_bytes() for p in backups.rglob("*") if p.is_file())
    shutil.rmtree(data)
    service.command("restore", str(backups), timeout_s=120)
    with running(data, **SETTINGS) as again:
        all_is_back(again, before, after, query_key)
        # The programs that sent spans go on with the keys they have.
        with Flood(again.url, write_key) as flood:
            flood.until_more(100)


def test_a_copy_of_the_cluster_and_what_changed_since_bring_everything_back(open_folder: Path) -> None:
    data, backups = open_folder / "data", open_folder / "backups"
    with running(data, first=True, errors_expected=True, **SETTINGS) as service:
        settle_in(service)
        with Flood(service.url, service.write_key) as flood:
            flood.until_more(100)
            assert "a full copy" in service.command("backup", str(backups), "--physical")
            flood.until_more(100)
            killed_backup(service, backups, lambda: parts(backups) > 0, "--physical")
            told = service.command("backup", "verify", str(backups), "--digests")
            assert "files are unchanged" in told
            before = set(flood.acknowledged)
            told = service.command("backup", str(backups), "--physical")
            assert "what changed since the last backup, part 2 of 2" in told
            flood.until_more(100)
            after = noon(service, data, flood)
        query_key = service.query_key
    assert not (data / "postgres" / "client-password").exists()
    assert PLANTED.encode() not in b"".join(p.read_bytes() for p in backups.rglob("*") if p.is_file())
    shutil.rmtree(data)
    told = service.command("restore", str(backups), timeout_s=120)
    assert f"into trace_svc@{data}" in told
    with running(data, **SETTINGS) as again:
        all_is_back(again, before, after, query_key)


def test_the_commands_of_the_page_do_what_it_says(open_folder: Path) -> None:
    page = (Path(__file__).parents[2] / "deploy" / "backup.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    # The service on what was restored is the story's; here its line would not end.
    script = "\n".join(blocks).replace("\ntrace-svc serve\n", "\n")
    assert script.count("trace-svc") == 8
    with running(open_folder / "data") as service:
        # Beside no service: the database is started for each command.
        service.stop()
        places = {"BACKUPS": str(open_folder / "backups"), "NEW_DATA": str(open_folder / "new")}
        path = f"{Path(TRACE_SVC).parent}:{service.env['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", script],
            env={**service.env, **places, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "memory mode: spans that were accepted but not yet stored are not in the backup" in done.stdout
    assert "is good: restored on a scratch server and queried" in done.stdout
    assert f"into trace_svc@{open_folder / 'new'}" in done.stdout
    assert (open_folder / "new-support.tar.gz").exists()
    stop_postgres(open_folder / "new")
