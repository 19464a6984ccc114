"""`make bench-backup`: what a backup, a second one, a trial restore, a restore and an import take.

    python -m tests.bench.backup [--spans 1000000] [--moved 100000]

The history of the read bench, thirty days; then the commands as an operator gives them, beside the running
service. Before the second backup one day of thirty changes. What is imported are spans of the ingest bench
over thirty days, 4 KB each, into an instance of its own; then once more, which adds nothing. Prints Markdown
for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Connection
from tests.bench.history import history
from tests.bench.load import fresh, make_template
from tests.service import TRACE_SVC, Service

_TIMEOUT_S = 3600.0
_REQUEST_SPANS = 200
_DAYS_NS = 30 * 86_400 * 10**9


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


def _bytes_in(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _exported(file: Path, spans: int) -> None:
    """A file as `export spans --form otlp-proto` writes it."""
    templates = [make_template(seed, _REQUEST_SPANS) for seed in range(20)]
    now_ns, requests = time.time_ns(), max(1, spans // _REQUEST_SPANS)
    with file.open("wb") as sink:
        for n in range(requests):
            # The oldest first, as an export has them.
            body = fresh(templates[n % len(templates)], now_ns - (requests - n) * _DAYS_NS // requests)
            sink.write(struct.pack("!I", len(body)) + body)


def _imported(folder: Path, file: Path, env: Mapping[str, str]) -> Iterator[float]:
    """How long an import of the file takes, the first time and the second."""
    for _ in range(2):
        began_s = time.perf_counter()
        words = [TRACE_SVC, "import", "export", str(file)]
        subprocess.run(words, env={**env, "SVC_DATA_DIR": str(folder)}, check=True, timeout=_TIMEOUT_S)
        yield time.perf_counter() - began_s


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--moved", type=int, default=100_000)
    arguments = parser.parse_args()
    spans, moved = arguments.spans, arguments.moved
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="trace-svc-bench-") as folder, history(spans) as filled:
        os.chmod(folder, 0o755)
        service, backups = filled.service, str(Path(folder) / "backups")
        # The filled payloads have the weight of payloads only: no span names them, and verify opens others.
        unnamed = "update span_payload set frame = 1000 where length(body) = 1536"
        size = trio.run(_execute, service, unnamed)
        rows.append(("database", f"{size / 1e6:,.0f} MB"))
        rows.append(("backup", f"{_timed(service, 'backup', backups):.1f} s"))
        rows.append(("its size", f"{_bytes_in(backups) / 1e6:,.0f} MB"))
        rows.append(("again, nothing changed", f"{_timed(service, 'backup', backups):.1f} s"))
        day = datetime.now(UTC) - timedelta(days=3)
        trio.run(_execute, service, f"update span_{day:%Y%m%d} set name = name || 'x'")
        rows.append(("again, one day of thirty changed", f"{_timed(service, 'backup', backups):.1f} s"))
        copies = str(Path(folder) / "copies")
        rows.append(("backup --physical", f"{_timed(service, 'backup', copies, '--physical'):.1f} s"))
        rows.append(("its size", f"{_bytes_in(copies) / 1e6:,.0f} MB"))
        trio.run(_execute, service, f"update span_{day:%Y%m%d} set name = name || 'y'")
        rows.append(
            ("again, one day of thirty changed", f"{_timed(service, 'backup', copies, '--physical'):.1f} s")
        )
        rows.append(("verify, digests", f"{_timed(service, 'backup', 'verify', backups, '--digests'):.1f} s"))
        rows.append(("verify", f"{_timed(service, 'backup', 'verify', backups, '--scratch', folder):.1f} s"))
        service.stop()
        for what, source in (("restore", backups), ("restore of the --physical one", copies)):
            began_s = time.perf_counter()
            env = {**service.env, "SVC_DATA_DIR": f"{source}-restored"}
            subprocess.run([TRACE_SVC, "restore", source], env=env, check=True, timeout=_TIMEOUT_S)
            rows.append((f"{what}, into an empty data folder", f"{time.perf_counter() - began_s:.1f} s"))
        file = Path(folder) / "spans.otlp"
        _exported(file, moved)
        rows.append((f"file of {moved:,} spans", f"{file.stat().st_size / 1e6:,.0f} MB"))
        first_s, again_s = _imported(Path(folder) / "moved", file, service.env)
        rows.append(("import of them", f"{first_s:.1f} s, {moved / first_s:,.0f} spans/s"))
        rows.append(("import of them again", f"{again_s:.1f} s"))
    print(f"\n{spans:,} spans, load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores:\n")
    print("| | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
