"""`make soak`: memory of every process over two hours of steady load, with pages polled and detectors on.

    python -m tests.bench.soak [--minutes 120] [--per-second 5] [--limit-mb 512]

Batches of 100 spans at a steady pace, while somebody who is signed in opens a page of the project every few
seconds. What each process holds for itself alone (private memory) is read every half minute; a line of least
squares through the second half shows how fast each grows. With a limit the service runs in a control group
that has no more memory, cached files included, with `SVC_PROFILE=small`. Prints Markdown for
deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from tests.bench.__main__ import latency, machine, percentile
from tests.bench.load import Result, generate
from tests.bench.memory_group import MemoryGroup
from tests.bench.sizes import family
from tests.service import PLAIN, Service, measured, until

EVERY_S = 30.0
PAGE_EVERY_S = 3.0
PROJECT = "/orgs/default/projects/default"
PAGES = ("", "/traces", "/sessions", "/triage", "/vitals", "/explore", "/detectors", "/prices", "/connect")
OWNER = {"email": "owner@example.org", "password": "correct horse battery"}

#: Which process does what, by a word of its command line; the first that fits.
ROLES = (
    ("svc.ingest.decoder", "decoders"),
    ("svc.detecting", "detecting"),
    ("postgres", "database"),
    ("serve", "main"),
)

#: Minute and private megabytes, a role each.
Sample = tuple[float, dict[str, float]]


def private_mb(pid: int) -> float:
    """What a process holds for itself alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def role_of(pid: int) -> str:
    """What a process of the service does."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return next((role for word, role in ROLES if word in command), "other")


def memory(service: Service) -> dict[str, float]:
    """Private megabytes of the whole service, by role. Processes that end meanwhile are left out."""
    held: dict[str, float] = defaultdict(float)
    for pid in family(service.process.pid):
        try:
            held[role_of(pid)] += private_mb(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return dict(held)


@contextmanager
def pages_opened(service: Service) -> Iterator[list[int]]:
    """Opens a page every few seconds until the end; gives the status codes."""
    statuses: list[int] = []
    stop = threading.Event()

    def read() -> None:
        with httpx2.Client(base_url=service.url, timeout=60, **PLAIN) as reader:
            reader.post("/auth/signup", json=OWNER, headers={"Origin": service.url}).raise_for_status()
            for path in itertools.cycle(PAGES):
                if stop.wait(PAGE_EVERY_S):
                    return
                statuses.append(reader.get(PROJECT + path, follow_redirects=True).status_code)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield statuses
    finally:
        stop.set()
        reader.join(60)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument(
        "--per-second", type=float, default=5.0, help="requests of 100 spans each second; 0 for a flood"
    )
    parser.add_argument("--limit-mb", type=int, help="the memory of the whole service; needs root")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        group = None
        if arguments.limit_mb is None:
            service = stack.enter_context(measured())
        else:
            # Not in /dev/shm, whose files are memory.
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="trace-svc-soak-", dir="/var/tmp")))
            folder.chmod(0o755)
            group = stack.enter_context(MemoryGroup.made(arguments.limit_mb * 1024 * 1024))
            with group.entered():
                service = stack.enter_context(measured(folder / "data", SVC_PROFILE="small"))
        results: list[Result] = []

        def load() -> None:
            results.append(
                generate(
                    service.port,
                    service.write_key,
                    spans=100,
                    connections=8,
                    seconds=arguments.minutes * 60,
                    per_second=arguments.per_second or None,
                )
            )

        thread = threading.Thread(target=load)
        thread.start()
        with pages_opened(service) as statuses:
            samples = list(watch(service, thread, group))
        (result,) = results
        until(lambda: service.metric("svc_ingest_stored_spans_total") >= result.acknowledged, timeout_s=120)
        report(samples, result, statuses)
        if group is not None:
            print(f"The kernel ended {group.killed()} processes for want of memory.")


def watch(service: Service, load: threading.Thread, group: MemoryGroup | None) -> Iterator[Sample]:
    """Looks every half minute for as long as there is load, and says so on the way."""
    started_s = time.perf_counter()
    while load.is_alive():
        load.join(EVERY_S)
        minute, held = (time.perf_counter() - started_s) / 60, memory(service)
        if group is not None:
            held["whole group"] = group.held_mb()
        print(
            f"minute {minute:.1f}: " + ", ".join(f"{role} {mb:.0f} MB" for role, mb in sorted(held.items())),
            flush=True,
        )
        yield minute, held


def report(samples: list[Sample], result: Result, statuses: list[int]) -> None:
    """The tables."""
    print(f"\n{machine()}, {result.acknowledged:,} spans in {result.elapsed_s / 60:.0f} minutes")
    roles = sorted({role for _, held in samples for role in held})
    half = samples[len(samples) // 2 :]
    print(
        "\n| process | after 5 minutes | half-way | at the end | most | growth, second half |"
        "\n|---|---|---|---|---|---|"
    )
    fifth = next((held for minute, held in samples if minute >= 5), samples[-1][1])
    for role in roles:
        line = [held.get(role, 0.0) for _, held in samples]
        late = [held.get(role, 0.0) for _, held in half]
        slope = statistics.linear_regression([minute / 60 for minute, _ in half], late).slope
        cells = (fifth.get(role, 0.0), late[0], line[-1], max(line))
        print(f"| {role} | {' | '.join(f'{mb:.0f} MB' for mb in cells)} | {slope:+.1f} MB an hour |")
    print(f"\nAcknowledgement p50 / p99 {latency(result)}, p999", end=" ")
    print(f"{percentile(result.latencies_s, 0.999) * 1000:.0f} ms, refused {result.refused}.")
    wrong = sum(status != 200 for status in statuses)
    print(f"{len(statuses):,} pages opened, {wrong} not answered with 200.")


if __name__ == "__main__":
    main()
