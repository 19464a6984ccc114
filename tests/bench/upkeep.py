"""`make bench-upkeep`: what keeping a history takes: restart, check, backup, the detectors' work, retention.

    python -m tests.bench.upkeep [--spans 1000000] [--beside 50000000] [--only backup] [--keep FOLDER]

On histories of `tests.bench.read`, filled now, or as that bench left them in the folder. The steps are those
of an operator, beside the running service; the detectors judge the four weeks of the demo, which come through
the door. Retention goes last and takes the two oldest days: what is kept is shorter afterwards. Each figure
is printed to stderr when it is there, and all of them as Markdown for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from tests.bench.__main__ import machine
from tests.bench.history import DAYS, history
from tests.service import TRACE_SVC, Service, measured, until

_TIMEOUT_S: Final = 7_200.0
_MIB: Final = 1024 * 1024
#: What the demo plants shows as so many findings; the history has others of its own, by one detector.
_PLANTED: Final = 4
_OF_HISTORY: Final = "tool-errors"

#: A figure and what it is of.
Figure = tuple[str, str]


def _took_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _command(service: Service, *words: str, **env: str) -> None:
    done = subprocess.run(
        [TRACE_SVC, *words], env={**service.env, **env}, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    # These two end with 1 where they have something to say.
    assert not done.returncode or words[0] in ("upgrade", "doctor"), done.stderr
    print(done.stdout, done.stderr, sep="", file=sys.stderr, flush=True)


def _serving(data: Path) -> AbstractContextManager[Service]:
    return measured(data, upgrades=True, SVC_DETECTORS_INTERVAL_SECONDS="5")


def _starts(data: Path) -> Iterator[Figure]:
    """Stopped and started, then killed and started."""
    began_s = time.perf_counter()
    with _serving(data) as service:
        yield "start, after a stop", f"{time.perf_counter() - began_s:.1f} s"
        yield "stop", f"{_took_s(lambda: service.stop(_TIMEOUT_S)):.1f} s"
    with _serving(data) as service:
        service.process.kill()
        service.process.wait()
    began_s = time.perf_counter()
    with _serving(data):
        yield "start, after `kill -9`", f"{time.perf_counter() - began_s:.1f} s"


def _checks(data: Path) -> Iterator[Figure]:
    with _serving(data) as service:
        yield "`upgrade --check`", f"{_took_s(lambda: _command(service, 'upgrade', '--check')):.1f} s"
        yield "`doctor`", f"{_took_s(lambda: _command(service, 'doctor')):.1f} s"


def _backups(data: Path) -> Iterator[Figure]:
    # Beside the history, where there is as much room as it was given.
    with tempfile.TemporaryDirectory(prefix="backups-", dir=data.parent) as folder, _serving(data) as service:
        os.chmod(folder, 0o755)
        yield "backup", f"{_took_s(lambda: _command(service, 'backup', folder)):.1f} s"
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        yield "its size", f"{size / _MIB:,.0f} MiB"
        yield "again, nothing changed", f"{_took_s(lambda: _command(service, 'backup', folder)):.1f} s"
        verified_s = _took_s(lambda: _command(service, "backup", "verify", folder, "--digests"))
        yield "verify, digests", f"{verified_s:.1f} s"


def _detected(data: Path) -> Iterator[Figure]:
    with _serving(data) as service:
        demo = ("demo", "--url", service.url, "--weeks", "4")
        yield "`demo --weeks 4`", f"{_took_s(lambda: _command(service, *demo)):.1f} s"

        def found() -> bool:
            return trio.run(_value, service, _FOUND) >= _PLANTED

        waited_s = _took_s(lambda: until(found, _TIMEOUT_S, every_s=0.5))
        yield "then until all of its findings stand", f"{waited_s:.1f} s"


def _retained(data: Path) -> Iterator[Figure]:
    with _serving(data) as service:
        before = trio.run(_value, service, _SIZE)
        # Payloads of no project are kept longer than its spans.
        shorter = {"SVC_RETENTION_TRACE_TTL_DAYS": str(DAYS - 2)}

        def run() -> None:
            _command(service, "retention", "run", **shorter)

        yield "retention, two days of thirty", f"{_took_s(run):.1f} s"
        freed = before - trio.run(_value, service, _SIZE)
        yield "freed", f"{freed / _MIB:,.0f} MiB"
        yield "again, nothing to delete", f"{_took_s(run):.1f} s"


_FOUND: Final = f"select count(*) from finding where detector <> '{_OF_HISTORY}'"
_SIZE: Final = "select pg_database_size(current_database())"


async def _value(service: Service, sql: str) -> int:
    async with open_store(read_settings(dict(service.env)), as_it_is=True) as store:
        (row,) = await store.database.fetch(sql, timeout_s=60.0)
    value: int = row[0]
    return value


STEPS: Final[Mapping[str, Callable[[Path], Iterator[Figure]]]] = {
    "start": _starts,
    "check": _checks,
    "backup": _backups,
    "demo": _detected,
    "retention": _retained,
}


def figures(spans: int, folder: Path, steps: Sequence[str]) -> dict[str, str]:
    """What the steps take with one history, by what it is of."""
    data = folder / f"{spans}" / "data"
    if not data.exists():
        with history(spans, folder):
            pass
    found: dict[str, str] = {}
    for step in steps:
        for name, figure in STEPS[step](data):
            print(f"{spans:,} spans: {name}: {figure}", file=sys.stderr, flush=True)
            found[name] = figure
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.upkeep")
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--beside", type=int, help="compare with a second history of so many spans")
    parser.add_argument("--only", choices=STEPS, action="append", help="a step to take, once for each")
    parser.add_argument("--keep", type=Path, help="where histories are left and found again")
    arguments = parser.parse_args()
    sizes = [spans for spans in (arguments.spans, arguments.beside) if spans is not None]
    steps = arguments.only or list(STEPS)
    with tempfile.TemporaryDirectory(prefix="trace-svc-upkeep-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o711)
        of_each = [figures(spans, arguments.keep or Path(folder), steps) for spans in sizes]
    print(f"\n{machine()}, load {os.getloadavg()[0]:.1f}")
    print("\n| | " + " | ".join(f"{spans:,} spans" for spans in sizes) + " |")
    print("|---" * (len(sizes) + 1) + "|")
    for name in of_each[0]:
        print(f"| {name} | " + " | ".join(found[name] for found in of_each) + " |")


if __name__ == "__main__":
    main()
