"""Figures of metric rules say what counting the rows says; looks and backtests go by them."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pytest

from protocol.alerts import AlertRule, RuleKind
from protocol.samples import SAMPLES_KEPT, BackupSample, DiskSample
from svc.domain.alerts.metric import HourFigures, figure_of
from svc.domain.alerts.params import MetricParams, kept_params, read_params
from svc.domain.calendar import hour_of
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.vitals import SOURCES
from svc.store.alerts.watching import WatchStore
from svc.store.postgres.database import Database
from svc.store.reads.alerts.alert_backtest import AlertBacktest
from svc.store.reads.alerts.alert_checks import StoredChecks
from svc.store.reads.alerts.alert_figures import AlertFigures
from svc.store.reads.alerts.alert_history import AlertHistory
from svc.store.spans.traces import PostgresTraceStore
from tests.store.aggregates.test_vitals import call
from tests.store.alerts.telling import project_of
from tests.store.detection.detecting import execute, opened, seen
from tests.store.spans.test_writing import NOW, Clock, fetch, rows, store_of

FULL = DiskSample(level="full", used=10, budget=10)
VITALS = {"traces": "sites", "model_calls": "models", "tools": "tools"}
FIELDS = {"traces": ("call_site_id", "site1"), "model_calls": ("model_id", "gpt-4o"), "tools": ("tool", "n1")}


@pytest.fixture
async def clock(store: Database) -> Clock:
    assert await project_of(store) == 1
    clock = Clock()
    clock.now = NOW - timedelta(days=2)
    return clock


async def counted(
    store: Database, dataset: str, subject: str | None, low: datetime, high: datetime
) -> tuple[int, int, float, Counter[int]]:
    """The same from the rows, one by one."""
    source = SOURCES[VITALS[dataset]]  # type: ignore[index]
    found = await fetch(
        store,
        f"select status, total_cost::float8 as cost, date_part('epoch', ended_at - started_at) * 1000 as ms"
        f" from {source.dataset.table} where project_id = $1 and {source.condition}"
        f" and created_at >= $2 and created_at < $3 and ($4::text is null or {source.subject} = $4)",
        1,
        low,
        high,
        subject,
    )
    bins = Counter(bin_of(row["ms"], UNIT_MS) for row in found if row["ms"] is not None)
    failed = sum(row["status"] == "error" for row in found)
    return len(found), failed, sum(row["cost"] or 0.0 for row in found), bins


def as_counted(figures: HourFigures) -> tuple[int, int, float, Counter[int]]:
    bins = Counter({at: int(n) for at, n in enumerate(figures.durations) if n})
    return figures.n, figures.failed, figures.cost, bins


async def filled(store: Database, clock: Clock, seed: int) -> None:
    """Two days of calls, some of them in hours that are built, some changed after."""
    dice = random.Random(seed)
    spans, cubes, traces = store_of(store, clock), CubeStore(store), PostgresTraceStore(store)
    for number in range(1, 60):
        again = number > 40 and dice.random() < 0.5
        await spans.write(rows(call(dice.randrange(1, 40) if again else number, dice, clock)))
        await traces.settle(clock.now + timedelta(seconds=11), 100)
        clock.now += timedelta(minutes=dice.choice([1, 20, 90]))
        if number in (20, 45):
            await cubes.build(clock.now, 100)


@pytest.mark.parametrize("dataset", VITALS)
async def test_a_window_is_what_its_rows_are(store: Database, clock: Clock, dataset: Any) -> None:
    await filled(store, clock, len(dataset))
    figures = AlertFigures(store)
    name, narrowed = FIELDS[dataset]
    for end in (clock.now, clock.now - timedelta(hours=5, minutes=7), hour_of(clock.now)):
        for subject in (None, narrowed):
            filters: Any = {} if subject is None else {name: subject}
            params = MetricParams(dataset=dataset, value=1.0, window_hours=24, filters=filters)
            expected = await counted(store, dataset, subject, end - timedelta(hours=24), end)
            for figure in ("cost", "p95_ms"):
                asked = msgspec.structs.replace(params, figure=figure)
                n, failed, cost, bins = as_counted(await figures.window(1, asked, end))
                assert (n, failed) == expected[:2]
                assert cost == pytest.approx(expected[2])
                assert bins == (expected[3] if figure == "p95_ms" else Counter())


async def test_hours_of_history_add_up_to_their_windows(store: Database, clock: Clock) -> None:
    await filled(store, clock, 3)
    first, end = hour_of(clock.now) - timedelta(hours=40), hour_of(clock.now)
    for params in (
        MetricParams(dataset="traces", figure="p95_ms", value=1.0),
        MetricParams(dataset="spans", value=1.0),
        MetricParams(dataset="spans", value=1.0, filters={"status": "error", "kind": "llm"}),
        MetricParams(dataset="spans", figure="cost", value=1.0, filters={"kind": "llm"}),
        MetricParams(dataset="spans", figure="error_rate", value=1.0, filters={"tenant": "acme"}),
        MetricParams(dataset="spans", figure="p95_ms", value=1.0),
        MetricParams(dataset="spans", figure="p95_ms", value=1.0, filters={"kind": "llm"}),
        MetricParams(dataset="tool_calls", figure="error_rate", value=1.0),
    ):
        hours = (await AlertFigures(store).hours(1, params, first, end)).figures
        assert len(hours) == 40
        for at, one in enumerate(hours):
            close = first + timedelta(hours=at + 1)
            window = await AlertFigures(store).window(1, params, close)
            assert as_counted(one) == as_counted(window), (params, at)


async def write_of_two_tenants(store: Database, clock: Clock, dice: random.Random) -> None:
    """Forty calls, every second one of them of acme."""
    spans = store_of(store, clock)
    for number in range(1, 41):
        await spans.write(
            rows(call(number, dice, clock), resource={"tenant.id": "acme" if number % 2 else "b"})
        )


async def test_figures_of_spans_are_those_of_the_rows_with_an_attribute(
    store: Database, clock: Clock
) -> None:
    await write_of_two_tenants(store, clock, random.Random(5))
    of_tenant = await fetch(
        store,
        "select count(*) as n, count(*) filter (where status = 'error') as failed,"
        " sum(total_cost)::float8 as cost"
        " from span s where strpos(facets, (select code from attribute_value where field = 'tenant'"
        " and value = 'acme')) > 0",
    )
    figures, end = AlertFigures(store), clock.now + timedelta(minutes=1)
    asked = MetricParams(dataset="spans", figure="cost", value=1.0, filters={"tenant": "acme"})
    window = await figures.window(1, asked, end)
    assert (window.n, window.cost) == (of_tenant[0]["n"], pytest.approx(of_tenant[0]["cost"]))
    window = await figures.window(1, msgspec.structs.replace(asked, figure="error_rate"), end)
    assert (window.n, window.failed) == (20, of_tenant[0]["failed"])
    assert 0 < window.failed < 20


async def test_the_p95_of_spans_with_an_attribute_is_that_of_their_rows(
    store: Database, clock: Clock
) -> None:
    await write_of_two_tenants(store, clock, random.Random(6))
    durations = await fetch(
        store,
        "select extract(epoch from ended_at - started_at)::float8 * 1000 as ms from span"
        " where strpos(facets, (select code from attribute_value where field = 'tenant'"
        " and value = 'acme')) > 0 and ended_at is not null order by 1",
    )
    asked = MetricParams(dataset="spans", figure="p95_ms", value=1.0, filters={"tenant": "acme"})
    before_built, end = AlertFigures(store), clock.now + timedelta(hours=2)
    asked = msgspec.structs.replace(asked, window_hours=24)
    exact = durations[math.ceil(0.95 * len(durations)) - 1]["ms"]
    for _ in range(2):
        window = await before_built.window(1, asked, end)
        assert window.n == len(durations) == 20
        assert figure_of(asked, window) == pytest.approx(exact, rel=0.06)
        # The same from columns, once they are built.
        clock.now += timedelta(hours=2)
        await CubeStore(store).build(clock.now, 100)


def rule(kind: RuleKind, due_at: datetime | None = None, **params: Any) -> AlertRule:
    kept = kept_params(read_params(kind, params))
    return AlertRule(1, UUID(int=1), kind, "rule", kept, (), NOW, NOW, due_at=due_at)


async def test_a_rule_looks_at_its_figure_and_at_the_days_before(store: Database, clock: Clock) -> None:
    clock.now = NOW - timedelta(days=8)
    dice, spans = random.Random(1), store_of(store, clock)
    number = 0
    for day in range(9):
        clock.now = NOW - timedelta(days=8 - day, minutes=30)
        for _ in range(30 if day == 8 else 10):
            number += 1
            await spans.write(rows(call(number, dice, clock)))
    checks = StoredChecks(store).table()
    at = NOW + timedelta(seconds=1)
    above = await checks["metric"](rule("metric", dataset="spans", value=29, least=0), at)
    assert above.firing["metric"].text == "It is 30 now."
    assert (await checks["metric"](rule("metric", dataset="spans", value=30, least=0), at)).firing == {}
    rises = rule("metric", dataset="spans", value=150, least=0, bound="rises")
    told = (await checks["metric"](rises, at)).firing["metric"]
    assert told.text == "It is 30 now; usually 10."
    unknown = rule("metric", dataset="spans", value=1)
    unknown = attrs.evolve(unknown, params={**unknown.params, "filters": {"nonsense": "x"}})
    assert "unknown field 'nonsense'" in str((await checks["metric"](unknown, at)).trouble)


async def test_the_backtest_tells_the_hours_at_which_a_condition_began(store: Database, clock: Clock) -> None:
    dice, spans = random.Random(2), store_of(store, clock)
    busy = [NOW - timedelta(days=20), NOW - timedelta(days=20, hours=-1), NOW - timedelta(days=3)]
    for number, start in enumerate(busy * 4, 1):
        clock.now = start + timedelta(minutes=number)
        await spans.write(rows(call(number, dice, clock)))
    params = read_params("metric", {"dataset": "spans", "value": 3, "least": 0})
    found = await AlertBacktest(store).run(1, "metric", params, NOW)
    assert (found.judged, found.fired) == (True, 2)
    assert found.instants == [NOW - timedelta(days=3, hours=-1), NOW - timedelta(days=20, hours=-1)]
    assert "rows" not in found.note
    # Too few rows are said to be too few.
    wanting = read_params("metric", {"dataset": "spans", "value": 3, "least": 5})
    found = await AlertBacktest(store).run(1, "metric", wanting, NOW)
    assert found.fired == 0
    assert found.note.endswith("; 3 of 3 windows held fewer than 5 rows, so nothing is sent for them")


async def test_the_backtest_of_cases_goes_by_their_trails(store: Database, clock: Clock) -> None:
    for number, (severity, age) in enumerate([(0.9, 1), (0.2, 2), (0.9, 40)], 1):
        at = NOW - timedelta(days=age)
        await opened(store, seen(number, severity=severity, detected_at=at, onset_at=at))
    backtest = AlertBacktest(store)
    for given, days in (
        ({}, [1, 2]),
        ({"least_severity": "high"}, [1]),
        ({"detectors": ["cost_drift"]}, []),
    ):
        found = await backtest.run(1, "case.opened", read_params("case.opened", given), NOW)
        assert found.instants == [NOW - timedelta(days=age) for age in days]
    reopened = await backtest.run(1, "case.reopened", read_params("case.reopened", {}), NOW)
    assert (reopened.judged, reopened.fired) == (True, 0)
    unknown = await backtest.run(1, "backup.old", read_params("backup.old", {}), NOW)
    assert (unknown.judged, unknown.fired) == (False, 0)


async def heard(store: Database, service: str, days: range, scope: str = "lib") -> None:
    for age in days:
        at = NOW - timedelta(days=age)
        await execute(
            store,
            "insert into exporter_day (project_id, day, exporter, service, sdk, sdk_version, scope,"
            " scope_version, last_seen_at, seen) values (1, $1, $2, $3, '', '', $4, '', $5, '{}')",
            at.date(),
            f"{service}{scope}".encode(),
            service,
            scope,
            at,
        )


async def test_a_service_that_spoke_daily_is_told_silent_and_the_demo_is_not(
    store: Database, clock: Clock
) -> None:
    await heard(store, "shop", range(2, 12))
    await heard(store, "demo", range(2, 12), "trace-svc.demo")
    await heard(store, "new", range(2, 4))
    await heard(store, "talks", range(12))
    looked = await StoredChecks(store).table()["ingest.silent"](rule("ingest.silent"), NOW)
    assert set(looked.firing) == {"service shop"}
    found = await AlertBacktest(store).run(1, "ingest.silent", read_params("ingest.silent", {}), NOW)
    assert (found.judged, found.fired) == (True, 1)


async def test_dead_letters_are_told_without_what_they_hold(store: Database, clock: Clock) -> None:
    checks = StoredChecks(store).table()
    assert (await checks["ingest.dead_letters"](rule("ingest.dead_letters"), NOW)).firing == {}
    for spans in (3, 4):
        await execute(
            store,
            "insert into dead_letter (project_id, reason, spans, received_at, buried_at, body)"
            " values (1, 'planted', $1, $2, $2, '')",
            spans,
            NOW - timedelta(hours=spans),
        )
    told = (await checks["ingest.dead_letters"](rule("ingest.dead_letters"), NOW)).firing["dead letters"]
    assert told.title == "7 spans are dead letters"
    assert "planted" not in str(told)
    five = rule("ingest.dead_letters", spans=8)
    assert (await checks["ingest.dead_letters"](five, NOW)).firing == {}


async def test_a_digest_tells_of_its_period_and_of_what_is_open(store: Database, clock: Clock) -> None:
    clock.now = NOW - timedelta(hours=3)
    dice, spans = random.Random(4), store_of(store, clock)
    await spans.write(rows(*(call(n, dice, clock) for n in range(1, 6))))
    await PostgresTraceStore(store).settle(clock.now + timedelta(seconds=11), 100)
    await opened(store, seen(1, severity=0.9), at=NOW - timedelta(hours=2))
    await opened(store, seen(2), at=NOW - timedelta(days=3))
    looked = await StoredChecks(store).table()["digest"](
        rule("digest", due_at=NOW), NOW + timedelta(minutes=3)
    )
    [(subject, facts)] = looked.told.items()
    assert subject == "digest 2026-11-20 12:00"
    assert facts.title == "Digest of a day: 2 cases open"
    assert "1 opened, 0 opened again, 0 resolved." in facts.text
    assert "C-1 (high): cause 1" in facts.text
    assert "5 traces" in facts.text
    assert (looked.next_at.hour, looked.next_at > NOW) == (8, True)
    empty = await AlertHistory(store).digest(1, NOW - timedelta(days=60), NOW - timedelta(days=53))
    assert empty.text.startswith("0 traces, 0 failed.")


async def test_the_backtest_of_the_instance_goes_by_its_samples_and_says_since_when_it_knows(
    store: Database,
) -> None:
    backtest, watch = AlertBacktest(store), WatchStore(store)
    params = read_params("backup.old", {"hours": 26})
    none = await backtest.run(1, "backup.old", params, NOW)
    assert (none.judged, none.note) == (
        False,
        "nothing is known yet; from now on a sample is kept each hour",
    )
    good = NOW - timedelta(days=3)
    backup = BackupSample(began_at=NOW - timedelta(days=9), last_good_at=good)
    for hour in range(48, 0, -1):
        at = NOW - timedelta(hours=hour)
        await watch.keep_samples({"backup.old": backup, "disk.budget": FULL}, at)
        # Of another copy, in the same hour.
        await watch.keep_samples({"backup.old": BackupSample(began_at=at, failed=True)}, at)
    found = await backtest.run(1, "backup.old", params, NOW)
    first = NOW - timedelta(hours=48)
    assert (found.judged, found.since, found.instants) == (True, first, [good + timedelta(hours=27)])
    later = await backtest.run(1, "backup.old", read_params("backup.old", {"hours": 60}), NOW)
    assert later.instants == [good + timedelta(hours=61)]
    assert (await backtest.run(1, "disk.budget", read_params("disk.budget", {}), NOW)).fired == 1
    cert = await backtest.run(1, "certificate.expiring", read_params("certificate.expiring", {}), NOW)
    assert not cert.judged
    # Past their term they go.
    await watch.keep_samples({"disk.budget": FULL}, NOW + SAMPLES_KEPT - timedelta(hours=10))
    [left] = await fetch(store, "select count(*) as n from instance_sample where kind = 'backup.old'")
    assert left["n"] == 10
