"""`make bench-sizes`: how large an instance must be, for deploy/README.md.

    python -m tests.bench.sizes [--spans 20000]

Spans of 4 KB with 20 attributes, each of texts that no other has, go through the real door of a real service
with its own database, as fast as they are taken. Prints spans a second, bytes of the database for a million
of them, and the most memory that the service and its database held together, by the shares of pages (PSS).
Bytes and memory are the same on a busy machine; the rate is not. What is made of whole hours later (sums, the
index of texts) is not in it.
"""

from __future__ import annotations

import argparse
import random
import string
import threading
import time
from pathlib import Path
from typing import Final

import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Connection
from tests.bench.__main__ import machine
from tests.bench.load import fresh, make_template, send_each
from tests.service import Service, measured, until

#: Spans in a request.
BATCH: Final = 100
_MB: Final = 1e6


def bodies(spans: int) -> list[bytes]:
    """The requests. Of random letters: compression finds no more in them than in what people write."""
    dice = random.Random(22)
    words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 10))) for _ in range(5000)]
    return [bytes(fresh(make_template(seed, BATCH, words))) for seed in range(spans // BATCH)]


class Memory:
    """Looks again and again how much memory a process and all below it hold."""

    def __init__(self, pids: list[int]) -> None:
        self.most_mb = 0.0
        self._pids, self._stop = pids, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _look(self) -> None:
        while not self._stop.wait(0.25):
            self.most_mb = max(self.most_mb, sum(pss_mb(pid) for top in self._pids for pid in family(top)))


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            found += family(int(child))
    return found


def pss_mb(pid: int) -> float:
    """What it holds, of shared pages its share."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) * 1024 / _MB for line in lines if line.startswith("Pss:"))


def database_bytes(service: Service) -> int:
    """What the database takes on disk."""

    async def work(connection: Connection) -> int:
        await connection.execute("checkpoint")
        size: int = await connection.fetchval("select pg_database_size(current_database())")
        return size

    async def main() -> int:
        async with open_store(read_settings(service.env), as_it_is=True) as store:
            return await store.database.run(work, transaction=False)

    return trio.run(main)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sizes")
    parser.add_argument("--spans", type=int, default=20_000)
    arguments = parser.parse_args()
    sent = bodies(arguments.spans)
    spans = len(sent) * BATCH
    with measured() as service:
        before = database_bytes(service)
        pid = service.health()["components"]["db"]["details"]["embedded"]["pid"]
        with Memory([service.process.pid, pid]) as memory:
            time.sleep(2.0)
            idle_mb = memory.most_mb
            began_s, _ = send_each(service.port, service.write_key, sent, connections=4)
            until(lambda: service.metric("svc_ingest_stored_spans_total") >= spans, 600)
            took_s = time.time() - began_s
        grown = database_bytes(service) - before
    print(f"\n{machine()}, {spans:,} spans of {sum(map(len, sent)) / spans / 1000:.1f} KB\n")
    print("| | |\n|---|---|")
    print(f"| stored | {spans / took_s:,.0f} spans/s |")
    print(f"| a million spans on disk | {grown / spans * 1e6 / 1e9:.2f} GB |")
    print(f"| memory at rest, database included | {idle_mb:,.0f} MB |")
    print(f"| the most memory | {memory.most_mb:,.0f} MB |")


if __name__ == "__main__":
    main()
