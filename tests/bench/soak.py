"""`make soak`: memory over ten minutes of steady load.

    python -m tests.bench.soak [--minutes 10] [--per-second 30]

Batches of 100 spans at a steady pace; the resident memory of the main process and of its decoder processes is
read every half minute. Prints a Markdown table for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

from tests.bench.__main__ import latency, machine, percentile
from tests.bench.load import Result, generate
from tests.service import Service, measured, until

EVERY_S = 30.0


def resident_mb(pid: int) -> float:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--per-second", type=float, default=30.0, help="requests of 100 spans each second")
    arguments = parser.parse_args()
    with measured() as service:
        results: list[Result] = []

        def load() -> None:
            results.append(
                generate(
                    service.port,
                    service.write_key,
                    spans=100,
                    connections=8,
                    seconds=arguments.minutes * 60,
                    per_second=arguments.per_second,
                )
            )

        thread = threading.Thread(target=load)
        thread.start()
        samples = watch(service, thread)
        (result,) = results
        until(lambda: service.metric("svc_ingest_stored_spans_total") >= result.acknowledged, timeout_s=120)
    print(f"\n{machine()}, {result.acknowledged:,} spans in {result.elapsed_s / 60:.0f} minutes")
    print("\n| minute | main process | decoder processes | waiting |\n|---|---|---|---|")
    for minute, ours, decoders, waiting in samples:
        print(f"| {minute:.1f} | {ours:.0f} MB | {decoders:.0f} MB | {waiting:.1f} MB |")
    tail = [ours + decoders for _, ours, decoders, _ in samples[len(samples) // 2 :]]
    peak = max(ours + decoders for _, ours, decoders, _ in samples)
    print(f"\nPeak {peak:.0f} MB; second half {min(tail):.0f} to {max(tail):.0f} MB.")
    print(f"Acknowledgement p50 / p99 {latency(result)}, refused {result.refused}.")
    print(f"p999 {percentile(result.latencies_s, 0.999) * 1000:.0f} ms.")


def watch(service: Service, load: threading.Thread) -> list[tuple[float, float, float, float]]:
    """Minute, memory of the main process, of its decoders, and what waits in the spool, all in MB."""
    samples = []
    started_s = time.perf_counter()
    while load.is_alive():
        load.join(EVERY_S)
        samples.append(
            (
                (time.perf_counter() - started_s) / 60,
                resident_mb(service.process.pid),
                sum(resident_mb(pid) for pid in service.decoders()),
                service.metric("svc_spool_bytes") / 1024 / 1024,
            )
        )
    return samples


if __name__ == "__main__":
    main()
