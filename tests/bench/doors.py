"""`make bench-doors`: what a request costs over HTTP/1.1, over HTTP/2 and over gRPC, in turns.

    python -m tests.bench.doors [--rounds 5] [--megabytes 60] [--stored 30]

The generator is `h2load` (Debian's package nghttp2-client), which speaks all three and takes little of the
machine; it sends one body again and again over eight connections, one request at a time on each. Every round
fits the memory that may wait for the database, so that nobody is told to come again, and what is compared is
how fast requests are acknowledged and what the main process takes for each. Prints Markdown for
deploy/BENCHMARKS.md.

With `--stored` it asks instead how many requests of one span are stored: `wrk` (Debian's package of the same
name) sends them for so many seconds over HTTP/1.1, each span with ids of its own, and the time counts until
the last of them can be queried.
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
import time
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
    assert service.metric("svc_ingest_requests_total") - before == requests, "a request was refused"
    until(lambda: _waiting_bytes(service) == 0, timeout_s=180, every_s=0.25)
    return float(rate[1]), took_s / requests * 1e6


#: A request of `wrk`: a body in four pieces, with new ids between them.
_LUA: Final = """
local a, b, c = {pieces}
local function ids(count)
  local bytes = {{}}
  for n = 1, count do bytes[n] = string.char(math.random(0, 255)) end
  return table.concat(bytes)
end
math.randomseed(os.time())
wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer {key}"
wrk.headers["Content-Type"] = "application/x-protobuf"
function request() return wrk.format(nil, nil, nil, a .. ids(16) .. b .. ids(4) .. c) end
"""


def stored(service: Service, seconds: int) -> tuple[float, float, int]:
    """Spans stored a second, microseconds of the main process for each, and how many were refused."""
    template = make_template(1, 1)
    ((trace,),), ((span_id, _),) = template.traces, template.span_ids
    body = bytes(fresh(template))
    pieces = body[:trace], body[trace + 16 : span_id + 1], body[span_id + 5 :]
    texts = ", ".join('"' + "".join(f"\\{byte:03d}" for byte in piece) + '"' for piece in pieces)
    before_s, began_s = processor_s(service.process.pid), time.perf_counter()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_LUA.format(pieces=texts, key=service.write_key))
        script.flush()
        words = ["wrk", "-t", "1", "-c", f"{_CONNECTIONS}", "-d", f"{seconds}s", "--timeout", "60s"]
        done = subprocess.run(
            [*words, "-s", script.name, f"http://127.0.0.1:{service.port}/v1/traces"],
            capture_output=True,
            text=True,
            timeout=seconds + 60,
            check=True,
        )
    until(lambda: _waiting_bytes(service) == 0, timeout_s=180, every_s=0.1)
    took_s = time.perf_counter() - began_s
    spans = service.ask("count", {"dataset": "spans"})["count"]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    cost_s = processor_s(service.process.pid) - before_s
    return spans / took_s, cost_s / spans * 1e6, int(refused[1]) if refused else 0


def _waiting_bytes(service: Service) -> int:
    return int(service.health()["components"]["ingest"]["details"]["bytes"])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.doors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=60, help="what is sent in a round")
    parser.add_argument("--stored", type=int, metavar="SECONDS", help="how much of single spans is stored")
    arguments = parser.parse_args()
    if arguments.stored is not None:
        print(f"\n{machine()}\n\n| spans stored/s | main process, µs a span | refused |\n|---|---|---|")
        for _ in range(arguments.rounds):
            with measured() as service:
                rate, cost_us, refused = stored(service, arguments.stored)
            print(f"| {rate:,.0f} | {cost_us:,.0f} | {refused:,} |", flush=True)
        return
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
