"""The hour under way is read by column, a slice at a time, and says what its rows say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from svc.domain.queries.datasets import SPANS
from svc.store import postgres
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates import cubes
from svc.store.aggregates.closed_hours import GRACE, SLICE, SLICE_QUIET, mark_dirty
from svc.store.aggregates.cubes import CubeStore, drop_day_columns
from svc.store.aggregates.slices import Slices
from svc.store.aggregates.span_slices import SPAN_SLICES
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.questions.columns.segments import Cover, hours_by_column
from svc.store.reads.questions.questions import ask
from tests.conftest import copied
from tests.examples import share
from tests.store.as_json import JsonQueries
from tests.store.reads.test_column_answers import (
    DAY,
    FILTERS,
    HOUR,
    agree,
    build,
    covered,
    rows_alone,
    send,
)
from tests.store.reads.test_column_answers import (
    every_answer_tries_columns as every_answer_tries_columns,
)
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

MIGRATIONS = Path(postgres.__file__).parent / "migrations"
#: Near the end of its hour, at which most slices of it are closed.
LATE = NOW + timedelta(minutes=57, seconds=30)
#: Those that are closed then.
CLOSED = int((timedelta(minutes=57, seconds=30) - GRACE) / SLICE)


def write_slices_from(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Those that have so many rows are written."""
    monkeypatch.setattr(cubes, "SLICED", [attrs.evolve(kind, few=few) for kind in cubes.SLICED])


@pytest.fixture(autouse=True)
def every_slice_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    write_slices_from(monkeypatch, 1)


async def _fill(store: Database) -> None:
    """A day of spans, a third of them in the hour under way; the clocks of a few clients are ahead."""
    assert (await ProjectStore(store).make_default()).id == 1
    dice = random.Random(11)
    await send(store, dice, 120, 1, LATE - 2 * HOUR)
    clock = Clock()
    written = store_of(store, clock)
    for number in range(1, 61):
        clock.now = NOW + timedelta(seconds=dice.randrange(57 * 60))
        ahead = timedelta(minutes=dice.choice([0, 0, 0, 0, 0, 0, 0, 1, 20]))
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": dice.choice(["gpt-4o", "unheard-of"]),
            "gen_ai.usage.input_tokens": dice.randrange(1000),
            "user.id": f"u{dice.randrange(5)}",
            "deployment.environment.name": dice.choice(["production", "staging"]),
        }
        span = one(
            1_000 + number,
            start=clock.now - timedelta(minutes=dice.choice([0, 0, 0, 30])) + ahead,
            took_s=dice.randrange(1, 90_000) / 1000,
            trace_id=dice.randrange(1, 90).to_bytes(16, "big"),
            attributes=attributes,
            name=f"n{dice.randrange(3)}",
            status_code=2 if dice.random() < 0.2 else 0,
        )
        await written.write(rows(span))
    clock.now = NOW + timedelta(minutes=22)
    await written.write(rows(one(2_000, start=LATE + timedelta(minutes=9))))


@pytest.fixture
async def sent(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    async with copied(served, "hour_under_way", _fill) as database:
        yield database


async def _fill_and_build(store: Database) -> None:
    await _fill(store)
    await build(store, LATE)


@pytest.fixture
async def late(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A copy in which each closed slice is written."""
    async with copied(served, "late_in_the_hour", _fill_and_build) as database:
        yield database


async def slices(store: Database) -> list[datetime]:
    return [row["slice"] for row in await fetch(store, "select slice from span_slice order by slice")]


async def marks(store: Database) -> int:
    (row,) = await fetch(store, "select count(*) as n from span_slice_mark")
    return int(row["n"])


async def cover_of(store: Database, began_before: datetime | None = None) -> Cover:
    async def work(connection: Connection) -> Cover | None:
        return await hours_by_column(connection, 1, (None, None), began_before)

    cover = await store.run(work)
    assert cover is not None
    return cover


async def change(store: Database, now: datetime) -> list[datetime]:
    """Give some spans of the hour under way another kind. Returns when they had arrived."""

    async def work(connection: Connection) -> list[datetime]:
        changed = await connection.fetch(
            "update span set total_cost = 7, status = 'error', kind = 'rerank'"
            " where created_at >= $1 and get_byte(span_id, 7) % 9 = 3 returning created_at",
            NOW,
        )
        await mark_dirty(connection, [(1, row["created_at"]) for row in changed], SPANS, now)
        return [row["created_at"] for row in changed]

    return await store.run(work)


@pytest.mark.parametrize(("turn", "filters"), list(enumerate(FILTERS[:5])), ids=str)
async def test_each_answer_about_the_hour_under_way_is_what_rows_say(
    late: Database, monkeypatch: pytest.MonkeyPatch, turn: int, filters: Any
) -> None:
    assert len(await slices(late)) == CLOSED
    low = NOW - DAY + timedelta(minutes=7)
    highs = (LATE, NOW + timedelta(minutes=31), LATE + HOUR, NOW + HOUR)
    for number, high in share(list(enumerate(highs)), turn, len(highs)):
        await agree(late, monkeypatch, low, high, filters, turn + number)


async def test_several_measures_at_once_are_what_rows_say(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = ("errors", "tokens", "users", "duration_p50", "duration_p95")
    for by in ("started_at", "created_at"):
        question = ask(
            1, SPANS.name, (NOW - DAY, LATE), {"kind": "llm"}, by=by, measure="cost", beside=beside
        )
        mine = await JsonQueries(late).count(question)
        async with rows_alone(monkeypatch):
            theirs = await JsonQueries(late).count(question)
        for name in ("count", "cost", "errors", "tokens", "users"):
            assert mine[name] == theirs[name], name
        for name in ("duration_p50", "duration_p95"):
            assert mine[name] == pytest.approx(theirs[name], rel=0.0101), name


async def test_a_closed_slice_is_answered_without_reading_a_span(late: Database) -> None:
    queries, ends = JsonQueries(late), (await slices(late))[-1] + SLICE

    async def every_answer() -> list[Any]:
        asked = [
            ask(1, SPANS.name, (low, high), filters, by=by)
            for filters in ({}, {"environment": "production"}, {"status": "error"})
            # Some of what is closed; all of it in the hour under way, which the cubes know nothing of.
            for low in (NOW - 3 * HOUR, *([NOW] if "environment" in filters else []))
            for by, high in (("created_at", ends), ("created_at", None), ("started_at", None))
        ]
        return [
            (await queries.count(question), await queries.facets(question, "name", 5)) for question in asked
        ]

    before = await every_answer()
    gone = "delete from span where created_at >= $1 and created_at < $2 returning 1"
    assert len(await fetch(late, gone, NOW, ends)) > 0
    assert await every_answer() == before


async def test_a_slice_is_read_row_by_row_from_a_change_until_it_is_quiet(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (await cover_of(late)).slices
    changed = {moment for moment in await change(late, LATE) if moment < whole[-1] + SLICE}
    dirty = {slice_ for slice_ in whole if any(slice_ <= moment < slice_ + SLICE for moment in changed)}
    assert dirty
    assert set((await cover_of(late)).slices) == set(whole) - dirty
    low = NOW - DAY
    await agree(late, monkeypatch, low, LATE, {"kind": "rerank"}, 0)
    # Somebody may still be changing it.
    await build(late, LATE + SLICE_QUIET / 2)
    assert set((await cover_of(late)).slices) == set(whole) - dirty
    await build(late, LATE + SLICE_QUIET)
    assert (await cover_of(late)).slices == whole
    assert await marks(late) == 0
    await agree(late, monkeypatch, low, LATE, {"kind": "rerank"}, 1)


async def test_a_change_that_a_build_did_not_see_stands_behind_it(
    sent: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, built = trio.Event(), asyncio.Event()

    async def change_slowly(connection: Connection) -> None:
        await connection.execute("update span set kind = 'rerank' where created_at >= $1", NOW)
        await mark_dirty(connection, [(1, NOW)], SPANS, LATE)
        changed.set()
        await built.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sent.run, change_slowly)
        await changed.wait()
        await build(sent, LATE)
        built.set()
    assert len(await slices(sent)) == CLOSED
    assert (await cover_of(sent)).slices == []
    await agree(sent, monkeypatch, NOW - DAY, LATE, {"kind": "rerank"})


async def test_spans_that_begin_after_the_end_of_a_range_are_looked_for_in_rows(late: Database) -> None:
    every = await cover_of(late)
    before = await cover_of(late, LATE)
    assert 0 < len(before.slices) < len(every.slices)
    assert before.latest < LATE <= every.latest


async def test_an_hour_that_is_closed_takes_the_place_of_its_slices(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change(late, LATE)
    hours = await covered(late)
    await build(late, NOW + HOUR + GRACE)
    assert await covered(late) == hours + 1
    assert await slices(late) == []
    assert await marks(late) == 0
    assert await fetch(late, "select from span_column where hour >= 100") == []
    await agree(late, monkeypatch, NOW - DAY, LATE, {})


async def test_slices_of_an_hour_that_the_release_before_closed_are_not_read(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def no_slices(*_: object) -> int:
        return 0

    monkeypatch.setattr(Slices, "build", no_slices)
    await build(late, NOW + HOUR + GRACE)
    # It marks none of them.
    await fetch(late, "update span set kind = 'rerank' where created_at >= $1", NOW)
    assert len(await slices(late)) == CLOSED
    question = ask(1, SPANS.name, (NOW, LATE), {"kind": "rerank", "environment": None}, by="created_at")
    mine = await JsonQueries(late).count(question)
    async with rows_alone(monkeypatch):
        assert await JsonQueries(late).count(question) == mine


async def test_an_hour_without_a_span_left_leaves_no_slice(late: Database) -> None:

    async def forget(connection: Connection) -> None:
        gone = await connection.fetch("delete from span where created_at >= $1 returning created_at", NOW)
        await mark_dirty(connection, [(1, row["created_at"]) for row in gone], SPANS, LATE)

    await late.run(forget)
    await build(late, LATE + 2 * HOUR)
    assert await slices(late) == []
    assert await marks(late) == 0
    assert await fetch(late, "select from span_column where hour >= 100") == []


async def test_what_is_erased_is_not_left_in_a_slice(late: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [NOW.replace(hour=0)]
    await late.run(lambda connection: drop_day_columns(connection, 1, days))
    assert await fetch(late, "select from span_column where hour >= 100") == []
    assert (await cover_of(late)).slices == []
    await agree(late, monkeypatch, NOW - DAY, LATE, {})
    await build(late, LATE)
    assert len(await slices(late)) == CLOSED


async def test_few_spans_make_no_slice(sent: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    write_slices_from(monkeypatch, 6)
    await build(sent, LATE)
    counts = await fetch(
        sent,
        "select date_bin('5 minutes', created_at, 'epoch') as slice, count(*) as n from span"
        " where created_at >= $1 and created_at < $2 group by 1 order by 1",
        NOW,
        NOW + CLOSED * SLICE,
    )
    large = [row["slice"] for row in counts if row["n"] >= 6]
    assert 0 < len(large) < CLOSED
    assert await slices(sent) == large


async def test_idle_projects_do_not_keep_the_builder_awake(sent: Database) -> None:
    await build(sent, LATE - HOUR)
    # They had spans once.
    await fetch(
        sent,
        "insert into cube_progress (project_id, dataset, built_until)"
        " select n, 'spans', $1 from generate_series(1000, 1100) as n",
        NOW,
    )
    cubes = CubeStore(sent)
    assert not (await cubes.build(LATE, 1_000)).more
    assert len(await slices(sent)) == CLOSED


async def test_what_no_column_can_hold_is_read_from_its_rows(
    sent: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetch(sent, "update span set total_cost = 1e7 where created_at < $1", NOW + SLICE)
    await build(sent, LATE)
    assert len(await slices(sent)) == CLOSED - 1
    assert await fetch(sent, "select from span_column where hour >= 100 and hour <= 100 + 144") == []
    await agree(sent, monkeypatch, NOW - DAY, LATE, {})


async def test_two_replicas_write_a_slice_once(sent: Database) -> None:
    one_writer, other = (Slices(sent, attrs.evolve(SPAN_SLICES, few=1)) for _ in range(2))
    await build(sent, NOW + GRACE)
    assert await one_writer.build(LATE, 5) == 5
    assert await one_writer.build(LATE, 50) == CLOSED - 5
    assert await other.build(LATE, 50) == 0


async def test_days_of_the_release_before_are_right(late: Database, monkeypatch: pytest.MonkeyPatch) -> None:

    async def upgrade(connection: Connection) -> None:
        # It does not say when the last of their spans began.
        await connection.execute("update span_column_day set latest = null, latest_at = null")
        await connection.execute((MIGRATIONS / "0338_latest_spans.sql").read_text(encoding="utf-8"))

    await late.run(upgrade)
    assert {row["latest"] for row in await fetch(late, "select latest from span_column_day")} <= {
        NOW,
        NOW.replace(hour=0),
    }
    await agree(late, monkeypatch, NOW - DAY, LATE, {"status": "error"})
    # Unless a clock ran ahead.
    ahead = "update span set started_at = $2 where span_id in (select span_id from span where created_at < $1"
    await fetch(late, f"{ahead} order by created_at desc limit 1)", NOW, NOW + timedelta(minutes=50))
    await late.run(upgrade)
    assert (await cover_of(late)).latest == NOW.replace(hour=0) + DAY


async def test_a_day_that_the_release_before_changed_does_not_say_when_its_last_span_began(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await cover_of(late, LATE)).latest < LATE
    await fetch(late, "update span_column_day set changed_at = changed_at + interval '1 second'")
    assert (await cover_of(late, LATE)).latest > LATE + DAY
    await agree(late, monkeypatch, NOW - DAY, LATE, {"status": "error"})
    # Nor does it once this one has written the next hour of the day.
    await build(late, NOW + HOUR + GRACE)
    assert (await cover_of(late, LATE)).latest > LATE + DAY


async def test_slow_work_marks_what_may_be_written_before_it_ends(sent: Database) -> None:
    began, moment = NOW + timedelta(minutes=4), NOW + timedelta(minutes=3)
    for slow in (False, True):
        await sent.run(
            lambda connection, slow=slow: mark_dirty(connection, [(1, moment)], SPANS, began, slow=slow)
        )
        # The time of the server is much later than that of this history, in which the slice is not known yet.
        await build(sent, LATE)
        assert ((await cover_of(sent)).slices[0] == NOW) is not slow


async def test_a_full_hour_marks_all_of_its_slices(late: Database) -> None:
    await late.run(lambda connection: mark_dirty(connection, [(1, NOW)], SPANS, LATE))
    assert (await cover_of(late)).slices == []
    assert await marks(late) == (LATE - NOW) // SLICE


async def test_spans_of_long_ago_leave_no_mark_of_a_slice(sent: Database) -> None:
    await sent.run(lambda connection: mark_dirty(connection, [(1, NOW - DAY), (1, LATE)], SPANS, LATE))
    assert await marks(sent) == 0


async def test_ranges_at_the_ends_of_time_are_what_rows_say(
    late: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    middle = NOW + timedelta(minutes=30)
    for low, high in ((first, first), (first, middle), (middle, middle), (middle, LATE), (middle, last)):
        for by in ("created_at", "started_at"):
            question = ask(1, SPANS.name, (low, high), {"environment": "production"}, by=by, measure="tokens")
            mine = await JsonQueries(late).facets(question, "model_id", 50)
            async with rows_alone(monkeypatch):
                assert await JsonQueries(late).facets(question, "model_id", 50) == mine
