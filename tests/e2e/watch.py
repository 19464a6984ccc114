"""Watches a service beside what a test does to it: how long others waited, and what memory it took.

Tests of what a request costs others call it, and the hostile benchmark. It never asks for more than health.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx2

from tests.service import PLAIN, Service


def memory_bytes(service: Service, name: str) -> int:
    """`VmRSS` is what the main process has now, `VmHWM` the most since it was last forgotten."""
    status = Path(f"/proc/{service.process.pid}/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


class Watch:
    """Asks for health all the time; knows how long at most it was held up, and how far memory rose.

    Who holds the service's loop up takes time of its thread and lets others wait. What counts is the less of
    both, since other processes of the machine let others wait as well.
    """

    def __init__(self, service: Service) -> None:
        self.service, self.worst_s, self._over = service, 0.0, threading.Event()
        self.grown_bytes = 0
        self.statuses: set[int] = set()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Watch:
        Path(f"/proc/{self.service.process.pid}/clear_refs").write_text("5")
        self._before = memory_bytes(self.service, "VmRSS")
        self._thread.start()
        return self

    def busy_s(self) -> float:
        """The processor time of the thread of its loop."""
        pid = self.service.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def _ask(self) -> None:
        with httpx2.Client(base_url=self.service.url, timeout=60, **PLAIN) as client:
            client.get("/actuator/health")
            while not self._over.wait(0.005):
                started_s, busy_s = time.perf_counter(), self.busy_s()
                self.statuses.add(client.get("/actuator/health").status_code)
                waited_s = time.perf_counter() - started_s
                self.worst_s = max(self.worst_s, min(waited_s, self.busy_s() - busy_s))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(90)
        self.grown_bytes = memory_bytes(self.service, "VmHWM") - self._before
