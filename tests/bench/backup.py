"""`make bench-backup`: what a backup, a second one, a trial restore and a restore take.

    python -m tests.bench.backup [--spans 1000000]

The history of the read bench, thirty days; then the commands as an operator gives them, beside the running
service. Before the second backup one day of thirty changes. Prints Markdown for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trio

from svc.config.table import read_settings
from svc.store.postgres.database import Connection
from svc.wiring.open_store import open_store
from tests.bench.history import history
from tests.service import TRACE_SVC, Service

_TIMEOUT_S = 3600.0


async def _execute(service: Service, sql: str) -> int:
    async def work(connection: Connection) -> int:
        await connection.execute(sql)
        size: int = await connection.fetchval("select pg_database_size(current_database())")
        return size

    async with open_store(read_settings(dict(service.env)), as_it_is=True) as store:
        return await store.database.run(work, timeout_s=_TIMEOUT_S)


def _timed(service: Service, *arguments: str) -> float:
    began_s = time.perf_counter()
    print(service.command(*arguments, timeout_s=_TIMEOUT_S), flush=True)
    return time.perf_counter() - began_s


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=1_000_000)
    spans = parser.parse_args().spans
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="trace-svc-bench-") as folder, history(spans) as filled:
        os.chmod(folder, 0o755)
        service, backups = filled.service, str(Path(folder) / "backups")
        # The filled payloads have the weight of payloads only: no span names them, and verify opens others.
        unnamed = "update span_payload set frame = 1000 where length(body) = 1536"
        size = trio.run(_execute, service, unnamed)
        rows.append(("database", f"{size / 1e6:,.0f} MB"))
        rows.append(("backup", f"{_timed(service, 'backup', backups):.1f} s"))
        stored = sum(path.stat().st_size for path in Path(backups).rglob("*") if path.is_file())
        rows.append(("its size", f"{stored / 1e6:,.0f} MB"))
        rows.append(("again, nothing changed", f"{_timed(service, 'backup', backups):.1f} s"))
        day = datetime.now(UTC) - timedelta(days=3)
        trio.run(_execute, service, f"update span_{day:%Y%m%d} set name = name || 'x'")
        rows.append(("again, one day of thirty changed", f"{_timed(service, 'backup', backups):.1f} s"))
        rows.append(("verify, digests", f"{_timed(service, 'backup', 'verify', backups, '--digests'):.1f} s"))
        rows.append(("verify", f"{_timed(service, 'backup', 'verify', backups, '--scratch', folder):.1f} s"))
        service.stop()
        began_s = time.perf_counter()
        env = {**service.env, "SVC_DATA_DIR": str(Path(folder) / "restored")}
        subprocess.run([TRACE_SVC, "restore", backups], env=env, check=True, timeout=_TIMEOUT_S)
        rows.append(("restore into an empty data folder", f"{time.perf_counter() - began_s:.1f} s"))
    print(f"\n{spans:,} spans, load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores:\n")
    print("| | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
