"""The traces on each side of a comparison are those of a look at every span, however they are found."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.questions.columns import segments as column_segments
from svc.store.reads.usage import compared_traces
from svc.store.reads.usage.compared_sides import Side, side_of
from svc.store.reads.usage.compared_traces import ComparedTraces
from svc.store.spans.traces import PostgresTraceStore
from tests.conftest import filled_once
from tests.examples import share
from tests.store.reads.test_column_answers import build, send
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, fetch

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
#: Half of the traces begin before.
HALF = NOW - DAY - timedelta(minutes=17)
WHOLE: tuple[Any, Any] = (None, None)
SIDES = {
    "all": side_of(*WHOLE, None, None, None),
    "before": side_of(None, HALF, None, None, None),
    "since": side_of(HALF, None, None, None, None),
    "two hours": side_of(HALF - HOUR, HALF + HOUR, None, None, None),
    "failed": side_of(*WHOLE, None, "error", None),
    "well": side_of(*WHOLE, None, "ok", None),
    "with a failed span": side_of(*WHOLE, None, None, True),
    "with none, since": side_of(HALF, None, None, None, False),
    "a failed tool": side_of(*WHOLE, {"kind": "tool", "status": "error"}, None, None),
    "a failed tool, before": side_of(None, HALF, {"kind": "tool", "status": "error"}, None, None),
    "a name, in failed ones": side_of(*WHOLE, {"name": "n1"}, "error", None),
    "nobody's": side_of(*WHOLE, {"user_id": None}, None, None),
    "production, since": side_of(HALF, None, {"environment": "production", "kind": "llm"}, None, True),
    "an unknown model": side_of(*WHOLE, {"model_id": "no such model"}, None, None),
    "a session": side_of(*WHOLE, {"session_id": "s3"}, None, None),
}


async def _fill(store: Database) -> None:
    """Three days of traces of two or three spans, the newest hours not built."""
    assert (await ProjectStore(store).make_default()).id == 1
    await send(store, random.Random(7), 240, 3)
    traces = PostgresTraceStore(store)
    await settle_at(NOW + timedelta(minutes=1), traces)
    await build(store, NOW - 3 * HOUR)


@pytest.fixture
async def built(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    async with filled_once(served, "compared_traces", _fill) as database:
        yield database


@pytest.fixture(autouse=True)
def columns_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_segments, "FEW_SPANS", 1)


async def sampled(store: Database, baseline: Side, comparison: Side) -> list[tuple[int, bool, list[bytes]]]:
    ids = "array_agg(t.trace_id order by substring(t.trace_id from 9), t.trace_id) as ids"
    traces = ComparedTraces(1, baseline, comparison, ids)
    await traces.prepare(store, inf)
    since = await store.run(traces.of_comparison)
    before = (await store.run(traces.of_baseline)).without(since)
    return [(side.matched, side.estimated, side.row["ids"] or []) for side in (before, since)]


async def expected(store: Database, side: Side, without: Side | None) -> list[bytes]:
    """By a look at every span, the smallest ends first."""
    rows = await fetch(
        store,
        "select t.*, (select json_agg(to_jsonb(s) - 'trace_id' || jsonb_build_object('environment', exists"
        " (select from attribute_value v where v.project_id = 1 and v.field = 'environment'"
        " and v.value = 'production' and strpos(s.facets, v.code) > 0)))"
        " from span s where s.trace_id = t.trace_id)::text as spans from trace t"
        " order by substring(trace_id from 9), trace_id",
    )
    return [row["trace_id"] for row in rows if _is_of(row, side) and not (without and _is_of(row, without))]


def _is_of(row: Any, side: Side) -> bool:
    spans = json.loads(row["spans"])
    asked = {field.name: value for field, value in side.filters}
    if "environment" in asked:
        asked["environment"] = True  # type: ignore[assignment]
    return (
        (side.low is None or row["started_at"] >= side.low)
        and (side.high is None or row["started_at"] < side.high)
        and side.status in (None, row["status"])
        and side.failed_spans in (None, row["error_count"] > 0)
        and any(all(span[name] == value for name, value in asked.items()) for span in spans)
    )


@pytest.mark.parametrize(("turn", "baseline"), list(enumerate(SIDES)))
async def test_both_sides_are_those_of_a_look_at_every_span(
    built: Database, turn: int, baseline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for comparison in share(list(SIDES), turn, 3):
        sides = SIDES[baseline], SIDES[comparison]
        truth = [await expected(built, *sides), await expected(built, sides[1], None)]
        told = await sampled(built, *sides)
        assert told == [(len(ids), False, ids) for ids in truth], comparison
        # More are looked up where few of those with the smallest ends are of the side.
        with monkeypatch.context() as patch:
            patch.setattr(compared_traces, "SAMPLED_TRACES", 5)
            patch.setattr(compared_traces, "MOST_IDS", 6)
            told = await sampled(built, *sides)
        assert told == [(len(ids), False, ids[:5]) for ids in truth], comparison
        # Of many only the smallest ends are known, and of those a sample is taken.
        with monkeypatch.context() as patch:
            patch.setattr(compared_traces, "MOST_ENDS", 12)
            patch.setattr(compared_traces, "SAMPLED_TRACES", 5)
            told = await sampled(built, *sides)
        for (matched, estimated, sample), ids in zip(told, truth, strict=True):
            assert sample == ids[: len(sample)], comparison
            assert len(sample) == min(5, len(ids)) or estimated
            # Of a dozen ends, an estimate is no better than that.
            assert len(ids) / 3 <= matched <= 3 * len(ids) if estimated else matched == len(ids), comparison
