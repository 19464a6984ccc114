"""The disk budget of a real service on a small real disk: what goes, what stays, when it refuses."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trio

from protocol.detection import Ref
from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Connection
from svc.store.postgres.partitions import DayPartitions
from tests.forked import ran
from tests.service import TRACE_SVC, Service, environment, running, until
from tests.small_disk import small_disk
from tests.store.detection.detecting import fire, seen
from tests.wire import request, span

pytestmark = [pytest.mark.alone, pytest.mark.release]

MIB = 1024 * 1024
BUDGET = 300 * MIB
SETTINGS = {"SVC_DISK_BUDGET_BYTES": str(BUDGET), "SVC_DETECTORS_INTERVAL_SECONDS": "3600"}
#: What is there by day: some payloads, and spans that are nothing beside them.
DAYS = 12


Placed = tuple[int, bytes, datetime, datetime]


async def fill(service: Service, mib_a_day: int, ages: range, *, behind: int = 0) -> None:
    """Spans with payloads that compress no further. The first of each day is of trace 1, 2, ..."""
    async with open_store(read_settings(dict(service.env)), as_it_is=True) as store:
        project = await ProjectStore(store.database).make_default()
        assert project is not None
        now = datetime.now(UTC)
        await DayPartitions(store.database).ensure([(now - timedelta(days=age)).date() for age in ages], now)
        for age in ages:
            # By its number and not by chance, so that a day's oldest trace is known.
            at = now.replace(hour=0, minute=0, second=1) - timedelta(days=age)
            rows = [
                (
                    project.id,
                    (age * 1000 + behind + n).to_bytes(16, "big"),
                    at,
                    at.replace(second=0, microsecond=0),
                )
                for n in range(1, mib_a_day + 1)
            ]

            async def work(connection: Connection, rows: list[Placed] = rows) -> None:
                await connection.execute(
                    "insert into span (project_id, trace_id, span_id, kind, name, status, started_at,"
                    " created_at, call_site_id, tagged, frame)"
                    " select $1, trace_id, '\\x0000000000000001', 'llm', 'x', 'ok', $2, $2, 'x', false, 0"
                    " from unnest($3::bytea[]) as trace_id",
                    *(project.id, rows[0][2], [row[1] for row in rows]),
                )
                await connection.execute(
                    "insert into trace (project_id, trace_id, name, started_at, first_started_at,"
                    " last_started_at, root_seen, call_site_id, span_count, error_count, status,"
                    " unpriced_spans, created_at, stale, due_at)"
                    " select $1, trace_id, 'x', $2, $2, $2, true, 'x', 1, 0, 'ok', 0, $2, false, $2"
                    " from unnest($3::bytea[]) as trace_id",
                    *(project.id, rows[0][2], [row[1] for row in rows]),
                )
                await connection.copy_records_to_table(
                    "span_payload",
                    columns=("project_id", "trace_id", "started_at", "frame", "body"),
                    records=[(row[0], row[1], row[3], 0, os.urandom(MIB)) for row in rows],
                )

            await store.database.run(work, timeout_s=300)
        if DAYS in ages:
            await fire(
                store.database, seen(), [Ref("member", trace_id=(DAYS * 1000 + 1).to_bytes(16, "big"))],
                project_id=project.id,
            )  # fmt: skip


async def payload_days(service: Service) -> dict[int, int]:
    """How many payloads each day has, by its age."""
    today = datetime.now(UTC).date()
    async with open_store(read_settings(dict(service.env)), as_it_is=True) as store:

        async def work(connection: Connection) -> dict[int, int]:
            rows = await connection.fetch(
                "select started_at::date as day, count(*) as n from span_payload group by 1"
            )
            return {(today - row["day"]).days: row["n"] for row in rows}

        return await store.database.run(work)


def disk(service: Service) -> dict[str, object]:
    """What health says of the disk."""
    details: dict[str, object] = service.health()["components"]["disk"]["details"]
    return details


def test_a_disk_that_fills_loses_its_oldest_payloads_and_refuses_only_at_the_very_end(
    open_folder: Path,
) -> None:
    with (
        small_disk(open_folder / "small", "900m") as small,
        running(small / "data", first=True, **SETTINGS) as service,
    ):
        body = request(span()).SerializeToString()
        assert disk(service)["level"] == "ok"
        trio.run(fill, service, 16, range(DAYS + 1))
        until(lambda: bool(disk(service)["dropped_steps"]))
        until(lambda: disk(service)["level"] in ("ok", "tell"))
        left = trio.run(payload_days, service)
        # The oldest went, but for the one that an open finding cites; no more than had to, none of this week.
        gone = {age for age in range(DAYS + 1) if left.get(age, 0) < 16}
        assert gone == set(range(min(gone), DAYS + 1))
        assert min(gone) >= 7
        assert left[DAYS] == 1
        assert service.send(body).status_code == 200
        # What was measured is kept for rules that are made later.
        said = service.command("alerts", "backtest", "--kind", "disk.budget")
        assert said.startswith("would have fired ")
        # Today fills it alone: all else goes, and then nothing is left.
        trio.run(partial(fill, service, 300, range(1), behind=500))
        until(lambda: disk(service)["refuses"] is True)
        answer = service.send(body)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        left = trio.run(payload_days, service)
        assert left == {0: 316, DAYS: 1}
        assert service.health()["status"] == "UP"
        told = service.command("disk")
        assert "used (drop)" in told
        assert "the budget is reached on" in told or "growth 0 B " in told


def test_a_budget_that_the_log_alone_could_fill_is_refused_at_the_start(open_folder: Path) -> None:
    done = ran(
        [TRACE_SVC, "serve"],
        env=environment(open_folder / "data", SVC_DISK_BUDGET_BYTES="1000000", SVC_HTTP_BIND="127.0.0.1:0"),
        timeout_s=90,
    )
    assert done.returncode == 1
    assert "SVC_DISK_BUDGET_BYTES is 1000000; it must be at least 268435456" in done.stderr
