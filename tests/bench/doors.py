"""`make bench-doors`: what a request costs over HTTP/1.1, over HTTP/2 and over gRPC, in turns.

    python -m tests.bench.doors [--rounds 5] [--megabytes 60]

The generator is `h2load` (Debian's package nghttp2-client), which speaks all three and takes little of the
machine; it sends one body again and again over eight connections, one request at a time on each. Every round
fits the memory that may wait for the database, so that nobody is told to come again, and what is compared is
how fast requests are acknowledged and what the main process takes for each. Prints Markdown for
deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

import attrs

from tests.bench.__main__ import machine
from tests.bench.load import fresh, make_template
from tests.bench.start import processor_s
from tests.service import Service, measured, until

_CONNECTIONS: Final = 8
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@attrs.frozen
class Door:
    """How h2load is told to use it."""

    name: str
    options: tuple[str, ...] = ()
    is_grpc: bool = False

    def words(self, service: Service, body: Path, requests: int) -> list[str]:
        """The command that sends so many requests."""
        path = _EXPORT if self.is_grpc else "/v1/traces"
        port = service.grpc_port if self.is_grpc else service.port
        content = "application/grpc" if self.is_grpc else "application/x-protobuf"
        headers = [f"Authorization: Bearer {service.write_key}", f"Content-Type: {content}"]
        if self.is_grpc:
            headers.append("te: trailers")
        return [
            *("h2load", *self.options, "-n", f"{requests}", "-c", f"{_CONNECTIONS}", "-m", "1"),
            *("-d", str(body), *(word for header in headers for word in ("-H", header))),
            f"http://127.0.0.1:{port}{path}",
        ]


DOORS: Final = (Door("HTTP/1.1", ("--h1",)), Door("HTTP/2"), Door("gRPC", is_grpc=True))


def sent(service: Service, door: Door, body: bytes, requests: int) -> tuple[float, float]:
    """Requests a second, and microseconds of the main process for each."""
    before = service.metric("svc_ingest_requests_total")
    with tempfile.NamedTemporaryFile(suffix=".body") as file:
        file.write(struct.pack(">BI", 0, len(body)) + body if door.is_grpc else body)
        file.flush()
        before_s = processor_s(service.process.pid)
        done = subprocess.run(
            door.words(service, Path(file.name), requests),
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        took_s = processor_s(service.process.pid) - before_s
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", done.stdout)
    assert rate is not None, done.stdout
    # h2load takes an HTTP/1.1 answer without a reason phrase for a failure.
    assert service.metric("svc_ingest_requests_total") - before == requests, "a request was refused"
    until(lambda: _waiting_bytes(service) == 0, timeout_s=180, every_s=0.25)
    return float(rate[1]), took_s / requests * 1e6


def _waiting_bytes(service: Service) -> int:
    return int(service.health()["components"]["ingest"]["details"]["bytes"])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.doors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=60, help="what is sent in a round")
    arguments = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is not there; install Debian's package nghttp2-client")
    print(f"\n{machine()}, {arguments.rounds} rounds in turns\n")
    print("| spans of a request | door | requests/s | of HTTP/1.1 | main process, µs a request |")
    print("|---|---|---|---|---|")
    with measured(SVC_INGEST_OTLP_TRANSPORT="BOTH") as service:
        for spans in (1, 10, 100):
            body = bytes(fresh(make_template(1, spans)))
            requests = min(10_000, arguments.megabytes * 1_000_000 // len(body))
            figures: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for _ in range(arguments.rounds):
                for door in DOORS:
                    figures[door.name].append(sent(service, door, body, requests))
            first = statistics.median(rate for rate, _ in figures[DOORS[0].name])
            for name, measures in figures.items():
                rate, cost_us = (statistics.median(column) for column in zip(*measures, strict=True))
                print(f"| {spans} | {name} | {rate:,.0f} | {rate / first:.2f} | {cost_us:,.0f} |")


if __name__ == "__main__":
    main()
