"""`make bench-detect`, second half: labelled traffic of four weeks through the real door, and what is found.

    python -m tests.bench.labelled [--seeds 2 3] [--traffic first foreign] [--apps NAME ...]
        [--told] [--keep FOLDER]

Each run has a service of its own. Prints a table of figures a run; `--told` every finding besides, `--keep`
leaves the data of the last run in a folder that is not there yet. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx2
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Database
from tests.detecting.applications import FAULTS, FOREIGN, HEALTHY, Traffic
from tests.detecting.house import House
from tests.detecting.labelled import DAYS, RELEASE, App
from tests.detecting.scoring import Outcome, Score, read
from tests.service import PLAIN, Service, measured
from tests.store.spans.test_writing import fetch
from tests.wire import request

TRAFFICS: Final[Mapping[str, tuple[App, ...]]] = {"first": FAULTS + HEALTHY, "foreign": FOREIGN}
CONNECTIONS: Final = 4
SPANS: Final = 500
#: CPU seconds of one core within which a backlog of a million spans is judged.
BACKLOG_S: Final = 120.0
#: After so long without an end something is wrong.
PATIENCE_S: Final = 3_600.0


def bodies(traffic: Traffic) -> Iterator[tuple[int, bytes]]:
    """Requests with the number of traces that begin in each, every release under a resource of its own."""
    batch: dict[str, list[Any]] = {}
    traces = size = 0
    for _, spans in traffic.traces():
        for one in spans:
            last = one.attributes[-1]
            release = last.value.string_value if last.key == RELEASE else ""
            batch.setdefault(release, []).append(one)
            traces += not one.parent_span_id
        size += len(spans)
        if size >= SPANS:
            yield traces, _body(batch)
            batch, traces, size = {}, 0, 0
    if traces:
        yield traces, _body(batch)


def _body(batch: Mapping[str, list[Any]]) -> bytes:
    whole = ExportTraceServiceRequest()
    for release, spans in batch.items():
        whole.MergeFrom(request(*spans, resource={RELEASE: release} if release else None))
    return whole.SerializeToString()


def send(service: Service, traffic: Traffic) -> int:
    """Everything in order, over several connections, as fast as it goes, every fiftieth request twice, as
    exporters do that heard no answer. Returns the number of traces.
    """
    headers = {
        "Authorization": f"Bearer {service.write_key}",
        "Content-Type": "application/x-protobuf",
    }
    with (
        httpx2.Client(timeout=60, **PLAIN) as client,
        ThreadPoolExecutor(CONNECTIONS) as threads,
    ):

        def post(body: bytes) -> None:
            while (answer := client.post(f"{service.url}/v1/traces", content=body, headers=headers)).is_error:
                assert answer.status_code in (429, 503), answer.text
                time.sleep(float(answer.headers.get("retry-after", 0.2)))

        total = 0
        waiting: list[Any] = []
        for number, (traces, body) in enumerate(bodies(traffic)):
            total += traces
            waiting += [threads.submit(post, body) for _ in range(1 + (number % 50 == 0))]
            while len(waiting) >= 2 * CONNECTIONS:
                waiting.pop(0).result()
        for one in waiting:
            one.result()
    return total


async def done(database: Database, traces: int) -> bool:
    """Whether all is folded and judged, and every case seen to."""
    [row] = await fetch(
        database,
        "select (select count(*) from trace_fold) as folded, exists (select from fold_due) as due,"
        " exists (select from tally_due d join fold_state s on s.project_id = d.project_id"
        " where d.from_slot < s.newest_slot - 2) as unjudged,"
        " (select count(*) from judge_state where holder is not null) as held,"
        " (select max(touched_since) < clock_timestamp() - interval '60 s' from fold_state) as quiet",
    )
    return row["folded"] >= traces and not row["due"] and not row["unjudged"] and row["quiet"]


async def watch(service: Service, traces: int) -> Outcome:
    """What was found, once there is nothing left to judge."""
    async with open_store(read_settings(dict(service.env))) as store:
        with trio.fail_after(PATIENCE_S):
            while not await done(store.database, traces):  # noqa: ASYNC110 - it happens elsewhere
                await trio.sleep(1)
            # The case keeper comes after the judges, twice where something joins.
            await trio.sleep(25)
        return await read(store.database)


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def judged_again_s(folder: Path) -> float:
    """The CPU seconds that judging all that was counted takes, in one go, those of the database aside."""
    async with open_store(read_settings({"SVC_DATA_DIR": str(folder)})) as store:
        house = House(store.database)
        await house.forget()
        await house.rest()
        began_s = time.process_time()
        await house.look()
        return time.process_time() - began_s


def run(name: str, apps: tuple[App, ...], seed: int, *, told: bool, folder: Path) -> Sequence[str]:
    """One run: sent, folded, judged, printed. The bars that it missed."""
    with measured(folder, SVC_DETECTORS_INTERVAL_SECONDS="5") as service:
        started_s = time.monotonic()
        traces = send(service, Traffic(seed, apps))
        sent_s = time.monotonic() - started_s
        outcome = trio.run(watch, service, traces)
        wall_s = time.monotonic() - started_s
        detecting_s = cpu_s(service.children("svc.detecting")[0])
    score = Score(outcome, apps, DAYS)
    judging_s = trio.run(judged_again_s, folder) / outcome.spans * 1e6
    print(f"\n### The {name} traffic, seed {seed}: {traces:,} traces in {outcome.subjects} subjects\n")
    print("| figure | |\n|---|---|")
    for figure, value in (
        *score.lines(),
        ("spans; sent; all judged", f"{outcome.spans:,}; {sent_s:.0f} s; {wall_s:.0f} s"),
        (
            "CPU of a million spans, folded and judged as they came",
            f"{detecting_s / outcome.spans * 1e6:.0f} s",
        ),
        ("CPU of a million spans, judged in one go", f"{judging_s:.0f} s"),
    ):
        print(f"| {figure} | {value} |", flush=True)
    if told:
        print("\n".join(("", *score.told())), flush=True)
    slow = [f"judging a million spans takes {judging_s:.0f} s of CPU, not less than {BACKLOG_S:.0f}"]
    return [*score.missed_bars(), *(slow if judging_s >= BACKLOG_S else ())]


def main() -> None:
    """Run each traffic with each seed, one after the other."""
    parser = argparse.ArgumentParser(description="The detectors on labelled traffic.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--traffic", nargs="+", choices=TRAFFICS, default=list(TRAFFICS))
    parser.add_argument("--apps", nargs="+", help="only the applications of these names")
    parser.add_argument("--told", action="store_true", help="print every finding")
    parser.add_argument("--keep", type=Path, help="a folder for the data of the last run")
    arguments = parser.parse_args()
    runs = [(name, seed) for name in arguments.traffic for seed in arguments.seeds]
    missed = []
    for name, seed in runs:
        apps = tuple(app for app in TRAFFICS[name] if arguments.apps is None or app.name in arguments.apps)
        with tempfile.TemporaryDirectory(prefix="trace-svc-bench-") as fresh:
            os.chmod(fresh, 0o755)
            kept = arguments.keep if (name, seed) == runs[-1] else None
            bars = run(name, apps, seed, told=arguments.told, folder=kept or Path(fresh) / "data")
        missed += [f"the {name} traffic, seed {seed}: {bar}" for bar in bars]
    print("\n" + ("\n".join(f"MISSED {one}" for one in missed) or "Every bar holds."), flush=True)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
