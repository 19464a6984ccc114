"""The drawing of a text says what the rows say from when on it counts, and takes no longer than it may."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import attrs
import pytest

from svc.domain.calendar import hour_of
from svc.store.aggregates.cubes import HOUR, CubeStore
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.reads.traces import trace_counts
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_drawing import ORIGIN, CountedRange, TraceHistogram, newest_counted
from svc.store.reads.traces.traces import TraceFilter
from tests.store.aggregates.test_vitals import clock
from tests.store.reads.test_reads import Explaining
from tests.store.spans.test_writing import Clock, fetch

__all__ = ["clock"]

_SAID = ("a parcel", "A Parcel, too", "parcels", "nothing", "100%", None)


@attrs.frozen
class Told:
    """What a trace says of itself."""

    started_at: datetime
    status: str
    error_count: int
    user_id: str | None
    input_preview: str | None

    def meets(self, asked: TraceFilter) -> bool:
        """Whether a filter leaves it, worked out once more."""
        return (
            (asked.q is None or asked.q.lower() in f"said {self.input_preview or ''}".lower())
            and (asked.status is None or self.status == asked.status)
            and (asked.user_id is None or self.user_id == asked.user_id)
            and all(self.user_id != value for _, value in asked.without)
            and (asked.low is None or self.started_at >= asked.low)
            and (asked.high is None or self.started_at <= asked.high)
        )


async def fill(store: Database, clock: Clock, dice: random.Random, many: int) -> list[Told]:
    """Traces of some hours, many of them within the same second and some at the same moment."""
    start = hour_of(clock.now)
    told = []
    for _ in range(many):
        at = start + timedelta(seconds=dice.choice((dice.randrange(4 * 3600), 3600 * dice.randrange(4))))
        at += timedelta(microseconds=dice.choice((0, 0, dice.randrange(1_000_000))))
        failing = dice.choice((0, 0, 1))
        status = "error" if failing and dice.random() < 0.5 else "ok"
        told.append(
            Told(at, status, failing, dice.choice(("ann", *3 * ("ben", None, "cid"))), dice.choice(_SAID))
        )
    await fetch(
        store,
        "insert into trace (project_id, trace_id, name, started_at, first_started_at, last_started_at,"
        " root_seen, user_id, span_count, error_count, status, unpriced_spans, input_preview, created_at,"
        " stale, due_at, call_site_id) select 1, decode(md5(n::text), 'hex'), 'said', at, at, at, true, who,"
        " 1, errors, status, 0, said, at, false, at, 'here' from unnest($1::timestamptz[], $2::text[],"
        " $3::integer[], $4::text[], $5::text[]) with ordinality as one (at, status, errors, who, said, n)",
        *(list(column) for column in zip(*(attrs.astuple(one) for one in told), strict=True)),
    )
    clock.now += 5 * HOUR
    return told


def agree(drawn: TraceHistogram, told: list[Told], asked: TraceFilter, width: timedelta) -> None:
    """The drawing says what the rows say that began since it counts, bucket by bucket."""
    left = [one for one in told if one.meets(asked)]
    left = [one for one in left if drawn.since is None or one.started_at >= drawn.since]
    sums: dict[str, Counter[datetime]] = {"count": Counter(), "failed": Counter(), "failing": Counter()}
    for one in left:
        start = one.started_at - (one.started_at - ORIGIN) % width
        sums["count"][start] += 1
        sums["failed"][start] += one.status == "error"
        sums["failing"][start] += one.error_count > 0
    for name, expected in sums.items():
        assert {b.start: getattr(b, name) for b in drawn.buckets} == dict(expected), (name, asked)
    assert [bucket.start for bucket in drawn.buckets] == sorted(sums["count"])


@pytest.mark.parametrize("built", ["nothing", "all", "some"])
async def test_a_drawing_of_a_text_is_exact_from_when_on_it_says(
    store: Database, clock: Clock, built: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(built)
    told = await fill(store, clock, dice, 400)
    start = hour_of(clock.now) - 5 * HOUR
    if built != "nothing":
        await CubeStore(store).build(
            clock.now if built == "all" else start + 2 * HOUR + timedelta(minutes=9), 99
        )
    if built == "some":
        await fetch(store, "insert into cube_dirty values (1, 'traces', $1, $1)", start)
    counts, parts = TraceCounts(store), 0
    for _ in range(60):
        asked = TraceFilter(
            q=dice.choice(("parcel", "PARCEL", "%", "said")),
            status=dice.choice((None, None, "ok", "error")),
            user_id=dice.choice((None, None, "ann")),
            without=dice.choice(((), (), (("user_id", "ben"),))),
            low=dice.choice((None, start + timedelta(minutes=dice.randrange(240)))),
            high=dice.choice((None, start + timedelta(minutes=dice.randrange(240)))),
        )
        width = dice.choice((timedelta(minutes=7), HOUR, timedelta(days=1)))
        first, budget_s = dice.choice((1, 20, 90, 400)), dice.choice((0.0, 0.0, 0.0, 9.0))
        monkeypatch.setattr(trace_counts, "FIRST_ROWS", first)
        drawn = await counts.histogram(1, asked, width, timeout_s=9, budget_s=budget_s)
        agree(drawn, told, asked, width)
        parts += drawn.since is not None
        # With time, and where one look is enough, all of it is counted.
        assert drawn.since is None or not (budget_s or first == 400), (asked, first)
        monkeypatch.setattr(trace_counts, "FIRST_ROWS", 400)
        quick = await counts.quick_histogram(1, asked, width, timeout_s=9, budget_s=budget_s)
        assert quick is not None
        assert quick.since is None
        agree(quick, told, asked, width)
    assert 5 < parts < 55


async def test_without_time_one_look_is_taken_and_no_second_is_counted_by_half(
    store: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await fill(store, clock, random.Random(3), 300)
    newest = sorted((one.started_at for one in told), reverse=True)
    for first in (1, 7, 100):
        monkeypatch.setattr(trace_counts, "FIRST_ROWS", first)
        explaining: Any = Explaining(store)
        asked = TraceFilter(q="said")
        drawn = await TraceCounts(explaining).histogram(1, asked, HOUR, timeout_s=9, budget_s=0.0)
        # No more than may be looked at, and only the rest of a second fewer.
        assert drawn.since is not None
        assert drawn.since.microsecond == 0
        assert drawn.count == sum(at >= drawn.since for at in newest) <= first
        assert newest[first] < drawn.since <= newest[first] + timedelta(seconds=1)
        looks = [plan for plan in explaining.plans if "Aggregate" in plan and " on trace t" in plan]
        assert len(looks) == 1
        # The texts of more than this are not looked through beside the rows of a page.
        monkeypatch.setattr(trace_counts, "FACETED", first)
        assert await TraceCounts(store).quick_histogram(1, asked, HOUR, timeout_s=9, budget_s=9.0) is None


async def test_a_look_that_takes_too_long_is_ended_and_what_was_counted_before_stands(
    store: Database, clock: Clock
) -> None:
    told = await fill(store, clock, random.Random(5), 300)
    newest = sorted((one.started_at for one in told), reverse=True)
    # Rows that take a minute each, behind those that the first look reads.
    slow = "project_id = $1 and case when started_at < $2 then pg_sleep(60) is not null else true end"

    async def work(connection: Connection) -> TraceHistogram:
        near = Where.of(1)
        counted_range = CountedRange(
            TraceFilter(), near, slow, "", None, [1, newest[60]], HOUR, first=50, until_s=monotonic() + 0.5
        )
        return await newest_counted(connection, counted_range)

    began_s = monotonic()
    drawn = await store.run(work, readonly=True, snapshot=True, timeout_s=9)
    assert monotonic() - began_s < 8
    assert drawn.since is not None
    agree(drawn, told, TraceFilter(), HOUR)
    assert 0 < drawn.count <= 50
