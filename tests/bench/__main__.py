"""`make bench`: what is acknowledged and stored a second, beside what would be possible, in one run.

    python -m tests.bench [--seconds 10] [--batch 100] [--connections 8] [--rounds 3]

Prints a Markdown table ready for deploy/BENCHMARKS.md. The generator runs on the same machine, and so does
the broker of broker mode, when Java and Kafka are there (`mvn -f tests/kafka/pom.xml package` fetches it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx2
import trio

from protocol.otlp.reading import read_protobuf, walk
from protocol.storage import Batch
from svc.application.open_store import open_store
from svc.domain.intake.batches import StoredSpan, decoder
from svc.domain.intake.mapping import map_span
from svc.domain.pricing.prices import PriceBook
from svc.store.postgres.partitions import DayPartitions
from svc.store.spans.payloads import frame_up
from svc.store.spans.writing import _copy, _Kept
from tests import wire
from tests.bench.load import SPANS_PER_TRACE, Result, fresh, generate, make_template, send_each
from tests.kafka.broker import JARS, started
from tests.service import PLAIN, Service, environment, measured, until

LIMIT_SPANS = 20_000
AGAIN_SPANS = 40_000


@attrs.frozen
class Limits:
    """Spans a second: plain COPY of the same rows, and decode, map, price and pack on one core."""

    copy: float
    decode: float

    @property
    def smaller(self) -> float:
        return min(self.copy, self.decode)


def decode_limit() -> tuple[float, list[StoredSpan]]:
    """How fast one core makes rows of bodies, and the rows."""
    decode = decoder(PriceBook())
    templates = [make_template(seed, 100) for seed in range(8)]
    batches = [
        Batch(1, bytes(fresh(templates[n % 8])), 100, datetime.now(UTC), 0.0)
        for n in range(LIMIT_SPANS // 100)
    ]
    started_s = time.perf_counter()
    for batch in batches:
        # Let go of each batch, as a drainer does; keeping them all would measure the garbage collector.
        list(decode(batch))
    elapsed_s = time.perf_counter() - started_s
    return LIMIT_SPANS / elapsed_s, [row for batch in batches for some in decode(batch) for row in some]


def mapping_cost() -> float:
    """Microseconds of one core to map a span of about 4 KB: twenty attributes, messages as JSON."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": "where is my order? " * 8}]}] * 18
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "on its way. " * 20}]}]
    usage = {"gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 300}
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.conversation.id": "session",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(said),
        **usage,
        **{f"app.attribute.{number}": "value" for number in range(10)},
    }
    (span,) = walk(read_protobuf(wire.request(wire.span("chat", attributes)).SerializeToString()))
    prices = PriceBook()
    rounds = 5_000
    for _ in range(rounds // 10):
        map_span(span, prices)
    started_s = time.process_time()
    for _ in range(rounds):
        map_span(span, prices)
    return (time.process_time() - started_s) / rounds * 1e6


async def copy_limit(rows: list[StoredSpan], data_dir: Path) -> float:
    """How fast PostgreSQL takes the same rows into the same tables, one connection, groups of 1,500."""
    from svc.config.table import read_settings

    async with open_store(read_settings(environment(data_dir))) as store:
        now = datetime.now(UTC)
        await DayPartitions(store.database).ensure({row.row.started_at.date() for row in rows}, now)
        groups = [rows[start : start + 1500] for start in range(0, len(rows), 1500)]
        ready = [([_Kept(row, now) for row in group], frame_up(group)) for group in groups]
        started_s = time.perf_counter()
        for writes, framed in ready:
            await store.database.run(partial(_copy, writes=writes, framed=framed))
        return len(rows) / (time.perf_counter() - started_s)


def peak_rss_mb(service: Service) -> float:
    """The most memory that the Python process ever held."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def machine() -> str:
    """What and when was measured, as the figures' heading says it."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}"


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def load(
    service: Service, spans: int, arguments: argparse.Namespace, per_second: float | None
) -> tuple[Result, float]:
    """Send, then wait until everything acknowledged is stored. Returns the result and stored spans/s."""
    before = service.metric("svc_ingest_stored_spans_total")
    result = generate(
        service.port,
        service.write_key,
        spans=spans,
        connections=arguments.connections,
        seconds=arguments.seconds,
        per_second=per_second,
    )
    until(
        lambda: service.metric("svc_ingest_stored_spans_total") - before >= result.acknowledged,
        timeout_s=180,
        # Each look costs the service and this process 4 ms of a core that the catching up needs.
        every_s=0.25,
    )
    # From the generator's first request until its last span is stored.
    return result, result.acknowledged / (result.elapsed_s + time.time() - result.ended_s)


def again(service: Service, arguments: argparse.Namespace) -> tuple[float, float]:
    """Spans a second of bodies sent for the first time, and of the same bodies sent again."""
    templates = [make_template(seed, arguments.batch) for seed in range(8)]
    bodies = [bytes(fresh(templates[number % 8])) for number in range(AGAIN_SPANS // arguments.batch)]
    rates = []
    folded = service.metric("svc_traces_folded_total") + AGAIN_SPANS // SPANS_PER_TRACE
    for metric in ("svc_ingest_stored_spans_total", "svc_ingest_duplicate_spans_total"):
        spans = len(bodies) * arguments.batch
        wanted = service.metric(metric) + spans
        started_s, _ = send_each(service.port, service.write_key, bodies, connections=arguments.connections)
        until(partial(_reached, service, metric, wanted), timeout_s=180, every_s=0.1)
        rates.append(spans / (time.time() - started_s))
        # What is done with new traces later is not to be paid by what comes again.
        until(partial(_reached, service, "svc_traces_folded_total", folded), timeout_s=120, every_s=0.25)
    return rates[0], rates[1]


def _reached(service: Service, metric: str, wanted: float) -> bool:
    return service.metric(metric) >= wanted


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="how often each mode of the spool has its turn")
    arguments = parser.parse_args()
    decode, rows = decode_limit()
    with tempfile.TemporaryDirectory(prefix="trace-svc-bench-") as folder:
        os.chmod(folder, 0o755)
        limits = Limits(trio.run(copy_limit, rows, Path(folder) / "copy"), decode)
    warm = argparse.Namespace(**{**vars(arguments), "seconds": 3.0})
    with measured() as service:
        load(service, arguments.batch, warm, None)
        flood, stored = load(service, arguments.batch, arguments, None)
        before = waits(service)
        half, _ = load(service, arguments.batch, arguments, stored / arguments.batch / 2)
        lag_s = waited(before, waits(service), 0.99)
        small, _ = load(service, 1, arguments, None)
        once, twice = again(service, arguments)
        memory = peak_rss_mb(service)
    rates = {mode: sorted(each) for mode, each in modes(arguments, warm).items()}
    usual = {mode: statistics.median(each) for mode, each in rates.items()}
    size = len(make_template(0, 100).body) / 100
    print(f"\n{machine()}, spans of {size:.0f} B")
    print("\n| figure | value |\n|---|---|")
    for name, value in (
        ("limit: plain COPY of the same rows", f"{limits.copy:,.0f} spans/s"),
        ("mapping a 4 KB span; at most 60 µs is wanted", f"{mapping_cost():.0f} µs"),
        ("limit: decode, map, price, pack on one core", f"{limits.decode:,.0f} spans/s"),
        ("acknowledged", f"{flood.acknowledged / flood.elapsed_s:,.0f} spans/s"),
        ("stored and queryable", f"{stored:,.0f} spans/s"),
        ("stored, share of the smaller limit", f"{stored / limits.smaller:.2f}"),
        ("refused with 503 in the flood", f"{flood.refused}"),
        ("acknowledgement p50 / p99, flood", latency(flood)),
        ("acknowledgement p50 / p99, half the load", latency(half)),
        ("acknowledged until queryable p99, half the load", f"at most {lag_s:g} s"),
        ("requests of one span", f"{len(small.latencies_s) / small.elapsed_s:,.0f}/s"),
        (
            "sent again to the byte, of what is new",
            f"{twice:,.0f} of {once:,.0f} spans/s, {twice / once:.2f}",
        ),
        ("peak memory of the main process", f"{memory:,.0f} MB"),
        *(
            (
                f"stored and queryable, {mode} mode, {len(each)} rounds",
                f"{each[0]:,.0f} to {each[-1]:,.0f} spans/s, {usual[mode] / usual['memory']:.2f} of memory",
            )
            for mode, each in rates.items()
        ),
    ):
        print(f"| {name} | {value} |")


def modes(arguments: argparse.Namespace, warm: argparse.Namespace) -> dict[str, list[float]]:
    """Spans stored a second in each mode of the spool, in turns, because a machine's speed drifts.

    Broker mode only where a broker can be had.
    """
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        settings = {"memory": {}, "disk": {"SVC_INGEST_SPOOL_MODE": "disk"}}
        if shutil.which("java") is not None and any(JARS.glob("kafka_*.jar")):
            broker = stack.enter_context(started())
            settings["broker"] = {
                "SVC_INGEST_SPOOL_MODE": "kafka",
                "SVC_INGEST_SPOOL_KAFKA_BOOTSTRAP_SERVERS": broker.servers,
            }
        else:
            print("no broker: Java or Kafka is missing", file=sys.stderr)
        for mode, setting in list(settings.items()) * arguments.rounds:
            with measured(**setting) as service:
                load(service, arguments.batch, warm, None)
                rates.setdefault(mode, []).append(load(service, arguments.batch, arguments, None)[1])
    return rates


def waits(service: Service) -> dict[float, float]:
    """The service's own histogram of the time from acknowledgement to queryable, cumulative by bound."""
    text = httpx2.get(f"{service.url}/actuator/prometheus", timeout=30, **PLAIN).text
    return {
        float(bound): float(count)
        for bound, count in re.findall(r'svc_ingest_queryable_seconds_bucket\{le="([^"]+)"\} (\S+)', text)
    }


def waited(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """The least bound of the histogram under which this share of the batches between two readings lies."""
    new = {bound: count - before[bound] for bound, count in after.items()}
    return min(bound for bound, count in new.items() if count >= share * new[float("inf")])


def latency(result: Result) -> str:
    median = statistics.median(result.latencies_s or [0.0])
    return f"{median * 1000:.1f} / {percentile(result.latencies_s, 0.99) * 1000:.1f} ms"


if __name__ == "__main__":
    main()
