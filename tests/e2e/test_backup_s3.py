"""Backups in a real S3 store by the real commands, and a nightly backup whose store is not there.

The store is built by `tests/deploy/s3.sh`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest

from tests.conftest import missing
from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, free_port, running, until
from tests.wire import request, span

GATEWAY = Path("/var/tmp/trace-svc-s3/bin/versitygw")
KEY, SECRET = "trace-svc-key", "planted-secret-of-the-store"
PASSPHRASE = "sixteen letters and more"


def settings_of(folder: Path, port: int) -> dict[str, str]:
    """Nightly backups, and copies of them in the store at a port."""
    return {
        "SVC_BACKUP_DIR": str(folder / "backups"),
        "SVC_BACKUP_PASSPHRASE": PASSPHRASE,
        "SVC_BACKUP_S3_URL": "s3://my-bucket/trace-svc",
        "SVC_BACKUP_S3_ENDPOINT": f"http://127.0.0.1:{port}",
        "SVC_BACKUP_S3_ACCESS_KEY_ID": KEY,
        "SVC_BACKUP_S3_SECRET_ACCESS_KEY": SECRET,
    }


@contextmanager
def gateway(folder: Path, port: int) -> Iterator[None]:
    """A real S3 store over a folder, whose folders are the buckets."""
    if not GATEWAY.exists():
        missing("versitygw, built by tests/deploy/s3.sh,")
    (folder / "my-bucket").mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with (folder / "log").open("a") as log:
        store = subprocess.Popen(
            [GATEWAY, "--port", f"127.0.0.1:{port}", "posix", folder], env=env, stdout=log, stderr=log
        )
        try:
            until(lambda: _answers(port))
            yield
        finally:
            store.terminate()
            store.wait(20)


def _answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/", timeout=5, **PLAIN).status_code > 0
    except httpx2.TransportError:
        return False


def backup_health(service: Service) -> Any:
    return service.health()["components"]["backup"]["details"]


def send(service: Service, name: str, count: int) -> None:
    body = request(*(span(name=f"{name} {n}") for n in range(count))).SerializeToString()
    assert service.send(body).status_code == 200


def refusal(service: Service, *arguments: str, status: int = 1) -> str:
    """What a command says that fails."""
    done = ran([TRACE_SVC, *arguments], env=dict(service.env), timeout_s=90)
    assert done.returncode == status, done.stdout
    assert SECRET not in done.stdout + done.stderr
    return done.stderr


@pytest.mark.release
def test_a_nightly_backup_whose_store_is_not_there_is_reported_and_kept_and_ingest_goes_on(
    open_folder: Path,
) -> None:
    with running(**settings_of(open_folder, free_port())) as service:
        until(lambda: backup_health(service)["copy_failures"] == 1)
        send(service, "step", 3)
        service.wait_for_spans(3)
        details = backup_health(service)
        assert (details["runs"], details["failures"], details["last_error"]) == (1, 0, None)
        assert details["last_good_at"] is not None
        assert "the endpoint cannot be reached" in details["last_copy_error"]
        assert service.metric("svc_backup_copy_failures_total") == 1
        verified = service.command("backup", "verify", str(open_folder / "backups"), "--digests")
        assert "files are unchanged" in verified
        text = service.log.read_text()
        assert "the copy of the backups failed" in text
        assert SECRET not in text + json.dumps(service.health())


@pytest.mark.release
def test_a_real_store_gets_the_nightly_backup_and_gives_it_back(open_folder: Path) -> None:
    port, url = free_port(), "s3://my-bucket/trace-svc"
    store = open_folder / "store"
    with (
        gateway(store, port),
        running(**settings_of(open_folder, port), SVC_BACKUP_KEEP="2") as service,
    ):
        until(lambda: backup_health(service)["copied_at"] is not None)
        assert service.metric("svc_backup_copies_total") == 1
        assert len(service.command("backup", "list", url).splitlines()) == 2
        send(service, "step", 3)
        service.wait_for_spans(3)
        folder = str(open_folder / "backups")
        made = json.loads(service.command("backup", folder, "--json"))
        pushed = json.loads(service.command("backup", "push", folder, "--json"))
        # The secrets are sealed anew each time.
        assert (pushed["backup"], pushed["new_files"]) == (made["backup"], made["new_files"] + 1)
        assert pushed["unchanged_files"] > 0
        again = service.command("backup", "push", folder, url, "--keep", "1").splitlines()
        assert again[1].startswith("sent: 0 files")
        assert again[2].startswith("1 backups pruned there")
        (listed,) = json.loads(service.command("backup", "list", url, "--json"))
        assert listed == {name: made[name] for name in listed}

        copy = str(open_folder / "copy")
        fetched = json.loads(service.command("backup", "fetch", url, copy, "--json"))
        assert fetched["new_files"] == sum(
            path.is_file() for path in _files(store / "my-bucket" / "trace-svc")
        )
        assert service.command("backup", "fetch", url, copy).splitlines()[1].startswith("fetched: 0 files")
        assert "3 spans counted" in service.command("backup", "verify", copy, "--scratch", str(open_folder))

        assert "there is no such bucket" in refusal(service, "backup", "list", "s3://nonesuch/one")
        assert f"there are: {made['backup']}" in refusal(
            service, "backup", "fetch", url, copy, "--at", "never"
        )
        wrong = attrs.evolve(service, env={**service.env, "SVC_BACKUP_S3_SECRET_ACCESS_KEY": "another"})
        assert "the secret key is not the one" in refusal(wrong, "backup", "list", url)

        of_the_page(service, {"BACKUPS": folder, "COPY": str(open_folder / "another copy")})

        data = open_folder / "restored"
        elsewhere = attrs.evolve(service, env={**service.env, "SVC_DATA_DIR": str(data)})
        restored = json.loads(elsewhere.command("restore", url, "--json"))
        assert (restored["backup"], restored["rows"]) == (made["backup"], made["rows"])
        assert not data.with_name("restored.fetched").exists()
    with running(data) as second:
        assert second.ask("count", {"dataset": "spans"}, key=service.query_key)["count"] == 3
    assert "cannot be reached" in refusal(service, "backup", "push", folder)


def of_the_page(service: Service, places: dict[str, str]) -> None:
    """Run the commands of the documentation as they stand there."""
    page = (Path(__file__).parents[2] / "deploy" / "backup.md").read_text(encoding="utf-8")
    section = page.split("### To S3")[1].split("\n### ")[0]
    commands = re.findall(r"^trace-svc .*", section, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        usual = {"PATH": f"{Path(TRACE_SVC).parent}:{service.env['PATH']}"}
        done = subprocess.run(
            ["bash", "-euc", command],
            env={**service.env, **places, **usual},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def _files(root: Path) -> list[Path]:
    return [
        path for top in root.iterdir() if top.is_dir() and top.name != "manifests" for path in top.rglob("*")
    ]
