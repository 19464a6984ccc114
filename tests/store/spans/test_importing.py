"""Laws of spans that are dated back: they came when they ended, and whatever is counted by the hour knows."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from protocol.rest.query import timestamp
from protocol.storage import Written
from svc.domain.calendar import hour_of
from svc.domain.intake.batches import StoredSpan
from svc.domain.queries.datasets import SPANS
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.rollups import RollupStore
from svc.store.postgres.database import Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.reads.questions.questions import Question
from svc.store.spans.importing import PostgresImportStore
from svc.store.spans.writing import SpanStore
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import NOW, Clock, fetch, on_server, one, rows, store_of

OLD = NOW - timedelta(days=9)
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 10}


def ended(span: StoredSpan) -> datetime:
    return span.row.ended_at or span.row.started_at


def dated(store: Database) -> SpanStore:
    return SpanStore(store, DayPartitions(store), store_of(store).call_sites, on_server(Clock()), dated=ended)


def history() -> list[Any]:
    """Traces of two spans, some hours apart, the last one of today."""
    return [
        one(
            2 * hour + n + 1,
            trace_id=bytes([hour + 1]) * 16,
            parent=2 * hour + 1 if n else 0,
            start=(NOW if hour == 19 else OLD) + timedelta(hours=hour % 19, minutes=59),
            took_s=90,
            attributes=CALL,
        )
        for hour in range(20)
        for n in range(2)
    ]


async def test_spans_are_dated_by_their_end_and_never_after_now(store: Database) -> None:
    spans = dated(store)
    assert await spans.write(rows(*history())) == Written(40, 0)
    found = await fetch(store, "select created_at, ended_at from span order by started_at")
    assert all(row["created_at"] == row["ended_at"] for row in found[:-2])
    assert all(row["created_at"] < row["ended_at"] for row in found[-2:]), "that has not come yet"
    traces = await fetch(store, "select created_at, ended_at from trace order by started_at")
    assert [row["created_at"] for row in traces[:-1]] == [row["ended_at"] for row in traces[:-1]]
    assert await spans.write(rows(*history())) == Written(0, 40)


async def test_hours_that_were_counted_know_what_came_late(store: Database) -> None:
    """Counts from sums are those from rows, for hours that were closed and counted before."""
    project = (await ProjectStore(store).make_default()).id
    live = [one(900 + n, trace_id=bytes([99]) * 16, start=OLD - timedelta(hours=2 - n)) for n in range(2)]
    await dated(store).write(rows(*live, project=project))
    at = NOW + timedelta(minutes=5)
    for imports in (CubeStore(store), RollupStore(store)):
        assert not (await imports.build(at, 1000)).more
    await dated(store).write(rows(*history(), project=project))
    await dated(store).write(rows(*history(), project=project))

    every = await fetch(store, "select created_at from span")
    by_hour = Counter(hour_of(row["created_at"]) for row in every)
    asked = Question(project, SPANS, NOW - timedelta(days=20), NOW + timedelta(days=2), ())
    for _ in range(2):
        # As long as the hours are marked, and when they are built anew.
        counted = await JsonQueries(store).timeseries(asked, "hour")
        found = {b["bucket_start"]: b["count"] for b in counted["buckets"] if b["count"]}
        assert found == {timestamp(hour): n for hour, n in by_hour.items()}
        assert not (await CubeStore(store).build(at, 1000)).more
    marks = await fetch(store, "select from cube_dirty")
    assert marks == []

    closed = {hour: n for hour, n in by_hour.items() if hour < hour_of(at)}
    kept = await fetch(
        store,
        "select metric, granularity, bucket_start, value from metric_rollup where metric like 'ingested%'",
    )
    spans = {row["bucket_start"]: row["value"] for row in kept
             if (row["metric"], row["granularity"]) == ("ingested_spans", "hour")}  # fmt: skip
    assert {hour: n for hour, n in spans.items() if n} == closed
    days = {row["bucket_start"]: row["value"] for row in kept
            if (row["metric"], row["granularity"]) == ("ingested_spans", "day")}  # fmt: skip
    assert sum(days.values()) == sum(n for hour, n in closed.items() if hour.date() < NOW.date())
    traces = sum(
        row["value"] for row in kept if (row["metric"], row["granularity"]) == ("ingested_traces", "hour")
    )
    assert traces == 20


async def test_a_replaced_span_keeps_when_it_came(store: Database) -> None:
    await store_of(store).write(rows(one(1, start=OLD)))
    await dated(store).write(rows(one(1, start=OLD, took_s=5, name="longer")))
    (row,) = await fetch(store, "select name, created_at from span")
    assert row["name"] == "longer"
    assert row["created_at"] > NOW, "it came when it first came"


async def test_old_days_get_partitions_and_found_spans_are_summed(store: Database) -> None:
    imports = PostgresImportStore(store, DayPartitions(store))
    spans = rows(*history(), one(77, trace_id=bytes([77]) * 16, start=NOW - timedelta(days=300)))
    assert (await imports.write(spans, ended)).stored == 41
    assert await fetch(store, "select from span_default where started_at < now()") == []
    ids = sorted(span.row.trace_id + span.row.span_id for span in spans)
    found = await imports.found(1, [*ids, bytes(24)], b"")
    assert (found.spans, found.traces, found.tokens) == (41, 21, 400)
    again = await imports.found(1, ids[:2], ids[0][:16])
    assert (again.spans, again.traces, again.last_trace) == (2, 0, ids[0][:16])
