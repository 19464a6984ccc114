"""A service that is killed while it counts, judges and opens cases says what one says that nobody killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Connection
from tests.detecting.applications import Traffic
from tests.detecting.labelled import DAY, HOUR, SECRET, App, Planted
from tests.service import Service, running, stop_postgres
from tests.wire import request

pytestmark = [pytest.mark.alone, pytest.mark.release]

APPS = (
    App("shop", 45, (Planted("pay fails", 15 * DAY + 9 * HOUR, 18 * DAY, tool="pay", tool_errors=0.8),),
        tools={"pay": 0.02}, by_day=1.0, noise=0.2),
    App("mail", 8, (Planted("leak", 16 * DAY + 9 * HOUR, found=("secret_leak",), says=SECRET),),
        tools={"send": 0.0}, noise=0.0),
)  # fmt: skip
DAYS = 19
BEAT_S = "5"
#: A run takes two minutes where nobody else works; most of it is waiting for what may come late.
PATIENCE_S = 900.0

#: What was told, without the moments at which it was: those of a clock differ from run to run.
TOLD = {
    "findings": "select detector, cause_key, status, onset_at, first_seen_at, last_seen_at, recovered_at,"
    " recurrences, trace_count, title, basis, confirmed, closed_as, recorded_counts::text from finding",
    "evidence": "select f.cause_key, e.role, e.rank, e.trace_id, e.span_id from finding_evidence e"
    " join finding f on f.id = e.finding_id",
    "firings": "select classifier_id, subject_trace_id, subject_span_id, summary, created_at"
    " from classifier_event",
    "cases": "select c.number, c.title, c.state, c.resolution, c.onset_at, f.cause_key, l.role"
    " from detection_case c join case_finding l on l.case_id = c.id join finding f on f.id = l.finding_id",
    "trail": "select c.number, e.kind, e.actor, e.summary from case_event e"
    " join detection_case c on c.id = e.case_id",
    # By the hour: a month is old enough for some of it to be brought to hours, whenever that is done.
    "tallies": "select b.measure, b.subject, b.detail, t.slot - t.slot % 12, t.bin, sum(t.units),"
    " sum(t.failures) from tally t join tally_bucket b on b.id = t.bucket_id group by 1, 2, 3, 4, 5",
    "reports": "select c.number, r.status, r.report ->> 'verdict' from rca_report r"
    " join detection_case c on c.id = r.case_id",
}
#: Nothing is left to count, to judge or to report, and every finding has been looked at.
DONE = (
    "select (select count(*) from trace_fold) = {traces} and not exists (select from fold_due)"
    " and not exists (select from tally_due d join fold_state s on s.project_id = d.project_id"
    " where d.from_slot < s.newest_slot - 2)"
    " and not exists (select from finding where triage_verdict is null)"
    " and exists (select from rca_report) and not exists (select from rca_report where status = 'running')"
    " and not exists (select from detection_case where rule_report_due and rule_report_after is null)"
    " and not exists (select from finding where recovered_at is not null and closed_at is null)"
)
AWAITED = "select exists (select from pg_locks where relation = $1::text::regclass and not granted)"
#: What it is about to write when it is killed: the first of it that this start brings.
MOMENTS = {
    "counting": "trace_fold",
    "judging": "bucket_state",
    "opening findings": "finding",
    "opening cases": "detection_case",
    "reporting": "rca_report",
}


class Kept:
    """A table that can be read and not written as long as the block lasts; it tells when somebody waits."""

    def __init__(self, env: Mapping[str, str], table: str) -> None:
        self._env, self._table = env, table
        self._locked, self._awaited, self._over = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._keep,))

    def __enter__(self) -> Kept:
        self._thread.start()
        assert self._locked.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def let_go(self) -> None:
        self._over.set()
        self._thread.join()

    def until_awaited(self) -> None:
        assert self._awaited.wait(PATIENCE_S)

    async def _keep(self) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute(f"lock table {self._table} in share mode")
            self._locked.set()
            while not self._over.is_set():
                if await connection.fetchval(AWAITED, self._table):
                    self._awaited.set()
                await connection.execute("select pg_sleep(0.02)")

        async with open_store(read_settings(dict(self._env)), as_it_is=True) as store:
            await store.database.run(work, timeout_s=PATIENCE_S)


def answer(service: Service, sql: str) -> list[tuple[Any, ...]]:
    """What the service's database says."""

    async def asked() -> list[tuple[Any, ...]]:
        async def work(connection: Connection) -> list[Any]:
            return await connection.fetch(sql)

        async with open_store(read_settings(dict(service.env))) as store:
            return [tuple(row.values()) for row in await store.database.run(work)]

    return trio.run(asked)


def until_true(service: Service, sql: str, every_s: float = 0.005) -> None:
    """Wait for it over one connection."""

    async def waited() -> None:
        async with open_store(read_settings(dict(service.env))) as store:

            async def work(connection: Connection) -> bool:
                return bool(await connection.fetchval(sql))

            with trio.fail_after(PATIENCE_S):
                while not await store.database.run(work):  # noqa: ASYNC110 - it happens elsewhere
                    await trio.sleep(every_s)

    trio.run(waited)


def bodies() -> Iterator[tuple[int, bytes]]:
    batch: list[Any] = []
    traces = 0
    for _, spans in Traffic(3, APPS, DAYS).traces():
        batch += spans
        traces += 1
        if len(batch) > 800:
            yield traces, request(*batch).SerializeToString()
            batch, traces = [], 0
    yield traces, request(*batch).SerializeToString()


def kill(service: Service) -> None:
    """At once and whole: nobody lets go of anything."""
    for pid in (*service.children("svc.detecting"), *service.decoders(), service.process.pid):
        os.kill(pid, signal.SIGKILL)
    service.process.wait(40)


def outcome(service: Service, traces: int) -> dict[str, list[tuple[Any, ...]]]:
    until_true(service, DONE.format(traces=traces), every_s=0.5)
    return {name: sorted(answer(service, sql), key=repr) for name, sql in TOLD.items()}


def test_killed_at_every_stage_it_tells_the_same_as_undisturbed_and_nothing_twice(open_folder: Path) -> None:
    sent = list(bodies())
    traces = sum(n for n, _ in sent)
    with running(SVC_DETECTORS_INTERVAL_SECONDS=BEAT_S) as service:
        for _, body in sent:
            assert service.send(body).status_code == 200
        undisturbed = outcome(service, traces)
    assert {row[1] for row in undisturbed["findings"]} >= {
        "tool_error_rate:shop-pay:up",
        "secret:mail:aws-access-key-id",
    }
    assert len({row[0] for row in undisturbed["cases"]}) == 2
    folder = open_folder / "data"
    try:
        with running(folder, first=True, SVC_DETECTORS_INTERVAL_SECONDS=BEAT_S) as service:
            for _, body in sent[:-1]:
                assert service.send(body).status_code == 200
            with Kept(service.env, MOMENTS["counting"]) as kept:
                assert service.send(sent[-1][1]).status_code == 200
                kept.until_awaited()
                kill(service)
        for table in list(MOMENTS.values())[1:]:
            # Whoever keeps a table has the database running, before the service and after its end.
            with (
                Kept(service.env, table) as kept,
                running(folder, SVC_DETECTORS_INTERVAL_SECONDS=BEAT_S) as service,
            ):
                kept.until_awaited()
                kill(service)
                kept.let_go()
        with running(folder, SVC_DETECTORS_INTERVAL_SECONDS=BEAT_S) as service:
            disturbed = outcome(service, traces)
    finally:
        stop_postgres(folder)
    for name, rows in undisturbed.items():
        assert disturbed[name] == rows, name
