"""The life of the process: first start, stop in mid-flood, kill, restart, a database that goes away."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx2
import pytest

from svc.commands.serve import greeting
from tests.bench.load import fresh, make_template
from tests.debian_postgres import DebianPostgres
from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, environment, free_port, running, until

pytestmark = pytest.mark.alone


class Flood:
    """Sends batches of ten spans until it is told to stop; counts what was acknowledged."""

    def __init__(self, service: Service) -> None:
        self.acknowledged = self.refused = 0
        self._service, self._stop = service, threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(seed,)) for seed in range(3)]

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _send(self, seed: int) -> None:
        template = make_template(seed, 10)
        headers = {
            "Authorization": f"Bearer {self._service.write_key}",
            "Content-Type": "application/x-protobuf",
        }
        with httpx2.Client(base_url=self._service.url, headers=headers, timeout=30, **PLAIN) as client:
            while not self._stop.is_set():
                try:
                    response = client.post("/v1/traces", content=bytes(fresh(template)))
                except httpx2.TransportError:
                    return
                if response.status_code == 200:
                    self.acknowledged += 10
                else:
                    assert response.status_code == 503, response.text
                    assert 1 <= int(response.headers["retry-after"]) <= 5
                    self.refused += 1
                    self._stop.wait(0.2)


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


def test_sigterm_in_mid_flood_stores_everything_acknowledged(open_folder: Path) -> None:
    with running(open_folder / "data") as service:
        keys = service.write_key, service.query_key
        with Flood(service) as flood:
            until(lambda: flood.acknowledged > 500)
            # Twice, as supervisors do: the second must not cut the drain off.
            service.process.send_signal(signal.SIGTERM)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(40) == 0
        assert "not stored" not in service.log.read_text()
    with running(open_folder / "data") as again:
        again.write_key, again.query_key = keys
        assert again.ask("count", {"dataset": "spans"})["count"] == flood.acknowledged


def test_kill_9_leaves_a_database_that_the_next_start_adopts(open_folder: Path) -> None:
    with running(open_folder / "data") as service:
        keys = service.write_key, service.query_key
        with Flood(service) as flood:
            until(lambda: flood.acknowledged > 200)
        service.wait_for_spans(flood.acknowledged)
        pid = service.health()["components"]["db"]["details"]["embedded"]["pid"]
        service.process.kill()
        service.process.wait(10)
        os.kill(pid, 0)
        with running(open_folder / "data") as again:
            again.query_key = keys[1]
            assert again.health()["components"]["db"]["details"]["embedded"]["pid"] == pid
            assert again.ask("count", {"dataset": "spans"})["count"] == flood.acknowledged


def restarted(report: dict[str, Any]) -> bool:
    """Whether the embedded server was started again and all is well."""
    return bool(report["status"] == "UP" and report["components"]["db"]["details"]["embedded"]["restarts"])


def test_a_killed_embedded_database_comes_back_and_nothing_acknowledged_is_lost() -> None:
    with running() as service, Flood(service) as flood:
        until(lambda: flood.acknowledged > 200)
        os.kill(service.health()["components"]["db"]["details"]["embedded"]["pid"], signal.SIGKILL)
        seen = flood.acknowledged
        # Health may be a second old: it is UP again once the server was started again.
        until(lambda: restarted(service.health()) and flood.acknowledged > seen + 200)
        flood.__exit__()
        service.wait_for_spans(flood.acknowledged)


def test_a_served_database_that_goes_away_under_load_costs_nothing_acknowledged(
    postgres: DebianPostgres,
) -> None:
    """Stopped for half a minute, then started again: waited for, said so, nobody restarts in a loop."""
    with running(SVC_JDBC_URL=postgres.url, SVC_INGEST_SPOOL_MAX_BYTES="4000000") as service:
        with Flood(service) as flood:
            until(lambda: flood.acknowledged > 200)
            postgres.stop()
            until(lambda: service.health()["components"]["db"]["status"] == "DOWN")
            until(lambda: "waiting_for" in service.health()["components"]["ingest"]["details"])
            until(lambda: flood.refused > 0, timeout_s=60)
            # The half minute is the subject of the test: an outage longer than every retry and pause.
            threading.Event().wait(max(0.0, 30.0 - 5.0))
            report = service.health()
            assert report["components"]["actors"]["status"] == "UP"
            assert all(actor["crashes"] == 0 for actor in report["components"]["actors"]["details"].values())
            postgres.start()
            seen = flood.acknowledged
            until(lambda: service.health()["status"] == "UP" and flood.acknowledged > seen, timeout_s=60)
        service.wait_for_spans(flood.acknowledged)
        assert service.metric("svc_ingest_dead_lettered_spans_total") == 0


def test_a_service_started_in_a_foreign_folder_runs_none_of_its_code(open_folder: Path) -> None:
    foreign, ran = open_folder / "foreign", open_folder / "ran"
    (foreign / "svc").mkdir(parents=True)
    for name in ("svc/__init__", "json", "trio", "runpy"):
        (foreign / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\nraise SystemExit(3)\n")
    with running(foreign / "kept", cwd=foreign, SVC_DATA_DIR="kept") as service:
        assert service.send(bytes(fresh(make_template(1, 10)))).status_code == 200
        service.wait_for_spans(10)
        until(lambda: service.metric("svc_traces_folded_total") > 0, 60)
    assert not ran.exists()


def test_a_database_that_answers_nobody_is_down_and_comes_back() -> None:
    with running() as service:
        postmaster: int = service.health()["components"]["db"]["details"]["embedded"]["pid"]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            os.kill(pid, signal.SIGSTOP)
        shown: list[dict[str, Any]] = []
        until(lambda: shown.append(service.health()["components"]["db"]) or shown[-1]["status"] == "DOWN")
        # The first question that it left open says so: nobody else had an answer either.
        assert not [report for report in shown if "busy" in report["details"]]
        for pid in (postmaster, *map(int, children)):
            os.kill(pid, signal.SIGCONT)
        until(lambda: service.health()["status"] == "UP")
