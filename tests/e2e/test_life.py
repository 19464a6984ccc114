"""The life of the process: first start, stop, commands beside it; see `test_floods` for kills and outages."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import uuid
from pathlib import Path

import httpx2
import pytest

from svc.commands.serve import greeting
from tests.bench.load import fresh, make_template
from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, environment, free_port, running, until

pytestmark = pytest.mark.alone


def test_a_first_start_prints_lines_that_send_and_count_a_trace(service: Service) -> None:
    """What the greeting says, said in a shell, does what it says."""
    said = greeting(service.url, service.write_key, service.query_key)
    lines = [line for line in said.splitlines() if re.match(r"  (export|curl|sleep) ", line)]
    assert len(lines) == 3
    before = service.ask("count", {"dataset": "spans"})["count"]
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == f'{{}}{{"ok":true,"data":{{"count":{before + 1}}}}}'


def test_a_first_start_without_a_terminal_prints_no_key() -> None:
    with running(first=True) as fresh:
        kept = fresh.data_dir / "first-keys"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert fresh.write_key in kept.read_text()
        assert "svc_w_" not in fresh.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_the_database_is_waited_for_ends_the_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    env = environment(tmp_path, DB_HOST="127.0.0.1", DB_PORT=str(free_port()), SVC_HTTP_BIND="127.0.0.1:0")
    process = subprocess.Popen([TRACE_SVC, "serve"], env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr:
        for line in process.stderr:
            if "waiting for the database" in line:
                break
        process.send_signal(number)
        assert process.wait(10) == 0


def test_demo_and_doctor_work_beside_the_running_service(service: Service) -> None:
    shown = service.command("demo", "--url", service.url)
    assert "sent 24 traces" in shown
    assert "failed tool calls: " in shown
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    env = {**service.env, "SVC_HTTP_BIND": f"{host}:{port}"}
    done = ran([TRACE_SVC, "doctor"], env=env, timeout_s=60)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^ok +ingest +UP", done.stdout, re.M)


def test_doctor_fails_aloud_when_the_database_cannot_be_reached(tmp_path: Path) -> None:
    env = environment(tmp_path, DB_HOST="127.0.0.1", DB_PORT=str(free_port()))
    done = ran([TRACE_SVC, "doctor"], env=env, timeout_s=60)
    assert done.returncode == 1
    assert re.search(r"^FAIL +database ", done.stdout, re.M)


def test_keys_are_made_listed_rotated_and_revoked_beside_the_running_service(service: Service) -> None:
    name = f"cli-{uuid.uuid4()}"
    token = service.command("keys", "create", "--scope", "query", "--name", name).strip()
    assert re.fullmatch(r"svc_q_[A-Za-z0-9_-]{22}", token)
    assert service.ask("count", {"dataset": "spans"}, token)["count"] >= 0
    (line,) = [line for line in service.command("keys", "list").splitlines() if name in line]
    key_id = line.split()[0]
    rotated = service.command("keys", "rotate", key_id).strip()
    assert _reason(service, token) == "unknown key"
    assert _reason(service, rotated) is None
    service.command("keys", "revoke", key_id)
    assert _reason(service, rotated) == "revoked"


def _reason(service: Service, token: str) -> str | None:
    """Why a token is refused with 401; None when it is not."""
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx2.post(f"{service.url}/v1/query/count", json={"dataset": "spans"}, headers=headers, **PLAIN)
    if answer.status_code == 200:
        return None
    assert answer.status_code == 401
    reason: str = answer.json()["error"]["details"]["reason"]
    return reason


def test_a_service_started_in_a_foreign_folder_runs_none_of_its_code(open_folder: Path) -> None:
    foreign, ran = open_folder / "foreign", open_folder / "ran"
    (foreign / "svc").mkdir(parents=True)
    for name in ("svc/__init__", "json", "trio", "runpy"):
        (foreign / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\nraise SystemExit(3)\n")
    with running(foreign / "kept", cwd=foreign, SVC_DATA_DIR="kept") as service:
        assert service.send(bytes(fresh(make_template(1, 10)))).status_code == 200
        service.wait_for_spans(10)
        until(lambda: service.metric("svc_traces_folded_total") > 0)
    assert not ran.exists()
