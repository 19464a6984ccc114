"""Rules narrowed by any filter: their figures are those of the rows, and what cannot be read is said."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from trio_asyncio import trio_as_aio

from protocol.alerts import CheckResult
from protocol.refusals import Refused
from protocol.storage import Slow
from svc.domain.alerts.checking import OFTEN, SELDOM
from svc.domain.alerts.metric import HourFigures
from svc.domain.alerts.params import MetricParams
from svc.domain.calendar import hour_of
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Connection, Database
from svc.store.reads.alerts import alert_figures, alert_traces
from svc.store.reads.alerts.alert_backtest import AlertBacktest
from svc.store.reads.alerts.alert_checks import StoredChecks
from svc.store.reads.alerts.alert_figures import (
    AlertFigures,
    WindowTooLarge,
    check_question,
    looks_into_payloads,
)
from svc.store.reads.questions import spans_by_payload
from svc.store.spans.traces import PostgresTraceStore
from tests.store.alerts.telling import project_of
from tests.store.reads.test_alert_figures import as_counted, rule
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

SEAT = "attr.seat.id"
DATASETS = ("spans", "traces", "model_calls", "tools")
OPERATIONS = {"llm": "chat", "embedding": "embeddings", "tool": "execute_tool"}
#: What each span says: its trace, its kind, its seat, its tenant, its site.
Said = tuple[int, str, int, str, str]


@pytest.fixture
async def clock(store: Database) -> Clock:
    assert await project_of(store) == 1
    clock = Clock()
    clock.now = NOW - timedelta(hours=20)
    return clock


async def filled(store: Database, clock: Clock, number: int = 60) -> dict[int, Said]:
    """Spans of twenty traces over twenty hours, some of which are closed; what the span `n` says."""
    dice, spans, said = random.Random(number), store_of(store, clock), {}
    for n in range(1, number + 1):
        trace, kind = 1 + n % 20, dice.choice(list(OPERATIONS))
        said[n] = (trace, kind, dice.randrange(3), dice.choice(["acme", "b"]), f"site{trace % 2}")
        await spans.write(
            rows(
                one(
                    n,
                    trace_id=bytes([trace]) * 16,
                    start=clock.now - timedelta(minutes=dice.choice([1, 5])),
                    took_s=dice.random() * 9,
                    name=f"n{dice.randrange(2)}",
                    status_code=dice.choice([0, 0, 2]),
                    attributes={
                        "svc.call_site.id": said[n][4],
                        "gen_ai.operation.name": OPERATIONS[kind],
                        "gen_ai.request.model": dice.choice(["gpt-4o", "unheard-of"]),
                        "gen_ai.usage.input_tokens": dice.randrange(1000),
                        "seat.id": said[n][2],
                    },
                ),
                resource={"tenant.id": said[n][3]},
            )
        )
        await PostgresTraceStore(store).settle(clock.now + timedelta(seconds=11), 100)
        clock.now += timedelta(minutes=20)
        if n == number // 2:
            await CubeStore(store).build(clock.now, 100)
    return said


async def counted(
    store: Database, dataset: str, meets: Callable[[Said], bool], said: dict[int, Said], *, more: str = "true"
) -> dict[datetime, tuple[int, int, float, Counter[int]]]:
    """By hour: rows one by one, those that failed, their cost and their durations."""
    kinds = {"model_calls": ("llm", "embedding"), "tools": ("tool",)}.get(dataset, tuple(OPERATIONS))
    met = {n: each for n, each in said.items() if meets(each) and each[1] in kinds}
    table, key, ids = "span", "span_id", [n.to_bytes(8, "big") for n in met]
    if dataset == "traces":
        table, key, ids = "trace", "trace_id", [bytes([each[0]]) * 16 for each in met.values()]
    repeated = "usage_repeats is null" if dataset == "model_calls" else "true"
    by_hour: dict[datetime, tuple[int, int, float, Counter[int]]] = {}
    for row in await fetch(
        store,
        f"select date_trunc('hour', created_at, 'UTC') as hour, status, total_cost::float8 as cost,"
        f" date_part('epoch', ended_at - started_at) * 1000 as ms from {table}"
        f" where {key} = any($1::bytea[]) and {repeated} and {more}",
        ids,
    ):
        n, failed, cost, bins = by_hour.get(row["hour"], (0, 0, 0.0, Counter()))
        bins[bin_of(row["ms"], UNIT_MS)] += 1
        failed += row["status"] == "error"
        by_hour[row["hour"]] = n + 1, failed, cost + (row["cost"] or 0.0), bins
    return by_hour


def check(figure: str, figures: HourFigures, expected: tuple[int, int, float, Counter[int]]) -> None:
    n, failed, cost, bins = as_counted(figures)
    assert n == expected[0]
    if figure == "error_rate":
        assert failed == expected[1]
    if figure == "cost":
        assert cost == pytest.approx(expected[2])
    if figure == "p95_ms":
        # By its length, or by the middle of where that lies among those of columns: the next place at most.
        assert bins.total() == expected[3].total()
        assert sum(bins.elements()) == pytest.approx(sum(expected[3].elements()), abs=n)


@pytest.mark.parametrize("dataset", DATASETS)
async def test_a_rule_counts_what_its_filters_leave_of_rows(
    store: Database, clock: Clock, dataset: Any
) -> None:
    said = await filled(store, clock)
    first, end = hour_of(NOW - timedelta(hours=21)), hour_of(clock.now) + timedelta(hours=1)
    cases: list[tuple[dict[str, Any], Callable[[Said], bool]]] = [
        ({"tenant": "acme"}, lambda each: each[3] == "acme"),
        ({SEAT: 2}, lambda each: each[2] == 2),
        ({SEAT: "1", "tenant": "b"}, lambda each: each[2] == 1 and each[3] == "b"),
        ({"kind": "tool", SEAT: "0"}, lambda each: each[1] == "tool" and each[2] == 0),
        ({"call_site_id": "site1", "tenant": "acme"}, lambda each: each[4] == "site1" and each[3] == "acme"),
        ({SEAT: "no such"}, lambda each: False),
    ]
    for filters, meets in cases:
        expected = await counted(store, dataset, meets, said)
        for figure in ("count", "error_rate", "cost", "p95_ms"):
            params = MetricParams(
                dataset=dataset,
                figure=figure,
                value=1.0,
                window_hours=24,
                filters=filters,  # type: ignore[arg-type] # of a loop
            )
            await check_question(store, 1, params)
            hours = await AlertFigures(store).hours(1, params, first, end)
            assert hours.first == first
            assert len(hours.figures) == (end - first) // timedelta(hours=1)
            for number, figures in enumerate(hours.figures):
                nothing: tuple[int, int, float, Counter[int]] = (0, 0, 0.0, Counter())
                check(figure, figures, expected.get(first + timedelta(hours=number), nothing))
            window = await AlertFigures(store).window(1, params, end)
            assert as_counted(window)[0] == sum(each[0] for each in expected.values()), (filters, figure)


async def test_a_model_is_called_as_vitals_call_it(store: Database, clock: Clock) -> None:
    said = await filled(store, clock)
    known = await fetch(
        store, "select distinct model_id, provided_model_name as name from span order by 1, 2"
    )
    assert any(row["model_id"] is None and row["name"] for row in known)
    for model in ("gpt-4o", "unheard-of", None):
        for more in ({"tenant": "acme"}, {}):
            named = "coalesce(model_id, provided_model_name)"
            condition = f"{named} is null" if model is None else f"{named} = '{model}'"
            expected = await counted(
                store, "model_calls", lambda each, of=more: each[3] in ("acme", *({} if of else "b")), said,
                more=condition,
            )  # fmt: skip
            params = MetricParams(
                dataset="model_calls", value=1.0, window_hours=24, filters={"model_id": model, **more}
            )
            window = await AlertFigures(store).window(1, params, clock.now)
            assert window.n == sum(each[0] for each in expected.values()), (model, more)


@pytest.mark.parametrize("dataset", DATASETS)
async def test_a_window_whose_payloads_are_too_many_has_no_figure_and_the_rule_says_so(
    store: Database, clock: Clock, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store, clock)
    monkeypatch.setattr(spans_by_payload, "MOST_SPANS", 5)
    monkeypatch.setattr(alert_traces, "MOST_SPANS", 5)
    monkeypatch.setattr(alert_traces, "_TRACES", 1)
    monkeypatch.setattr(alert_traces, "_ROWS", alert_traces._ROWS.replace("limit 100", "limit 1"))
    params = MetricParams(dataset=dataset, value=1.0, least=0, window_hours=24, filters={SEAT: "1"})
    with pytest.raises(WindowTooLarge, match=r"attr\.seat\.id is not a field: searched the payloads of"):
        await AlertFigures(store).window(1, params, clock.now)
    checked = rule("metric", **msgspec.to_builtins(params))
    result = await StoredChecks(store).table()["metric"](checked, clock.now)
    assert str(result.trouble).startswith("attr.seat.id is not a field: searched the payloads of")
    end = "; a shorter window is judged, or a field made of it on Settings, Attributes"
    assert str(result.trouble).endswith(end)
    assert result.next_at == clock.now + SELDOM
    # What is known of the past is what was looked through.
    asked = hour_of(NOW - timedelta(hours=21))
    hours = await AlertFigures(store).hours(1, params, asked, hour_of(clock.now))
    assert asked < hours.first < hour_of(clock.now)
    assert "attr.seat.id is not a field" in hours.note
    assert ", back to 2026-11-" in hours.note
    short = msgspec.structs.replace(params, window_hours=1)
    backtest = await AlertBacktest(store).run(1, "metric", short, clock.now)
    assert not backtest.judged or backtest.since >= hours.first + timedelta(hours=1)
    assert "attr.seat.id is not a field: searched the payloads of" in backtest.note


async def test_a_rule_that_gets_through_looks_again_later_than_one_by_fields(
    store: Database, clock: Clock
) -> None:
    await filled(store, clock, 12)
    checks = StoredChecks(store).table()
    for filters, again in (({SEAT: "1"}, SELDOM), ({"tenant": "acme"}, OFTEN)):
        asked = rule("metric", dataset="spans", value=0, least=0, window_hours=24, filters=filters)
        result = await checks["metric"](asked, clock.now)
        assert (result.trouble, result.next_at) == (None, clock.now + again)
        assert len(result.firing) == 1
    [facts] = (
        await checks["metric"](
            rule("metric", dataset="traces", value=0, least=0, window_hours=24, filters={SEAT: 1}), clock.now
        )
    ).firing.values()
    assert facts.title == "The number of traces with attr.seat.id 1 over 24 hours is above 0"


@pytest.mark.parametrize("dataset", DATASETS)
async def test_figures_that_take_too_long_are_given_up_and_the_rule_says_so(
    store: Database, clock: Clock, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store, clock, 4)
    monkeypatch.setattr(alert_figures, "FIGURES_S", 0.5)
    params = MetricParams(dataset=dataset, value=1.0, least=0, filters={SEAT: "1"})
    asked = rule("metric", **msgspec.to_builtins(params))

    async def locked(connection: Connection) -> CheckResult:
        await connection.execute("lock table span, trace in access exclusive mode")
        # The lock is held here while others wait for it.
        result: CheckResult = await trio_as_aio(StoredChecks(store).table()["metric"])(asked, clock.now)
        return result

    result = await store.run(locked)
    assert result.trouble == "its figures took longer than 0.5 s"
    assert (result.next_at, result.firing) == (clock.now + SELDOM, {})
    monkeypatch.setattr(alert_figures, "FIGURES_S", 0.0)
    with pytest.raises(Slow):
        await AlertFigures(store).hours(1, params, NOW - timedelta(days=1), NOW)
    backtest = await AlertBacktest(store).run(1, "metric", params, clock.now)
    assert (backtest.judged, backtest.note) == (False, "its figures took longer than 0 s")


@pytest.mark.parametrize(
    ("dataset", "filters", "told"),
    [
        ("spans", {"nonsense": "x"}, "unknown field 'nonsense' for dataset 'spans'"),
        ("model_calls", {"nonsense": "x"}, "unknown field 'nonsense' for dataset 'spans'"),
        ("tools", {"name": "x", "nonsense": "x"}, "unknown field 'nonsense' for dataset 'spans'"),
        ("traces", {"nonsense": "x"}, "unknown field 'nonsense' for dataset 'spans'"),
        ("traces", {SEAT: None}, "traces cannot be filtered by spans without 'attr.seat.id': give a value"),
        ("traces", {"cost_source": "x"}, "traces are not filtered by 'cost_source' of their spans"),
        ("tool_calls", {SEAT: "1"}, "unknown field 'attr.seat.id' for dataset 'tool_calls'"),
        ("classifier_events", {SEAT: "1"}, "unknown field 'attr.seat.id' for dataset 'classifier_events'"),
    ],
)
async def test_a_filter_that_a_dataset_does_not_know_is_refused_by_name(
    store: Database, clock: Clock, dataset: Any, filters: Any, told: str
) -> None:
    del clock
    with pytest.raises(Refused) as refused:
        await check_question(store, 1, MetricParams(dataset=dataset, value=1.0, filters=filters))
    assert refused.value.refusal.message == told


async def test_only_attributes_that_are_no_field_are_looked_for_in_payloads(
    store: Database, clock: Clock
) -> None:
    await filled(store, clock, 1)
    for filters, looks in (({SEAT: "1"}, True), ({"tenant": "acme"}, False), ({}, False)):
        params = MetricParams(dataset="spans", value=1.0, filters=filters)  # type: ignore[arg-type] # of a loop
        assert await looks_into_payloads(store, 1, params) == [looks]
    await fetch(
        store,
        "insert into attribute_key values (1, 'attr.seat.id', 'promoted', 1, '', null, now())"
        " on conflict (project_id, field) do update set state = 'promoted' returning field",
    )
    params = MetricParams(dataset="spans", value=1.0, filters={SEAT: "1"})
    assert await looks_into_payloads(store, 1, params) == [False]
