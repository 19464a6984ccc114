"""`make bench-start`: how long a start takes, and what the service holds at rest.

    python -m tests.bench.start [--times 10] [--beside CHECKOUT] [--rest 60] [--limit-mb 1024]

Starts the service again and again on the same folder, and takes the time from the command to the line that
says that it is ready, and the processor time of all its processes until then. With another checkout, which
has a `.venv` of its own, the two take turns: a machine drifts. After the last start it is left alone, and
the memory of each process is read, of shared pages its share (PSS). With `--limit-mb` all of it runs in a
control group with so much memory, as on a smaller machine; this needs root. Prints Markdown for
deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.bench.__main__ import machine
from tests.bench.memory_group import MemoryGroup
from tests.bench.sizes import family, pss_mb
from tests.bench.soak import role_of

ROOT: Final = Path(__file__).parents[2]
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """What a process has taken of the processor, and those below it that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_S


@contextmanager
def started(checkout: Path, folder: Path) -> Iterator[tuple[int, float, float]]:
    """A service of a checkout: its process id, seconds until it was ready, and of processor time by then."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SVC_")}
    env |= {"SVC_DATA_DIR": str(folder), "SVC_HTTP_BIND": "127.0.0.1:0"}
    # Without what Python compiled before, each start would compile it.
    env["PYTHONDONTWRITEBYTECODE"] = ""
    began_s = time.perf_counter()
    with subprocess.Popen(
        [checkout / ".venv" / "bin" / "trace-svc", "serve"],
        cwd="/",
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout)
            assert any("is ready at" in line for line in lines), "the service did not start"
            took_s = time.perf_counter() - began_s
            yield process.pid, took_s, sum(map(processor_s, family(process.pid)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def held_mb(pid: int) -> dict[str, float]:
    """PSS by role."""
    held: dict[str, float] = defaultdict(float)
    for member in family(pid):
        held[role_of(member)] += pss_mb(member)
    return dict(held)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.start")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--beside", type=Path, help="another checkout, with a .venv of its own")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds before the memory is read")
    parser.add_argument("--limit-mb", type=int, help="run in a control group with so much memory")
    arguments = parser.parse_args()
    checkouts = [ROOT] if arguments.beside is None else [ROOT, arguments.beside.resolve()]
    starts: dict[Path, list[tuple[float, float]]] = defaultdict(list)
    held: dict[Path, dict[str, float]] = {}
    with ExitStack() as stack:
        parent = stack.enter_context(tempfile.TemporaryDirectory(prefix="trace-svc-start-"))
        if arguments.limit_mb is not None:
            group = stack.enter_context(MemoryGroup.made(arguments.limit_mb * 1024 * 1024))
            stack.enter_context(group.entered())
        Path(parent).chmod(0o755)
        folders = {checkout: Path(parent) / str(number) for number, checkout in enumerate(checkouts)}
        for attempt in range(arguments.times + 1):
            for checkout, folder in folders.items():
                with started(checkout, folder) as (pid, took_s, cpu_s):
                    # The first makes the folder.
                    if attempt:
                        starts[checkout].append((took_s, cpu_s))
                    if attempt == arguments.times:
                        time.sleep(arguments.rest)
                        held[checkout] = held_mb(pid)
    within = "" if arguments.limit_mb is None else f", within {arguments.limit_mb:,} MB"
    print(f"\n{machine()}{within}, {arguments.times} starts each, load {os.getloadavg()[0]:.1f}\n")
    print("| code | ready after, median | best | processor until then, median |\n|---|---|---|---|")
    for checkout, figures in starts.items():
        took, cpu = zip(*figures, strict=True)
        name = "this" if checkout == ROOT else "beside"
        print(
            f"| {name} | {statistics.median(took):.2f} s | {min(took):.2f} s"
            f" | {statistics.median(cpu):.2f} s |"
        )
    print("\n| process | " + " | ".join("this" if checkout == ROOT else "beside" for checkout in held) + " |")
    print("|---" * (len(held) + 1) + "|")
    for role in sorted({role for roles in held.values() for role in roles}):
        print(f"| {role} | " + " | ".join(f"{roles.get(role, 0):.0f} MB" for roles in held.values()) + " |")
    print("| all | " + " | ".join(f"{sum(roles.values()):.0f} MB" for roles in held.values()) + " |")


if __name__ == "__main__":
    main()
