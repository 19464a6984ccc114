"""`make hostile`, second half: what the worst bodies that we know of cost, as a table.

    python -m tests.bench.hostile [--mib 64]

Each body is sent packed, twice, to a service with its usual budget, while another client asks for health all
the time. For each: how large it is open, how it was answered, how much the main process grew at its peak, the
longest wait of the other client, and processor time of the main process a megabyte that was open. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

from tests.amplifiers import json_amplifiers, protobuf_amplifiers
from tests.e2e.hostile import MIB
from tests.e2e.watch import Watch
from tests.service import Service, measured, until


def bodies(size: int) -> Iterator[tuple[str, str, bytes]]:
    """Form, name and body of each attack, about so large; an empty message takes two bytes, or three."""
    for name, body in protobuf_amplifiers(size // 2 - 512).items():
        yield "protobuf", name, body
    for name, body in json_amplifiers(size // 3 - 512).items():
        if len(body) >= MIB:
            yield "json", name, body


def processor_s(service: Service) -> float:
    """Processor time that the main process has used."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(prog="tests.bench.hostile")
    arguments.add_argument("--mib", type=int, default=64)
    size = arguments.parse_args().mib * MIB
    print("| body | MiB open | answer | grown at peak, MiB | longest wait of another, ms | CPU, ms a MiB |")
    print("|---|---|---|---|---|---|")
    with measured() as service:
        until(lambda: service.health()["status"] == "UP")
        for form, name, body in bodies(size):
            packed = gzip.compress(body, 1)
            kind = "application/json" if form == "json" else "application/x-protobuf"
            statuses = set()
            before_s = processor_s(service)
            with Watch(service) as watch:
                for _ in range(2):
                    statuses.add(service.send(packed, Content_Type=kind, Content_Encoding="gzip").status_code)
            used_s = processor_s(service) - before_s
            print(
                f"| {form}, {name} | {len(body) / MIB:.0f} | {', '.join(map(str, sorted(statuses)))}"
                f" | {watch.grown_bytes / MIB:.0f} | {1000 * watch.worst_s:.0f}"
                f" | {1000 * used_s / (2 * len(body) / MIB):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
