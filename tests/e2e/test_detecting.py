"""The detecting process of a real service: it counts, is told, comes back, and never stays behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx2
import pytest

from tests.bench.load import fresh, make_template
from tests.service import PLAIN, Service, running, stop_postgres, until

pytestmark = pytest.mark.alone


def process_of(service: Service) -> int:
    """The id of the detecting process; 0 while there is none."""
    return next(iter(service.children("svc.detecting")), 0)


def state(service: Service, actor: str) -> str:
    shown: str = service.health()["components"]["actors"]["details"].get(actor, {}).get("state", "absent")
    return shown


def send(service: Service, batches: int) -> None:
    template = make_template(7, 10)
    for _ in range(batches):
        assert service.send(bytes(fresh(template))).status_code == 200


def test_traces_are_counted_in_a_process_of_its_own_and_metrics_and_health_say_so() -> None:
    with running() as service:
        send(service, 3)
        until(lambda: service.metric("svc_traces_folded_total") > 0)
        assert state(service, "trace-folder") == "running"
        assert state(service, "detecting") == "running"
        text = httpx2.get(f"{service.url}/actuator/prometheus", **PLAIN).text
        assert 'svc_actor_alive{actor="trace-folder"} 1.0' in text
        assert os.getpriority(os.PRIO_PROCESS, process_of(service)) >= 10
        environment = Path(f"/proc/{process_of(service)}/environ").read_bytes()
        assert b"OPENBLAS_NUM_THREADS=1" in environment


def test_a_process_that_is_killed_or_ended_comes_back_and_readiness_stays() -> None:
    with running() as service:
        until(lambda: state(service, "trace-folder") == "running")
        for number in (signal.SIGKILL, signal.SIGTERM):
            first = process_of(service)
            os.kill(first, number)
            until(lambda gone=first: process_of(service) not in (0, gone))
            ready = httpx2.get(f"{service.url}/actuator/health/readiness", **PLAIN)
            assert ready.status_code == 200
            until(lambda: state(service, "trace-folder") == "running")
        send(service, 1)
        until(lambda: service.metric("svc_traces_folded_total") > 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_service_that_is_stopped_or_killed_leaves_no_child(
    open_folder: Path, number: signal.Signals
) -> None:
    with running(open_folder / "data") as service:
        until(lambda: state(service, "trace-folder") == "running")
        children = [*service.decoders(), process_of(service)]
        assert len(children) == 2
        service.process.send_signal(number)
        service.process.wait(40)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    stop_postgres(open_folder / "data")
