"""A service that is killed leaves children that end by themselves, without a word of their own ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.service import running, until
from tests.wire import request, span

CHILDREN = ("svc.detecting", "svc.ingest.decoder")


@pytest.mark.parametrize("database", ["lives", "is killed"])
def test_children_of_a_killed_service_end_without_a_traceback(database: str) -> None:
    with running(errors_expected=True, SVC_DETECTORS_INTERVAL_SECONDS="1") as service:
        until(lambda: all(service.children(module) for module in CHILDREN))
        children = [pid for module in CHILDREN for pid in service.children(module)]
        for number in range(1, 20):
            body = request(span(trace_id=number.to_bytes(16, "big"), name="x"))
            assert service.send(body.SerializeToString()).status_code == 200
        if database == "is killed":
            pid_file = service.data_dir / "postgres" / "18" / "data" / "postmaster.pid"
            os.kill(int(pid_file.read_text().split()[0]), signal.SIGQUIT)
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(10)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
        said = service.log.read_text()
        # The decoder and the rounds speak of the database that is away, and of nothing else.
        assert "Traceback" not in said
        assert "Exception ignored" not in said
