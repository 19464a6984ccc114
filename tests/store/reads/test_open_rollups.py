"""Metric roll-ups up to now: nothing is missing before an hour is closed, nothing is counted twice after."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from protocol.rest.query import timestamp
from svc.domain.calendar import day_of, hour_of
from svc.runtime.clock import now
from svc.store.aggregates.closed_hours import GRACE, HOUR
from svc.store.aggregates.rollups import RollupStore
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import BOTH_NOTE
from svc.store.reads.questions.questions import ask
from svc.store.spans.traces import PostgresTraceStore
from tests.store.alerts.telling import project_of
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import Clock, one, rows, store_of


async def counted(
    store: Database,
    granularity: str,
    metric: str = "ingested_spans",
    range_: tuple[datetime | None, datetime | None] = (None, None),
) -> dict[str, Any]:
    filters = {"metric": metric, "granularity": granularity}
    return await JsonQueries(store).count(ask(1, "metric_rollups", range_, filters))


async def arrive(store: Database, *moments: datetime) -> None:
    """A trace of two spans at each of these moments."""
    clock = Clock()
    for number, moment in enumerate(moments):
        clock.now = moment
        trace_id = int(moment.timestamp() * 1000 + number).to_bytes(16, "big")
        shared: dict[str, Any] = {"trace_id": trace_id, "start": moment}
        await store_of(store, clock).write(rows(one(1, **shared), one(2, parent=1, **shared), came=moment))
        await PostgresTraceStore(store).settle(moment + timedelta(minutes=1), 100)


async def test_the_first_span_is_counted_at_once_and_said_to_be_of_an_open_hour(store: Database) -> None:
    await project_of(store)
    assert await counted(store, "hour") == {"count": 0}
    moment = now()
    await arrive(store, moment)
    for granularity, start in (("hour", hour_of(moment)), ("day", day_of(moment))):
        notes = [f"hours and days since {timestamp(start)} are still open, so these sums grow"]
        assert await counted(store, granularity) == {"count": 2, "notes": notes}
        assert await counted(store, granularity, "ingested_traces") == {"count": 1, "notes": notes}
    assert BOTH_NOTE in (await JsonQueries(store).count(ask(1, "metric_rollups", (None, None), {})))["notes"]
    unknown = {"count": 0, "notes": ["granularity is never 'daily', only hour, day"]}
    assert await counted(store, "daily") == unknown
    over = (moment - 3 * HOUR, hour_of(moment))
    assert await counted(store, "hour", range_=over) == {"count": 0}


@pytest.mark.parametrize("closed_hours", range(5))
async def test_closed_and_open_hours_are_each_counted_once(store: Database, closed_hours: int) -> None:
    await project_of(store)
    this_hour = hour_of(now())
    moments = [this_hour - back * HOUR + timedelta(seconds=7 * back) for back in range(6, -1, -1)]
    await arrive(store, *moments)
    # As far as a builder has come that is somewhat behind.
    at = moments[0] + closed_hours * HOUR + GRACE
    while (await RollupStore(store).build(at, 100)).more:
        pass
    for granularity in ("hour", "day"):
        answer = await counted(store, granularity)
        assert answer["count"] == 14
        assert answer["notes"]
    series = await JsonQueries(store).timeseries(
        ask(1, "metric_rollups", (moments[0] - HOUR, this_hour + HOUR), {"granularity": "hour"}), "hour"
    )
    # Two spans and a trace in each hour.
    assert [bucket["count"] for bucket in series["buckets"]][1:] == [3] * 7
    facets = await JsonQueries(store).facets(
        ask(1, "metric_rollups", (None, None), {"granularity": "day"}), "metric", 5
    )
    assert [(facet["value"], facet["count"]) for facet in facets["facets"][:2]] == [
        ("ingested_spans", 14),
        ("ingested_traces", 7),
    ]


async def test_two_projects_never_share_an_open_hour(store: Database) -> None:
    await project_of(store)
    await arrive(store, now())
    other = ask(2, "metric_rollups", (None, None), {"granularity": "hour"})
    assert await JsonQueries(store).count(other) == {"count": 0}
