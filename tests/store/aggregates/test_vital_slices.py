"""Agents, models and tools of the hour under way are told by its slices, and as their rows tell of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import pytest

from svc.domain.alerts.params import MetricParams
from svc.domain.queries.datasets import SPANS
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.closed_hours import GRACE, SLICE, SLICE_QUIET, mark_dirty
from svc.store.aggregates.covered import Covered, covered_since
from svc.store.aggregates.vitals import What
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.alerts.alert_figures import AlertFigures
from svc.store.reads.usage import models, vitals
from svc.store.reads.usage.models import ModelReads
from svc.store.reads.usage.vitals import VitalsReads
from tests.conftest import copied
from tests.store.aggregates.test_vitals import call
from tests.store.reads.test_alert_figures import FIELDS, as_counted, counted
from tests.store.reads.test_column_answers import HOUR, build
from tests.store.reads.test_hour_slices import every_slice_is_large as every_slice_is_large
from tests.store.spans.test_writing import NOW, Clock, fetch, rows, store_of

WHATS: Final[tuple[What, ...]] = ("sites", "agents", "models", "tools")
#: Late in its hour, of which all slices but the last are closed and quiet.
LATE: Final = NOW + timedelta(minutes=57, seconds=30)
CLOSED: Final = int((LATE - GRACE - NOW) / SLICE)


async def _fill(store: Database) -> None:
    """Three hours of calls; some began in an hour before, and a few after the moment that is asked for."""
    assert (await ProjectStore(store).make_default()).id == 1
    dice, clock = random.Random(5), Clock()
    written = store_of(store, clock)
    for number in range(1, 91):
        clock.now = NOW - 2 * HOUR + timedelta(minutes=2 * number, seconds=-20)
        started_at = LATE + timedelta(minutes=dice.choice([0, 1, 9])) if number % 20 == 15 else None
        (made,) = rows(call(number, dice, clock, started_at))
        if number % 3:
            made.row.attributes += ("agent_path", f"agent {dice.randrange(3)}")
        await written.write([made])
    await build(store, LATE)


@pytest.fixture
async def late(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A copy in which each closed slice is written."""
    async with copied(served, "vitals_of_an_hour", _fill) as database:
        yield database


async def told(store: Database, end: datetime = LATE) -> dict[str, Any]:
    """What is told of windows that end then, by full hours and not."""
    reads, found = VitalsReads(store), dict[str, Any]()
    for what in WHATS:
        for middle in (NOW, NOW - HOUR, NOW + timedelta(minutes=7)):
            found[f"{what} since {middle}"] = await reads.of(1, what, middle - 2 * HOUR, middle, end, 9)
    for since in (NOW, NOW - 2 * HOUR):
        found[f"models called since {since}"] = await ModelReads(store).used(1, since, 9)
    return found


async def by_rows(store: Database, monkeypatch: pytest.MonkeyPatch, end: datetime = LATE) -> dict[str, Any]:
    """The same, of slices nothing."""

    async def without_slices(*asked: Any) -> Covered:
        return attrs.evolve(await covered_since(*asked), slices=())

    with monkeypatch.context() as patch:
        patch.setattr(vitals, "covered_since", without_slices)
        patch.setattr(models, "covered_since", without_slices)
        return await told(store, end)


async def slices(store: Database, began_before: datetime | None = None) -> Sequence[datetime]:
    async def work(connection: Connection) -> Covered:
        return await covered_since(connection, 1, SPANS, NOW - HOUR, began_before)

    return (await store.run(work)).slices


async def test_the_hour_under_way_is_told_as_its_rows_tell(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(await slices(late)) == CLOSED
    for end in (LATE, LATE + timedelta(minutes=5), NOW + timedelta(minutes=31)):
        assert await told(late, end) == await by_rows(late, monkeypatch, end)


async def test_a_closed_slice_is_told_without_reading_a_span(late: Database) -> None:
    covered = await slices(late, LATE)
    assert 0 < len(covered) < len(await slices(late)), "some span begins after the end"

    async def by_hours() -> list[Any]:
        reads = VitalsReads(late)
        return [
            *[await reads.of(1, what, NOW - HOUR, NOW, LATE, 9) for what in WHATS[1:]],
            await ModelReads(late).used(1, NOW - HOUR, 9),
        ]

    before = await by_hours()
    for slice_ in covered:
        await fetch(
            late, "delete from span where created_at >= $1 and created_at < $2", slice_, slice_ + SLICE
        )
    assert await by_hours() == before


async def test_a_changed_slice_is_counted_from_its_rows_until_it_is_quiet(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def change(connection: Connection) -> None:
        changed = await connection.fetch(
            "update span set total_cost = 7, status = 'error', model_id = 'dearer' where created_at >= $1"
            " and get_byte(span_id, 7) % 5 = 3 returning created_at",
            NOW,
        )
        await mark_dirty(connection, [(1, row["created_at"]) for row in changed], SPANS, LATE)

    await late.run(change)
    assert 0 < len(await slices(late)) < CLOSED
    changed = await told(late)
    assert changed == await by_rows(late, monkeypatch)
    await build(late, LATE + SLICE_QUIET)
    assert len(await slices(late)) >= CLOSED
    assert await told(late) == changed


async def test_slices_that_the_release_before_wrote_are_counted_from_their_rows(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await told(late)
    # As it does when it writes one anew.
    await fetch(late, "update span_slice set spans = spans")
    await fetch(late, "update vital_slice set n = n + 1")
    await fetch(late, "update model_slice set calls = calls + 1")
    assert await slices(late) == []
    assert await told(late) == expected


async def test_a_closed_hour_leaves_nothing_of_its_slices(late: Database) -> None:
    expected = await told(late)
    counted = "select from vital_slice union all select from model_slice"
    assert len(await fetch(late, counted)) > 0
    await build(late, NOW + HOUR + GRACE)
    assert await fetch(late, counted) == []
    for name, of in (await told(late)).items():
        if name.startswith("sites"):
            assert of == expected[name]


@pytest.mark.parametrize("dataset", ["model_calls", "tools"])
async def test_what_an_alert_judges_of_the_hour_under_way_is_what_its_rows_are(
    late: Database, dataset: Any
) -> None:
    figures = AlertFigures(late)
    name, narrowed = FIELDS[dataset]
    asked = [
        (MetricParams(dataset=dataset, figure="p95_ms", value=1.0, window_hours=hours, filters=filters), end)
        for hours in (1, 2)
        for filters in ({}, {name: narrowed})
        for end in (LATE, NOW + timedelta(minutes=31), NOW)
    ]
    expected = [
        await counted(late, dataset, params.filters.get(name), end - params.window_hours * HOUR, end)
        for params, end in asked
    ]

    async def judged() -> list[Any]:
        return [as_counted(await figures.window(1, params, end)) for params, end in asked]

    windows = await judged()
    for (n, failed, _cost, bins), rows_say in zip(windows, expected, strict=True):
        assert (n, failed, bins) == (*rows_say[:2], rows_say[3])
    # The slice that the second end cuts is counted from its rows.
    gone = (
        "delete from span where created_at >= $1 and created_at < $2 or created_at >= $3 and created_at < $4"
    )
    await fetch(late, gone, NOW, NOW + 6 * SLICE, NOW + 7 * SLICE, NOW + CLOSED * SLICE)
    assert await judged() == windows
