"""What was acknowledged is there, whatever ends: the process in mid-flood, or its database for a while."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.bench.load import fresh, make_template
from tests.debian_postgres import DebianPostgres
from tests.service import PLAIN, Service, running, until

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
            until(lambda: flood.refused > 0)
            # The half minute is the subject of the test: an outage longer than every retry and pause.
            threading.Event().wait(max(0.0, 30.0 - 5.0))
            report = service.health()
            assert report["components"]["actors"]["status"] == "UP"
            assert all(actor["crashes"] == 0 for actor in report["components"]["actors"]["details"].values())
            postgres.start()
            seen = flood.acknowledged
            until(lambda: service.health()["status"] == "UP" and flood.acknowledged > seen)
        service.wait_for_spans(flood.acknowledged)
        assert service.metric("svc_ingest_dead_lettered_spans_total") == 0


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
